"""Tokenised pairs in temporary files with provisional ids, so that memory contains only counts; and their summary."""

import dataclasses
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import SIDES
from nmtalign.data.pipeline import Side, WordIndex
from nmtalign.text.vocabulary import UNK_ID, Vocabulary, is_word

_BLOCK = 1 << 20  # numbers copied at a time


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

    def append(self, side: Side, lines: Sequence[str]) -> None:
        """Adds the sentences of a chunk, and their raw lines if the split keeps its text."""
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

    def summary(self, table: npt.NDArray[np.uint32]) -> "SideSummary":
        """The counts of this side; `table` (types,) maps provisional ids to ids of the vocabulary."""
        unknown, words = table == UNK_ID, np.fromiter(map(is_word, self.index), np.bool_, len(self.index))
        counted = (int(self.counts[chosen].sum()) for chosen in (unknown, words, words & unknown))
        return SideSummary(self.tokens, len(self.index), int((~unknown).sum()), *counted)

    def table(self, vocabulary: Vocabulary) -> npt.NDArray[np.uint32]:
        """(types,) the vocabulary's id of each provisional id."""
        return np.asarray(vocabulary.encode(self.index), dtype=np.uint32)

    def store(self, group: h5py.Group, table: npt.NDArray[np.uint32], dtype: str) -> str:
        """Writes the datasets of this side into `group` and returns the SHA-256 of their content."""
        digest = hashlib.sha256()
        ids = (table[block].astype(dtype) for block in self._blocks("ids", np.uint32))
        _store(group.create_dataset("ids", (self.tokens,), dtype), ids, digest)
        self._store_offsets(group, "offsets", "lengths", digest)
        if "text" in self._paths:
            _store(group.create_dataset("text", (self.text_bytes,), "u1"), self._blocks("text", np.uint8), digest)
            self._store_offsets(group, "text_offsets", "text_lengths", digest)
        return digest.hexdigest()

    def store_unknown(self, group: h5py.Group, table: npt.NDArray[np.uint32], elsewhere: npt.NDArray[np.uint32]) -> str:
        """Writes for each `<unk>` its place and its word on the other side (see `PairSpool.elsewhere`), as `store`."""
        digest, unknown = hashlib.sha256(), table == UNK_ID
        count = int(self.counts[unknown].sum())
        words = (elsewhere[block[unknown[block]]] for block in self._blocks("ids", np.uint32))
        _store(group.create_dataset("unknown", (count,), "u4"), words, digest)
        blocks = enumerate(self._blocks("ids", np.uint32))
        places = (np.flatnonzero(unknown[block]) + number * _BLOCK for number, block in blocks)
        _store(group.create_dataset("unknown_at", (count,), "i8"), places, digest)
        return digest.hexdigest()

    def _store_offsets(self, group: h5py.Group, name: str, part: str, digest: Any) -> None:
        dataset = group.create_dataset(name, (self.sentences + 1,), "i8")
        dataset[0] = 0
        _store(dataset, _running_totals(self._blocks(part, np.int32)), digest, start=1)

    def _blocks(self, part: str, dtype: type) -> Iterator[npt.NDArray[Any]]:
        return _blocks(self._paths[part], dtype)


def _blocks(path: Path, dtype: type) -> Iterator[npt.NDArray[Any]]:
    """The numbers of a file."""
    with path.open("rb") as stream:
        block: npt.NDArray[Any]
        while len(block := np.fromfile(stream, dtype, _BLOCK)):
            yield block


def _running_totals(blocks: Iterable[npt.NDArray[Any]]) -> Iterator[npt.NDArray[np.int64]]:
    total = 0
    for block in blocks:
        totals = total + np.cumsum(block, dtype=np.int64)
        yield totals
        total = int(totals[-1])


def _store(dataset: h5py.Dataset, blocks: Iterable[npt.NDArray[Any]], digest: Any = None, start: int = 0) -> None:
    """Writes blocks one after the other into a dataset, and adds them to a digest."""
    for block in blocks:
        dataset[start : start + len(block)] = block
        start += len(block)
        if digest is not None:
            digest.update(block.tobytes())


