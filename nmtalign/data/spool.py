"""Tokenised pairs on their way to the corpus: provisional ids in temporary files, so that memory holds only counts."""

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import SIDES
from nmtalign.data.pipeline import Side, WordIndex
from nmtalign.text.vocabulary import Vocabulary

_BLOCK = 1 << 20  # ids copied at a time


class SideSpool:
    """One side of a split: provisional ids and lengths in files, the count of each word in memory.

    Provisional ids number the words by first use, so that text is looked at once: when the vocabulary is known, ids
    are renumbered by a table.
    """

    def __init__(self, folder: Path, name: str, with_text: bool) -> None:
        self.index = WordIndex()
        self._counts = np.zeros(0, dtype=np.int64)  # (types, and some to come)
        self.sentences = self.tokens = self.text_bytes = 0
        names = ("ids", "lengths", "text", "text_lengths") if with_text else ("ids", "lengths")
        self._paths = {part: folder / f"{name}.{part}" for part in names}
        self._streams: dict[str, BinaryIO] = {part: path.open("wb") for part, path in self._paths.items()}

    def append(self, side: Side, lines: Sequence[str] = ()) -> None:
        """Adds the sentences of a chunk, and their raw lines where those are kept."""
        words = side.words()
        table = np.fromiter(map(self.index.__getitem__, words), dtype=np.uint32, count=len(words))
        if len(self.index) > len(self._counts):
            self._counts = np.concatenate((self._counts, np.zeros(len(self.index), dtype=np.int64)))
        self._counts[table] += np.bincount(side.ids, minlength=len(table))
        self._write("ids", table[side.ids])
        self._write("lengths", side.lengths)
        self.sentences += len(side.lengths)
        self.tokens += len(side.ids)
        if "text" in self._streams:
            raw = [line.encode("utf-8") for line in lines]
            self._streams["text"].write(b"".join(raw))
            self._write("text_lengths", np.asarray([len(line) for line in raw], dtype=np.int32))
            self.text_bytes += sum(map(len, raw))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(types,) how often each word was seen."""
        return self._counts[: len(self.index)]

    def _write(self, part: str, array: npt.NDArray[Any]) -> None:
        self._streams[part].write(array.tobytes())

    def close(self) -> None:
        """Ends the writing."""
        for stream in self._streams.values():
            stream.close()

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """Words and how often each was seen."""
        return zip(self.index, self.counts.tolist(), strict=True)

    def table(self, vocabulary: Vocabulary) -> npt.NDArray[np.uint32]:
        """(types,) the vocabulary's id of each provisional id."""
        return np.asarray(vocabulary.encode(self.index), dtype=np.uint32)

    def store(self, group: h5py.Group, table: npt.NDArray[np.uint32], dtype: str) -> str:
        """Writes the datasets of this side into `group` and returns the SHA-256 of what they hold."""
        digest = hashlib.sha256()
        ids = group.create_dataset("ids", shape=(self.tokens,), dtype=dtype)
        self._copy("ids", np.uint32, ids, digest, table)
        self._offsets(group, "offsets", "lengths", digest)
        if "text" in self._paths:
            text = group.create_dataset("text", shape=(self.text_bytes,), dtype="u1")
            self._copy("text", np.uint8, text, digest, None)
            self._offsets(group, "text_offsets", "text_lengths", digest)
        return digest.hexdigest()

    def _copy(
        self, part: str, dtype: type, dataset: h5py.Dataset, digest: Any, table: npt.NDArray[np.uint32] | None
    ) -> None:
        start = 0
        with self._paths[part].open("rb") as stream:
            while raw := stream.read(_BLOCK * np.dtype(dtype).itemsize):
                values: npt.NDArray[Any] = np.frombuffer(raw, dtype=dtype)
                block = (values if table is None else table[values]).astype(dataset.dtype)
                dataset[start : start + len(block)] = block
                digest.update(block.tobytes())
                start += len(block)

    def _offsets(self, group: h5py.Group, name: str, part: str, digest: Any) -> None:
        dataset = group.create_dataset(name, shape=(self.sentences + 1,), dtype="i8")
        dataset[0] = start = 0
        total = 0
        with self._paths[part].open("rb") as stream:
            while raw := stream.read(_BLOCK * 4):
                ends = total + np.cumsum(np.frombuffer(raw, dtype=np.int32), dtype=np.int64)
                dataset[start + 1 : start + 1 + len(ends)] = ends
                digest.update(ends.tobytes())
                start, total = start + len(ends), int(ends[-1])


class PairSpool:
    """Both sides of a split; where a pair's line in the text is not its number, those lines."""

    def __init__(self, folder: Path, name: str, with_text: bool) -> None:
        self.name = name
        self.source, self.target = (SideSpool(folder, f"{name}.{side}", with_text) for side in SIDES)
        self._lines_path = folder / f"{name}.line"
        self._lines = self._lines_path.open("wb")

    def append_lines(self, lines: Sequence[int]) -> None:
        """Adds the lines of pairs, from 0."""
        self._lines.write(np.asarray(lines, dtype=np.int32).tobytes())

    def store_lines(self, group: h5py.Group, total: int) -> None:
        """Writes the dataset `line` (N,) int32 into `group`; `total` is how many lines the text has."""
        dataset = group.create_dataset("line", shape=(self.source.sentences,), dtype="i4")
        dataset.attrs["total"] = total
        start = 0
        with self._lines_path.open("rb") as stream:
            while raw := stream.read(_BLOCK * 4):
                block: npt.NDArray[np.int32] = np.frombuffer(raw, dtype=np.int32)
                dataset[start : start + len(block)] = block
                start += len(block)

    def close(self) -> None:
        """Ends the writing."""
        self.source.close()
        self.target.close()
        self._lines.close()


class SeenPairs:
    """Which pairs were there before: 8 bytes a pair, in sorted runs that are merged as they grow.

    A Python set of as many hashes takes ten times the memory, too much for 12 million pairs.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def first_time(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """For each pair whether it is there for the first time; blanks at the ends do not count."""
        raw = b"".join(_digest(source, target) for source, target in pairs)
        hashes, first = np.unique(np.frombuffer(raw, dtype=np.uint64), return_index=True)
        new = np.ones(len(hashes), dtype=bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            new &= run[places] != hashes
        self._add(hashes[new])
        answer = np.zeros(len(pairs), dtype=bool)
        answer[first[new]] = True
        return [bool(value) for value in answer]

    def _add(self, run: npt.NDArray[np.uint64]) -> None:
        if not len(run):
            return
        while self._runs and len(self._runs[-1]) < 2 * len(run):
            run = np.sort(np.concatenate((self._runs.pop(), run)))
        self._runs.append(run)


def _digest(source: str, target: str) -> bytes:
    # No line holds `\n`, so it keeps the two sides apart.
    return hashlib.blake2b(f"{source.strip()}\n{target.strip()}".encode(), digest_size=8).digest()
