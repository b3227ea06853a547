"""Moses words: sacremoses's tokeniser without XML escapes, made faster, and nmtalign's own detokeniser."""

import re
import unicodedata
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain, islice
from typing import Any

from nmtalign.text.letters import bare, letters_of
from nmtalign.text.spacing import Counts, Spacing

Tokens = tuple[str, ...]

CACHED = 1 << 17  # words whose tokens are kept, and different strings of these tokens
_JUNK = re.compile(r"[\x00-\x08\x0e-\x1b]")  # sacremoses removes these from the middle of words
_SYMBOL = "☺"  # always a separate token
_FULL_STOPS = (".", "'")  # after these endings the tokens of a word depend on the next word
_END = "$"  # the context of the last word of a line


# One string object for each token. `sys.intern` is not used: from Python 3.12 on, it may keep a string for ever.
_strings: dict[str, str] = {}


def keep(cache: dict[str, Tokens], key: str, tokens: Iterable[str]) -> Tokens:
    """Adds tokens to a cache of limited size and returns them.

    A full cache is emptied first. Equal tokens become the same string object, which saves memory and makes them faster
    to count.
    """
    if len(cache) >= CACHED:
        cache.clear()
    if len(_strings) >= CACHED:
        _strings.clear()
    kept = cache[key] = tuple(_strings.setdefault(token, token) for token in tokens)
    return kept


class WholeWords:
    """A tokeniser whose tokens are words."""

    def word_index(self, tokens: Sequence[str]) -> list[int]:
        """The 0-based index of the word of each token: every token is a word."""
        return list(range(len(tokens)))

    def words(self, tokens: Sequence[str]) -> list[str]:
        """The tokens."""
        return list(tokens)


class MosesWords(WholeWords):
    """The words of a language ("en", "fr", ...) by the rules of Moses, or by those for English if it has none.

    `spacing` contains the learned exceptions from the rules of detokenising (see Spacing). Without `joins_marks`, as in
    a corpus of an earlier version, marks that sacremoses does not know are tokens and split their words.
    """

    kind = "moses"

    def __init__(self, language: str, spacing: Mapping[str, str] | None = None, joins_marks: bool = True) -> None:
        self.language, self.joins_marks = language, joins_marks
        self.spacing = Spacing(language, spacing)

    @cached_property
    def _words(self) -> "_TokensOfWords":
        """Created for the first line, because the import of sacremoses takes a third of a second."""
        return _TokensOfWords(self.language, self.joins_marks)

    def __reduce__(self) -> tuple[Any, ...]:
        return MosesWords, (self.language, self.spacing.learned, self.joins_marks)

    def tokenize(self, line: str) -> list[str]:
        """The words and punctuation marks of one line: those of sacremoses, with the marks of letters at their letters.

        The rules inspect one word between blanks and the first character behind it, so the tokens of a word can be
        cached. sacremoses tokenises the complete line if they may inspect more.
        """
        words = line.split()
        if not words:
            return []
        if "  " in line or not line.isprintable():
            if _JUNK.search(line):
                return self._words.of_line(line)
            line = " ".join(words)
        if words[0][0] in ",'" or "' '" in line:
            return self._words.of_line(line)
        last = f"{words.pop()} {_END}"
        if ". " in line or "' " in line:
            words = self._words.with_context(words, [*words, last][1:])
        words.append(last)
        return list(chain.from_iterable(map(self._words.__getitem__, words)))

    def detokenize(self, tokens: Sequence[str]) -> str:
        """One line of text with the spacing of the language."""
        return self.spacing.join(tokens)

    def with_spacing(self, counts: Counts) -> "MosesWords":
        """The same tokeniser with the spacing of the text whose lines `spacing.count` counted."""
        return MosesWords(self.language, self.spacing.learn(counts), self.joins_marks)


def has_rules(language: str) -> bool:
    """Whether Moses has rules for the language; if not, MosesWords uses those for English."""
    languages: Mapping[str, str] = _sacremoses().corpus.NonbreakingPrefixes().available_langs
    return language in languages.values()


