"""Writing the prepared corpus: pairs in temporary files, then all files in a hidden folder, then each in its place.

The text is tokenised once. The temporary files contain for each block of pairs its different words, and the text as
their numbers; memory contains only the counts of words. When the vocabularies are known, the numbers become ids.
"""

import contextlib
import dataclasses
import filecmp
import hashlib
import io
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

from nmtalign.data.corpus import CORPUS_FILE, FORMAT, FORMAT_VERSION, SIDES, VOCABULARY_FILES, Array, Corpus
from nmtalign.data.pipeline import Chunk, Pairs
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_text, check_other, is_left_behind, lock, make_folder, sha256_of
from nmtalign.hdf5 import created, format_of, write_attributes
from nmtalign.settings.workspace import SUMMARY_FILE, stored_texts
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, Tokenizers
from nmtalign.text.vocabulary import UNK_ID, Vocabulary, is_word
from nmtalign.version import __version__

Vocabularies = tuple[Vocabulary, Vocabulary]
_IDENTITY = ("source_language", "target_language", "settings", "sha256")  # the attributes that a text determines
_NEW = "new"  # finished files, inside the work folder
_LOCK = "lock"  # a file that the process with the work folder has locked
_BLOCK = 1 << 20  # numbers hashed at a time


class PairSpool:
    """The tokenised pairs of a split in a temporary file, and the number of occurrences of each word in memory."""

    def __init__(self, folder: Path, name: str) -> None:
        self._paths, self._training = [folder / f"{name}.{side}.pairs" for side in SIDES], name == "train"
        self.counts: tuple[dict[str, int], dict[str, int]] = {}, {}  # of the words of each side, by first use
        self._lines = folder / f"{name}.lines"
        self.size, self._bytes = 0, [0, 0]  # pairs; of the raw text of each side

    def append(self, block: Pairs, chunk: Chunk, lines: Sequence[int] = ()) -> None:
        """Adds the kept pairs of a block; `lines` are the line numbers of all training pairs of the block, from 0."""
        for number, side in enumerate((chunk.source, chunk.target)):
            counts = self.counts[number]
            for word, count in zip(side.words(), np.bincount(side.ids).tolist(), strict=True):
                counts[word] = counts.get(word, 0) + count
            parts: list[Array] = [_array(side.types.encode()), side.ids, side.lengths]
            if not self._training:
                raw = [block[kept][number].encode() for kept in chunk.kept]
                self._bytes[number] += sum(map(len, raw))
                parts += [_array(b"".join(raw)), np.array([len(line) for line in raw], np.int32)]
            chunks = io.BytesIO()  # NumPy's own writing to a file loses the reason when a disk is full
            for part in parts:
                np.save(chunks, part)
            with self._paths[number].open("ab") as stream:
                stream.write(chunks.getbuffer())
        with self._lines.open("ab") as stream:
            stream.write(np.array([lines[kept] for kept in chunk.kept if self._training], np.int32).data)
        self.size += len(chunk.kept)

    def _chunks(self, number: int) -> Iterator[list[Array]]:
        """[words, ids, lengths] of a side as they were added; of dev and test also its text and the lengths of that."""
        with self._paths[number].open("rb") as stream:
            while stream.peek(1):
                yield [np.load(stream) for _ in range(3 if self._training else 5)]

    def summaries(self, vocabularies: Vocabularies) -> "tuple[SideSummary, SideSummary]":
        """The counts of both sides."""
        source, target = (_side_summary(*side) for side in zip(self.counts, vocabularies, strict=True))
        return source, target

    def store(self, group: h5py.Group, vocabularies: Vocabularies, text_lines: int) -> dict[str, str]:
        """Writes the groups of both sides, and returns the hashes of their content.

        Of training pairs, `text_lines` is the number of lines of the text.
        """
        # The number of a word without an id on either side; a word of both sides has the same number on both.
        first = {word: number for number, word in enumerate(self.counts[0])}
        second = {word: first.get(word, len(first) + place) for place, word in enumerate(self.counts[1])}
        for number, (words, numbers) in enumerate(zip(vocabularies, (first, second), strict=True)):
            self._store_side(group.create_group(SIDES[number]), number, words, vocabularies[1 - number], numbers)
        if self._training:
            group["line"] = np.fromfile(self._lines, np.int32)
            group["line"].attrs["total"] = text_lines
        return content_hashes(group["source"]) | content_hashes(group["target"])

    def _store_side(
        self, group: h5py.Group, number: int, words: Vocabulary, others: Vocabulary, numbers: Mapping[str, int]
    ) -> None:
        counts = self.counts[number]
        unknown_tokens = sum(count for word, count in counts.items() if word not in words)
        sizes = {"ids": sum(counts.values()), "offsets": self.size + 1}
        if not self._training:
            sizes |= {"text": self._bytes[number], "text_offsets": self.size + 1}
        sizes |= {"unknown": unknown_tokens, "unknown_at": unknown_tokens}
        types = {"ids": "u2" if len(words) <= 1 << 16 else "u4", "text": "u1", "unknown": "u4"}
        datasets = {name: group.create_dataset(name, (size,), types.get(name, "i8")) for name, size in sizes.items()}
        ends = {name: int("offsets" in name) for name in sizes}  # the first offset is 0

        def write(name: str, part: Array) -> None:
            begin, ends[name] = ends[name], ends[name] + len(part)
            datasets[name][begin : ends[name]] = part

        for tokens, ids, lengths, *text in self._chunks(number):
            names = tokens.tobytes().decode().split(" ") if len(tokens) else []
            own = np.array(words.encode(names), np.uint32)
            missing = np.flatnonzero(own == UNK_ID)
            absent = [names[place] for place in missing]
            other = np.zeros(len(own), np.uint32)
            other[missing] = [
                len(others) + numbers[name] if known == UNK_ID else known
                for name, known in zip(absent, others.encode(absent), strict=True)
            ]
            of_text = own[ids]
            unknown = np.flatnonzero(of_text == UNK_ID)
            write("unknown", other[ids[unknown]])
            write("unknown_at", unknown + ends["ids"])
            write("offsets", np.cumsum(lengths, dtype=np.int64) + ends["ids"])
            write("ids", of_text)
            if text:
                write("text_offsets", np.cumsum(text[1], dtype=np.int64) + ends["text"])
                write("text", text[0])


