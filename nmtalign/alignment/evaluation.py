"""Files of links compared with gold links: figures of all pairs, by length, by type of link, and the worst pairs.

A link (i, j) of source word i and target word j has types. They compare a sure gold link with the other sure gold links
of its pair, and a found link with the other found links of its pair.

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
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.link_files import (
    GoldLinks,
    LinkCounts,
    LinkFile,
    count_links,
    f_measure,
    is_hdf5,
    read_links,
)
from nmtalign.alignment.links import Link
from nmtalign.alignment.same_counting import Side, comparable
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import AerConfig
from nmtalign.settings.workspace import FilePair
from nmtalign.version import __version__

ORDERS = ("monotone", "reordered")
FERTILITIES = ("one-to-one", "one-to-many", "many-to-one", "many-to-many")
NULLS = ("NULL source", "NULL target")
TYPES = (*ORDERS, *FERTILITIES, *NULLS)
Lengths = tuple[int, int]  # words of source and target


class LengthBucket(Protocol):
    """A range of sentence lengths, as `nmtalign.scoring.report.Bucket`."""

    @property
    def label(self) -> str:
        """The name of the range, "0" for sentences without words."""

    def members(self, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns which of the lengths are in the range."""


@dataclass(frozen=True)
class LinkFigures:
    """Counts of links, and rates between 0 and 1 (None if there are neither sure nor found links)."""

    pairs: int
    sure: int  # |S|
    links: int  # |A|
    links_sure: int  # |A and S|
    links_possible: int  # |A and P|
    precision: float | None = None
    recall: float | None = None
    aer: float | None = None
    f1: float | None = None

    def f_alpha(self, alpha: float) -> float | None:
        """Returns 1 / (alpha / precision + (1 - alpha) / recall)."""
        if self.precision is None or self.recall is None:
            return None
        return f_measure(self.precision, self.recall, alpha)


def figures_of(parts: Sequence[LinkCounts]) -> LinkFigures:
    """Returns the figures of several pairs together."""
    counts = sum(parts, LinkCounts())
    rates = vars(counts.rates()) if counts.links or counts.sure else {}
    return LinkFigures(len(parts), **vars(counts), **rates)


@dataclass(frozen=True)
class WorstPair:
    """A pair with mistakes: its found links that are wrong, and its sure links that were not found."""

    number: int  # from 0
    figures: LinkFigures
    wrong: tuple[Link, ...]
    missed: tuple[Link, ...]


@dataclass(frozen=True)
class LinkEvaluation:
    """The links of one file beside the gold links."""

    name: str
    found: Sequence[frozenset[Link]]
    gold: Sequence[GoldLinks]
    lengths: Sequence[Lengths]
    lengths_from: str  # the file that the source lengths come from
    words: tuple[Side, Side]  # of source and target
    signature: str  # everything that reproduces the figures

    @cached_property
    def counts(self) -> list[LinkCounts]:
        """The counts of each pair."""
        return list(map(count_links, self.found, self.gold))

    @cached_property
    def figures(self) -> LinkFigures:
        """The figures of all pairs."""
        return figures_of(self.counts)

    def by_length(self, buckets: Sequence[LengthBucket]) -> Iterator[tuple[str, LinkFigures]]:
        """Yields (label, figures) of each bucket of source lengths; that of empty lines only if there are any."""
        lengths = np.array([source for source, _ in self.lengths], dtype=np.int64)
        for bucket in buckets:
            members = np.flatnonzero(bucket.members(lengths))
            if len(members) or bucket.label != "0":
                yield bucket.label, figures_of([self.counts[number] for number in members])

    def by_type(self) -> Mapping[str, LinkCounts]:
        """Returns the counts of each type of link, and of NULL words."""
        return count_types(self.found, self.gold, self.lengths)

    def worst(self, most: int) -> list[WorstPair]:
        """Returns the pairs with the highest AER, then with the most mistakes, then by place; only those with some."""
        pairs = [
            WorstPair(
                number, figures_of([counts]), tuple(sorted(links - gold.possible)), tuple(sorted(gold.sure - links))
            )
            for number, (links, gold, counts) in enumerate(zip(self.found, self.gold, self.counts, strict=True))
        ]
        pairs = [pair for pair in pairs if pair.wrong or pair.missed]
        pairs.sort(key=lambda pair: (-(pair.figures.aer or 0), -len(pair.wrong) - len(pair.missed), pair.number))
        return pairs[:most]

    def shown_link(self, number: int, link: Link) -> str:
        """Returns `i-j`, followed by the words if they are known: `3-4 red-rouge`."""
        source, target = self.words
        text = f"{link[0]}-{link[1]}"
        if source is None or target is None:
            return text
        return f"{text} {source[number][link[0]]}-{target[number][link[1]]}"


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
        (i, j): (ORDERS[(i, j) in crossed], FERTILITIES[(of_source[i] > 1) + 2 * (of_target[j] > 1)]) for i, j in links
    }


def count_types(
    found: Sequence[frozenset[Link]], gold: Sequence[GoldLinks], lengths: Sequence[Lengths]
) -> dict[str, LinkCounts]:
    """Returns the counts of each of `TYPES` over all pairs; `lengths` limit the words that can be NULL words."""
    totals = dict.fromkeys(TYPES, LinkCounts())
    for links, pair, both in zip(found, gold, lengths, strict=True):
        gold_types, found_types = link_types(pair.sure), link_types(links)
        parts = (
            found_types.values(),
            gold_types.values(),
            (types for link, types in gold_types.items() if link in links),
            (types for link, types in found_types.items() if link in pair.possible),
        )
        counters = [Counter(name for types in part for name in types) for part in parts]
        for name in counters[0] | counters[1]:
            totals[name] += LinkCounts(*(counter[name] for counter in counters))
        for side, (name, length) in enumerate(zip(NULLS, both, strict=True)):
            totals[name] += _null_words(links, pair, side, length)
    return totals


