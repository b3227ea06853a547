"""Where links go wrong: by sentence length, by type of link, and the worst sentences.

Types of a link (i, j), i a source and j a target word, among the links of its own side of the comparison: a sure gold
link among the sure gold links of its pair, a found link among the found links of its pair.

| type         | the link                                                                             |
|--------------|--------------------------------------------------------------------------------------|
| monotone     | crosses no other link                                                                |
| reordered    | crosses another one: there is a link (i', j') with i' < i and j' > j, or i' > i and j' < j |
| one-to-one   | neither word has another link                                                        |
| one-to-many  | the source word has other links, the target word has not                             |
| many-to-one  | the target word has other links, the source word has not                             |
| many-to-many | both words have other links                                                          |

The first two share out all links, and so do the last four. The recall of a type is the share of its sure gold links
that were found; its precision is the share of its found links that are at least possible. A NULL word has no link: in
the gold neither a sure nor a possible one. The recall of NULL words is the share of those of the gold that were found
without a link, their precision the share of the words found without a link that have none in the gold.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from nmtalign.alignment.gold import GoldLinks, LinkCounts, count_links
from nmtalign.alignment.record import Link

ORDERS = ("monotone", "reordered")
FERTILITIES = ("one-to-one", "one-to-many", "many-to-one", "many-to-many")
NULLS = ("NULL source", "NULL target")
TYPES = (*ORDERS, *FERTILITIES, *NULLS)
Lengths = tuple[int, int]  # words of source and target


@dataclass(frozen=True)
class TypeCounts:
    """Counts of one type of link; add those of each pair, then ask for the rates."""

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
        """recalled / gold; None where there is none of the type."""
        return self.recalled / self.gold if self.gold else None

    @property
    def precision(self) -> float | None:
        """right / found; None where none of the type was found."""
        return self.right / self.found if self.found else None


@dataclass(frozen=True)
class Sentence:
    """One pair in the list of the worst: what was found and is wrong, and what is sure and was not found."""

    number: int  # from 0
    counts: LinkCounts
    wrong: tuple[Link, ...]
    missed: tuple[Link, ...]


def count_pairs(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks]) -> list[LinkCounts]:
    """The counts of each pair."""
    return [count_links(links, sure_and_possible) for links, sure_and_possible in zip(found, gold, strict=True)]


def total(counts: Iterable[LinkCounts]) -> LinkCounts:
    """The counts of several pairs together."""
    return sum(counts, LinkCounts())


def gold_lengths(gold: Iterable[GoldLinks]) -> list[Lengths]:
    """Lengths for pairs whose words are not known: the largest position that has a gold link, counted from 1."""
    return [
        (max((i + 1 for i, _ in pair.possible), default=0), max((j + 1 for _, j in pair.possible), default=0))
        for pair in gold
    ]


def crossing(links: Collection[Link]) -> set[Link]:
    """The links that cross another one: of their source words the first has the later target word."""
    return _crossing_an_earlier(links) | {(-i, -j) for i, j in _crossing_an_earlier([(-i, -j) for i, j in links])}


def _crossing_an_earlier(links: Collection[Link]) -> set[Link]:
    """The links (i, j) with another (i', j') of which i' < i and j' > j; time grows as sorting does."""
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
    """(order, fertility) of each link among these links, as the table of this module says."""
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
    """The counts of each of `TYPES` over all pairs; words after the ends that `lengths` gives are no NULL words."""
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


def worst(found: Sequence[Collection[Link]], gold: Sequence[GoldLinks], most: int) -> list[Sentence]:
    """The pairs with the highest AER, of equal ones those with more mistakes first, then by place; none without one."""
    sentences = []
    for number, (links, pair) in enumerate(zip(found, gold, strict=True)):
        wrong, missed = tuple(sorted(set(links) - pair.possible)), tuple(sorted(pair.sure - set(links)))
        if wrong or missed:
            sentences.append(Sentence(number, count_links(links, pair), wrong, missed))
    sentences.sort(key=lambda one: (-one.counts.rates().aer, -len(one.wrong) - len(one.missed), one.number))
    return sentences[:most]
