"""Writing the prepared corpus: pairs in temporary files, then all files in a hidden folder, then each in its place.

Provisional ids number the words by their first use, so that the text is read once and memory contains only counts. When
the vocabularies are known, tables map provisional ids to ids.
"""

import contextlib
import dataclasses
import filecmp
import hashlib
import itertools
import json
import os
import re
import shutil
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.data.corpus import CORPUS_FILE, FORMAT, FORMAT_VERSION, SIDES, VOCABULARY_FILES, Corpus
from nmtalign.data.pipeline import Chunk, Pairs, Side, WordIndex
from nmtalign.data.screening import NO_TRANSLATION, RawText
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_text, check_other, is_left_behind, lock, make_folder, sha256_of
from nmtalign.hdf5 import created, format_of, write_attributes
from nmtalign.settings.workspace import SUMMARY_FILE, stored_texts
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, Tokenizers
from nmtalign.text.vocabulary import UNK_ID, Vocabulary, is_word
from nmtalign.version import __version__

Vocabularies = tuple[Vocabulary, Vocabulary]
Table = npt.NDArray[np.uint32]  # (types,) the id of each provisional id
_LANGUAGES = "source_language", "target_language"
_IDENTITY = frozenset((*_LANGUAGES, "settings", "sha256"))  # attributes that differ if the text or its settings differ
_BLOCK = 1 << 20  # numbers hashed at a time
# The datasets of each text of `content_sha256`, with the first number that is hashed; the first offset is always 0.
_HASHED = {
    "": {"ids": 0, "offsets": 1, "text": 0, "text_offsets": 1},
    "/unknown": {"unknown": 0, "unknown_at": 0},
}
_NEW = "new"  # finished files, inside the work folder
_LOCK = "lock"  # a file that the process with the work folder has locked
_BLOCK = 1 << 20  # numbers copied at a time
_PARTS = {"ids": np.uint32, "lengths": np.int32, "text": np.uint8, "text_lengths": np.int32}


class SideSpool:
    """One side of a split: provisional ids and lengths in files, the count of each word in memory."""

    def __init__(self, folder: Path, name: str, with_text: bool) -> None:
        self.index = WordIndex()
        self._counts = np.zeros(0, dtype=np.int64)  # (types, and room for more)
        self._with_text = with_text
        self._paths = {part: folder / f"{name}.{part}" for part in _PARTS}

    def append(self, side: Side, lines: Iterable[str]) -> None:
        """Adds the sentences of a chunk, and their raw lines if the split keeps its text."""
        words = side.words()
        table = np.fromiter(map(self.index.__getitem__, words), dtype=np.uint32, count=len(words))
        if len(self.index) > len(self._counts):
            self._counts = np.concatenate((self._counts, np.zeros(len(self.index), dtype=np.int64)))
        self._counts[table] += np.bincount(side.ids, minlength=len(table))
        _append(self._paths["ids"], table[side.ids])
        _append(self._paths["lengths"], side.lengths)
        if self._with_text:
            raw = [line.encode("utf-8") for line in lines]
            _append(self._paths["text"], np.frombuffer(b"".join(raw), np.uint8))
            _append(self._paths["text_lengths"], np.asarray([len(line) for line in raw], dtype=np.int32))

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        """(types,) the number of occurrences of each word."""
        return self._counts[: len(self.index)]

    def size(self, part: str) -> int:
        """The number of numbers in a file."""
        return self._paths[part].stat().st_size // np.dtype(_PARTS[part]).itemsize

    def word_counts(self) -> Iterator[tuple[str, int]]:
        """The words with the number of their occurrences."""
        return zip(self.index, self.counts.tolist(), strict=True)

    def summary(self, table: Table) -> "SideSummary":
        """The counts of this side."""
        unknown, words = table == UNK_ID, np.fromiter(map(is_word, self.index), np.bool_, len(self.index))
        counted = (int(self.counts[chosen].sum()) for chosen in (unknown, words, words & unknown))
        return SideSummary(self.size("ids"), len(self.index), int((~unknown).sum()), *counted)

    def table(self, vocabulary: Vocabulary) -> Table:
        """(types,) the vocabulary's id of each provisional id."""
        return np.asarray(vocabulary.encode(self.index), dtype=np.uint32)

    def store(self, group: h5py.Group, table: Table, other_words: Table, dtype: str) -> None:
        """Writes the datasets of this side; `other_words` (types,) are for each `<unk>` its word on the other side."""
        unknown, narrow = table == UNK_ID, table.astype(dtype)
        _store(group, "ids", dtype, self.size("ids"), (narrow[block] for block in self._blocks("ids")))
        _store(group, "offsets", "i8", self.size("lengths") + 1, _offsets(self._blocks("lengths")))
        if self._with_text:
            _store(group, "text", "u1", self.size("text"), self._blocks("text"))
            _store(group, "text_offsets", "i8", self.size("lengths") + 1, _offsets(self._blocks("text_lengths")))
        count = int(self.counts[unknown].sum())
        words = (other_words[block[unknown[block]]] for block in self._blocks("ids"))
        _store(group, "unknown", "u4", count, words)
        places = (np.flatnonzero(unknown[block]) + number * _BLOCK for number, block in enumerate(self._blocks("ids")))
        _store(group, "unknown_at", "i8", count, places)

    def _blocks(self, part: str) -> Iterator[npt.NDArray[Any]]:
        return _blocks(self._paths[part], _PARTS[part])


