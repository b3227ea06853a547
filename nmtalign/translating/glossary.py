"""Glossaries: terms of the source language, and the target phrases that the translations of their lines contain."""

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Self

import regex

from nmtalign.errors import InputError
from nmtalign.text.languages import SENTENCE_ENDS, capitalised
from nmtalign.text.lines import read_lines, shown
from nmtalign.text.tokenizer import UNSPACED, normalized

_KATAKANA = "\u30a1-\u30fa\u30fc-\u30ff"  # most often a loanword, with no space around it
# Thai and Lao vowels, and small kana, are letters in Unicode, but belong to the letter before them or behind them.
_BEHIND = "\u0e30\u0e32\u0e33\u0e45\u0eb0\u0eb2\u0eb3\u0ebd\u3041\u3043\u3045\u3047\u3049\u3063\u3083\u3085\u3087\u30fc"
_AHEAD = "\u0e40-\u0e44\u0ec0-\u0ec4"
_STACKERS = "\u17d2\u1039"  # Khmer and Burmese signs that write the next letter below
_MARKS = r"\p{M}\u200c\u200d"  # with the joiners; they belong to the letter before them
_IN_WORDS = r"\p{L}\p{N}_"
_LETTER = rf"[[{_IN_WORDS}]--[{UNSPACED}]]"  # or a digit
_is_letter = regex.compile(f"(?V1){_LETTER}").match
_HANGUL = regex.compile("[\u1100-\u11ff\uac00-\ud7a3]")  # particles follow a Korean word without a space
# Inside a word: hyphens, AT&T, a@b.org, Node.js, U.S, 10,000.
_INSIDE = rf"(?:[-&@·]|\.(?=[a-z\d])|(?<=[A-Z])\.(?=[A-Z])|(?<=\d),(?=\d))(?={_LETTER})"
_APOSTROPHES = "'’ʼ"
_SPELLINGS = str.maketrans(
    {
        **dict.fromkeys("’‘ʼ\uff07", "'"),
        **dict.fromkeys("\u2010\u2011", "-"),
        **dict.fromkeys("\u00ad\u2060", None),  # soft hyphen, word joiner
        **{mark: unicodedata.normalize("NFKC", mark) for mark in "ﬀﬁﬂﬃﬄﬅﬆ"},
    }
)
_Words = tuple[str, ...]

# A word is an address, a run of letters, digits and their marks, a syllable of a script without spaces, or a mark.
_WORD = rf"{_LETTER}+(?:[{_MARKS}]+{_LETTER}*)*"
_SYLLABLE = rf"[{_AHEAD}]?[{UNSPACED}](?:[{_STACKERS}][{_IN_WORDS}]|[{_MARKS}{_BEHIND}])*"
_ADDRESS = rf"[A-Za-z][{_IN_WORDS}.+\-]{{0,30}}://[!-~]*[A-Za-z\d/]"  # each letter of "a...a...a" may begin one
_WORDS = regex.compile(
    rf"(?V1){_ADDRESS}|[{_KATAKANA}]+|{_SYLLABLE}"
    rf"|{_WORD}(?:{_INSIDE}{_WORD})*(?:\+\++|[+#](?![{_IN_WORDS}]))?|\S[{_MARKS}]*"
)


def spelling(text: str) -> str:
    """The text in composed letters, with straight apostrophes, plain hyphens, and without ligatures."""
    return normalized("NFC", text).translate(_SPELLINGS).replace("i\u0307", "i")


def _key(word: str) -> str:
    """The same for all cases of a word; a Turkish dotted or dotless i is an i."""
    return word.upper().replace("İ", "I")


@dataclass(frozen=True)
class Term:
    """An entry of a glossary: the translation of a term, and the line of the file that contains it."""

    target: str
    line: int


