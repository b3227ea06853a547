"""Tokenised pairs in temporary files with provisional ids, so that memory holds only counts; and their summary."""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import SIDES
from nmtalign.data.pipeline import Side, WordIndex
from nmtalign.text.vocabulary import UNK_ID, Vocabulary

_BLOCK = 1 << 20  # ids copied at a time


class SideSpool:
    """One side of a split: provisional ids and lengths in files, the count of each word in memory.

    Provisional ids number the words by first use, so that the text is read once. When the vocabulary is known, a table
    maps them to its ids.
    """

    def __init__(self, folder: Path, name: str, with_text: bool) -> None:
        self.index = WordIndex()
        self._counts = np.zeros(0, dtype=np.int64)  # (types, and room for more)
        self.sentences = self.tokens = self.text_bytes = 0
        names = ("ids", "lengths", "text", "text_lengths") if with_text else ("ids", "lengths")
        self._paths = {part: folder / f"{name}.{part}" for part in names}
        self._streams: dict[str, BinaryIO] = {part: path.open("wb") for part, path in self._paths.items()}

    def append(self, side: Side, lines: Sequence[str] = ()) -> None:
        """Adds the sentences of a chunk, and their raw lines where these are kept."""
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
        """(types,) the number of occurrences of each word."""
        return self._counts[: len(self.index)]

    def _write(self, part: str, array: npt.NDArray[Any]) -> None:
        self._streams[part].write(array.tobytes())

    def close(self) -> None:
        """Closes the files."""
        for stream in self._streams.values():
            stream.close()

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """The words with the number of their occurrences."""
        return zip(self.index, self.counts.tolist(), strict=True)

    def table(self, vocabulary: Vocabulary) -> npt.NDArray[np.uint32]:
        """(types,) the vocabulary's id of each provisional id."""
        return np.asarray(vocabulary.encode(self.index), dtype=np.uint32)

    def store(self, group: h5py.Group, table: npt.NDArray[np.uint32], dtype: str) -> str:
        """Writes the datasets of this side into `group` and returns the SHA-256 of their content."""
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
    """Both sides of a split, and the line of each training pair in its text."""

    def __init__(self, folder: Path, name: str, with_text: bool) -> None:
        self.name = name
        self.source, self.target = (SideSpool(folder, f"{name}.{side}", with_text) for side in SIDES)
        self._lines_path = folder / f"{name}.line"
        self._lines = self._lines_path.open("wb")

    def append_lines(self, lines: Sequence[int]) -> None:
        """Adds the line numbers of pairs, from 0."""
        self._lines.write(np.asarray(lines, dtype=np.int32).tobytes())

    def store_lines(self, group: h5py.Group, total: int) -> None:
        """Writes the dataset `line` (N,) int32 into `group`; `total` is the number of lines of the text."""
        dataset = group.create_dataset("line", shape=(self.source.sentences,), dtype="i4")
        dataset.attrs["total"] = total
        start = 0
        with self._lines_path.open("rb") as stream:
            while raw := stream.read(_BLOCK * 4):
                block: npt.NDArray[np.int32] = np.frombuffer(raw, dtype=np.int32)
                dataset[start : start + len(block)] = block
                start += len(block)

    def close(self) -> None:
        """Closes the files."""
        self.source.close()
        self.target.close()
        self._lines.close()


class SeenPairs:
    """The pairs seen before: 8 bytes per pair, in sorted runs that are merged as they grow.

    A Python set of the same hashes takes ten times the memory, too much for 12 million pairs.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def first_time(self, pairs: Sequence[tuple[str, str]]) -> list[bool]:
        """Whether each pair occurs for the first time; blanks at the ends do not count."""
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
    # No line contains `\n`, so it separates the two sides.
    return hashlib.blake2b(f"{source.strip()}\n{target.strip()}".encode(), digest_size=8).digest()


@dataclass(frozen=True)
class SideSummary:
    """One side of one split, as tokenised, without `</s>`."""

    tokens: int
    types: int  # different words
    known_types: int  # different words that are in the vocabulary
    unknown_tokens: int  # tokens that are not in the vocabulary

    @property
    def coverage(self) -> float:
        """The share of tokens that are in the vocabulary (1 where there are none)."""
        return 1.0 - self.unknown_rate

    @property
    def unknown_rate(self) -> float:
        """The share of tokens that are not in the vocabulary."""
        return self.unknown_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class SplitSummary:
    """One split: pairs read, kept, and dropped by reason ("empty", "duplicate", "too long")."""

    pairs: int
    dropped: Mapping[str, int]
    source: SideSummary
    target: SideSummary

    @property
    def kept(self) -> int:
        """Pairs in the corpus."""
        return self.pairs - sum(self.dropped.values())


@dataclass(frozen=True)
class Summary:
    """The result of prep in numbers; `splits` has train, and dev and test where they were given."""

    source_language: str
    target_language: str
    source_vocabulary_size: int  # ids, `</s>` and `<unk>` counted
    target_vocabulary_size: int
    settings: Mapping[str, Any]
    splits: Mapping[str, SplitSummary]

    def as_dict(self) -> dict[str, Any]:
        """All values, and those computed from them, as plain values for JSON."""
        plain = dataclasses.asdict(self)
        for name, split in self.splits.items():
            plain["splits"][name]["kept"] = split.kept
            for side in ("source", "target"):
                values: SideSummary = getattr(split, side)
                plain["splits"][name][side] |= {"coverage": values.coverage, "unknown_rate": values.unknown_rate}
        return plain


def summarize_side(side: SideSpool, table: npt.NDArray[np.uint32]) -> SideSummary:
    """The counts of a side; `table` (types,) maps provisional ids to ids of the vocabulary."""
    unknown = table == UNK_ID
    return SideSummary(
        tokens=side.tokens,
        types=len(side.index),
        known_types=int((~unknown).sum()),
        unknown_tokens=int(side.counts[unknown].sum()),
    )


def summarize_split(
    spool: PairSpool, pairs: int, dropped: Mapping[str, int], tables: tuple[npt.NDArray[np.uint32], ...]
) -> SplitSummary:
    """The counts of both sides."""
    source, target = tables
    return SplitSummary(
        pairs, dict(dropped), summarize_side(spool.source, source), summarize_side(spool.target, target)
    )
