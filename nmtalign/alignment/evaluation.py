"""Files of links compared with gold links: figures of all pairs, by length, by type of link, and the worst pairs."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.error_rates import (
    Lengths,
    LinkCounts,
    TypeCounts,
    WorstPair,
    count_pairs,
    count_types,
    f_measure,
    gold_lengths,
    total,
    worst_pairs,
)
from nmtalign.alignment.link_files import GoldLinks, LinkFile, Role, common_length, is_hdf5, read_links
from nmtalign.alignment.links import Link
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import LinkMethod
from nmtalign.text.lines import read_lines, shown
from nmtalign.version import __version__

Side = Sequence[Sequence[str]] | None  # the words of each line, if they are known


class LengthBucket(Protocol):
    """A range of sentence lengths, as `nmtalign.scoring.buckets.Bucket`."""

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
    precision: float | None
    recall: float | None
    aer: float | None
    f1: float | None

    def f_alpha(self, alpha: float) -> float | None:
        """Returns 1 / (alpha / precision + (1 - alpha) / recall)."""
        if self.precision is None or self.recall is None:
            return None
        return f_measure(self.precision, self.recall, alpha)


def figures_of(parts: Sequence[LinkCounts]) -> LinkFigures:
    """Returns the figures of several pairs together."""
    counts = total(parts)
    rates = counts.rates() if counts.links or counts.sure else None
    values = (None,) * 4 if rates is None else (rates.precision, rates.recall, rates.aer, rates.f1)
    return LinkFigures(len(parts), counts.sure, counts.links, counts.links_sure, counts.links_possible, *values)


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
        return count_pairs(self.found, self.gold)

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

    def by_type(self) -> Mapping[str, TypeCounts]:
        """Returns the counts of each type of link, and of NULL words."""
        return count_types(self.found, self.gold, self.lengths)

    def worst(self, most: int) -> list[WorstPair]:
        """Returns the pairs with the highest AER."""
        return worst_pairs(self.found, self.gold, most)

    def shown_link(self, number: int, link: Link) -> str:
        """Returns `i-j`, followed by the words if they are known: `3-4 red-rouge`."""
        source, target = self.words
        text = f"{link[0]}-{link[1]}"
        if source is None or target is None:
            return text
        return f"{text} {source[number][link[0]]}-{target[number][link[1]]}"


@dataclass(frozen=True)
class LinkComparison:
    """The evaluation of each file, and notes on what looks like a mistake in how the files are read."""

    systems: Sequence[LinkEvaluation]
    notes: Sequence[str]


def aer(
    links: Sequence[tuple[str, Path]],
    gold: Path,
    *,
    links_base: int | None = None,
    gold_base: int | None = None,
    reverse_links: bool = False,
    reverse_gold: bool = False,
    source: Path | None = None,
    target: Path | None = None,
    method: LinkMethod | None = None,
    threshold: float | None = None,
) -> LinkComparison:
    """Compares files of links, (name, path) each, with gold links: AER, precision, recall and F1.

    A file is text in Pharaoh's or NAACL's format, plain or .gz, `-` for stdin, or an alignment file. Positions count
    from `links_base` and `gold_base` (0 or 1; None: as usual in the format). `reverse_...`: the file has the target
    first. `source` and `target` are the texts, with words between spaces. `method` and `threshold` choose other links
    of alignment files than the stored ones. Raises InputError naming file and line, FormatError for a damaged alignment
    file, UsageError for a choice of links without an alignment file.
    """
    if threshold is not None and method == "argmax":
        raise UsageError("--threshold is for --links-method threshold; leave one of them out")
    stored = [is_hdf5(path) for _, path in links]
    if (method is not None or threshold is not None) and not any(stored):
        raise UsageError("--links-method and --threshold choose the links of an alignment file (.h5); none is given")
    answers = read_links(gold, "gold", gold_base, reverse_gold)
    files = [
        read_links(path, "links", links_base, reverse_links, method=method, threshold=threshold)
        if is_stored
        else read_links(path, "links", links_base, reverse_links)
        for (_, path), is_stored in zip(links, stored, strict=True)
    ]
    texts = {shown(path): [line.split() for line in read_lines(path)] for path in (source, target) if path}
    pairs = common_length([*files, answers], {name: len(lines) for name, lines in texts.items()})
    holder = next((file for file in [*files, answers] if file.words is not None), None)
    words = _side(source, texts, holder, 0), _side(target, texts, holder, 1)
    _check_inside(pairs, words, [answers, *files])
    bases: list[tuple[LinkFile, Role, int | None]] = [(answers, "gold", gold_base)]
    notes = [
        *_notes(pairs, bases + [(file, "links", links_base) for file in files]),
        *_turned_notes(files, answers, pairs),
    ]
    expected = [answers.pair(number) for number in range(pairs)]
    origin = shown(source) if source else holder.name if holder else "largest gold position"
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
    return LinkComparison(systems, notes)


def _check_inside(pairs: int, words: tuple[Side, Side], files: Sequence[LinkFile]) -> None:
    for number in range(pairs):
        source, target = (None if side is None else len(side[number]) for side in words)
        for file in files:
            file.check_inside(number, source, target)


def _side(path: Path | None, texts: Mapping[str, list[list[str]]], holder: LinkFile | None, side: int) -> Side:
    """Returns the words of a side: those of its text, else those of an alignment file."""
    if path:
        return texts[shown(path)]
    return [pair[side] for pair in holder.words] if holder is not None and holder.words is not None else None


def _lengths(gold: Sequence[GoldLinks], words: tuple[Side, Side]) -> list[Lengths]:
    """Returns the lengths of all pairs: of their words if these are known, else estimated from the gold links."""
    guesses = gold_lengths(gold)
    columns = [
        [guess[side] for guess in guesses] if lines is None else [len(line) for line in lines]
        for side, lines in enumerate(words)
    ]
    return list(zip(*columns, strict=True))


def _notes(pairs: int, files: Sequence[tuple[LinkFile, Role, int | None]]) -> Iterator[str]:
    """Yields notes on files that may be incomplete, or count from another base."""
    gold = files[0][0]
    if gold.open_ended and len(gold.pairs) < pairs:
        yield (
            f"{gold.name}: ends with sentence {len(gold.pairs)} of {pairs}; the others count as sentences without gold "
            "links"
        )
    for file, role, base in files:
        if base is None and file.base == 0 and file.format == "Pharaoh" and file.looks_one_based:
            yield f"{file.name}: no position is 0; if positions count from 1 there, give --{role}-base 1"


def _turned_notes(files: Sequence[LinkFile], gold: LinkFile, pairs: int) -> Iterator[str]:
    """Yields a note for each file that fits far better with source and target exchanged."""
    answers = [gold.pair(number) for number in range(pairs)]
    for file in files:
        found = [file.pair(number) for number in range(pairs)]
        rate = total(count_pairs([pair.possible for pair in found], answers)).rates().aer
        turned = total(count_pairs([pair.turned().possible for pair in found], answers)).rates().aer
        if turned < rate - 0.1:
            yield (
                f"{file.name}: turned round its AER would be {turned:.4f} and not {rate:.4f}; if it has the target "
                "first, give --reverse-links (or --reverse-gold)"
            )


def _signature(file: LinkFile, gold: LinkFile, answers: Sequence[GoldLinks]) -> str:
    """Returns everything that reproduces the figures."""
    parts = ["AER"]
    for role, one in (("links", file), ("gold", gold)):
        first = ",target-first" if one.reverse else ""
        parts.append(f"{role}:{Path(one.name).name},{one.format},from-{one.base}{first}")
    if file.method is not None:
        parts.append(f"method:{file.method}")
    parts.append(f"pairs:{len(answers)}")
    parts.append(f"sure:{sum(len(pair.sure) for pair in answers)}")
    parts.append(f"possible:{sum(len(pair.possible) for pair in answers)}")
    if file.model is not None:
        parts.append(f"model:{file.model[:12]}")
    return "|".join([*parts, f"nmtalign:{__version__}"])