class PairSpool:
    """Both sides of a split, and the line of each training pair in its text."""

    def __init__(self, folder: Path, name: str, with_text: bool) -> None:
        self.name = name
        self.source, self.target = self.sides = tuple(SideSpool(folder, f"{name}.{side}", with_text) for side in SIDES)
        self._lines_path = folder / f"{name}.line"
        self._lines = self._lines_path.open("wb")

    def elsewhere(self, vocabularies: Sequence[Vocabulary]) -> Iterator[npt.NDArray[np.uint32]]:
        """For each side (types,): the id of each word on the other side, or the size of that vocabulary plus a number.

        A word that occurs on both sides has the same number on both.
        """
        first, second = self.source.index, self.target.index
        shared = (first.get(word, len(first) + place) for place, word in enumerate(second))
        numbers = np.arange(len(first)), np.fromiter(shared, np.int64, len(second))
        for side, number, other in zip(self.sides, numbers, reversed(vocabularies), strict=True):
            ids = side.table(other)
            yield np.where(ids == UNK_ID, len(other) + number, ids).astype(np.uint32)

    def append_lines(self, lines: Sequence[int]) -> None:
        """Adds the line numbers of pairs, from 0."""
        self._lines.write(np.asarray(lines, dtype=np.int32).tobytes())

    def store_lines(self, group: h5py.Group, total: int) -> None:
        """Writes the dataset `line` (N,) int32 into `group`; `total` is the number of lines of the text."""
        dataset = group.create_dataset("line", (self.source.sentences,), "i4")
        dataset.attrs["total"] = total
        _store(dataset, _blocks(self._lines_path, np.int32))

    def close(self) -> None:
        """Closes the files."""
        self.source.close()
        self.target.close()
        self._lines.close()


class SeenTexts:
    """The texts seen before: 8 bytes per text, in sorted runs that are merged as they grow.

    A Python set of the same hashes takes ten times the memory, too much for 12 million pairs.
    """

    def __init__(self) -> None:
        self._runs: list[npt.NDArray[np.uint64]] = []

    def first_time(self, texts: Sequence[str]) -> list[bool]:
        """Whether each text occurs for the first time."""
        raw = b"".join(hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
        hashes, first = np.unique(np.frombuffer(raw, dtype=np.uint64), return_index=True)
        new = np.ones(len(hashes), dtype=bool)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, hashes), len(run) - 1)
            new &= run[places] != hashes
        merged = hashes[new]
        while len(merged) and self._runs and len(self._runs[-1]) < 2 * len(merged):
            merged = np.sort(np.concatenate((self._runs.pop(), merged)))
        if len(merged):
            self._runs.append(merged)
        answer = np.zeros(len(texts), dtype=bool)
        answer[first[new]] = True
        return answer.tolist()


@dataclass(frozen=True)
class SideSummary:
    """One side of one split, as tokenised, without `</s>`."""

    tokens: int
    types: int  # different words
    known_types: int  # different words that are in the vocabulary
    unknown_tokens: int  # tokens that are not in the vocabulary
    words: int  # tokens with a letter
    unknown_words: int  # words that are not in the vocabulary

    @property
    def coverage(self) -> float:
        """The share of words that are in the vocabulary (1 if there are none)."""
        return 1.0 - self.unknown_rate

    @property
    def unknown_rate(self) -> float:
        """The share of words that are not in the vocabulary."""
        return self.unknown_words / self.words if self.words else 0.0


@dataclass(frozen=True)
class SplitSummary:
    """One split: pairs read, kept, and dropped by reason ("empty", "duplicate", "too long", those of `--clean`)."""

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
    """The result of prep in numbers; `splits` has train, and optionally dev and test.

    `texts` are the names of the text files beside the corpus, (source, target) of each set. `notes` are lines for the
    user: what was chosen, and likely mistakes in the texts.
    """

    source_language: str
    target_language: str
    source_vocabulary_size: int  # ids, `</s>` and `<unk>` counted
    target_vocabulary_size: int
    settings: Mapping[str, Any]
    splits: Mapping[str, SplitSummary]
    texts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    notes: Sequence[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """All values, and those computed from them, as plain values for JSON."""
        plain = dataclasses.asdict(self)
        if not self.texts:
            del plain["texts"]
        for name, split in self.splits.items():
            plain["splits"][name]["kept"] = split.kept
            for side in ("source", "target"):
                values: SideSummary = getattr(split, side)
                plain["splits"][name][side] |= {"coverage": values.coverage, "unknown_rate": values.unknown_rate}
        return plain
