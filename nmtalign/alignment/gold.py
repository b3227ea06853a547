"""Links made by hand, and how far others are from them: precision, recall, alignment error rate.

Gold links are sure or only possible; sure links are possible, too. `link_formats` says how files hold them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.alignment.link_formats import NO_LINKS, GoldLinks, TextLinks, parse_gold
from nmtalign.alignment.record import Link
from nmtalign.errors import InputError
from nmtalign.text.lines import shown

__all__ = ["ErrorRates", "GoldFile", "GoldLinks", "LinkCounts", "count_links", "error_rates", "f_measure", "parse_gold"]


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
        return ErrorRates(precision, recall, aer, f_measure(precision, recall))


def f_measure(precision: float, recall: float, alpha: float = 0.5) -> float:
    """1 / (alpha / precision + (1 - alpha) / recall), as in Fraser & Marcu (2007): alpha 0.5 gives F1, 1 precision."""
    mean = (1 - alpha) * precision + alpha * recall
    return precision * recall / mean if mean else 0.0


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


@dataclass
class GoldFile:
    """A file of gold links, compared pair by pair, in order, with what was found.

    `base` says what its positions count from, None that the format says it. Raises InputError naming file and line: for
    a link that cannot be read, that points outside its pair, or for a count of lines other than that of the pairs.
    """

    path: Path
    base: int | None = None
    counts: LinkCounts = field(default_factory=LinkCounts)
    pairs: int = 0

    def __post_init__(self) -> None:
        self._text = TextLinks(self.path, self.base)
        self._links: Iterator[GoldLinks] = iter(self._text)

    def compare(self, links: Iterable[Link], source_length: int, target_length: int) -> None:
        """Counts the next pair; its lengths are in words, `</s>` not counted."""
        gold = next(self._links, NO_LINKS if self._text.numbered else None)
        if gold is None:
            raise InputError(
                f"{shown(self.path)}: has no line {self.pairs + 1}, but there are more pairs than its {self.pairs} "
                "lines; give one line of gold links a pair"
            )
        for link in sorted(gold.possible):
            if link[0] >= source_length or link[1] >= target_length:
                shown_link = "-".join(str(position + self._text.counts_from) for position in link)
                raise InputError(
                    f"{self._text.where(self.pairs, link)}: link {shown_link} points outside the pair, which has "
                    f"{source_length} source and {target_length} target words counted from {self._text.counts_from}; "
                    "if the text is tokenised as the links expect, give --tokenized"
                )
        self.counts += count_links(links, gold)
        self.pairs += 1

    def finish(self) -> ErrorRates:
        """The rates over all pairs; raises InputError where lines are left over."""
        if rest := sum(1 for _ in self._links):
            kind = "sentences" if self._text.numbered else "lines"
            raise InputError(
                f"{shown(self.path)}: has {self.pairs + rest} {kind}, but there are {self.pairs} pairs: "
                f"{kind.removesuffix('s')} {self.pairs + 1} belongs to no pair"
            )
        return self.counts.rates()
