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
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from nmtalign.data.corpus import CORPUS_FILE, FORMAT, FORMAT_VERSION, VOCABULARY_FILES, Array, Corpus
from nmtalign.data.pipeline import Chunk
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_text, check_other, sha256_of, work_folder
from nmtalign.hdf5 import created, format_of, write_attributes
from nmtalign.model_directory import BEST, LAST
from nmtalign.settings.definition import SUMMARY_FILE, stored_texts
from nmtalign.text.lines import SIDES
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, UNK_ID, Tokenizers, Vocabularies, Vocabulary, is_word
from nmtalign.version import __version__

_IDENTITY = ("source_language", "target_language", "settings", "sha256")  # the attributes that a text determines
_NEW = "new"  # the folder of the finished files, inside that for temporary files
_BLOCK = 1 << 20  # numbers hashed at a time


class PairSpool:
    """The tokenised pairs of a split in a temporary file, and the number of occurrences of each word in memory.

    `texts` are the raw text files of dev and test; training pairs have none.
    """

    def __init__(self, folder: Path, name: str, texts: Sequence[Path] = ()) -> None:
        self.texts = texts
        self._paths, self._lines = [folder / f"{name}.{side}.pairs" for side in SIDES], folder / f"{name}.lines"
        self.counts: tuple[Counter[str], Counter[str]] = Counter(), Counter()  # of each side, by first use
        self.size = self.text_lines = 0  # pairs; for training pairs, also their lines in the text

    def append(self, chunk: Chunk, lines: Sequence[int] = ()) -> None:
        """Adds the kept pairs of a block; `lines` are the line numbers of all training pairs of the block, from 0."""
        for counts, path, side in zip(self.counts, self._paths, (chunk.source, chunk.target), strict=True):
            counts.update(dict(zip(side.words(), np.bincount(side.ids).tolist(), strict=True)))
            arrays = io.BytesIO()  # NumPy's own writing to a file loses the reason when a disk is full
            for array in (np.frombuffer(side.types.encode(), np.uint8), side.ids, side.lengths):
                np.save(arrays, array)
            with path.open("ab") as stream:
                stream.write(arrays.getbuffer())
        if lines:
            with self._lines.open("ab") as stream:
                stream.write(np.array([lines[kept] for kept in chunk.kept], np.int32).data)
        self.size += len(chunk.kept)

    def store(self, group: h5py.Group, vocabularies: Vocabularies) -> dict[str, str]:
        """Writes the groups of both sides, and returns the hashes of their content."""
        # The number of a word without an id on either side; a word of both sides has the same number on both.
        first = {word: number for number, word in enumerate(self.counts[0])}
        second = {word: first.get(word, len(first) + place) for place, word in enumerate(self.counts[1])}
        for number, numbers in enumerate((first, second)):
            self._store_side(group.create_group(SIDES[number]), number, vocabularies, numbers)
        if not self.texts:
            group["line"] = np.fromfile(self._lines, np.int32)
            group["line"].attrs["total"] = self.text_lines
        return content_hashes(group["source"]) | content_hashes(group["target"])

    def _store_side(
        self, group: h5py.Group, number: int, vocabularies: Vocabularies, numbers: Mapping[str, int]
    ) -> None:
        words, others, counts = vocabularies[number], vocabularies[1 - number], self.counts[number]
        unknown_tokens = sum(count for word, count in counts.items() if word not in words)
        sizes = {"ids": counts.total(), "offsets": self.size + 1}
        sizes |= dict.fromkeys(("unknown", "unknown_at"), unknown_tokens)
        types = {"ids": "u2" if len(words) <= 1 << 16 else "u4", "unknown": "u4"}
        datasets = {name: group.create_dataset(name, (size,), types.get(name, "i8")) for name, size in sizes.items()}
        ends = {name: int(name == "offsets") for name in sizes}  # the first offset is 0

        def write(name: str, part: Array) -> None:
            begin, ends[name] = ends[name], ends[name] + len(part)
            datasets[name][begin : ends[name]] = part

        with self._paths[number].open("rb") as stream:
            while stream.peek(1):
                tokens, ids, lengths = (np.load(stream) for _ in range(3))
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
        if self.texts:
            lines = self.texts[number].read_bytes().split(b"\n")[:-1]
            group["text"] = np.frombuffer(b"".join(lines), np.uint8)
            group["text_offsets"] = np.cumsum([0, *map(len, lines)], dtype=np.int64)


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


