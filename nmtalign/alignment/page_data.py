"""The data of a page: the sentences it shows, with their gold links, packed into blocks.

Blocks come in pairs for the same entries; each is compressed (raw deflate) and written in base64.

| block   | content                                                                                            |
|---------|----------------------------------------------------------------------------------------------------|
| words   | JSON, a list per column: `id` sentence, `rank`, `model`, `first` (1 where a sentence begins), `end`|
|         | (1 if weights have the row and the column of `</s>`), `log_prob`, `aer` (null without gold links), |
|         | `source` and `target` (the words, each followed by a line feed)                                    |
| weights | 4 bytes, little-endian: the length of the JSON that follows, a list per column: `links`, `sure`,   |
|         | `possible` (flat: i, j, i, j ...; null without gold links), `surprise` (see below), `entropy` (of  |
|         | each row, in nats), `drawn` (0 if the weights were left out); then the matrices, one byte per      |
|         | weight, row by row                                                                                 |

A byte b stands for the weight b / 255, so a weight is off by at most 0.002. A surprise is the negative natural
logarithm of the probability of a target word in twentieths, or 255 if it is not known; `</s>` comes last. The browser
unpacks all words when it opens the page, so that they can be searched, and a block of weights when it shows one of its
sentences.
"""

import base64
import heapq
import json
import re
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import GoldLinks, LinkFile, count_links
from nmtalign.alignment.links import AlignmentRecord, Link
from nmtalign.errors import UsageError

BLOCK_ENTRIES = 128
BLOCK_CELLS = 1_000_000
MAX_CELLS = 250_000  # per sentence; larger matrices cannot be shown legibly and are left out
_SURPRISE_STEPS = 20
_UNKNOWN = 255
_PART = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)


@dataclass(frozen=True)
class PageEntry:
    """A record to show: of one model and one place in an n-best list."""

    record: AlignmentRecord
    model: int = 0  # place of its file in the list of files
    first: bool = True  # whether it is the first of its sentence
    gold: GoldLinks | None = None

    def cells(self) -> int:
        """Returns the number of weights that the page contains."""
        size = int(self.record.weights.size)
        return size if size <= MAX_CELLS else 0


def pack_words(entries: Sequence[PageEntry]) -> str:
    """Returns a block of words in base64."""
    records = [entry.record for entry in entries]
    columns = {
        "id": [record.sentence_id for record in records],
        "rank": [record.rank for record in records],
        "model": [entry.model for entry in entries],
        "first": [int(entry.first) for entry in entries],
        "end": [int(record.end) for record in records],
        "log_prob": [_rounded(record.log_prob) for record in records],
        "aer": [_aer(entry) for entry in entries],
        "source": [_joined(record.source) for record in records],
        "target": [_joined(record.target) for record in records],
    }
    return _packed(_json(columns))


def pack_weights(entries: Sequence[PageEntry]) -> str:
    """Returns a block of weights, links and gold links in base64."""
    columns = {
        "links": [_flat(entry.record.hard_links) for entry in entries],
        "sure": [entry.gold and _flat(sorted(entry.gold.sure)) for entry in entries],
        "possible": [entry.gold and _flat(sorted(entry.gold.possible)) for entry in entries],
        "surprise": [_surprise(entry.record.token_log_probs) for entry in entries],
        "entropy": [_rounded_entropies(entry.record) for entry in entries],
        "drawn": [int(entry.cells() == entry.record.weights.size) for entry in entries],
    }
    head = _json(columns)
    matrices = b"".join(_quantised(entry.record.weights) for entry in entries if entry.cells())
    return _packed(len(head).to_bytes(4, "little") + head + matrices)


def _quantised(weights: NDArray[Any]) -> bytes:
    """Returns one byte per weight."""
    bounded = np.nan_to_num(weights.astype(np.float32)).clip(0, 1)
    return bytes(np.rint(bounded * 255).astype(np.uint8))


def _surprise(log_probs: NDArray[Any]) -> list[int]:
    known = np.isfinite(log_probs)
    steps = np.rint(-np.where(known, log_probs, 0) * _SURPRISE_STEPS).clip(0, _UNKNOWN - 1)
    return [int(step) for step in np.where(known, steps, _UNKNOWN)]


