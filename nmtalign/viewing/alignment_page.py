"""The page of alignments: all sentences of one or several files, written block by block in constant memory.

The data of the page are a JSON object `about`, and blocks in pairs for the same sentences, each compressed (raw
deflate) and written in base64.

| block   | content                                                                                            |
|---------|----------------------------------------------------------------------------------------------------|
| words   | JSON, a list per column: `id` sentence, `rank`, `model`, `log_prob`, `aer` (null without gold      |
|         | links), `source` and `target` (the words, each followed by a line feed), `links`, `sure` and       |
|         | `possible` (flat: i, j, i, j ...)                                                                  |
| weights | the matrices, one byte per weight, row by row; those of more than `MAX_CELLS` weights are left out |

A byte b means the weight b / 255. The browser unpacks all words when it opens the page, so that they can be
searched, and a block of weights when it shows one of its sentences.
"""

import base64
import contextlib
import heapq
import json
import re
import sys
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from nmtalign.alignment.alignment_file import AlignmentFile, method_of
from nmtalign.alignment.link_files import LinkFigures, LinkFile, check_gold, count_links
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.version import __version__
from nmtalign.viewing.page import inert_json, page, part

BLOCK_ENTRIES = 128
BLOCK_CELLS = 1_000_000
MAX_CELLS = 250_000  # per sentence; larger matrices cannot be shown legibly
_PART = re.compile(r"(\d{1,15})(?:-(\d{1,15}))?", re.ASCII)
# Attributes of a file that the page shows, and how its links were chosen.
_SHOWN = ("direction", "made_by", "reading", "links", "model_hash", "nmtalign_version")

Entry = tuple[int, AlignmentRecord]  # number of the file, and one of its records
Named = Sequence[tuple[str, AlignmentFile]]


@dataclass
class PageSummary:
    """Counts of the contents of a page."""

    sentences: int = 0
    complete: bool = True  # whether the limit left out no sentence


def write_page(
    files: Sequence[tuple[str, Path]],
    output: Path,
    *,
    title: str = "",
    numbers: Sequence[range] = (),
    limit: int = 0,
    gold: LinkFile | None = None,
    end: bool = True,
) -> PageSummary:
    """Writes the page of one or several (name, alignment file), atomically.

    The page shows the sentences `numbers` (as `parse_numbers` returns them; none: all), at most `limit` (0: no limit),
    and `</s>` with `end`. Raises UsageError if there is no sentence to show or one is missing, InputError for gold
    links that do not fit.
    """
    summary = PageSummary()
    with contextlib.ExitStack() as stack:
        opened = [(name, stack.enter_context(AlignmentFile(path))) for name, path in files]
        if gold is not None:
            check_gold(gold, opened[0][1])
        data = _data(opened, numbers, limit, gold, end, summary)
        title = title or f"Alignments: {', '.join(path.name for _, path in files)}"
        with atomic_text(output) as stream:
            stream.writelines(page(title, part("alignments.html"), ["alignments.js"], data))
    return summary


def _data(
    files: Named, numbers: Sequence[range], limit: int, gold: LinkFile | None, end: bool, summary: PageSummary
) -> Iterator[tuple[str, str]]:
    """Yields the data of the page, and counts in the summary."""
    found, totals = sentences([file for _, file in files], numbers), [LinkFigures() for _ in files]  # with gold links
    block: list[Entry] = []
    for entries in islice(found, limit) if limit else found:
        summary.sentences += 1
        cells = sum(record.weights.size for _, record in (*block, *entries))
        if block and (len(block) + len(entries) > BLOCK_ENTRIES or cells > BLOCK_CELLS):
            yield from _packed_block(block, gold)
            block = []
        block += entries
        for model, record in entries:
            if gold is not None and not record.rank:
                gold.check_inside(record.sentence_id, len(record.source), len(record.target))
                totals[model] += count_links(record.hard_links, gold.pair(record.sentence_id))
    yield from _packed_block(block, gold)
    summary.complete = next(found, None) is None
    models = []
    for (name, file), figures in zip(files, totals, strict=True):
        facts = {**file.attributes, "links": method_of(file.attributes) or ""}
        shown = {key: str(facts[key]) for key in _SHOWN if facts.get(key, "") not in ("", "none")}
        models.append({"name": name, "about": shown, "aer": figures.aer if gold else None})
    about = {"version": __version__, "models": models, "complete": summary.complete, "end": end}
    yield "about", inert_json({**about, "largest": MAX_CELLS})