def _append(path: Path, numbers: npt.NDArray[Any]) -> None:
    with path.open("ab") as stream:
        stream.write(numbers.data)


def _blocks(path: Path, dtype: type) -> Iterator[npt.NDArray[Any]]:
    """The numbers of a file."""
    block: npt.NDArray[Any]
    with path.open("rb") as stream:
        while len(block := np.fromfile(stream, dtype, _BLOCK)):
            yield block


def _offsets(lengths: Iterable[npt.NDArray[Any]]) -> Iterator[npt.NDArray[np.int64]]:
    offsets = np.zeros(1, np.int64)
    yield offsets
    for block in lengths:
        offsets = offsets[-1] + np.cumsum(block, dtype=np.int64)
        yield offsets


def _store(group: h5py.Group, name: str, dtype: str, size: int, blocks: Iterable[npt.NDArray[Any]]) -> None:
    """Writes blocks one after the other into a new dataset."""
    dataset, start = group.create_dataset(name, (size,), dtype), 0
    for block in blocks:
        dataset[start : start + len(block)] = block
        start += len(block)


class PairSpool:
    """Both sides of a split; dev and test have the raw text, and training pairs the number of their line."""

    def __init__(self, folder: Path, name: str) -> None:
        self.sides = tuple(SideSpool(folder, f"{name}.{side}", name != "train") for side in SIDES)
        self._lines = folder / f"{name}.line"
        self.size = 0

    def append(self, block: Pairs, chunk: Chunk, lines: Sequence[int] = ()) -> None:
        """Adds the kept pairs of a block; `lines` are the line numbers of all training pairs of the block, from 0."""
        for number, (side, part) in enumerate(zip(self.sides, (chunk.source, chunk.target), strict=True)):
            side.append(part, (block[kept][number] for kept in chunk.kept))
        _append(self._lines, np.asarray([lines[kept] for kept in chunk.kept if lines], dtype=np.int32))
        self.size += len(chunk.kept)

    def other_words(self, vocabularies: Vocabularies) -> Iterator[Table]:
        """For each side (types,): the id of each word on the other side, or the size of that vocabulary plus a number.

        A word that occurs on both sides has the same number on both.
        """
        first, second = self.sides[0].index, self.sides[1].index
        shared = (first.get(word, len(first) + place) for place, word in enumerate(second))
        numbers = np.arange(len(first)), np.fromiter(shared, np.int64, len(second))
        for side, number, other in zip(self.sides, numbers, reversed(vocabularies), strict=True):
            ids = side.table(other)
            yield np.where(ids == UNK_ID, len(other) + number, ids).astype(np.uint32)

    def store(self, group: h5py.Group, tables: Sequence[Table], vocabularies: Vocabularies) -> dict[str, str]:
        """Writes the groups of both sides, and returns the hashes of their content."""
        hashes: dict[str, str] = {}
        parts = zip(SIDES, self.sides, tables, self.other_words(vocabularies), vocabularies, strict=True)
        for name, side, table, other_words, vocabulary in parts:
            side.store(group.create_group(name), table, other_words, "u2" if len(vocabulary) <= 1 << 16 else "u4")
            hashes |= content_hashes(group[name])
        return hashes

    def store_lines(self, group: h5py.Group, total: int) -> None:
        """Writes the dataset `line` (N,) int32; `total` is the number of lines of the text."""
        _store(group, "line", "i4", self.size, _blocks(self._lines, np.int32))
        group["line"].attrs["total"] = total


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
    notes: list[str] = field(default_factory=list)

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


