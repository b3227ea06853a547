"""Links made by hand, and how far others are from them: precision, recall, alignment error rate.

A line a sentence pair: `i-j` is a sure link, `ipj` or `i?j` one that is only possible; positions count from 0, source
first. Sure links are possible, too.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.alignment.record import Link
from nmtalign.errors import InputError
from nmtalign.text.lines import read_lines

_GOLD_LINK = re.compile(r"(\d{1,9})([-p?])(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class GoldLinks:
    """The links of one pair: `sure`, and `possible`, which holds the sure ones, too."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class ErrorRates:
    """How links compare with gold links: fractions between 0 and 1."""

    precision: float
    recall: float
    aer: float
    f1: float


@dataclass(frozen=True)
class LinkCounts:
    """Counts over a corpus; add those of each pair, then ask for the rates."""

    links: int = 0  # |A|
    sure: int = 0  # |S|
    links_sure: int = 0  # |A and S|
    links_possible: int = 0  # |A and P|

    def __add__(self, other: "LinkCounts") -> "LinkCounts":
        return LinkCounts(
            self.links + other.links,
            self.sure + other.sure,
            self.links_sure + other.links_sure,
            self.links_possible + other.links_possible,
        )

    def rates(self) -> ErrorRates:
        """precision = |A and P| / |A|, recall = |A and S| / |S|, AER = 1 - (|A and S| + |A and P|) / (|A| + |S|).

        F1 is the harmonic mean of precision and recall. A fraction of nothing counts as 1: no link, none wrong.
        """
        precision = _fraction(self.links_possible, self.links)
        recall = _fraction(self.links_sure, self.sure)
        aer = 1 - _fraction(self.links_sure + self.links_possible, self.links + self.sure)
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        return ErrorRates(precision, recall, aer, f1)


def _fraction(part: int, whole: int) -> float:
    return part / whole if whole else 1.0


def count_links(links: Iterable[Link], gold: GoldLinks) -> LinkCounts:
    """The counts of one pair."""
    found = set(links)
    return LinkCounts(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible))


def error_rates(
    links: Sequence[Iterable[Link]], sure: Sequence[Iterable[Link]], possible: Sequence[Iterable[Link]]
) -> ErrorRates:
    """The rates of a corpus: links, sure and possible links of each pair (possible need not repeat the sure ones)."""
    total = LinkCounts()
    for found, certain, maybe in zip(links, sure, possible, strict=True):
        total += count_links(found, GoldLinks(frozenset(certain), frozenset(certain) | frozenset(maybe)))
    return total.rates()


def parse_gold(text: str, where: str) -> GoldLinks:
    """The gold links of one line; raises InputError that starts with `where` (file and line)."""
    sure, possible = set(), set()
    for part in text.split():
        match = _GOLD_LINK.fullmatch(part)
        if not match:
            raise InputError(f"{where}: {part!r} is not a gold link; write 0-0 if it is sure, 0p0 or 0?0 if possible")
        link = int(match[1]), int(match[3])
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldLinks(frozenset(sure), frozenset(possible))


@dataclass
class GoldFile:
    """A file of gold links, compared pair by pair, in order, with what was found.

    Raises InputError naming file and line: for a link that cannot be read, that points outside its pair, or for a count
    of lines other than that of the pairs.
    """

    path: Path
    counts: LinkCounts = field(default_factory=LinkCounts)
    pairs: int = 0

    def __post_init__(self) -> None:
        self._lines: Iterator[str] = read_lines(self.path)

    def compare(self, links: Iterable[Link], source_length: int, target_length: int) -> None:
        """Counts the next pair; its lengths are in words, `</s>` not counted."""
        where = f"{self.path}: line {self.pairs + 1}"
        line = next(self._lines, None)
        if line is None:
            raise InputError(
                f"{self.path}: has no line {self.pairs + 1}, but there are more pairs than its {self.pairs} lines; "
                "give one line of gold links a pair"
            )
        gold = parse_gold(line, where)
        for i, j in sorted(gold.possible):
            if i >= source_length or j >= target_length:
                raise InputError(
                    f"{where}: link {i}-{j} points outside the pair, which has {source_length} source and "
                    f"{target_length} target words counted from 0; if the text is tokenised as the links expect, "
                    "give --tokenized"
                )
        self.counts += count_links(links, gold)
        self.pairs += 1

    def finish(self) -> ErrorRates:
        """The rates over all pairs; raises InputError where lines are left over."""
        if rest := sum(1 for _ in self._lines):
            raise InputError(
                f"{self.path}: has {self.pairs + rest} lines, but there are {self.pairs} pairs: "
                f"line {self.pairs + 1} belongs to no pair"
            )
        return self.counts.rates()