def sentences(files: Sequence[AlignmentFile], numbers: Sequence[range] = ()) -> Iterator[list[Entry]]:
    """Yields the entries of each sentence of the first file: its n-best list, then the records of the other files.

    The files are read in parallel, so with several files all must be sorted by sentence. Raises UsageError for a range
    in which the first file has no sentence.
    """
    records = [_chosen(file, numbers, model) for model, file in enumerate(files)]
    for _, group in groupby(heapq.merge(*records, key=itemgetter(0, 1)), key=itemgetter(0)):
        entries = [(model, record) for _, model, record in group]
        if entries[0][0] == 0:
            yield entries


def _chosen(file: AlignmentFile, numbers: Sequence[range], model: int) -> Iterator[tuple[int, int, AlignmentRecord]]:
    """Yields (sentence, model, record)."""
    for span in numbers or [range(sys.maxsize)]:
        start, stop = file.place_of(span.start), file.place_of(span.stop)
        if start == stop and model == 0:
            has = f"sentences {file[0].sentence_id} to {file[-1].sentence_id}, counted from 0" if len(file) else "none"
            raise UsageError(f"{file.path}: no sentence {span.start}; it has {has}")
        yield from ((record.sentence_id, model, record) for record in file.records(start, stop))


def parse_numbers(text: str) -> list[range]:
    """Returns the sentence numbers of "0-99,250", counted from 0, sorted and merged; raises UsageError if malformed."""
    merged, ranges = list[range](), list[tuple[int, int]]()
    for one in text.split(",") if text else ():
        match = _PART.fullmatch(one.strip())
        first = int(match[1]) if match else 0
        last = int(match[2] or first) if match else -1
        if last < first:
            raise UsageError(f"--sentence: {one!r} is not a number or a range; write 12 or 0-99, separated by commas")
        ranges.append((first, last + 1))
    for first, stop in sorted(ranges):
        if merged and first <= merged[-1].stop:
            merged[-1] = range(merged[-1].start, max(merged[-1].stop, stop))
        else:
            merged.append(range(first, stop))
    return merged


def _packed_block(block: Sequence[Entry], gold: LinkFile | None) -> Iterator[tuple[str, str]]:
    records = [record for _, record in block]
    pairs = [None if gold is None or record.rank else gold.pair(record.sentence_id) for record in records]
    columns = {
        "id": [record.sentence_id for record in records],
        "rank": [record.rank for record in records],
        "model": [model for model, _ in block],
        "log_prob": [round(value, 3) if np.isfinite(value := record.log_prob) else None for record in records],
        "aer": [
            None if pair is None else round(count_links(record.hard_links, pair).aer, 4)
            for record, pair in zip(records, pairs, strict=True)
        ],
        "source": ["".join(word + "\n" for word in record.source) for record in records],
        "target": ["".join(word + "\n" for word in record.target) for record in records],
        "links": [[*chain.from_iterable(record.hard_links)] for record in records],
        "sure": [[*chain.from_iterable(sorted(pair.sure))] if pair else [] for pair in pairs],
        "possible": [[*chain.from_iterable(sorted(pair.possible))] if pair else [] for pair in pairs],
    }
    yield "words", _packed(json.dumps(columns, ensure_ascii=False, separators=(",", ":")).encode())
    matrices = (record.weights for record in records if record.weights.size <= MAX_CELLS)
    levels = (np.rint(np.nan_to_num(weights).clip(0, 1) * 255).astype(np.uint8) for weights in matrices)
    yield "weights", _packed(b"".join(map(bytes, levels)))


def _packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data, 9, -zlib.MAX_WBITS)).decode("ascii")