def text_names(sets: Iterable[str], languages: tuple[str, str]) -> dict[str, tuple[str, str]]:
    """The names of the text files of sets in the folder of a corpus, such as dev.en and dev.fr."""
    usable = languages[0] != languages[1] and all(re.fullmatch(r"[\w-]{1,20}", one) for one in languages)
    first, second = languages if usable else SIDES
    return {name: (f"{name}.{first}", f"{name}.{second}") for name in sets}


def check_texts(folder: Path, names: Mapping[str, tuple[str, str]], inputs: Iterable[Path | None]) -> None:
    """Raises UsageError for a file in `folder` that would be replaced and is an input, or a text of no corpus there."""
    inputs, ours = tuple(inputs), stored_texts(folder)
    texts = itertools.chain.from_iterable(names.values())
    for name in (*texts, *VOCABULARY_FILES, *MODEL_FILES, TOKENIZER_FILE, SUMMARY_FILE, CORPUS_FILE):
        check_other(folder / name, inputs)
    for name, pair in names.items():
        for path in (folder / one for one in pair):
            if path.exists() and ours.get(name) != pair:
                raise UsageError(
                    f"{path}: would be replaced by the {name} set; rename it, or give another folder with -o"
                )


def content_hashes(side: h5py.Group) -> dict[str, str]:
    """The SHA-256 of the ids, offsets and text of one side, and of its unknown words, in little-endian byte order."""
    hashes = {}
    for name, parts in _HASHED.items():
        digest = hashlib.sha256()
        for part, first in parts.items():
            for start in range(first, len(side[part]) if part in side else 0, _BLOCK):
                block = side[part][start : start + _BLOCK]
                digest.update(np.ascontiguousarray(block, block.dtype.newbyteorder("<")).data)
        if not side.keys().isdisjoint(parts):
            hashes[f"{side.name[1:]}{name}"] = digest.hexdigest()
    return hashes


def write_files(
    work: Path,
    tokenizers: Tokenizers,
    vocabularies: Vocabularies,
    spools: Mapping[str, PairSpool],
    tables: Mapping[str, Sequence[Table]],
    raw: Mapping[str, RawText],
    summary: Summary,
) -> None:
    """Writes the tokeniser, the vocabularies, summary.json and the texts; then corpus.h5, which has their hashes."""
    new = work / _NEW
    tokenizers.save(new)
    for name, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=True):
        vocabulary.save(new / name)
    with atomic_text(new / SUMMARY_FILE) as stream:
        text = json.dumps(summary.as_dict(), ensure_ascii=False, indent=2)
        stream.write(text.encode(errors="backslashreplace").decode() + "\n")  # a file name may have any bytes
    for name, names in summary.texts.items():
        for path, one in zip(raw[name].paths, names, strict=True):
            shutil.copyfile(path, new / one)
    content: dict[str, str] = {}
    with created(new / CORPUS_FILE) as file:
        for name, spool in spools.items():
            content |= spool.store(file.create_group(name), tables[name], vocabularies)
        train = summary.splits["train"]
        spools["train"].store_lines(file["train"], train.pairs - train.dropped.get(NO_TRANSLATION, 0))
        hashes = {name: sha256_of(new / name) for name in (*VOCABULARY_FILES, *tokenizers.files())}
        attributes = {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "nmtalign_version": __version__,
            "source_language": summary.source_language,
            "target_language": summary.target_language,
            "source_vocabulary_size": len(vocabularies[0]),
            "target_vocabulary_size": len(vocabularies[1]),
            "settings": json.dumps(summary.settings, sort_keys=True),
            "sha256": json.dumps(hashes, sort_keys=True),
            "content_sha256": json.dumps(content, sort_keys=True),
        }
        write_attributes(file, attributes)


