"""The alignment file (HDF5, format version 4): layout, reader, and a writer that an interruption cannot harm.

docs/formats.md describes the layout: flat arrays and 64-bit offsets, so that every HDF5 tool can read it. A matrix has
a row for each target word and `</s>`, and a column for each source word and `</s>`. The ids of the sentences never
fall (`sentence_ids_rise`), which allows binary search.

HDF5 keeps its tables in many places of a file; a process that is killed between two writes leaves it unreadable. So the
writer appends the records to a journal, FILE.h5.partial, in blocks of `COMMIT` sentences. Each block has a length and a
checksum, so that after a kill everything up to the last complete block can be used. At the end the HDF5 file is made of
the journal; it is the same file whether or not the run was interrupted.
"""

import bisect
import contextlib
import json
import math
import os
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, Self, get_args, overload

import numpy as np
from numpy.typing import NDArray

from nmtalign import hdf5
from nmtalign.alignment.links import AlignmentRecord, LinkedPair, row_entropies
from nmtalign.errors import FormatError, NmtalignError, UsageError
from nmtalign.files import JOURNAL, PartialFile, atomic_path, disk_errors, kind_of, parse_json
from nmtalign.settings.command_settings import SoftSymmetrization, TranslateConfig
from nmtalign.settings.definition import select, shortened
from nmtalign.text.lines import SIDES, blocks, counted
from nmtalign.version import __version__

Array = NDArray[Any]

FORMAT, FORMAT_VERSION = "nmtalign alignments", 4
# Each dataset with its type and the values per chunk. With small chunks a sentence is read in well under a millisecond.
DATASETS: Mapping[str, tuple[str, int]] = {
    "weights": ("<f2", 16384),  # or <f4: the matrices, one after the other, row by row
    "source/text": ("|u1", 16384),  # UTF-8, each word followed by one line feed
    "target/text": ("|u1", 16384),
    "links": ("<i4", 2048),  # pairs (source, target), both counted from 0
    "token_log_prob": ("<f4", 4096),  # for each target word, then for </s>; record k starts at word_offsets[k] + k
    "entropy": ("<f4", 4096),  # of each row, in nats
    "log_prob": ("<f8", 1024),  # the sum of token_log_prob
    "sentence_id": ("<i8", 1024),  # line of the pair in its file, counted from 0
    "rank": ("<i4", 1024),  # place in the sentence's n-best list, from 0
    "weight_offsets": ("<i8", 1024),  # the first cell of each record; one more than records, as in all offsets
    "link_offsets": ("<i8", 1024),
    "source/text_offsets": ("<i8", 1024),  # in bytes
    "target/text_offsets": ("<i8", 1024),
    "source/word_offsets": ("<i8", 1024),  # the number of words before each record, so that Tx is a difference
    "target/word_offsets": ("<i8", 1024),
}
_VALUE_SHAPES = {name: (2,) if name == "links" else () for name in DATASETS}  # the shape of one value
OFFSETS = tuple(name for name in DATASETS if name.endswith("_offsets"))
WEIGHT_TYPES: Mapping[str, str] = {"float16": "<f2", "float32": "<f4"}
COMMIT = 32  # sentences of a block of the journal
FACTS: Mapping[str, object] = {
    "format": FORMAT,
    "format_version": FORMAT_VERSION,
    "links_order": "source, target; both counted from 0; </s> has no links",
    "text": "UTF-8; each word is followed by one line feed",
    "log_prob_unit": "natural logarithm; </s> included",
    "entropy_unit": "nats",
    "rows": "target words, then </s>",
    "columns": "source words, then </s>",
    "end_of_sentence_row": True,
    "end_of_sentence_column": True,
    "index_order": "record, row (target), column (source): cell = weight_offsets[record] + row * (Tx + 1) + column",
}
_BLOCK = struct.Struct("<QI")  # bytes and checksum of what follows
_CELLS = 2_000_000  # weights that are in memory together
_JOURNAL_DAMAGE = "file of an interrupted run", "move it away, or leave out --resume"
_PAGE = 1024  # records that are read together
_SEAL_AT_ONCE = 1 << 26  # bytes; the checksum of a larger file takes seconds, and only `info` compares it
_COMPRESSION = 1  # level of gzip: higher levels take several times as long for hardly smaller files
# Settings and options that may differ between a run and the one that resumes it. `files_sha256` has the files' content.
_FREE = frozenset(("source_file", "target_file", "nmtalign_version"))
FREE_OPTIONS = select(TranslateConfig, lambda one: one.affects == "machine" or one.is_path)


