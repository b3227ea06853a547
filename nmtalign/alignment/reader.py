"""Reading alignments from an HDF5 file; `nmtalign.alignment.layout` says what it holds."""

import contextlib
import itertools
import os
from collections import OrderedDict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, overload

import h5py
import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.chunks import column_type
from nmtalign.alignment.layout import (
    DATASETS,
    FORMAT,
    FORMAT_VERSION,
    OFFSETS,
    SIDES,
    SPANS,
    VERSIONS_READ,
    WEIGHT_TYPES,
    row_shape,
)
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.settings import plain
from nmtalign.errors import FormatError
from nmtalign.hdf5 import check_seal, damage, plain_attributes, plain_datasets
from nmtalign.version import __version__

_PAGE = 1024  # records whose offsets are read together
_OFFSETS_READ = tuple(name for name in OFFSETS if name != "source/word_offsets")  # words are counted as they are read
_SEAL_AT_ONCE = 1 << 26  # bytes: only `info` compares the checksum of a larger file, which takes seconds
_PAGES = 64  # pages kept in memory
_BLOCK_CELLS = 2_000_000  # cells that are read together, of more than one record


class AlignmentFile:
    """Reads what `AlignmentWriter` wrote: `with AlignmentFile(path) as file: file[7].weights`; also slices and `for`.

    A record is read in well under a millisecond, and memory stays small however long the file is. Safe in forked
    workers and, as it pickles by its path, in spawned ones: each process opens the file for itself. Raises FormatError
    naming the file if it is missing, foreign or damaged.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file: Any = None
        self._datasets: dict[str, Any] = {}
        self._process = 0
        self._pages: OrderedDict[int, dict[str, NDArray[Any]]] = OrderedDict()
        self._check_path()
        with self._damage():
            self._sealed = check_seal(self.path, _SEAL_AT_ONCE)
            self.attributes = plain_attributes(self._open())
            self._check_format()
            self.end = bool(self.attributes.get("end_of_sentence_column", True))
            self.dtype = str(self._dataset("weights").dtype)  # of the weights as they are stored
            self._length = len(self._dataset("sentence_id"))
            self._check_lengths()

    def __enter__(self) -> Self:
        return self

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
            return [self[i] for i in range(*index.indices(self._length))]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"{self.path}: no record {index}; it has {self._length}, counted from 0")
        return next(self._read(position, position + 1))

    def __iter__(self) -> Iterator[AlignmentRecord]:
        start = 0
        while start < self._length:
            stop = self._block_end(start)
            yield from self._read(start, stop)
            start = stop

    def shape(self, name: str) -> tuple[int, ...]:
        """The shape of a dataset of the layout."""
        if name == "rank":
            return (self._length,)
        with self._damage():
            shape: tuple[int, ...] = self._dataset(name).shape
            return shape

    def kind(self, name: str) -> np.dtype[Any]:
        """The type of a dataset's values."""
        return column_type(name, self.dtype)

    def blocks(self, name: str, size: int = 1 << 20) -> Iterator[NDArray[Any]]:
        """The values of a dataset, some at a time."""
        for start in range(0, self.shape(name)[0], size):
            with self._damage():
                stop = start + size
                block = self._ranks(start, stop) if name == "rank" else self._dataset(name)[start:stop]
            yield block

    def sentence(self, number: int) -> list[AlignmentRecord]:
        """The records of a sentence (its line in the input, from 0), the best first; none where there is no such.

        The records of one sentence stand beside each other.
        """
        with self._damage():
            ids = self._dataset("sentence_id")
            if self.attributes.get("sentence_ids_rise", False):
                first, last = (_search(ids, value, self._length) for value in (number, number + 1))
            else:
                found = np.flatnonzero(ids[:] == number)
                first, last = (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)
        return [record for record in self[first:last] if record.sentence_id == number]

    def sentence_count(self) -> int:
        """Of how many sentences there are records: each has one of rank 0."""
        return sum(int(np.count_nonzero(ranks == 0)) for ranks in self.blocks("rank"))

    def _ranks(self, start: int, stop: int) -> NDArray[Any]:
        if self.attributes["format_version"] > 1:
            ranks: NDArray[Any] = self._dataset("rank")[start:stop]
            return ranks
        return np.zeros(max(0, min(stop, self._length) - start), np.int32)

    def close(self) -> None:
        """Closes the file; the next access opens it again."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._datasets = {}

    def info(self) -> dict[str, Any]:
        """What the file holds: counts of pairs, words, links and cells, bytes on disk, and the attributes.

        `checked` says how much of the content was read to find damage: all of it where the file has a seal.
        """
        with self._damage():
            check_seal(self.path)
            cells, size = len(self._dataset("weights")), self.path.stat().st_size
            words = {side: int(self._dataset(f"{side}/word_offsets")[-1]) for side in SIDES}
            return {
                "pairs": self._length,
                "sentences": self.sentence_count(),
                "source_words": words["source"],
                "target_words": words["target"],
                "links": len(self._dataset("links")),
                "cells": cells,
                "weights": str(self._dataset("weights").dtype),
                "bytes": size,
                "bytes_per_cell": size / cells if cells else 0.0,
                "checked": "every byte" if self._sealed else "structure and sizes, not every value",
                "attributes": {name: plain(value) for name, value in self.attributes.items()},
            }

    @contextlib.contextmanager
    def _damage(self) -> Iterator[None]:
        try:
            with damage(self.path, "alignment file", "write it again"):
                yield
        except FormatError:
            self.close()
            raise

    def _check_path(self) -> None:
        if not self.path.exists():
            raise FormatError(f"{self.path}: no such file; write it with `nmtalign align -o {self.path}`")
        if not self.path.is_file():
            raise FormatError(f"{self.path}: not an alignment file (no regular file)")

    def _open(self) -> Any:
        """The file, opened by this process: a handle that came through a fork would share its place with the parent."""
        if self._file is None or self._process != os.getpid():
            self.close()
            self._check_path()
            if not h5py.is_hdf5(self.path):
                raise FormatError(f"{self.path}: not an alignment file (not HDF5, or cut off)")
            self._file = h5py.File(self.path, "r", locking=False)
            self._process = os.getpid()
        return self._file

    def _check_format(self) -> None:
        if self.attributes.get("format") != FORMAT:
            raise FormatError(f"{self.path}: not an alignment file of nmtalign")
        version = self.attributes.get("format_version")
        if version not in VERSIONS_READ:
            raise FormatError(
                f"{self.path}: alignment file of format version {version}, and this nmtalign {__version__} reads "
                f"versions up to {FORMAT_VERSION}; use a newer nmtalign"
            )

    def _check_lengths(self) -> None:
        """Raises ValueError unless the datasets have as many values as the others say."""
        for data, offsets in SPANS:
            if len(self._dataset(data)) != self._last(offsets):
                raise ValueError(f"{data} and {offsets} disagree")
        rows = self._last("target/word_offsets") + self._length
        expected = {**dict.fromkeys(OFFSETS, self._length + 1), "log_prob": self._length, "token_log_prob": rows}
        if self.attributes["format_version"] > 1:
            expected["rank"] = self._length
        for name, length in expected.items():
            if len(self._dataset(name)) != length:
                raise ValueError(f"{name} has {len(self._dataset(name))} values; the records need {length}")

    def _last(self, name: str) -> int:
        offsets = self._dataset(name)
        return int(offsets[len(offsets) - 1]) if len(offsets) else 0

    def _dataset(self, name: str) -> Any:
        file = self._open()  # which may be another one than before: it is checked again
        if not self._datasets:
            self._datasets = _known(plain_datasets(file), self.attributes["format_version"])
        return self._datasets[name]

    def _page(self, number: int) -> dict[str, NDArray[Any]]:
        """Offsets, log-probabilities and ids of the records of a page; the pages last used are kept."""
        if number not in self._pages:
            begin = number * _PAGE
            page = {name: self._dataset(name)[begin : begin + _PAGE + 1] for name in _OFFSETS_READ}
            page |= {name: self._dataset(name)[begin : begin + _PAGE] for name in ("log_prob", "sentence_id")}
            page["rank"] = self._ranks(begin, begin + _PAGE)
            for name in _OFFSETS_READ:
                _check_offsets(name, page[name], self._last(name))
            self._pages[number] = page
            if len(self._pages) > _PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(number)
        return self._pages[number]

    def _block_end(self, start: int) -> int:
        """The end of a block of records from `start` that lies in one page and is not large."""
        with self._damage():
            first = start % _PAGE
            offsets = self._page(start // _PAGE)["weight_offsets"][first:]
        fitting = int(np.searchsorted(offsets, offsets[0] + _BLOCK_CELLS, side="right")) - 1
        return start + max(fitting, 1)

    def _read(self, start: int, stop: int) -> Iterator[AlignmentRecord]:
        """The records of a block that lies in one page: one read a dataset."""
        with self._damage():
            page = self._page(start // _PAGE)
            first = start % _PAGE
            span = slice(first, first + stop - start + 1)
            parts = {data: self._parts(data, page[offsets][span]) for data, offsets in SPANS}
            rows = page["target/word_offsets"][span] + np.arange(start, stop + 1)
            parts["token_log_prob"] = self._parts("token_log_prob", rows)
            more = 1 if self.end else 0
            for k in range(stop - start):
                source, target = (parts[f"{side}/text"][k].tobytes().decode().split("\n")[:-1] for side in SIDES)
                _check_links(parts["links"][k], len(source), len(target), start + k)
                yield AlignmentRecord(
                    source=tuple(source),
                    target=tuple(target),
                    weights=parts["weights"][k].reshape(len(target) + more, len(source) + more).astype(np.float32),
                    log_prob=float(page["log_prob"][first + k]),
                    sentence_id=int(page["sentence_id"][first + k]),
                    token_log_probs=parts["token_log_prob"][k],
                    hard_links=tuple((i, j) for i, j in parts["links"][k].tolist()),
                    rank=int(page["rank"][first + k]),
                    end=self.end,
                )

    def _parts(self, name: str, offsets: NDArray[Any]) -> list[NDArray[Any]]:
        values = self._dataset(name)[offsets[0] : offsets[-1]]
        bounds = (offsets - offsets[0]).tolist()
        return [values[begin:end] for begin, end in itertools.pairwise(bounds)]


def _known(datasets: dict[str, Any], version: int) -> dict[str, Any]:
    """The datasets of the layout; raises ValueError for one that is missing or has another type or shape."""
    names = [name for name in DATASETS if name != "rank" or version > 1]
    for name in names:
        if name not in datasets:
            raise ValueError(f"it has no dataset {name}")
        kinds = tuple(WEIGHT_TYPES.values()) if name == "weights" else (DATASETS[name][0],)
        found = datasets[name]
        if found.dtype not in map(np.dtype, kinds) or found.shape[1:] != row_shape(name):
            raise ValueError(f"{name} has the type {found.dtype} and the shape {found.shape}")
    return {name: datasets[name] for name in names}


def _check_offsets(name: str, offsets: NDArray[Any], end: int) -> None:
    """Raises ValueError unless the offsets of a page rise from 0 or more to `end` or less."""
    if len(offsets) and (offsets[0] < 0 or offsets[-1] > end or (np.diff(offsets) < 0).any()):
        raise ValueError(f"{name} does not rise")


def _check_links(links: NDArray[Any], source: int, target: int, record: int) -> None:
    """Raises ValueError for a link outside its pair of `source` and `target` words."""
    if len(links) and (links.min() < 0 or (links.max(axis=0) >= (source, target)).any()):
        raise ValueError(f"record {record} has a link outside its pair of {source} and {target} words")


def _search(values: Any, wanted: int, high: int) -> int:
    """The first place in a dataset that never falls whose value is at least what is wanted."""
    low = 0
    while low < high:
        middle = (low + high) // 2
        if values[middle] < wanted:
            low = middle + 1
        else:
            high = middle
    return low
