"""What a page shows: the sentences asked for, each with its entries of every file and its gold links."""

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from nmtalign.alignment.link_formats import NO_LINKS, GoldLinks, TextLinks
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.store import AlignmentFile
from nmtalign.alignment.view.packing import Entry
from nmtalign.errors import InputError, UsageError

_PART = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)


def parse_numbers(text: str) -> list[range]:
    """The sentence numbers of "0-99,250", counted from 0, rising and apart; raises UsageError for anything else."""
    ranges = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if last < first:
            raise UsageError(f"--sentences: {part!r} is not a number or a range; write 12 or 0-99, set apart by commas")
        ranges.append(range(first, last + 1))
    return _merged(sorted(ranges, key=lambda numbers: numbers.start))


def _merged(ranges: Iterable[range]) -> list[range]:
    merged: list[range] = []
    for numbers in ranges:
        if merged and numbers.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, numbers.stop))
        else:
            merged.append(numbers)
    return merged


@dataclass
class GoldLines:
    """The gold links of a file by sentence number; read whole."""

    path: Path
    base: int | None = None

    def __post_init__(self) -> None:
        self._text = TextLinks(self.path, self.base)
        self._pairs = list(self._text)

    def of(self, record: AlignmentRecord) -> GoldLinks | None:
        """Those of a record, none for a lower place of an n-best list: what people linked is not its text.

        Raises InputError for a sentence without a line and for a link that points outside the pair.
        """
        if record.rank:
            return None
        number = record.sentence_id
        if number >= len(self._pairs):
            if self._text.numbered:
                return NO_LINKS
            raise InputError(f"{self.path}: has {len(self._pairs)} lines, none for sentence {number} counted from 0")
        gold = self._pairs[number]
        for i, j in sorted(gold.possible):
            if i >= len(record.source) or j >= len(record.target):
                raise InputError(
                    f"{self._text.where(number, (i, j))}: link {i}-{j} (counted from 0) points outside the pair, which "
                    f"has {len(record.source)} source and {len(record.target)} target words"
                )
        return gold


def sentences(
    files: Sequence[AlignmentFile], numbers: Sequence[range] | None = None, gold: GoldLines | None = None
) -> Iterator[list[Entry]]:
    """The entries of each sentence: n-best places of the first file, then those the other files have of the sentence.

    `numbers` chooses sentences, rising; without it all are given. Sentences are those of the first file; the others
    are read beside it, so all must be in the order of the sentence numbers where there are several.
    Raises UsageError for a number that the first file does not have, InputError for gold links that do not fit.
    """
    links_of = gold.of if gold else _no_gold
    first, *others = (_groups(_chosen(file, numbers)) for file in files)
    fellows = [_Fellow(groups) for groups in others]
    for number, records in first:
        entries = [Entry(record, 0, place == 0, links_of(record)) for place, record in enumerate(records)]
        for model, fellow in enumerate(fellows, 1):
            entries += [Entry(record, model, False, links_of(record)) for record in fellow.of(number)]
        yield entries


def _no_gold(record: AlignmentRecord) -> GoldLinks | None:
    return None


class _Fellow:
    """A file read beside another: the records of a sentence as its turn comes."""

    def __init__(self, groups: Iterator[tuple[int, list[AlignmentRecord]]]) -> None:
        self._groups = groups
        self._next = next(groups, None)

    def of(self, number: int) -> list[AlignmentRecord]:
        while self._next is not None and self._next[0] < number:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] != number:
            return []
        records = self._next[1]
        self._next = next(self._groups, None)
        return records


def _groups(records: Iterable[AlignmentRecord]) -> Iterator[tuple[int, list[AlignmentRecord]]]:
    """Records that follow each other, have one sentence number and rise in rank."""
    for number, run in groupby(records, key=lambda record: record.sentence_id):
        group: list[AlignmentRecord] = []
        for record in run:
            if group and record.rank <= group[-1].rank:
                yield number, group
                group = []
            group.append(record)
        yield number, group


def _chosen(file: AlignmentFile, numbers: Sequence[range] | None) -> Iterator[AlignmentRecord]:
    return iter(file) if numbers is None else chain.from_iterable(_span(file, span) for span in numbers)


def _span(file: AlignmentFile, span: range) -> Iterator[AlignmentRecord]:
    """The records of some sentences, found by halving."""
    index = bisect_left(range(len(file)), span.start, key=lambda place: file[place].sentence_id)
    if index == len(file) or file[index].sentence_id not in span:
        has = f"sentences {file[0].sentence_id} to {file[-1].sentence_id}" if len(file) else "no sentences"
        raise UsageError(f"{file.path}: no sentence {span.start}; it has {has}, counted from 0")
    while index < len(file) and (record := file[index]).sentence_id in span:
        yield record
        index += 1