def _lengths(records: int, totals: Mapping[str, int]) -> dict[str, int]:
    """Returns the length that each dataset must have; `totals` is the last value of each of OFFSETS."""
    return {
        **dict.fromkeys(OFFSETS, records + 1),
        **dict.fromkeys(("log_prob", "sentence_id", "rank"), records),
        **{f"{side}/text": totals[f"{side}/text_offsets"] for side in SIDES},
        "weights": totals["weight_offsets"],
        "links": totals["link_offsets"],
        **dict.fromkeys(("token_log_prob", "entropy"), totals["target/word_offsets"] + records),
    }


class AlignmentFile(contextlib.AbstractContextManager["AlignmentFile"]):
    """A file of `nmtalign align`: `with AlignmentFile(path) as file: file[7].weights`; also slices and `for`.

    `file.links()` reads the words and hard links of all records without their weights, which is several times as fast.
    A record is read in well under a millisecond, and the memory used does not grow with the file. The object works in
    forked and spawned processes. Raises FormatError naming the file if it is missing, damaged or of another kind.

    `attributes` are those of the root, and `dtype` is the type in which weights are stored.
    """

    _closed = False

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        if not self.path.exists():
            raise FormatError(f"{self.path}: no such file; `nmtalign align -o FILE.h5` writes one")
        if not hdf5.is_hdf5(self.path):
            kind = kind_of(self.path) or "no regular file"
            why = "not HDF5, or cut off" if kind == "a binary file" else f"it is {kind}"
            raise FormatError(f"{self.path}: not an alignment file ({why}); `nmtalign align -o FILE.h5` writes one")
        with self._damage():
            hdf5.check_seal(self.path, _SEAL_AT_ONCE)
            self._file = hdf5.opened(self.path)
            self.attributes = hdf5.plain_attributes(self._file)
            self._check_format()
            self._datasets = _known(hdf5.plain_datasets(self._file))
            self.dtype = str(self._datasets["weights"].dtype)
            self._length = len(self._datasets["sentence_id"])
            for name, length in _lengths(self._length, {name: self._last(name) for name in OFFSETS}).items():
                if len(self._datasets[name]) != length:
                    raise ValueError(f"{name} has {len(self._datasets[name])} values; the records need {length}")

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return AlignmentFile, (self.path,)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: int) -> AlignmentRecord: ...

    @overload
    def __getitem__(self, index: slice) -> list[AlignmentRecord]: ...

    def __getitem__(self, index: int | slice) -> AlignmentRecord | list[AlignmentRecord]:
        if isinstance(index, slice):
            start, stop, step = index.indices(self._length)
            return list(self.records(start, stop)) if step == 1 else [self[i] for i in range(start, stop, step)]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"{self.path}: no record {index}; it has {self._length}, counted from 0")
        return next(self.records(position, position + 1))

    def __iter__(self) -> Iterator[AlignmentRecord]:
        return self.records(0, self._length)

    def records(self, start: int, stop: int) -> Iterator[AlignmentRecord]:
        """Yields the records of a range."""
        with self._damage():
            for first, page in self._pages(start, stop):
                yield from self._read(first, page)

    def links(self) -> Iterator[LinkedPair]:
        """Yields the words and hard links of each record, in order. The weights are not read."""
        with self._damage():
            for _, page in self._pages(0, self._length):
                yield from self._read_links(page)

    def sentence(self, number: int) -> list[AlignmentRecord]:
        """Returns the records of a sentence (its line in the input, from 0), best first; [] if there are none."""
        return self[self.place_of(number) : self.place_of(number + 1)]

    def place_of(self, number: int) -> int:
        """Returns the place of the first record whose sentence is `number` or a later one."""
        with self._damage():
            return bisect.bisect_left(self._datasets["sentence_id"], number)

    def sentence_count(self) -> int:
        """Returns the number of sentences, each of which has one record of rank 0."""
        with self._damage():
            return int(np.count_nonzero(self._datasets["rank"][:] == 0))

    def close(self) -> None:
        """Closes the file, which cannot be read afterwards."""
        self._file.close()
        self._closed = True

    def info(self) -> dict[str, Any]:
        """Returns the kind of file, counts of pairs, words, links and cells, the bytes on disk, and the attributes."""
        with self._damage():
            hdf5.check_seal(self.path)
            cells, size = len(self._datasets["weights"]), self.path.stat().st_size
            return {
                "kind": "alignments",
                "pairs": self._length,
                "sentences": self.sentence_count(),
                **{f"{side}_words": self._last(f"{side}/word_offsets") for side in SIDES},
                "links": len(self._datasets["links"]),
                "cells": cells,
                "weights": self.dtype,
                "bytes": size,
                "bytes_per_cell": size / cells if cells else 0.0,
                "attributes": dict(self.attributes),
            }

    def _damage(self) -> contextlib.AbstractContextManager[None]:
        if self._closed:
            raise UsageError(f"{self.path}: this AlignmentFile is closed; read it before, inside the `with`")
        return hdf5.damage(self.path, "alignment file", "write it again")

    def _check_format(self) -> None:
        if self.attributes.get("format") != FORMAT:
            raise FormatError(f"{self.path}: not an alignment file of nmtalign")
        version = self.attributes.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(
                f"{self.path}: alignment file of format version {version}, and nmtalign {__version__} reads version "
                f"{FORMAT_VERSION}; make the file again, or use the nmtalign that wrote it"
            )
        if not (self.attributes.get("end_of_sentence_column", True) and self.attributes.get("sentence_ids_rise", True)):
            raise FormatError(f"{self.path}: has no column for </s>, or unsorted sentences; align the texts again")

    def _last(self, name: str) -> int:
        offsets = self._datasets[name]
        return int(offsets[len(offsets) - 1]) if len(offsets) else 0

    def _pages(self, start: int, stop: int) -> Iterator[tuple[int, dict[str, Array]]]:
        """Yields pages of at most `_CELLS` weights, or one record: the number of the first record, and small values."""
        while start < stop:
            cells = self._datasets["weight_offsets"][start : min(start + _PAGE, stop) + 1]
            end = start + max(1, int(np.searchsorted(cells - cells[0], _CELLS, side="right")) - 1)
            page = {name: self._datasets[name][start : end + 1] for name in OFFSETS}
            for name, offsets in page.items():
                if offsets[0] < 0 or offsets[-1] > self._last(name) or (np.diff(offsets) < 0).any():
                    raise ValueError(f"{name} does not rise")
            page |= {name: self._datasets[name][start:end] for name in ("log_prob", "sentence_id", "rank")}
            if (np.diff(page["sentence_id"], prepend=0) < 0).any():
                raise ValueError("sentence_id does not rise from 0")
            yield start, page
            start = end

    def _read(self, first: int, page: Mapping[str, Array]) -> Iterator[AlignmentRecord]:
        """Yields the records of a page, the first of which has this number."""
        weights = self._parts("weights", page["weight_offsets"])
        ends = page["target/word_offsets"]
        token_log_probs = self._parts("token_log_prob", ends + np.arange(first, first + len(ends)))
        for k, pair in enumerate(self._read_links(page)):
            shape = len(pair.target) + 1, len(pair.source) + 1
            yield AlignmentRecord(
                source=pair.source,
                target=pair.target,
                weights=weights[k].reshape(shape).astype(np.float32),
                log_prob=float(page["log_prob"][k]),
                sentence_id=pair.sentence_id,
                token_log_probs=token_log_probs[k],
                hard_links=pair.links,
                rank=pair.rank,
            )

    def _read_links(self, page: Mapping[str, Array]) -> Iterator[LinkedPair]:
        links = self._parts("links", page["link_offsets"])
        texts = [self._parts(f"{side}/text", page[f"{side}/text_offsets"]) for side in SIDES]
        for k, own in enumerate(links):
            source, target = (text[k].tobytes().decode().split("\n")[:-1] for text in texts)
            pairs, number = tuple((i, j) for i, j in own.tolist()), int(page["sentence_id"][k])
            if any(not (0 <= i < len(source) and 0 <= j < len(target)) for i, j in pairs):
                raise ValueError(f"sentence {number} has a link outside its {len(source)} and {len(target)} words")
            yield LinkedPair(tuple(source), tuple(target), pairs, number, int(page["rank"][k]))

    def _parts(self, name: str, offsets: Array) -> list[Array]:
        values = self._datasets[name][offsets[0] : offsets[-1]]
        bounds = (offsets - offsets[0]).tolist()
        return [values[begin:end] for begin, end in pairwise(bounds)]


