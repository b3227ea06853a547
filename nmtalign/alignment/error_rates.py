"""How far links are from gold links: precision, recall and alignment error rate, by type of link, the worst sentences.

Types of a link (i, j), i a source and j a target word, among the links of its own side of the comparison: a sure gold
link among the sure gold links of its pair, a found link among the found links of its pair.

| type         | the link                                                                                   |
|--------------|--------------------------------------------------------------------------------------------|
| monotone     | crosses no other link                                                                      |
| reordered    | crosses another one: there is a link (i', j') with i' < i and j' > j, or i' > i and j' < j |
| one-to-one   | neither word has another link                                                              |
| one-to-many  | the source word has other links, the target word has none                                  |
| many-to-one  | the target word has other links, the source word has none                                  |
| many-to-many | both words have other links                                                                |

Each link has one of the first two types and one of the last four. The recall of a type is the fraction of its sure gold
links that were found; its precision is the fraction of its found links that are at least possible. A NULL word has no
link; in the gold links it has neither a sure nor a possible one. The recall of NULL words is the fraction of those in
the gold links that were found without a link; their precision is the fraction of the words found without a link that
have none in the gold links.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.alignment.link_files import GoldLinks, LinkFile, read_links
from nmtalign.alignment.links import Link
from nmtalign.errors import InputError

ORDERS = ("monotone", "reordered")
FERTILITIES = ("one-to-one", "one-to-many", "many-to-one", "many-to-many")
NULLS = ("NULL source", "NULL target")
TYPES = (*ORDERS, *FERTILITIES, *NULLS)
Lengths = tuple[int, int]  # words of source and target


@dataclass(frozen=True)
class ErrorRates:
    """How links compare with gold links: fractions between 0 and 1."""

    precision: float
    recall: float
    aer: float
    f1: float


@dataclass(frozen=True)
class LinkCounts:
    """Counts over pairs; add those of each pair, then compute the rates."""

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

        F1 is the harmonic mean of precision and recall. A fraction with a denominator of 0 is 1.
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
    """Returns the counts of one pair."""
    found = set(links)
    return LinkCounts(len(found), len(gold.sure), len(found & gold.sure), len(found & gold.possible))


def count_pairs(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks]) -> list[LinkCounts]:
    """Returns the counts of each pair."""
    return [count_links(links, pair) for links, pair in zip(found, gold, strict=True)]


def total(counts: Iterable[LinkCounts]) -> LinkCounts:
    """Returns the sum of the counts of several pairs."""
    return sum(counts, LinkCounts())


def error_rates(
    links: Sequence[Iterable[Link]], sure: Sequence[Iterable[Link]], possible: Sequence[Iterable[Link]]
) -> ErrorRates:
    """Returns the rates of a corpus: links, sure and possible links of each pair (possible may omit the sure ones)."""
    gold = [GoldLinks(frozenset(s), frozenset(s) | frozenset(p)) for s, p in zip(sure, possible, strict=True)]
    return total(count_pairs([frozenset(found) for found in links], gold)).rates()


@dataclass
class GoldFile:
    """A file of gold links that is compared with found links pair by pair, in order.

    Positions count from `base` (None: as usual in the format). Raises InputError naming file and line for a link that
    cannot be read or points outside its pair, and for another number of lines than pairs.
    """

    path: Path
    base: int | None = None
    counts: LinkCounts = field(default_factory=LinkCounts)
    pairs: int = 0

    def __post_init__(self) -> None:
        self.file: LinkFile = read_links(self.path, "gold", self.base)

    def compare(self, links: Iterable[Link], source_length: int, target_length: int) -> None:
        """Counts the next pair; lengths are in words, without `</s>`."""
        self.file.check_inside(self.pairs, source_length, target_length)
        self.counts += count_links(links, self.file.pair(self.pairs))
        self.pairs += 1

    def finish(self) -> ErrorRates:
        """Returns the rates of all pairs; raises InputError if lines are left over."""
        if (found := len(self.file.pairs)) > self.pairs:
            kind = "sentence" if self.file.open_ended else "line"
            raise InputError(
                f"{self.file.name}: has {found} {kind}s, but there are {self.pairs} pairs: "
                f"{kind} {self.pairs + 1} belongs to no pair"
            )
        return self.counts.rates()


@dataclass(frozen=True)
class TypeCounts:
    """Counts of one type of link; add those of each pair, then compute the rates."""

    gold: int = 0  # sure gold links of the type
    recalled: int = 0  # those of them that were found
    found: int = 0  # found links of the type
    right: int = 0  # those of them that are at least possible

    def __add__(self, other: "TypeCounts") -> "TypeCounts":
        return TypeCounts(
            self.gold + other.gold,
            self.recalled + other.recalled,
            self.found + other.found,
            self.right + other.right,
        )

    @property
    def recall(self) -> float | None:
        """recalled / gold; None if there is none of the type."""
        return self.recalled / self.gold if self.gold else None

    @property
    def precision(self) -> float | None:
        """right / found; None if none of the type was found."""
        return self.right / self.found if self.found else None


def gold_lengths(gold: Iterable[GoldLinks]) -> list[Lengths]:
    """Returns lengths for pairs whose words are not known: the largest position with a gold link, counted from 1."""
    return [
        (max((i + 1 for i, _ in pair.possible), default=0), max((j + 1 for _, j in pair.possible), default=0))
        for pair in gold
    ]


def crossing(links: Collection[Link]) -> set[Link]:
    """Returns the links that cross another one: the earlier source word of the two has the later target word."""
    return _crossing_an_earlier(links) | {(-i, -j) for i, j in _crossing_an_earlier([(-i, -j) for i, j in links])}


def _crossing_an_earlier(links: Collection[Link]) -> set[Link]:
    """Returns the links (i, j) with another one (i', j') where i' < i and j' > j; O(n log n)."""
    crossed = set()
    highest: int | None = None  # target word of all links of source words before i
    row: list[int] = []
    last = None
    for i, j in sorted(links):
        if i != last:
            highest = max(row + ([] if highest is None else [highest]), default=None)
            row, last = [], i
        row.append(j)
        if highest is not None and highest > j:
            crossed.add((i, j))
    return crossed


def link_types(links: Collection[Link]) -> dict[Link, tuple[str, str]]:
    """Returns (order, fertility) of each link among these links, as the table above defines them."""
    crossed = crossing(links)
    of_source, of_target = Counter(i for i, _ in links), Counter(j for _, j in links)
    return {
        (i, j): (
            ORDERS[(i, j) in crossed],
            FERTILITIES[(of_source[i] > 1) + 2 * (of_target[j] > 1)],
        )
        for i, j in links
    }


def count_types(
    found: Sequence[Collection[Link]], gold: Sequence[GoldLinks], lengths: Sequence[Lengths]
) -> dict[str, TypeCounts]:
    """Returns the counts of each of `TYPES` over all pairs; `lengths` limit the words that can be NULL words."""
    totals = dict.fromkeys(TYPES, TypeCounts())
    for links, pair, (source_length, target_length) in zip(found, gold, lengths, strict=True):
        for name, counts in _types_of_pair(frozenset(links), pair).items():
            totals[name] += counts
        for name, side, length in zip(NULLS, (0, 1), (source_length, target_length), strict=True):
            totals[name] += _null_words(links, pair, side, length)
    return totals


def _types_of_pair(links: frozenset[Link], gold: GoldLinks) -> Mapping[str, TypeCounts]:
    gold_of, recalled, found_of, right = (Counter[str]() for _ in range(4))
    for link, types in link_types(gold.sure).items():
        gold_of.update(types)
        recalled.update(types if link in links else ())
    for link, types in link_types(links).items():
        found_of.update(types)
        right.update(types if link in gold.possible else ())
    return {name: TypeCounts(gold_of[name], recalled[name], found_of[name], right[name]) for name in gold_of | found_of}


def _null_words(links: Iterable[Link], gold: GoldLinks, side: int, length: int) -> TypeCounts:
    null = set(range(length)) - {link[side] for link in gold.possible}
    found = set(range(length)) - {link[side] for link in links}
    both = len(null & found)
    return TypeCounts(len(null), both, len(found), both)


@dataclass(frozen=True)
class WorstPair:
    """A pair in the list of the worst: its found links that are wrong, and its sure links that were not found."""

    number: int  # from 0
    counts: LinkCounts
    wrong: tuple[Link, ...]
    missed: tuple[Link, ...]


def worst_pairs(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks], most: int) -> list[WorstPair]:
    """Returns the pairs with the highest AER, then with the most mistakes, then by place; only pairs with mistakes."""
    pairs = []
    for number, (links, pair) in enumerate(zip(found, gold, strict=True)):
        wrong, missed = tuple(sorted(set(links) - pair.possible)), tuple(sorted(pair.sure - set(links)))
        if wrong or missed:
            pairs.append(WorstPair(number, count_links(links, pair), wrong, missed))
    pairs.sort(key=lambda one: (-one.counts.rates().aer, -len(one.wrong) - len(one.missed), one.number))
    return pairs[:most]