def _null_words(links: Iterable[Link], gold: GoldLinks, side: int, length: int) -> LinkCounts:
    null = set(range(length)) - {link[side] for link in gold.possible}
    found = set(range(length)) - {link[side] for link in links}
    both = len(null & found)
    return LinkCounts(len(found), len(null), both, both)


@dataclass(frozen=True)
class LinkComparison:
    """The evaluation of each file, and notes on likely mistakes in how the files are read."""

    systems: Sequence[LinkEvaluation]
    notes: Sequence[str]


def compare_links(
    links: Sequence[tuple[str, Path]],
    gold: Path,
    config: AerConfig | None = None,
    source: Path | None = None,
    target: Path | None = None,
    others: Sequence[FilePair] = (),
) -> LinkComparison:
    """Compares files of links, (name, path) each, with gold links: AER, precision, recall and F1.

    A file is text in Pharaoh's or NAACL's format, plain or compressed, `-` for stdin, or an alignment file. `config`
    tells how the files are read. `source` and `target` are the texts, with words between spaces. Where files count the
    words between spaces and others tokens (`comparable`), the texts must be raw, or among the pairs of texts `others`.
    Raises InputError naming file and line, FormatError for a damaged alignment file, UsageError for a choice of links
    without an alignment file.
    """
    config = config or AerConfig()
    method, threshold = config.links_method, config.threshold
    if (method is not None or threshold is not None) and not any(is_hdf5(path) for _, path in links):
        raise UsageError("--links-method and --threshold choose the links of an alignment file (.h5); none is given")
    answers = read_links(gold, "gold", config.gold_base, config.reverse_gold)
    files = [
        read_links(path, "links", config.links_base, config.reverse_links, method=method, threshold=threshold)
        for _, path in links
    ]
    (answers, *files), pairs, words, origin, converted = comparable([answers, *files], (source, target), others)
    expected = [answers.pair(number) for number in range(pairs)]
    systems = [
        LinkEvaluation(
            name,
            [frozenset(file.pair(number).possible) for number in range(pairs)],
            expected,
            _lengths(expected, words),
            origin,
            words,
            _signature(file, answers, expected),
        )
        for (name, _), file in zip(links, files, strict=True)
    ]
    notes = [*converted, *_notes(answers, files, config, pairs), *_turned_notes(systems, files)]
    return LinkComparison(systems, notes)


def _lengths(gold: Sequence[GoldLinks], words: tuple[Side, Side]) -> list[Lengths]:
    """Returns the lengths of all pairs: their numbers of words if these are known, else the largest gold positions."""
    estimates = [[max((link[side] + 1 for link in pair.possible), default=0) for pair in gold] for side in (0, 1)]
    known = [None if side is None else list(map(len, side)) for side in words]
    return list(zip(known[0] or estimates[0], known[1] or estimates[1], strict=True))


def _notes(gold: LinkFile, files: Sequence[LinkFile], config: AerConfig, pairs: int) -> Iterator[str]:
    """Yields notes on files that may be incomplete, or count from another base."""
    if gold.open_ended and len(gold.pairs) < pairs:
        yield (
            f"{gold.name}: ends with sentence {len(gold.pairs)} of {pairs}; the others count as sentences without gold "
            "links"
        )
    for file, role, base in [(gold, "gold", config.gold_base), *((file, "links", config.links_base) for file in files)]:
        if base is None and file.base == 0 and file.format == "Pharaoh" and file.looks_one_based:
            yield f"{file.name}: no position is 0; if positions count from 1 there, give --{role}-base 1"


def _turned_notes(systems: Sequence[LinkEvaluation], files: Sequence[LinkFile]) -> Iterator[str]:
    """Yields a note for each file that fits far better with source and target exchanged."""
    for system, file in zip(systems, files, strict=True):
        turned_links = [[(j, i) for i, j in links] for links in system.found]
        turned = sum(map(count_links, turned_links, system.gold), LinkCounts())
        if note := turned_note(file, sum(system.counts, LinkCounts()), turned):
            yield f"{note} (or --reverse-gold)"


def turned_note(file: LinkFile, counts: LinkCounts, turned: LinkCounts) -> str:
    """Returns a note if a file fits far better with source and target exchanged; else ""."""
    rate, other = counts.rates().aer, turned.rates().aer
    if other >= rate - 0.1:
        return ""
    fix = "leave out" if file.reverse else "if it has the target first, give"
    exchanged = f"with source and target exchanged its AER would be {other:.4f} and not {rate:.4f}"
    return f"{file.name}: {exchanged}; {fix} --reverse-{file.role}"


def _signature(file: LinkFile, gold: LinkFile, answers: Sequence[GoldLinks]) -> str:
    """Returns everything that reproduces the figures."""
    parts = ["AER"]
    for role, one in (("links", file), ("gold", gold)):
        first = ",target-first" if one.reverse else ""
        parts.append(f"{role}:{Path(one.name).name},{one.format},from-{one.base}{first}")
    if file.method is not None:
        parts.append(f"method:{file.method}")
    if gold.method is not None:
        parts.append(f"gold-method:{gold.method}")
    parts.append(f"pairs:{len(answers)}")
    parts.append(f"sure:{sum(len(pair.sure) for pair in answers)}")
    parts.append(f"possible:{sum(len(pair.possible) for pair in answers)}")
    if file.model is not None:
        parts.append(f"model:{'+'.join(part[:12] for part in file.model.split('+'))}")
    return "|".join([*parts, f"nmtalign:{__version__}"])
