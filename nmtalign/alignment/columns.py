"""Records on their way into an HDF5 file: datasets cut into compressed chunks, a writing thread, the final file.

The bytes of the file depend on the records only. They do not depend on the times at which records arrive.
"""

import contextlib
import errno
import glob
import itertools
import os
import queue
import re
import shutil
import threading
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.layout import COMPRESSION, DATASETS, OFFSETS, SIDES, SPANS, dataset_type, value_shape
from nmtalign.alignment.links import Link
from nmtalign.alignment.partial_file import CHUNK, TAIL, PartialFile
from nmtalign.errors import FormatError
from nmtalign.files import atomic_path
from nmtalign.hdf5 import USER_BLOCK, seal

Array = NDArray[Any]
NAMES = tuple(DATASETS)
_BLOCKS_AHEAD = 2  # blocks that may wait for the writing thread
_ERRNO = re.compile(r"errno = (\d+)")


@dataclass(frozen=True)
class PackedRecord:
    """A record that waits to be written: flat float32 weights; for each side the text and the number of words."""

    weights: Array
    texts: tuple[bytes, bytes]  # UTF-8, each word followed by a line feed
    words: tuple[int, int]
    links: Sequence[Link]
    token_log_probs: Array
    log_prob: float
    sentence_id: int
    rank: int


class ColumnBuffers:
    """The datasets while they grow: for each the values that do not fill a chunk yet, and the last offsets."""

    def __init__(self, weights: str, tails: Mapping[int, bytes], totals: Mapping[str, int]) -> None:
        """`tails`: raw bytes by dataset number; `totals`: the last value of each of OFFSETS. Both start empty.

        Raises ValueError for an unknown dataset number, and for bytes that are not a number of complete values.
        """
        if not all(0 <= number < len(NAMES) for number in tails):
            raise ValueError("has a dataset that alignment files do not have")
        self._types = [dataset_type(name, weights) for name in NAMES]
        self.totals = dict.fromkeys(OFFSETS, 0) | dict(totals)
        self._tails = [self._from_bytes(number, tails.get(number, b"")) for number in range(len(NAMES))]
        self._saved = [len(tail) for tail in self._tails]  # values of each tail that the partial file has
        if not totals:
            for name in OFFSETS:
                number = NAMES.index(name)
                self._tails[number] = np.zeros(1, self._types[number])

    def add(self, records: Sequence[PackedRecord]) -> Iterator[tuple[int, bytes]]:
        """Adds records; yields (dataset number, compressed bytes) of each full chunk, in the order they were filled."""
        found: list[tuple[int, int, Array]] = []
        for number, (values, ends) in enumerate(map(self._values(records).__getitem__, NAMES)):
            size = DATASETS[NAMES[number]][1]
            joined = np.concatenate((self._tails[number], values))
            full = len(joined) // size
            filled = np.arange(1, full + 1) * size - len(self._tails[number])
            by = np.searchsorted(ends, filled).tolist()
            found += [(by[k], number, joined[k * size : (k + 1) * size]) for k in range(full)]
            self._tails[number] = joined[full * size :].copy()
            if full:
                self._saved[number] = 0
        for _, number, chunk in sorted(found, key=lambda each: each[:2]):
            yield number, pack(chunk)

    def unsaved(self) -> Iterator[tuple[int, bytes]]:
        """Yields what was added to each tail since the last call."""
        for number, tail in enumerate(self._tails):
            if len(tail) > self._saved[number]:
                yield number, tail[self._saved[number] :].tobytes()
                self._saved[number] = len(tail)

    def _stored(self, weights: Sequence[Array]) -> Array:
        joined = np.concatenate(weights)
        return to_half(joined) if self._types[NAMES.index("weights")].itemsize == 2 else joined

    def _from_bytes(self, number: int, raw: bytes) -> Array:
        return np.frombuffer(raw, self._types[number]).reshape(-1, *value_shape(NAMES[number]))

    def _values(self, records: Sequence[PackedRecord]) -> dict[str, tuple[Array, Array]]:
        """Returns for each dataset the values of the records, and the number of values up to the end of each record."""
        counts = {
            "weights": _ends(len(record.weights) for record in records),
            "links": _ends(len(record.links) for record in records),
            "token_log_prob": _ends(len(record.token_log_probs) for record in records),
        }
        values: dict[str, Any] = {
            "weights": self._stored([record.weights for record in records]),
            "links": list(itertools.chain.from_iterable(record.links for record in records)),
            "token_log_prob": np.concatenate([record.token_log_probs for record in records]),
            "log_prob": [record.log_prob for record in records],
            "sentence_id": [record.sentence_id for record in records],
            "rank": [record.rank for record in records],
        }
        added = {"weight_offsets": counts["weights"], "link_offsets": counts["links"]}
        for place, side in enumerate(SIDES):
            ends = _ends(len(record.texts[place]) for record in records)
            counts[f"{side}/text"] = added[f"{side}/text_offsets"] = ends
            added[f"{side}/word_offsets"] = _ends(record.words[place] for record in records)
            values[f"{side}/text"] = np.frombuffer(b"".join([record.texts[place] for record in records]), np.uint8)
        for name, ends in added.items():
            values[name] = self.totals[name] + ends
            self.totals[name] = int(values[name][-1])
        each = np.arange(1, len(records) + 1)
        return {
            name: (
                np.asarray(values[name], self._types[number]).reshape(-1, *value_shape(name)),
                counts.get(name, each),
            )
            for number, name in enumerate(NAMES)
        }