def _rounded_entropies(record: AlignmentRecord) -> list[float | None]:
    """Returns the entropies of the rows with two decimals; None where there is no row."""
    return [round(value, 2) if np.isfinite(value) else None for value in record.entropies().tolist()]


def _aer(entry: PageEntry) -> float | None:
    if entry.gold is None:
        return None
    return round(count_links(entry.record.hard_links, entry.gold).rates().aer, 4)


def _rounded(log_prob: float) -> float | None:
    return round(log_prob, 3) if np.isfinite(log_prob) else None


def _flat(links: Iterable[Link]) -> list[int]:
    return [position for link in links for position in link]


def _joined(words: Sequence[str]) -> str:
    return "".join(word + "\n" for word in words)


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _packed(data: bytes) -> str:
    packer = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    return base64.b64encode(packer.compress(data) + packer.flush()).decode("ascii")


def parse_numbers(text: str) -> list[range]:
    """Returns the sentence numbers of "0-99,250", counted from 0, sorted and merged; raises UsageError if malformed."""
    ranges = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if last < first:
            raise UsageError(f"--sentences: {part!r} is not a number or a range; write 12 or 0-99, separated by commas")
        ranges.append(range(first, last + 1))
    merged: list[range] = []
    for numbers in sorted(ranges, key=lambda numbers: numbers.start):
        if merged and numbers.start <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, numbers.stop))
        else:
            merged.append(numbers)
    return merged


def sentences(
    files: Sequence[AlignmentFile], numbers: Sequence[range] | None = None, gold: LinkFile | None = None
) -> Iterator[list[PageEntry]]:
    """Yields the entries of each sentence: the n-best list of the first file, then the records of the other files.

    `numbers` (None: all) are sorted sentences of the first file. The other files are read in parallel, so with several
    files all must be sorted by sentence. Raises UsageError for a number that the first file does not have, InputError
    for gold links that do not fit.
    """
    groups = [_groups(model, _chosen(file, numbers, required=model == 0)) for model, file in enumerate(files)]
    entries: list[PageEntry] = []
    # In order of the sentences; of equal ones the first file comes first.
    for number, model, records in heapq.merge(*groups, key=lambda group: group[:2]):
        if model == 0:
            if entries:
                yield entries
            entries = []
        elif not entries or number != entries[0].record.sentence_id:  # the first file does not have this sentence
            continue
        for place, record in enumerate(records):
            entries.append(PageEntry(record, model, model == place == 0, _gold_of(record, gold)))
    if entries:
        yield entries


def _gold_of(record: AlignmentRecord, gold: LinkFile | None) -> GoldLinks | None:
    """Returns the gold links of a record; only the best entry of an n-best list has any.

    Raises InputError for a sentence without a line, and for a link outside the pair.
    """
    if gold is None or record.rank:
        return None
    gold.check_inside(record.sentence_id, len(record.source), len(record.target))
    return gold.pair(record.sentence_id)


def _groups(model: int, records: Iterable[AlignmentRecord]) -> Iterator[tuple[int, int, list[AlignmentRecord]]]:
    """Yields (sentence, model, adjacent records of the sentence with rising ranks)."""
    group: list[AlignmentRecord] = []
    for record in records:
        if group and (record.sentence_id != group[-1].sentence_id or record.rank <= group[-1].rank):
            yield group[0].sentence_id, model, group
            group = []
        group.append(record)
    if group:
        yield group[0].sentence_id, model, group


def _chosen(file: AlignmentFile, numbers: Sequence[range] | None, required: bool) -> Iterator[AlignmentRecord]:
    return iter(file) if numbers is None else chain.from_iterable(_span(file, span, required) for span in numbers)


def _span(file: AlignmentFile, span: range, required: bool) -> Iterator[AlignmentRecord]:
    """Yields the records of a range of sentences; raises UsageError if there are none and they are `required`."""
    start, stop = file.place_of(span.start), file.place_of(span.stop)
    if start == stop and required:
        has = f"sentences {file[0].sentence_id} to {file[-1].sentence_id}" if len(file) else "no sentences"
        raise UsageError(f"{file.path}: no sentence {span.start}; it has {has}, counted from 0")
    for place in range(start, stop):
        yield file[place]
