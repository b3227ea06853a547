"""Glossaries: terms of the source language, and the target phrases that the translations of their lines contain."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from nmtalign.errors import InputError
from nmtalign.text.lines import read_lines, shown

# A word is a run of letters and digits, also with hyphens inside; a character of a script without spaces; a mark.
_NO_SPACES = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_NO_SPACES}]|[^\W{_NO_SPACES}]+(?:-[^\W{_NO_SPACES}]+)*|[^\w\s]")
_Words = tuple[str, ...]


@dataclass(frozen=True)
class Term:
    """An entry of a glossary: the translation of a term, and the line of the file that contains it."""

    target: str
    line: int


class Glossary:
    """Finds terms in text.

    A term in lower case matches words in any case; another one matches only the same case. If terms overlap, the one
    with the most words counts, then the first one.
    """

    def __init__(self, terms: Mapping[_Words, Term], split: Callable[[str], Sequence[str]]) -> None:
        """The terms by their words; `split` gives the words of a text."""
        self.terms, self._split = terms, split
        sizes: dict[str, set[int]] = {}  # the numbers of words of the terms, by their first word in lower case
        for words in self.terms:
            sizes.setdefault(words[0].lower(), set()).add(len(words))
        self._sizes = sizes

    @classmethod
    def read(cls, path: Path, tokenized: bool = False) -> Self:
        """Reads a file with a source term, a tab and its translation in each line.

        Blank lines, and lines that begin with `#` and have no tab, are skipped. The words of `tokenized` text are the
        parts between spaces. Raises InputError naming file and line for any other line, and for a term with two
        different translations.
        """
        split = str.split if tokenized else _WORD.findall
        terms: dict[_Words, Term] = {}
        for number, line in enumerate(read_lines(path), 1):
            if line.strip() and not (line.startswith("#") and "\t" not in line):
                where = f"{shown(path)}: line {number}"
                source, target = _entry(line, where)
                first = terms.setdefault(tuple(split(source)), Term(target, number))
                if first.target != target:
                    raise InputError(
                        f"{where}: {source!r} has another translation in line {first.line}; keep one of the two lines"
                    )
        return cls(terms, split)

    def targets(self, text: str) -> list[str]:
        """The translations of the terms in a text, one for each occurrence, in their order."""
        words = self._split(text)
        taken: set[int] = set()
        chosen = []
        for start, size, target in sorted(self._matches(words), key=lambda match: (-match[1], match[0])):
            if taken.isdisjoint(range(start, start + size)):
                taken.update(range(start, start + size))
                chosen.append((start, target))
        return [target for _, target in sorted(chosen)]

    def _matches(self, words: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """The place, the number of words and the translation of each term; terms may overlap."""
        lower = [word.lower() for word in words]
        for start, first in enumerate(lower):
            for size in self._sizes.get(first, ()):
                spans = (tuple(each[start : start + size]) for each in (words, lower))
                term = next((self.terms[span] for span in spans if span in self.terms), None)
                if term is not None:
                    yield start, size, term.target


def _entry(line: str, where: str) -> tuple[str, str]:
    """The source and the target of a line; raises InputError, which begins with `where`."""
    parts = [part.strip() for part in line.split("\t")]
    if len(parts) != 2 or not all(parts):
        found = "no tab" if len(parts) == 1 else "an empty side" if len(parts) == 2 else "more than one tab"
        raise InputError(f"{where}: has {found}; write a term, a tab and its translation")
    return parts[0], parts[1]