def _ends(lengths: Iterable[int]) -> Array:
    return np.cumsum(np.fromiter(lengths, np.int64))


def to_half(values: NDArray[np.float32]) -> NDArray[np.float16]:
    """Converts float32 to the nearest float16, with the result of `astype` in a third of its time.

    `astype` is slow for numbers below 2^-14, which are frequent among weights. There float16 has steps of 2^-24, and
    its bits are the number of steps.
    """
    small = np.abs(values) < 2**-14
    halves = np.where(small, np.copysign(np.float32(0), values), values).astype("<f2")
    steps = np.where(small, np.abs(values) * np.float32(2**24), np.float32(0))
    halves.view("<u2")[:] |= np.rint(steps).astype("<u2")
    return halves


def pack(chunk: Array) -> bytes:
    """Returns the bytes of a chunk after HDF5's filters: shuffle (first bytes of all values first), then gzip."""
    flat = np.ascontiguousarray(chunk).reshape(-1)
    if flat.itemsize > 1:
        flat = np.ascontiguousarray(flat.view(np.uint8).reshape(-1, flat.itemsize).T)
    return zlib.compress(flat.data, COMPRESSION)


@dataclass
class Progress:
    """Counts of what was written. The writing thread updates them, so that a commit never counts too much."""

    records: int = 0
    sentences: int = 0
    last_id: int = -(2**63)
    rises: bool = True  # sentence ids never fall

    def add(self, records: Sequence[PackedRecord]) -> None:
        """Counts more records."""
        self.records += len(records)
        for record in records:
            self.sentences += record.rank == 0
            self.rises &= record.sentence_id >= self.last_id
            self.last_id = record.sentence_id


def restored(state: Mapping[str, int | bool]) -> Progress:
    """Returns the counts that a commit has stored."""
    return Progress(int(state["records"]), int(state["sentences"]), int(state["last_id"]), bool(state["rises"]))