def _array(raw: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(raw, np.uint8)


def content_hashes(side: h5py.Group) -> dict[str, str]:
    """The SHA-256 of the ids, offsets and text of one side, and of its unknown words, in little-endian byte order."""
    hashes = {}
    for name, parts in {"": ("ids", "offsets", "text", "text_offsets"), "/unknown": ("unknown", "unknown_at")}.items():
        digest = hashlib.sha256()
        for part in parts:
            # The first offset is always 0.
            for start in range(int("offsets" in part), len(side[part]) if part in side else 0, _BLOCK):
                block = side[part][start : start + _BLOCK]
                digest.update(np.ascontiguousarray(block, block.dtype.newbyteorder("<")).data)
        hashes[f"{side.name[1:]}{name}"] = digest.hexdigest()
    return hashes


def _side_summary(counts: Mapping[str, int], vocabulary: Vocabulary) -> "SideSummary":
    unknown = {word: count for word, count in counts.items() if word not in vocabulary}
    words, unknown_words = (sum(side[word] for word in filter(is_word, side)) for side in (counts, unknown))
    tokens, unknown_tokens = sum(counts.values()), sum(unknown.values())
    return SideSummary(tokens, len(counts), len(counts) - len(unknown), unknown_tokens, words, unknown_words)


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
            for side in SIDES:
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


def write_files(
    work: Path,
    tokenizers: Tokenizers,
    vocabularies: Vocabularies,
    spools: Mapping[str, PairSpool],
    raw: Mapping[str, Sequence[Path]],
    summary: Summary,
    text_lines: int,
) -> None:
    """Writes the tokeniser, the vocabularies, summary.json and the texts; then corpus.h5, which has their hashes.

    `raw` are the texts of the sets, and `text_lines` is the number of lines of the training text.
    """
    new = work / _NEW
    tokenizers.save(new)
    for name, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=True):
        vocabulary.save(new / name)
    with atomic_text(new / SUMMARY_FILE) as stream:
        text = json.dumps(summary.as_dict(), ensure_ascii=False, indent=2)
        stream.write(text.encode(errors="backslashreplace").decode() + "\n")  # a file name may have any bytes
    for name, names in summary.texts.items():
        for path, one in zip(raw[name], names, strict=True):
            shutil.copyfile(path, new / one)
    content: dict[str, str] = {}
    with created(new / CORPUS_FILE) as file:
        for name, spool in spools.items():
            content |= spool.store(file.create_group(name), vocabularies, text_lines)
        hashes = {name: sha256_of(new / name) for name in (*VOCABULARY_FILES, *tokenizers.files())}
        attributes: dict[str, Any] = {
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


def check_same(work: Path, folder: Path) -> None:
    """Raises UsageError if the finished files would replace another corpus or other files.

    A corpus may be replaced by one with the same and further sets. A damaged corpus may be replaced.
    """
    new = Corpus.open(work / _NEW)
    check_replaced(folder, new.attributes, set(new.splits))
    for path in sorted((work / _NEW).iterdir()) if not (folder / CORPUS_FILE).exists() else ():
        there = folder / path.name
        if there.exists() and not (there.is_file() and filecmp.cmp(path, there, False)):
            raise UsageError(
                f"{folder}: contains another {path.name}, which would be replaced; give another folder with -o, or "
                "--force"
            )


def check_replaced(folder: Path, attributes: Mapping[str, Any], sets: AbstractSet[str]) -> None:
    """Raises UsageError if `folder` has another HDF5 file, or a corpus of other attributes or further sets.

    `attributes` are those of the new corpus that are known. Thus most corpora are refused before the text is read.
    """
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
    same = all(str(old.attributes.get(name)) == str(attributes[name]) for name in _IDENTITY if name in attributes)
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
    for name in (*sorted(names - {CORPUS_FILE}), CORPUS_FILE):
        (work / _NEW / name).replace(folder / name)
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