class Glossary:
    """Finds terms in text.

    A term matches its own case. A term in lower case also matches words that begin with a capital, and in a text all in
    capitals these: `us` does not match `US` in other text. If terms overlap, the one with the most words counts, then
    the first one.
    """

    def __init__(self, terms: Mapping[_Words, Term], split: Callable[[str], Sequence[str]]) -> None:
        """The terms by their words in the form of `spelling`; `split` gives the words of a text."""
        self.terms, self._split = terms, split
        self._by_key: dict[_Words, list[_Words]] = {}
        self._sizes: dict[str, set[int]] = {}  # the numbers of words of the terms, by the key of their first word
        for words in self.terms:
            keys = tuple(map(_key, words))
            self._by_key.setdefault(keys, []).append(words)
            self._sizes.setdefault(keys[0], set()).add(len(words))

    @classmethod
    def read(cls, path: Path, tokenized: bool = False) -> Self:
        """Reads a file with a source term, a tab and its translation in each line.

        Blank lines, and lines that begin with `#` and have no tab, are skipped. The words of `tokenized` text are the
        parts between spaces. Raises InputError naming file and line for any other line, and for a term with two
        different translations.
        """
        split = str.split if tokenized else _WORDS.findall
        terms: dict[_Words, Term] = {}
        for number, line in enumerate(read_lines(path), 1):
            if not line.strip() or (line.startswith("#") and "\t" not in line):
                continue
            where, parts = f"{shown(path)}: line {number}", [part.strip() for part in line.split("\t")]
            if len(parts) != 2 or not all(map(spelling, parts)):
                raise InputError(f"{where}: needs one tab, with text on both sides: a term, a tab, its translation")
            source, target = parts
            first = terms.setdefault(tuple(split(spelling(source))), Term(target, number))
            if first.target != target:
                fix = "keep one of the two lines"
                raise InputError(f"{where}: {source!r} has another translation in line {first.line}; {fix}")
        return cls(terms, split)

    def targets(self, text: str) -> list[tuple[int, str]]:
        """The translations of the terms in a text, one for each occurrence, in their order.

        The number before each is that of the characters before the term, without blanks, in the form of `spelling`.
        """
        words = self._split(spelling(text))
        taken: set[int] = set()
        chosen = []
        for start, size, target in sorted(self._matches(words), key=lambda match: (-match[1], match[0])):
            if taken.isdisjoint(range(start, start + size)):
                taken.update(range(start, start + size))
                chosen.append((start, target))
        before = list(accumulate(map(len, words), initial=0))
        return [(before[start], target) for start, target in sorted(chosen)]

    def _matches(self, words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """The place, the number of words and the translation of each term; terms may overlap."""
        keys = list(map(_key, words))
        cased = [word for word in words if word.lower() != word.upper()]
        capitals = len(cased) > 1 and all(map(str.isupper, cased))
        for start, first in enumerate(keys):
            for size in self._sizes.get(first, ()):
                own, known = tuple(words[start : start + size]), self._by_key.get(tuple(keys[start : start + size]), [])
                fits = (each for each in known if all(map(_fits, each, own, [capitals] * size)))
                term = self.terms.get(own) or self.terms.get(next(fits, ()))
                if term is not None:
                    yield start, size, term.target


def _fits(term: str, word: str, capitals: bool) -> bool:
    """Whether a word of a text, perhaps all in capitals, is a word of a term; their keys are equal."""
    if term == word or any(map(str.isupper, term)):
        return term == word
    parts = zip(term.lstrip("▁").split("-"), word.lstrip("▁").split("-"), strict=True)
    return capitals or all(own == part or (_is_capital(part) and own[1:] == part[1:]) for own, part in parts)


def _is_capital(text: str) -> bool:
    return text[:1].lower() != text[:1]


@dataclass(frozen=True)
class GivenPhrase:
    """A phrase that a translation must contain exactly as it is written.

    `pattern` also finds it with spaces between its marks, with other accents or apostrophes, and with a `capital`.
    """

    text: str
    capital: str
    pattern: regex.Pattern[str]

    @classmethod
    def of(cls, text: str, plain_text: str, others: Sequence[str], language: str, spaced: bool) -> Self:
        """A phrase beside `others`, from which its capital must not make it equal; of words between spaces if `spaced`.

        Only a plain word in lower case gets a capital: not `https://a.org` and not `iPhone`. The pattern also finds
        `plain_text`, the form of the phrase in which a tokeniser has changed characters.
        """
        text = text.strip()
        first = text.split(maxsplit=1)[0] if text else ""
        upper = capitalised(text, language)
        plain = all(one.isalpha() or one in f"-{_APOSTROPHES}" or unicodedata.category(one)[0] == "M" for one in first)
        capital = upper if plain and first == first.lower() and len(upper) == len(text) else text
        pattern = _pattern(text, spaced, upper not in others)
        if not pattern.search(plain_text):
            form = r"\s*".join(map(regex.escape, "".join(plain_text.split())))
            pattern = regex.compile(f"{pattern.pattern}|{form}")
        return cls(text, capital, pattern)

    def written(self, text: str, capitals: bool, kept: int) -> str:
        """A translation with the phrase as it is given, or with a capital at the start of a sentence.

        It gets the capital if the model wrote one there, or with `capitals`. The first `kept` characters stay.
        """

        def exact(match: regex.Match[str]) -> str:
            end, found = match.start(), str(match[0])
            if end < kept:
                return found
            while end and not text[end - 1].isalnum():
                end -= 1
            marks = set(SENTENCE_ENDS).intersection(text[end : match.start()])
            starts = not end or marks
            sure = not end or marks - {"."} or text[max(0, end - 4) : end].isalpha()  # not an abbreviation
            return self.capital if starts and (_is_capital(found) or (capitals and sure)) else self.text

        return str(self.pattern.sub(exact, text))


def _pattern(text: str, spaced: bool, any_case: bool) -> regex.Pattern[str]:
    """Finds a phrase as complete words; with `any_case` also if it begins with a capital instead of a small letter."""
    found, last, gap = "", "", ""
    for cluster in regex.findall(rf"\s+|\S[{_MARKS}]*", normalized("NFC", text)):
        if cluster.isspace():
            gap = r"\s+"
            continue
        inside = _is_letter(last) and _is_letter(cluster)
        found += (gap if spaced or inside else r"\s*") if last else ""
        found += _forms(cluster, any_case and not last)
        last, gap = cluster, ""
    if spaced:
        return regex.compile(rf"(?<!\S){found}(?!\S)")
    before, behind = "", rf"(?![{_MARKS}])"
    if _is_letter(text):
        before = rf"(?<!{_LETTER})(?<![{_MARKS}])"
    elif regex.match(rf"[{UNSPACED}]", text):
        before = rf"(?<![{_AHEAD}{_STACKERS}])"
        behind = rf"(?![{_MARKS}{_BEHIND}])"
    if _is_letter(last) and not _HANGUL.match(last):
        behind += rf"(?!{_LETTER})"
    if text[:1].isdigit():
        before += r"(?<!\d[.,])"
    if last.isdigit():
        behind += r"(?![.,]\d)"
    return regex.compile(f"(?V1){before}{found}{behind}")


def _forms(letter: str, any_case: bool) -> str:
    """A pattern of the spellings of a letter with its marks."""
    if letter in _APOSTROPHES:
        return f"[{_APOSTROPHES}]"
    cases = (letter, letter.upper(), *(["İ"] if letter == "i" else [])) if any_case and letter.islower() else (letter,)
    forms = dict.fromkeys(normalized(form, case) for case in cases for form in ("NFC", "NFD"))
    return f"(?:{'|'.join(map(regex.escape, forms))})" if len(forms) > 1 else regex.escape(letter)
