"""Reading alignments from an HDF5 file. `nmtalign.alignment.layout` documents the format."""

import bisect
import contextlib
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self, overload

import h5py
import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.layout import (
    DATASETS,
    FORMAT,
    FORMAT_VERSION,
    OFFSETS,
    SIDES,
    WEIGHT_TYPES,
    dataset_type,
    lengths,
    value_shape,
)
from nmtalign.alignment.links import AlignmentRecord, LinkedPair
from nmtalign.alignment.symmetrization import SOFT_METHODS
from nmtalign.errors import FormatError
from nmtalign.files import kind_of
from nmtalign.hdf5 import check_seal, damage, plain_attributes, plain_datasets
from nmtalign.version import __version__

_PAGE = 1024  # records whose offsets are read together
_OFFSETS_READ = tuple(name for name in OFFSETS if name != "source/word_offsets")  # words are counted in the text
_SEAL_AT_ONCE = 1 << 26  # bytes; the checksum of a larger file takes seconds, and only `info` compares it
_PAGES = 64  # pages that stay in memory
_BLOCK_CELLS = 2_000_000  # cells of several records that are read together


class AlignmentFile:
    """A file of `nmtalign align`: `with AlignmentFile(path) as file: file[7].weights`; also slices and `for`.

    `file.links()` reads the words and hard links of all records without their weights, which is several times as fast.
    A record is read in well under a millisecond, and the memory used does not grow with the file. The object works in
    forked and spawned processes: each process opens the file again. Raises FormatError naming the file if it is
    missing, damaged or of another kind.

    `attributes` are those of the root, `end` says whether matrices have the row and the column of `</s>`, and `dtype`
    is the type in which weights are stored.
    """

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self._file: Any = None
        self._datasets: dict[str, Any] = {}
        self._process = 0
        self._pages: dict[int, dict[str, NDArray[Any]]] = {}
        self._check_path()
        with self._damage():
            check_seal(self.path, _SEAL_AT_ONCE)
            self.attributes = plain_attributes(self._open())
            self._check_format()
            self.end = bool(self.attributes.get("end_of_sentence_column", True))
            self.dtype = str(self._dataset("weights").dtype)
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
            start, stop, step = index.indices(self._length)
            return list(self._records(start, stop)) if step == 1 else [self[i] for i in range(start, stop, step)]
        position = index + self._length if index < 0 else index
        if not 0 <= position < self._length:
            raise IndexError(f"{self.path}: no record {index}; it has {self._length}, counted from 0")
        return next(self._read(position, position + 1))

    def __iter__(self) -> Iterator[AlignmentRecord]:
        return self._records(0, self._length)

    def links(self) -> Iterator[LinkedPair]:
        """Yields the words and hard links of each record, in order. The weights are not read."""
        for start in range(0, self._length, _PAGE):
            yield from self._read_links(start, min(start + _PAGE, self._length))

    def method(self) -> str | None:
        """How the stored links were chosen, such as "argmax" or "agreement,0.6"; None if the file does not tell."""
        kept = self.attributes
        symmetrized, threshold = kept.get("symmetrization", "none"), kept.get("threshold")
        parts = [] if symmetrized in SOFT_METHODS else [kept.get("links_method")]
        parts += [] if symmetrized == "none" else [symmetrized]
        parts += [f"{threshold:g}"] if isinstance(threshold, float) and threshold else []
        return ",".join(str(part) for part in parts if part) or None

    def shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a dataset of the layout."""
        with self._damage():
            shape: tuple[int, ...] = self._dataset(name).shape
            return shape

    def kind(self, name: str) -> np.dtype[Any]:
        """Returns the type of the values of a dataset."""
        return dataset_type(name, self.dtype)

    def blocks(self, name: str, size: int = 1 << 20) -> Iterator[NDArray[Any]]:
        """Yields the values of a dataset in blocks of at most `size`."""
        with self._damage():
            for start in range(0, len(self._dataset(name)), size):
                yield self._dataset(name)[start : start + size]

    def sentence(self, number: int) -> list[AlignmentRecord]:
        """Returns the records of a sentence (its line in the input, from 0), best first; [] if there are none."""
        if self.attributes.get("sentence_ids_rise", False):
            first, last = self.place_of(number), self.place_of(number + 1)
        else:
            with self._damage():
                found = np.flatnonzero(self._dataset("sentence_id")[:] == number)
            first, last = (int(found[0]), int(found[-1]) + 1) if len(found) else (0, 0)
        return [record for record in self[first:last] if record.sentence_id == number]

    def place_of(self, number: int) -> int:
        """Returns the place of the first record whose sentence is `number` or a later one; sentences must be sorted."""
        with self._damage():
            return bisect.bisect_left(self._dataset("sentence_id"), number)

    def sentence_count(self) -> int:
        """Returns the number of sentences, each of which has one record of rank 0."""
        return sum(int(np.count_nonzero(ranks == 0)) for ranks in self.blocks("rank"))

    def close(self) -> None:
        """Closes the file. The next access opens it again."""
        if self._file is not None:
            self._file.close()
        self._file = None
        self._datasets = {}

    def info(self) -> dict[str, Any]:
        """Returns counts of pairs, words, links and cells, the bytes on disk, and the attributes."""
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
                "attributes": dict(self.attributes),
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
        if not h5py.is_hdf5(self.path):
            kind = kind_of(self.path)
            why = f"it is {kind}" if kind == "a text file" else "not HDF5, or cut off"
            raise FormatError(f"{self.path}: not an alignment file ({why})")

    def _open(self) -> Any:
        """Returns the file, opened by this process: a handle from before a fork shares its position with the parent."""
        if self._file is None or self._process != os.getpid():
            self.close()
            self._check_path()
            self._file = h5py.File(self.path, "r", locking=False)
            self._process = os.getpid()
        return self._file

    def _check_format(self) -> None:
        if self.attributes.get("format") != FORMAT:
            raise FormatError(f"{self.path}: not an alignment file of nmtalign")
        version = self.attributes.get("format_version")
        if version != FORMAT_VERSION:
            raise FormatError(
                f"{self.path}: alignment file of format version {version}, and nmtalign {__version__} reads version "
                f"{FORMAT_VERSION}; make the file again, or use the nmtalign that wrote it"
            )

    def _check_lengths(self) -> None:
        """Raises ValueError unless the lengths of the datasets agree."""
        for name, length in lengths(self._length, {name: self._last(name) for name in OFFSETS}).items():
            if len(self._dataset(name)) != length:
                raise ValueError(f"{name} has {len(self._dataset(name))} values; the records need {length}")

    def _last(self, name: str) -> int:
        offsets = self._dataset(name)
        return int(offsets[len(offsets) - 1]) if len(offsets) else 0

    def _dataset(self, name: str) -> Any:
        file = self._open()  # if it was opened again, it is checked again
        if not self._datasets:
            self._datasets = _known(plain_datasets(file))
        return self._datasets[name]

    def _page(self, number: int) -> dict[str, NDArray[Any]]:
        """Returns offsets, log-probabilities, ids and ranks of the records of a page; the last pages stay in memory."""
        if number in self._pages:
            return self._pages[number]
        begin = number * _PAGE
        page = {name: self._dataset(name)[begin : begin + _PAGE + 1] for name in _OFFSETS_READ}
        page |= {name: self._dataset(name)[begin : begin + _PAGE] for name in ("log_prob", "sentence_id", "rank")}
        for name in _OFFSETS_READ:
            offsets = page[name]
            if len(offsets) and (offsets[0] < 0 or offsets[-1] > self._last(name) or (np.diff(offsets) < 0).any()):
                raise ValueError(f"{name} does not rise")
        if len(self._pages) == _PAGES:
            del self._pages[next(iter(self._pages))]  # the oldest
        self._pages[number] = page
        return page

    def _records(self, start: int, stop: int) -> Iterator[AlignmentRecord]:
        """Yields the records of a range, read in blocks that lie in one page and are not large."""
        with self._damage():
            while start < stop:
                offsets = self._page(start // _PAGE)["weight_offsets"][start % _PAGE :]
                fitting = int(np.searchsorted(offsets, offsets[0] + _BLOCK_CELLS, side="right")) - 1
                end = min(start + max(fitting, 1), stop)
                yield from self._read(start, end)
                start = end

    def _read(self, start: int, stop: int) -> Iterator[AlignmentRecord]:
        """Yields the records of a block that lies in one page, with one read per dataset."""
        more, first = (1 if self.end else 0), start % _PAGE
        with self._damage():
            page = self._page(start // _PAGE)
            span = slice(first, first + stop - start + 1)
            weights = self._parts("weights", page["weight_offsets"][span])
            rows = page["target/word_offsets"][span] + np.arange(start, stop + 1)
            token_log_probs = self._parts("token_log_prob", rows)
            for k, pair in enumerate(self._read_links(start, stop)):
                shape = len(pair.target) + more, len(pair.source) + more
                yield AlignmentRecord(
                    source=pair.source,
                    target=pair.target,
                    weights=weights[k].reshape(shape).astype(np.float32),
                    log_prob=float(page["log_prob"][first + k]),
                    sentence_id=pair.sentence_id,
                    token_log_probs=token_log_probs[k],
                    hard_links=pair.links,
                    rank=pair.rank,
                    end=self.end,
                )

    def _read_links(self, start: int, stop: int) -> Iterator[LinkedPair]:
        """Yields words and links of a block that lies in one page."""
        first = start % _PAGE
        with self._damage():
            page = self._page(start // _PAGE)
            span = slice(first, first + stop - start + 1)
            links = self._parts("links", page["link_offsets"][span])
            texts = [self._parts(f"{side}/text", page[f"{side}/text_offsets"][span]) for side in SIDES]
            for k in range(stop - start):
                source, target = (text[k].tobytes().decode().split("\n")[:-1] for text in texts)
                _check_links(links[k], len(source), len(target), start + k)
                pairs = tuple((i, j) for i, j in links[k].tolist())
                number, rank = page["sentence_id"][first + k], page["rank"][first + k]
                yield LinkedPair(tuple(source), tuple(target), pairs, int(number), int(rank))

    def _parts(self, name: str, offsets: NDArray[Any]) -> list[NDArray[Any]]:
        values = self._dataset(name)[offsets[0] : offsets[-1]]
        bounds = (offsets - offsets[0]).tolist()
        return [values[begin:end] for begin, end in itertools.pairwise(bounds)]


def _known(datasets: dict[str, Any]) -> dict[str, Any]:
    """Returns the datasets of the layout; raises ValueError if one is missing or has a wrong type or shape."""
    for name, (usual, _) in DATASETS.items():
        if name not in datasets:
            raise ValueError(f"it has no dataset {name}")
        kinds = WEIGHT_TYPES.values() if name == "weights" else (usual,)
        found = datasets[name]
        if found.dtype not in map(np.dtype, kinds) or found.shape[1:] != value_shape(name):
            raise ValueError(f"{name} has the type {found.dtype} and the shape {found.shape}")
    return {name: datasets[name] for name in DATASETS}


def _check_links(links: NDArray[Any], source: int, target: int, record: int) -> None:
    """Raises ValueError for a link outside its pair of `source` and `target` words."""
    if len(links) and (links.min() < 0 or (links.max(axis=0) >= (source, target)).any()):
        raise ValueError(f"record {record} has a link outside its pair of {source} and {target} words")