def _known(datasets: dict[str, Any]) -> dict[str, Any]:
    """Returns the datasets of the layout; raises ValueError if one is missing or has a wrong type or shape."""
    for name, (usual, _) in DATASETS.items():
        if name not in datasets:
            raise ValueError(f"it has no dataset {name}")
        kinds = WEIGHT_TYPES.values() if name == "weights" else (usual,)
        dataset = datasets[name]
        if dataset.dtype not in map(np.dtype, kinds) or dataset.shape[1:] != _VALUE_SHAPES[name]:
            raise ValueError(f"{name} has the type {dataset.dtype} and the shape {dataset.shape}")
    return {name: datasets[name] for name in DATASETS}


class AlignmentWriter:
    """Writes records: `with AlignmentWriter(path, {"model_hash": ...}) as writer: writer.add(record)`.

    The file is called FILE.h5.partial until the block ends. If an error is raised in the block, or the process is
    killed, FILE.h5 does not change, and FILE.h5.partial has all sentences but the last few (at most `COMMIT`).

    With `resume` the writer continues that file. A complete FILE.h5 does not change, and nothing can be added to it.
    After `__enter__`, `records` counts the records that exist and `sentences` their sentences (an n-best list is one
    sentence); the caller continues with the next one. The result is byte for byte that of an uninterrupted run.
    UsageError names the difference if the file was begun with other `attributes` or `dtype`; so the attributes should
    include all that the records depend on (hash of the model, options, SHA-256 of the texts). `at_most` resumes
    after at most this number of sentences, and does not use a complete file that has more. Without `resume` an existing
    FILE.h5.partial is renamed to FILE.h5.partial.old until the new file is complete, and `notify` gets a message.

    `dtype` float16 stores a weight to within 0.00025, float32 exactly. `left()` reports what remains after an
    interruption. Raises ResourceError if the file cannot be written.
    """

    def __init__(
        self,
        path: Path,
        attributes: Mapping[str, Any],
        dtype: str = "float16",
        *,
        resume: bool = False,
        at_most: int | None = None,
        notify: Callable[[str], object] = lambda message: None,
    ) -> None:
        self.attributes = {**attributes, **FACTS}
        self._types = {name: np.dtype(kind) for name, (kind, _) in DATASETS.items()} | {"weights": np.dtype(dtype)}
        self._settings = {**self.attributes, "weights": np.dtype(dtype).name}
        self._resume, self._at_most, self._notify = resume, at_most, notify
        self._journal = PartialFile(path)
        self.path, self.partial = self._journal.path, self._journal.partial
        self.complete = False  # whether an earlier run has completed the file
        self.records = self.sentences = 0  # so far
        self._before = 0, -1  # the sentence and the rank of the last record
        self._committed = 0  # sentences in the journal
        # The values of each record by dataset; for an offset, by how much it rises, such as the cells of the record.
        self._waiting: list[dict[str, Any]] = []
        self._cells = 0  # of the waiting records

    def __enter__(self) -> Self:
        self._journal.open()
        try:
            if not self._resume:
                self._journal.set_aside(self._notify)
            if not self._journal.is_empty():
                self._continue()
            elif not (self._resume and self.path.exists() and self._takes_complete()):
                self._start()
        except BaseException:
            self._journal.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:
            self._break_off()
            return
        try:
            if not self.complete:
                self._commit()
                self._build()
        except BaseException:
            self._break_off()
            raise
        self._journal.close(remove=True)
        with disk_errors(self._journal.old):
            self._journal.old.unlink(missing_ok=True)

    def left(self) -> str:
        """Returns what remains after an interruption, for the end of a message; "" if nothing."""
        if not self._committed or not self.partial.exists():
            return ""
        return f"; {self.partial} has {counted(self._committed, 'pair')}, and --resume continues after them"

    def add(self, record: AlignmentRecord) -> None:
        """Adds a record as `align` makes it and as `AlignmentFile` reads it.

        The entries of an n-best list follow each other with `rank` 0, 1, ... Raises ValueError for shapes that do not
        fit, a word with a line feed, a link outside its pair, and ids or ranks out of order; UsageError if an earlier
        run has completed the file.
        """
        if self.complete:
            raise UsageError(
                f"{self.path}: is complete; the texts have more than its {self.sentences:,} pairs; leave out --resume"
            )
        links, sentence_id, rank = record.hard_links, record.sentence_id, record.rank
        rows, columns = len(record.target) + 1, len(record.source) + 1
        if record.weights.shape != (rows, columns):
            shape = record.weights.shape
            raise ValueError(f"weights have the shape {shape}; these words and </s> need {(rows, columns)}")
        log_probs = record.token_log_probs
        if log_probs.shape != (rows,):
            raise ValueError(f"log-probabilities have the shape {log_probs.shape}; these words and </s> need ({rows},)")
        for i, j in links:
            if not (0 <= i < columns - 1 and 0 <= j < rows - 1):
                raise ValueError(f"the link {i}-{j} is outside its pair")
        last_id, last_rank = self._before
        if rank != (last_rank + 1 if sentence_id == last_id else 0):
            raise ValueError(f"entry {rank} of sentence {sentence_id} does not follow the one before it")
        if sentence_id < last_id:
            raise ValueError(f"sentence {sentence_id} comes after sentence {last_id}; add them in order")
        waiting = self.sentences - self._committed
        if rank == 0 and (waiting == COMMIT or self._cells > _CELLS):  # the sentence before is complete
            self._commit()
        stored = record.weights.astype(self._types["weights"])
        texts = _joined(record.source), _joined(record.target)
        values = {
            "weights": stored.reshape(-1),
            "source/text": np.frombuffer(texts[0], np.uint8),
            "target/text": np.frombuffer(texts[1], np.uint8),
            "links": np.array(links, "<i4").reshape(-1, 2),
            "token_log_prob": log_probs,
            "entropy": row_entropies(stored),
            "log_prob": [record.log_prob],
            "sentence_id": [sentence_id],
            "rank": [rank],
        }
        sizes = stored.size, len(links), len(texts[0]), len(texts[1]), columns - 1, rows - 1
        self._waiting.append(values | {name: [size] for name, size in zip(OFFSETS, sizes, strict=True)})
        self._cells += stored.size
        self.records += 1
        self.sentences += rank == 0
        self._before = sentence_id, rank

    def _takes_complete(self) -> bool:
        """Takes the complete file as the result, unless it has too many sentences."""
        with AlignmentFile(self.path) as file:
            check_same(self.path, {**file.attributes, "weights": file.dtype}, self._settings)
            records, sentences = len(file), file.sentence_count()
        if self._at_most is None or sentences <= self._at_most:
            self.records, self.sentences, self.complete = records, sentences, True
        return self.complete

    def _start(self) -> None:
        self._journal.cut(0)
        self._journal.write(JOURNAL)
        self._append(json.dumps(self._settings).encode())

    def _continue(self) -> None:
        """Continues the journal after its last complete block; removes what follows."""
        end = 0
        with hdf5.damage(self.partial, *_JOURNAL_DAMAGE):
            for payload, place in self._payloads():
                if not end:
                    check_same(self.partial, dict(parse_json(payload.decode())), self._settings)
                else:
                    values = self._unpacked(payload)
                    sentences = self.sentences + int((values["rank"] == 0).sum())
                    if self._at_most is not None and sentences > self._at_most:
                        break
                    self.records, self.sentences = self.records + len(values["rank"]), sentences
                    self._before = int(values["sentence_id"][-1]), int(values["rank"][-1])
                end = place
        self._committed = self.sentences
        if end:
            self._journal.cut(end)
        else:
            self._start()

    def _payloads(self) -> Iterator[tuple[bytes, int]]:
        """Yields the content of each complete block, the settings first, and the place where it ends."""
        with disk_errors(self.partial, "read"), self.partial.open("rb", buffering=1 << 20) as stream:
            start = stream.read(len(JOURNAL))
            if start != JOURNAL and not JOURNAL.startswith(start):  # a run that was killed at once leaves its beginning
                raise FormatError(
                    f"{self.partial}: is not a file of an interrupted run; move it away, or leave out --resume"
                )
            size = os.fstat(stream.fileno()).st_size
            while len(head := stream.read(_BLOCK.size)) == _BLOCK.size:
                length, checksum = _BLOCK.unpack(head)
                if length > size - stream.tell() or zlib.crc32(payload := stream.read(length)) != checksum:
                    return
                yield payload, stream.tell()

    def _append(self, payload: bytes) -> None:
        self._journal.write(_BLOCK.pack(len(payload), zlib.crc32(payload)) + payload)

    def _commit(self) -> None:
        """Adds the waiting records, complete sentences, to the journal."""
        if not self._waiting:
            return
        values = {name: np.concatenate([one[name] for one in self._waiting]) for name in DATASETS}
        sizes = np.stack([values.pop(name) for name in OFFSETS], 1).astype("<i8")
        parts = [own.astype(self._types[name]).data for name, own in values.items()]
        self._append(b"".join([struct.pack("<Q", len(sizes)), sizes.data, *parts]))
        self._committed = self.sentences
        self._waiting, self._cells = [], 0

    def _unpacked(self, payload: bytes) -> dict[str, Array]:
        """Returns the values of a block by dataset; raises ValueError if they are not those that its sizes need."""
        records = int(np.frombuffer(payload, "<u8", 1)[0])
        sizes = np.frombuffer(payload, "<i8", records * len(OFFSETS), 8).reshape(records, len(OFFSETS))
        place = 8 + sizes.nbytes
        if not records or (sizes < 0).any():
            raise ValueError("a block without records")
        lengths = _lengths(records, dict(zip(OFFSETS, map(int, sizes.sum(0, dtype=object)), strict=True)))
        values: dict[str, Array] = dict(zip(OFFSETS, sizes.T, strict=True))
        for name in DATASETS:
            if name not in OFFSETS:
                shape = (lengths[name], *_VALUE_SHAPES[name])
                values[name] = np.frombuffer(payload, self._types[name], math.prod(shape), place).reshape(shape)
                place += values[name].nbytes
        if place != len(payload):
            raise ValueError(f"a block of {len(payload):,} bytes, and its records need {place:,}")
        return values

    def _build(self) -> None:
        """Writes the HDF5 file of the journal. If that fails, there is no new file, and the journal stays."""
        damage = hdf5.damage(self.partial, *_JOURNAL_DAMAGE)
        with damage, atomic_path(self.path) as temporary, hdf5.created(temporary) as file:
            rises = {"nmtalign_version": __version__, "sentence_ids_rise": True}
            hdf5.write_attributes(file, {**self.attributes, **rises})
            datasets, packed = {}, {"compression": "gzip", "compression_opts": _COMPRESSION, "shuffle": True}
            for name, (_, chunk) in DATASETS.items():
                first, most, chunks = ((size, *_VALUE_SHAPES[name]) for size in (0, None, chunk))
                kind = self._types[name]
                datasets[name] = file.create_dataset(name, first, kind, maxshape=most, chunks=chunks, **packed)
            totals = dict.fromkeys(OFFSETS, np.zeros(1, np.int64))
            for name, start in totals.items():
                _extend(datasets[name], start)
            payloads = islice(self._payloads(), 1, None)  # without the settings
            found = (self._unpacked(payload) for payload, _ in payloads)
            for group in blocks(((block, len(block["weights"])) for block in found), _CELLS):
                for name in group[0]:
                    values = np.concatenate([block[name] for block in group])
                    if name in totals:
                        totals[name] = values = totals[name][-1] + values.cumsum()
                    _extend(datasets[name], values)
            records = len(datasets["rank"])
            if records != self.records:
                raise ValueError(f"{records} complete records, and {self.records} were written")

    def _break_off(self) -> None:
        """Leaves the journal for a run that resumes; a journal without records is removed."""
        self._journal.close(remove=not self._committed)
        if not self._committed:
            with contextlib.suppress(NmtalignError, OSError):  # the first error is being raised already
                self._journal.old.replace(self.partial)