class WriterThread:
    """A thread that compresses blocks of records and writes them, in order. The next call raises its errors."""

    def __init__(self, partial: PartialFile, columns: ColumnBuffers, progress: Progress) -> None:
        self.progress = progress
        self.committed = progress.sentences
        self._partial, self._columns = partial, columns
        self._queue: queue.Queue[tuple[Sequence[PackedRecord], bool] | None] = queue.Queue(_BLOCKS_AHEAD)
        self._failure: BaseException | None = None
        # A daemon thread: the program may end at any moment without damage to the file.
        self._thread = threading.Thread(target=self._work, name="nmtalign-alignments", daemon=True)
        self._thread.start()

    def put(self, records: Sequence[PackedRecord], commit: bool) -> None:
        """Queues a block of complete sentences, and with `commit` a commit after it. Waits while the queue is full."""
        self._raise_failure()
        self._queue.put((records, commit))

    def stop(self) -> None:
        """Waits until everything is written and ends the thread."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join()
        self._raise_failure()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        while (item := self._queue.get()) is not None:
            if self._failure is None:
                try:
                    self._write(*item)
                except BaseException as error:
                    self._failure = error

    def _write(self, records: Sequence[PackedRecord], commit: bool) -> None:
        if records:
            for number, packed in self._columns.add(records):
                self._partial.append(CHUNK, number, packed)
            self.progress.add(records)
        if commit:
            for number, raw in self._columns.unsaved():
                self._partial.append(TAIL, number, raw)
            self._partial.commit({**asdict(self.progress), "totals": self._columns.totals})
            self.committed = self.progress.sentences


def build(partial: PartialFile, path: Path, attributes: Mapping[str, Any], weights: str) -> None:
    """Writes the HDF5 file of everything that is committed; `weights` is float16 or float32.

    The chunks are compressed already and are copied into the file. Raises ResourceError where the disk refuses, and
    FormatError if the partial file was damaged after it was written. Then there is no new file, and the partial file
    is unchanged.
    """
    content = partial.last_commit()
    if content is None:
        raise FormatError(f"{partial.path}: is damaged; write the file again")
    lengths = _lengths(content.state)
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):  # by a run that was killed in this function
        left.unlink(missing_ok=True)
    with atomic_path(path) as temporary, _system_errors():
        if shutil.disk_usage(temporary.parent).free < partial.end:  # HDF5 does not always survive a full disk
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # This layout can be read by every HDF5 tool since version 1.8.
        versions = ("earliest", "v110")
        with h5py.File(temporary, "w", libver=versions, locking=False, userblock_size=USER_BLOCK) as file:
            file.attrs.update({**attributes, "sentence_ids_rise": content.state["rises"]})
            datasets = [_dataset(file, name, lengths[name], dataset_type(name, weights)) for name in NAMES]
            done = [0] * len(NAMES)
            for number, packed in _all_chunks(partial, content.tails, weights):
                dataset = datasets[number]
                dataset.id.write_direct_chunk((done[number], 0)[: dataset.ndim], packed)
                done[number] += DATASETS[NAMES[number]][1]
        for name, found in zip(NAMES, done, strict=True):
            if not lengths[name] <= found < lengths[name] + DATASETS[name][1]:
                raise FormatError(f"{partial.path}: is damaged: {name} should have {lengths[name]} values")
        seal(temporary)


def _lengths(state: Mapping[str, Any]) -> dict[str, int]:
    """Returns the length of each dataset after a commit with this state (`records`, and the last offsets `totals`)."""
    records, totals = state["records"], state["totals"]
    return {
        **dict.fromkeys(OFFSETS, records + 1),
        **dict.fromkeys(("log_prob", "sentence_id", "rank"), records),
        **{data: totals[offsets] for data, offsets in SPANS},
        "token_log_prob": totals["target/word_offsets"] + records,
    }


def _dataset(file: Any, name: str, length: int, kind: np.dtype[Any]) -> Any:
    tail = value_shape(name)
    return file.create_dataset(
        name,
        shape=(length, *tail),
        maxshape=(None, *tail),
        chunks=(DATASETS[name][1], *tail),
        dtype=kind,
        compression="gzip",
        compression_opts=COMPRESSION,
        shuffle=True,
    )


def _all_chunks(partial: PartialFile, tails: Mapping[int, bytes], weights: str) -> Iterator[tuple[int, bytes]]:
    """Yields the committed chunks, then one chunk for each tail, filled up with zeros."""
    yield from partial.chunks()
    for number, name in enumerate(NAMES):
        if raw := tails.get(number):
            kind = dataset_type(name, weights)
            chunk = np.zeros((DATASETS[name][1], *value_shape(name)), kind)
            chunk.reshape(-1)[: len(raw) // kind.itemsize] = np.frombuffer(raw, kind)
            yield number, pack(chunk)


@contextlib.contextmanager
def _system_errors() -> Iterator[None]:
    """Raises what HDF5 reports about a disk as the operating system's own error."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        match = _ERRNO.search(str(error))
        if match:
            raise OSError(int(match[1]), os.strerror(int(match[1]))) from None
        raise