def check_begun(folder: Path, languages: tuple[str, str], settings: Mapping[str, Any], sets: AbstractSet[str]) -> None:
    """Raises UsageError if `folder` has a corpus of other languages, settings or sets, before the text is read."""
    settings_text = json.dumps(settings, sort_keys=True)
    _check_replaced(folder, {**dict(zip(_LANGUAGES, languages, strict=True)), "settings": settings_text}, sets)


def check_same(work: Path, folder: Path) -> None:
    """Raises UsageError if the finished files would replace another corpus or other files.

    A corpus may be replaced by one with the same and further sets. A damaged corpus may be replaced.
    """
    new = Corpus.open(work / _NEW)
    if (folder / CORPUS_FILE).exists():
        _check_replaced(folder, new.attributes, set(new.splits))
        return
    for path in sorted((work / _NEW).iterdir()):
        there = folder / path.name
        if path.name != CORPUS_FILE and there.exists() and not (there.is_file() and filecmp.cmp(path, there, False)):
            raise UsageError(
                f"{folder}: contains another {path.name}, which would be replaced; give another folder with -o, or "
                "--force"
            )


def _check_replaced(folder: Path, attributes: Mapping[str, Any], sets: AbstractSet[str]) -> None:
    """Raises UsageError if `folder` has another HDF5 file, or a corpus of other attributes or further sets."""
    path = folder / CORPUS_FILE
    if not path.exists():
        return
    try:
        old = Corpus.open(folder)
    except FormatError:
        if format_of(path) not in (FORMAT, None):
            kind = "another HDF5 file, or one of an earlier version"
            message = f"{path}: is {kind}; give another folder with -o, or --force to replace it"
            raise UsageError(message) from None
        return
    same = all(str(old.attributes.get(name)) == str(attributes[name]) for name in _IDENTITY & attributes.keys())
    if "content_sha256" in attributes:
        before, after = (json.loads(str(one["content_sha256"])) for one in (old.attributes, attributes))
        same = same and before.items() <= after.items()
    if same and sets >= old.splits.keys():
        return
    pairs = ", ".join(f"{len(split):,} {name}" for name, split in old.splits.items())
    kind = "a corpus with more sets" if same else "a corpus of other text or settings"
    raise UsageError(
        f"{folder}: contains {kind} ({old.source_language}-{old.target_language}, pairs: {pairs}), which would be "
        "lost; give another folder with -o, or --force to replace it"
    )


def publish(work: Path, folder: Path) -> None:
    """Puts the finished files in their places; corpus.h5, which names the hashes of the others, comes last."""
    names = {path.name for path in (work / _NEW).iterdir()}
    for name in sorted(names - {CORPUS_FILE}):
        (work / _NEW / name).replace(folder / name)
    (work / _NEW / CORPUS_FILE).replace(folder / CORPUS_FILE)
    for name in set(MODEL_FILES) - names:
        (folder / name).unlink(missing_ok=True)


@contextlib.contextmanager
def work_folder(folder: Path) -> Iterator[Path]:
    """Makes a hidden folder inside `folder` for temporary files; it is always removed at the end."""
    was_there = folder.exists()
    make_folder(folder)
    for left in folder.glob(".prep-*"):
        if is_left_behind(left / _LOCK):
            shutil.rmtree(left, ignore_errors=True)
    work = folder / f".prep-{socket.gethostname()}-{os.getpid()}"
    try:
        (work / _NEW).mkdir(parents=True)
        with (work / _LOCK).open("wb") as stream:
            lock(stream)
            yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not was_there:
            with contextlib.suppress(OSError):  # a corpus is in it
                folder.rmdir()