def _sacremoses() -> Any:
    """Imports sacremoses without the warning of its joblib on a system that has no semaphores, or no room for them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import sacremoses
        import sacremoses.corpus
    return sacremoses


class _TokensOfWords(dict[str, Tokens]):
    """sacremoses, and the tokens of single words, by the word or by "word context".

    The context of a word that ends with a full stop is the class of the first character of the next word: "a" for a
    lower-case letter, "0" for a digit, "A" for anything else. The context of the last word of a line is "$".
    """

    def __init__(self, language: str, joins_marks: bool) -> None:
        self._tokenizer = tokenizer = _sacremoses().MosesTokenizer(lang=language)
        # sacremoses builds the sets of all lower-case and all alphabetic characters again for each word with a full
        # stop. With these sets its output is the same.
        self._lower, alphabetic = frozenset(tokenizer.IsLower), frozenset(tokenizer.IsAlpha)
        tokenizer.islower = self._lower.issuperset
        tokenizer.isanyalpha = lambda text: not alphabetic.isdisjoint(text)
        tokenizer.NONBREAKING_PREFIXES = frozenset(tokenizer.NONBREAKING_PREFIXES)
        tokenizer.NUMERIC_ONLY_PREFIXES = frozenset(tokenizer.NUMERIC_ONLY_PREFIXES)
        self._prefixes = tokenizer.NONBREAKING_PREFIXES | tokenizer.NUMERIC_ONLY_PREFIXES
        self._joins_marks, self._known = joins_marks, frozenset(tokenizer.IsAlnum)
        letters = rf"[{tokenizer.IsAlnum}`\-]+"
        self._letters = re.compile(letters)
        self._plain = re.compile(rf"\.?{letters}(?:\.{letters})*")

    def __missing__(self, key: str) -> Tokens:
        word, _, context = key.partition(" ")
        tokens: Iterable[str] | None = self._simple(word, context) or self._with_marks(key, self.__getitem__)
        if tokens is None:
            pad, padded = self._tokenizer.PAD_NOT_ISALNUM
            parts = str(pad.sub(padded, word)).split()  # at the characters that are always separate tokens
            if context == _END:
                tokens = self.of_line(f"x {word}")[1:]
            elif len(parts) > 1:
                last = f"{parts[-1]} {context}" if context else parts[-1]
                tokens = chain.from_iterable(map(self.__getitem__, [*self.with_context(parts[:-1], parts[1:]), last]))
            else:
                tokens = self.of_line(f"x {word} {context or 'A'}")[1:-1]
        return keep(self, key, tokens)

    def of_line(self, line: str) -> list[str]:
        """The tokens of any line."""
        tokens = self._with_marks(_JUNK.sub("", " ".join(line.split())), self.of_line)
        return list(self._tokenizer.tokenize(line, escape=False)) if tokens is None else tokens

    def with_context(self, words: Sequence[str], following: Sequence[str]) -> list[str]:
        """The words; those that end with a full stop are followed by a space and their context."""
        return [
            f"{word} {self._context(after[0])}" if word.endswith(_FULL_STOPS) else word
            for word, after in zip(words, following, strict=True)
        ]

    def _context(self, first: str) -> str:
        return "a" if first in self._lower else "0" if "0" <= first <= "9" else "A"

    def _with_marks(self, text: str, tokens_of: Callable[[str], Iterable[str]]) -> list[str] | None:
        """The tokens of a text with marks that sacremoses would split off; None for a text without such marks.

        They are the tokens of the text with one character for each letter, in which the letters are put back.
        """
        if text.isascii() or not self._joins_marks:
            return None
        letters = [letter for word in text.split(" ") for letter in (*letters_of(word), " ")]
        if all(len(letter) == 1 or self._known.issuperset(letter) for letter in letters):
            return None
        tokens = tokens_of("".join(map(_character_for, letters)).rstrip(" "))
        left = filter(" ".__ne__, letters)
        return [joined for token in tokens if (joined := "".join(islice(left, len(token))))]

    def _simple(self, word: str, context: str) -> list[str] | None:
        """The tokens of a simple word, or None.

        The rules never split letters, digits and single full stops between them. They split off a comma behind them,
        and a full stop behind letters unless the letters are an abbreviation or the next word starts in lower case.
        """
        if "MULTI" in word:  # sacremoses uses DOTDOTMULTI internally for dots
            return None
        if self._plain.fullmatch(word):
            return [word]
        core, mark = word[:-1], word[-1]
        if mark == "," and self._plain.fullmatch(core):
            return [core, mark]
        if mark == "." and core not in self._prefixes and self._letters.fullmatch(core):
            return [word] if context == "a" else [core, mark]
        return None


def _character_for(letter: str) -> str:
    """A character that sacremoses treats as it would treat a letter with its marks, if it knew them."""
    if len(letter) == 1:
        return letter
    first = bare(unicodedata.normalize("NFC", letter))[0]
    return _SYMBOL if unicodedata.category(first)[0] in "MS" else first