@dataclass(frozen=True)
class SideSummary:
    """One side of one split, as tokenised, without `</s>`."""

    tokens: int
    types: int  # different words
    known_types: int  # different words that are in the vocabulary
    unknown_tokens: int  # tokens that are not in the vocabulary
    words: int  # tokens with a letter
    unknown_words: int  # words that are not in the vocabulary
    coverage: float  # the share of words that are in the vocabulary (1 if there are none)
    unknown_rate: float

    @classmethod
    def of(cls, counts: Mapping[str, int], vocabulary: Vocabulary) -> "SideSummary":
        unknown = {word: count for word, count in counts.items() if word not in vocabulary}
        words, unknown_words = (sum(side[word] for word in filter(is_word, side)) for side in (counts, unknown))
        tokens, unknown_tokens, rate = sum(counts.values()), sum(unknown.values()), unknown_words / max(words, 1)
        known = len(counts) - len(unknown)
        return cls(tokens, len(counts), known, unknown_tokens, words, unknown_words, 1.0 - rate, rate)


@dataclass(frozen=True)
class SplitSummary:
    """One split: pairs read, kept, and dropped by reason ("empty", "duplicate", "too long", those of `--clean`)."""

    pairs: int
    dropped: Mapping[str, int]
    source: SideSummary
    target: SideSummary
    kept: int


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
        """All values as plain values for JSON."""
        return {name: value for name, value in dataclasses.asdict(self).items() if value or name != "texts"}


def text_names(
    folder: Path, sets: Iterable[str], languages: tuple[str, str], inputs: Sequence[Path | None]
) -> dict[str, tuple[str, str]]:
    """The names of the text files of sets in the folder of a corpus, such as dev.en and dev.fr.

    Raises UsageError for a file of the folder that would be replaced if it is an input, or not a text that prep wrote.
    """
    usable = languages[0] != languages[1] and all(re.fullmatch(r"[\w-]{1,20}", one) for one in languages)
    first, second = languages if usable else SIDES
    names, own = {name: (f"{name}.{first}", f"{name}.{second}") for name in sets}, _own_texts(folder)
    texts = [*itertools.chain.from_iterable(names.values())]
    for file in (*texts, *VOCABULARY_FILES, *MODEL_FILES, TOKENIZER_FILE, SUMMARY_FILE, CORPUS_FILE):
        check_other(folder / file, inputs)
    if others := [str(folder / file) for file in texts if file not in own and (folder / file).exists()]:
        why = "would be replaced, and prep did not write this text, or its record is lost"
        raise UsageError(f"{' and '.join(others)}: {why}; move or remove it, or give another folder with -o")
    return names


def _own_texts(folder: Path) -> set[str]:
    """The names of the text files that prep wrote into a folder; those that differ from an intact corpus are others."""
    texts = stored_texts(folder)
    own = {*itertools.chain.from_iterable(texts.values())}
    with contextlib.suppress(FormatError):
        for name, split in (Corpus.open(folder).splits if own else {}).items():
            for file, side in zip(texts.get(name, ()), (split.source, split.target), strict=False):
                text = "".join(f"{side.text(line)}\n" for line in range(len(side)))
                if not (folder / file).is_file() or (folder / file).read_bytes() != text.encode():
                    own.discard(file)
    return own


