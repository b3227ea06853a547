"""Sentences of paragraphs: sentencex finds their ends, and Moses' lists of abbreviations correct it.

sentencex (Wikimedia, MIT licence) has rules for 300 languages, among them Chinese and Japanese. It loses no character.
"""

import re
from collections.abc import Iterator
from functools import cached_property

from nmtalign.errors import UsageError
from nmtalign.text.tokenizer import has_rules, is_word

_WIDE_BLANK = re.compile(r"[^\S\x00-\x7f]")  # a blank that is not in ASCII, such as U+00A0
_WINDOW, _LONGEST = 4000, 32_000  # characters of a text that sentencex gets at first, and at most
_OPENING = "([{«„“”\"'‘¿¡"


class SentenceSplitter:
    """Splits text of one language into sentences; a language without rules has those of English."""

    def __init__(self, language: str) -> None:
        """Raises UsageError if sentencex is not installed."""
        try:
            import sentencex
        except ImportError:
            raise UsageError("splitting text into sentences needs sentencex: pip install 'nmtalign[split]'") from None
        self._language, self._segment = language, sentencex.segment

    def split(self, text: str) -> list[str]:
        """The sentences in order, each with the blanks behind it; together they are the text.

        sentencex ends a sentence after the French `M.` and after the number of a list. Such a part is joined with the
        next one, and a last part without a letter with the one before it.
        """
        sentences: list[list[str]] = []
        for part in self._parts(text):
            if sentences and not self._ends(sentences[-1][-1], part):
                sentences[-1].append(part)
            else:
                sentences.append([part])
        if len(sentences) > 1 and not any(map(is_word, sentences[-1])):
            sentences[-2:] = [sentences[-2] + sentences[-1]]
        return ["".join(parts) for parts in sentences]

    def _parts(self, text: str) -> Iterator[str]:
        """The sentences by sentencex, whose time grows with the square of a text of quotation marks.

        It gets a window of the text. The last sentence of a window begins the next one, which is larger if it was the
        only one, up to `_LONGEST`. Version 1.0.32 cannot read a blank outside ASCII between a letter and a full stop.
        """
        start, size = 0, _WINDOW
        while start < len(text):
            found = self._segment(self._language, _WIDE_BLANK.sub(" ", text[start : start + size]))
            complete = start + size >= len(text) or (len(found) == 1 and size == _LONGEST)
            for part in found if complete else found[:-1]:
                yield text[start : start + len(part)]
                start += len(part)
            size = _WINDOW if len(found) > 1 else min(2 * size, _LONGEST)

    def _ends(self, part: str, following: str) -> bool:
        """Whether a sentence ends after this part, and not only an abbreviation or a number."""
        word = part.rsplit(maxsplit=1)[-1].lstrip(_OPENING) if is_word(part) else "."
        if not word.endswith("."):
            return True
        return bool(word[:-1]) and word[:-1] not in self._abbreviations[following[:1].isdigit()]

    @cached_property
    def _abbreviations(self) -> tuple[frozenset[str], frozenset[str]]:
        """The abbreviations of Moses' list for the language: before any word, and before a number."""
        from sacremoses.corpus import NonbreakingPrefixes

        if not has_rules(self._language):
            return frozenset(), frozenset()
        entries = [line.split() for line in NonbreakingPrefixes().words(self._language)]
        always = frozenset(entry[0] for entry in entries if len(entry) == 1)
        return always, always.union(entry[0] for entry in entries if entry)
