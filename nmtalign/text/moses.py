"""Moses words: sacremoses's tokeniser, case kept, no XML escapes, and a detokeniser of our own."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from nmtalign.text.caching import Tokens, keep
from nmtalign.text.spacing import Counts, Spacing

_JUNK = re.compile(r"[\x00-\x08\x0e-\x1b]")  # sacremoses takes these out of the middle of words
_FULL_STOPS = (".", "'")  # what a word ends with whose tokens depend on the word after it


class MosesWords:
    """Words by the rules of Moses for a language ("en", "fr", ...); without rules for it, those for English.

    `spacing` is how a training text spaces its marks where that is not by the rules (see Spacing).
    """

    kind = "moses"

    def __init__(self, language: str, spacing: Mapping[str, str] | None = None) -> None:
        self.language = language
        self.spacing = Spacing(language, spacing)

    @cached_property
    def _rules(self) -> "_Rules":
        """Made when a line is first tokenised: sacremoses takes a third of a second to import."""
        return _Rules(self.language)

    @cached_property
    def _middle(self) -> "_Middle":
        return _Middle(self._rules)

    @cached_property
    def _last(self) -> "_Last":
        return _Last(self._rules)

    def __reduce__(self) -> tuple[Any, ...]:
        return MosesWords, (self.language, self.spacing.learned)

    def tokenize(self, line: str) -> list[str]:
        """The words and punctuation marks of one line, those of sacremoses.

        The rules look at one word between blanks and at the first character after it, so that a word's tokens are
        found once. A line on which they may look further goes through sacremoses as a whole.
        """
        words = line.split()
        if not words:
            return []
        if "  " in line or not line.isprintable():
            if _JUNK.search(line):
                return self._rules.tokens(line)
            line = " ".join(words)
        if words[0][0] in ",'" or "' '" in line:
            return self._rules.tokens(line)
        last = words.pop()
        if ". " in line or "' " in line:
            words = self._rules.with_context(words, [*words, last][1:])
        return [*chain.from_iterable(map(self._middle.__getitem__, words)), *self._last[last]]

    def detokenize(self, tokens: Sequence[str]) -> str:
        """One line of text, spaced as the language does."""
        return self.spacing.join(tokens)

    def with_spacing(self, counts: Counts) -> "MosesWords":
        """The same words, put together as a text does of which `spacing.count` counted lines."""
        return MosesWords(self.language, self.spacing.learn(counts))

    def word_index(self, tokens: Sequence[str]) -> list[int]:
        """Every token is a word."""
        return list(range(len(tokens)))

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The tokens."""
        return list(tokens)


def has_rules(language: str) -> bool:
    """Whether Moses has rules for the language; without them those for English are used."""
    from sacremoses.corpus import NonbreakingPrefixes

    return language in NonbreakingPrefixes().available_langs.values()


class _Rules:
    """sacremoses, and what of it can be told from one word.

    A context is what the rules ask of the word after a full stop: "a", "0" or "A" as it starts with a lower-case
    letter, a digit, or anything else.
    """

    def __init__(self, language: str) -> None:
        from sacremoses import MosesTokenizer

        self._tokenizer = _faster(MosesTokenizer(lang=language))
        self._lower = frozenset(self._tokenizer.IsLower)
        self._pad, self._padded = self._tokenizer.PAD_NOT_ISALNUM
        letters = rf"[{self._tokenizer.IsAlnum}`\-]+"
        self._letters = re.compile(letters)
        self._plain = re.compile(rf"\.?{letters}(?:\.{letters})*")
        self._prefixes = self._tokenizer.NONBREAKING_PREFIXES | self._tokenizer.NUMERIC_ONLY_PREFIXES

    def tokens(self, line: str) -> list[str]:
        """The tokens of any line."""
        tokens: list[str] = self._tokenizer.tokenize(line, escape=False)
        return tokens

    def simple(self, word: str, context: str) -> list[str] | None:
        """The tokens of a word that takes no more than a look; `context` is "" at the end of a line.

        No rule touches letters, digits and single full stops between them; a comma after them stands alone, and so
        does a full stop after letters, unless they are an abbreviation or the next word starts with a small letter.
        """
        if "MULTI" in word:  # sacremoses writes DOTDOTMULTI for dots, and reads it as dots
            return None
        if self._plain.fullmatch(word):
            return [word]
        core, mark = word[:-1], word[-1]
        if mark == "," and self._plain.fullmatch(core):
            return [core, mark]
        if mark == "." and core not in self._prefixes and self._letters.fullmatch(core):
            return [word] if context == "a" else [core, mark]
        return None

    def parts(self, word: str) -> list[str]:
        """The word, cut at the characters that are always tokens of their own."""
        return str(self._pad.sub(self._padded, word)).split()

    def with_context(self, words: Sequence[str], following: Sequence[str]) -> list[str]:
        """The words, each that ends with a full stop together with the context that the word after it makes."""
        return [
            f"{word} {self._context(after)}" if word.endswith(_FULL_STOPS) else word
            for word, after in zip(words, following, strict=True)
        ]

    def _context(self, word: str) -> str:
        first = word[0]
        return "a" if first in self._lower else "0" if "0" <= first <= "9" else "A"


class _Middle(dict[str, Tokens]):
    """The tokens of words that have others before and after them; some keys end with a context."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules

    def __missing__(self, key: str) -> Tokens:
        word, _, context = key.partition(" ")
        found: Iterable[str] | None = self._rules.simple(word, context)
        if found is None and len(parts := self._rules.parts(word)) > 1:
            last = f"{parts[-1]} {context}" if context else parts[-1]
            keys = [*self._rules.with_context(parts[:-1], parts[1:]), last]
            found = chain.from_iterable(map(self.__getitem__, keys))
        elif found is None:
            found = self._rules.tokens(f"x {word} {context or 'A'}")[1:-1]
        return keep(self, key, found)


class _Last(dict[str, Tokens]):
    """The tokens of words that end a line."""

    def __init__(self, rules: _Rules) -> None:
        self._rules = rules

    def __missing__(self, word: str) -> Tokens:
        found = self._rules.simple(word, "")
        return keep(self, word, self._rules.tokens(f"x {word}")[1:] if found is None else found)


def _faster(tokenizer: Any) -> Any:
    """The same tokeniser with its look-ups made once, not at every full stop (the output is the same).

    sacremoses builds sets of all lower-case and of all alphabetic characters anew for each word with a full stop.
    """
    lower, alphabetic = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
    tokenizer.islower = lambda text: lower.issuperset(text)
    tokenizer.isanyalpha = lambda text: not alphabetic.isdisjoint(text)
    tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
    tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
    return tokenizer