def write_files(
    work: Path, tokenizers: Tokenizers, vocabularies: Vocabularies, spools: Mapping[str, PairSpool], summary: Summary
) -> None:
    """Writes all files of the corpus into the work folder."""
    new = work / _NEW
    tokenizers.save(new)
    for file, vocabulary in zip(VOCABULARY_FILES, vocabularies, strict=True):
        vocabulary.save(new / file)
    with atomic_text(new / SUMMARY_FILE) as stream:
        text = json.dumps(summary.as_dict(), ensure_ascii=False, indent=2)
        stream.write(text.encode(errors="backslashreplace").decode() + "\n")  # a file name may have any bytes
    for name, files in summary.texts.items():
        for path, file in zip(spools[name].texts, files, strict=True):
            shutil.copyfile(path, new / file)
    content: dict[str, str] = {}
    with created(new / CORPUS_FILE) as corpus:
        for name, spool in spools.items():
            content |= spool.store(corpus.create_group(name), vocabularies)
        hashes = {file: sha256_of(new / file) for file in (*VOCABULARY_FILES, *tokenizers.files())}
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
        write_attributes(corpus, attributes)


def check_replaced(folder: Path, new: Mapping[str, Any], sets: AbstractSet[str], files: Iterable[Path] = ()) -> None:
    """Raises UsageError if `folder` has another HDF5 file, or a corpus of other attributes or further sets.

    `new` are the attributes of the new corpus that are known. Thus most corpora are refused before the text is read. A
    corpus may be replaced by one with the same and further sets, a damaged corpus by any. In a folder without a corpus,
    none of the `files` may replace a file of other content.
    """
    path = folder / CORPUS_FILE
    if not path.exists():
        for file in files:
            there = folder / file.name
            if there.exists() and not (there.is_file() and filecmp.cmp(file, there, False)):
                fix = "give another folder with -o, or --force"
                raise UsageError(f"{folder}: contains another {file.name}, which would be replaced; {fix}")
        return
    try:
        old = Corpus.open(folder)
    except FormatError:
        if format_of(path) in (FORMAT, None):
            return
        kind = "another HDF5 file, or one of an earlier version"
        raise UsageError(f"{path}: is {kind}; give another folder with -o, or --force to replace it") from None
    same = all(str(old.attributes.get(name)) == str(new[name]) for name in _IDENTITY if name in new)
    if "content_sha256" in new:
        before, after = (json.loads(str(one["content_sha256"])) for one in (old.attributes, new))
        same = same and before.items() <= after.items()
    if not same or not sets >= old.splits.keys():
        pairs = ", ".join(f"{len(split):,} {name}" for name, split in old.splits.items())
        kind = "a corpus with more sets" if same else "a corpus of other text or settings"
        raise UsageError(
            f"{folder}: contains {kind} ({old.source_language}-{old.target_language}, pairs: {pairs}), which would be "
            "lost; give another folder with -o, or --force to replace it"
        )


@contextlib.contextmanager
def corpus_files(folder: Path, force: bool, inputs: Sequence[Path | None]) -> Iterator[Path]:
    """Yields a folder inside `folder`, which is locked, for temporary files (`work_folder`).

    If there is no error, the finished files are put in their places: corpus.h5 after the files of which it has hashes,
    then the texts, which prep knows as its own because they are in the corpus. What prep wrote for an earlier corpus is
    removed, unless it is an input now. Another corpus is replaced only with `force` (`check_replaced`), a model never.
    Raises UsageError if another process is working in `folder`.
    """
    if (force or not (folder / CORPUS_FILE).exists()) and any((folder / name).exists() for name in (BEST, LAST)):
        raise UsageError(f"{folder}: contains a model, which would lose its vocabularies; give another folder with -o")
    with work_folder(folder, ".prep") as work:
        new = work / _NEW
        new.mkdir()
        yield work
        texts = {*itertools.chain.from_iterable(stored_texts(new).values())}
        files = sorted(new.iterdir(), key=lambda path: (path.name in texts, path.name == CORPUS_FILE, path.name))
        if not force:
            corpus = Corpus.open(new)
            check_replaced(folder, corpus.attributes, set(corpus.splits), files)
        earlier = _own_texts(folder)
        with contextlib.suppress(FormatError):  # there was no corpus, or a damaged one
            earlier.update(Tokenizers.load(folder).files())
        for name in earlier - {path.name for path in files if path.name not in texts}:
            if os.path.realpath(folder / name) not in map(os.path.realpath, filter(None, inputs)):
                (folder / name).unlink(missing_ok=True)
        for path in files:
            path.replace(folder / path.name)