def _extend(dataset: Any, values: Array) -> None:
    start = len(dataset)
    dataset.resize(start + len(values), axis=0)
    dataset[start:] = values


def _joined(words: Sequence[str]) -> bytes:
    """Returns the words in UTF-8, each followed by a line feed; a lone surrogate, possible in JSON, becomes "?"."""
    text = "".join([f"{word}\n" for word in words])
    if text.count("\n") != len(words):
        raise ValueError("a word contains a line feed, which ends a word in the file")
    return text.encode(errors="replace")


def method_of(attributes: Mapping[str, Any]) -> str | None:
    """How the links of a file were chosen, such as "argmax" or "agreement,0.6"; None if no attribute records it."""
    symmetrized, threshold = attributes.get("symmetrization", "none"), attributes.get("threshold")
    parts = [] if symmetrized in get_args(SoftSymmetrization) else [attributes.get("links_method")]
    parts += [] if symmetrized == "none" else [symmetrized]
    parts += [f"{threshold:g}"] if isinstance(threshold, float) and threshold else []
    parts += [] if attributes.get("reading") == "current" else [attributes.get("reading")]
    return ",".join(str(part) for part in parts if part) or None


def check_same(path: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError naming the first setting that differs between this run and the one that began `path`.

    Objects, also as JSON text, are compared by key. The places of the texts, and options of the machine such as
    threads, may differ.
    """
    before, after = ({name: "" if value is None else value for name, value in _flat(one)} for one in (begun, now))
    for name in {**after, **before}:
        if name.split(".")[0] in now and before.get(name, "") != after.get(name, ""):
            was, is_now = (shortened(str(one.get(name, ""))) or "nothing" for one in (before, after))
            fix = "resume with the same model, texts and options, or leave out --resume"
            raise UsageError(f"{path}: was begun with {name} = {was}, and now it is {is_now}; {fix}")


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) of the settings that must not change; `name.key` for each key of a JSON object."""
    for name in (name for name in settings if name not in _FREE):
        value = settings[name]
        with contextlib.suppress(TypeError, ValueError):
            value = parse_json(value)
        if isinstance(value, dict):
            free = FREE_OPTIONS if name == "options" else ()
            yield from ((f"{name}.{key}", value[key]) for key in value if key not in free)
        else:
            yield name, settings[name]
