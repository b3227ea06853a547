"""The prepared corpus: `corpus.h5` beside its vocabularies and tokeniser, read by memory map.

Layout of corpus.h5, format 1: a group for each split (train, and dev and test where they were given), in it the groups
`source` and `target`, in those the contiguous datasets `ids` (uint16, or uint32 for more than 65,536 ids; no `</s>`)
and `offsets` (int64, one more than there are pairs); sentence i is ids[offsets[i]:offsets[i + 1]]. dev and test also
hold `text` (the raw lines, UTF-8 bytes) and `text_offsets`. train holds `line` (int32): on which line of the text, from
0, each pair stood; its attribute `total` says how many lines there were. Files of earlier versions lack it.

The attribute `content_sha256` has the SHA-256 of each side of each split. Since files are sealed (nmtalign.hdf5), it is
compared only where the seal is missing; every id and offset is checked in any case.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.errors import FormatError
from nmtalign.files import sha256_of
from nmtalign.hdf5 import check_seal, damage, plain_attributes, plain_datasets
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, Tokenizers
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.untrusted import parse_json

CORPUS_FILE = "corpus.h5"
VOCABULARY_FILES = ("source.vocabulary.txt", "target.vocabulary.txt")
SUMMARY_FILE = "summary.json"
FORMAT, FORMAT_VERSION = "nmtalign corpus", 1
SPLITS = ("train", "dev", "test")
SIDES = ("source", "target")
_FILES = frozenset((*VOCABULARY_FILES, TOKENIZER_FILE, *MODEL_FILES))
_TEXT_ATTRIBUTES = (
    "nmtalign_version",
    "source_language",
    "target_language",
    "settings",
    "sha256",
    "content_sha256",
)
_TYPES: Mapping[str, tuple[npt.DTypeLike, ...]] = {
    "ids": (np.uint16, np.uint32),
    "offsets": (np.int64,),
    "text": (np.uint8,),
    "text_offsets": (np.int64,),
    "line": (np.int32,),
}


Flat = tuple[npt.NDArray[Any], npt.NDArray[Any]]  # (ids, offsets); sentence i is ids[offsets[i]:offsets[i + 1]]


class Split:
    """The sentence pairs of one split, memory-mapped from the file.

    `arrays` maps "source/ids", "source/offsets" and so on to the datasets; `text_lines` is the number of lines of the
    text.
    """

    def __init__(self, name: str, arrays: Mapping[str, npt.NDArray[Any]], text_lines: int | None = None) -> None:
        self.name = name
        self.text_lines = text_lines
        self._arrays = dict(arrays)
        self._source = arrays["source/ids"], arrays["source/offsets"]
        self._target = arrays["target/ids"], arrays["target/offsets"]

    def __len__(self) -> int:
        return len(self._source[1]) - 1

    @functools.cached_property
    def source_lengths(self) -> npt.NDArray[np.int32]:
        """(N,) tokens per source sentence, without `</s>`."""
        return _lengths(self._source[1])

    @functools.cached_property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        """(N,) tokens per target sentence, without `</s>`."""
        return _lengths(self._target[1])

    def flat(self) -> tuple[Flat, Flat]:
        """All sentences of each side, one after the other."""
        return self._source, self._target

    def pair(self, index: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The ids (uint16 or uint32) of both sentences, without `</s>`."""
        source, target = (ids[offsets[index] : offsets[index + 1]] for ids, offsets in self.flat())
        return source, target

    def reversed(self) -> "Split":
        """The same pairs, source and target in each other's place."""
        other = dict(zip(SIDES, reversed(SIDES), strict=True))
        arrays = {"/".join(other.get(part, part) for part in name.split("/")): x for name, x in self._arrays.items()}
        return Split(self.name, arrays, self.text_lines)

    @property
    def lines(self) -> npt.NDArray[np.int32] | None:
        """(N,) the line of the training text, from 0, on which each pair stood, rising; None where it was not kept."""
        return self._arrays.get("line")

    def has(self, name: str) -> bool:
        """Whether the split has an array."""
        return name in self._arrays

    def check_offsets(self, name: str, flat: str, shortest: int = 0) -> None:
        """Raises ValueError unless the offsets rise from 0 to the length of `flat`, one sentence for each pair."""
        offsets, length = self._arrays[name], len(self._arrays[flat])
        if len(offsets) != len(self) + 1 or len(offsets) == 0:
            raise ValueError(f"{self.name} has sides of unequal length")
        if offsets[0] != 0 or offsets[-1] != length:
            raise ValueError(f"{self.name}/{name} does not fit {flat}")
        if len(self) and (offsets[1:] - offsets[:-1]).min() < shortest:
            raise ValueError(f"{self.name}/{name} does not rise")

    def check_ids(self, name: str, size: int) -> None:
        """Raises ValueError for an id that is not in a vocabulary of `size` words."""
        ids = self._arrays[name]
        if len(ids) and ids.max() >= size:
            raise ValueError(f"an id of {self.name} is not in the vocabulary")

    def check_lines(self) -> None:
        """Raises ValueError unless there is a line for each pair, rising and within the text."""
        lines, total = self.lines, self.text_lines
        if lines is None or total is None:
            return
        if len(lines) != len(self) or (len(lines) and (lines[0] < 0 or lines[-1] >= total)):
            raise ValueError(f"{self.name}/line does not fit the pairs")
        if len(lines) > 1 and not (lines[1:] > lines[:-1]).all():
            raise ValueError(f"{self.name}/line does not rise")

    def content_hash(self, side: str) -> str:
        """The SHA-256 of the ids, offsets and text of one side, in little-endian byte order."""
        digest = hashlib.sha256()
        for name, first in (("ids", 0), ("offsets", 1), ("text", 0), ("text_offsets", 1)):
            array = self._arrays.get(f"{side}/{name}")
            if array is not None:
                digest.update(np.ascontiguousarray(array[first:], array.dtype.newbyteorder("<")).data)
        return digest.hexdigest()

    def source_text(self, index: int) -> str:
        """The raw source line (dev and test only)."""
        return self._text("source", index)

    def target_text(self, index: int) -> str:
        """The raw target line (dev and test only)."""
        return self._text("target", index)

    def _text(self, side: str, index: int) -> str:
        if f"{side}/text" not in self._arrays:
            raise FormatError(f"the {self.name} part of a corpus holds no raw text")
        offsets = self._arrays[f"{side}/text_offsets"]
        raw = self._arrays[f"{side}/text"][offsets[index] : offsets[index + 1]].tobytes()
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError:
            raise FormatError(
                f"{CORPUS_FILE}: damaged: text {index + 1} of {self.name}/{side} is not UTF-8; run nmtalign prep again"
            ) from None


def _lengths(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int32]:
    lengths = np.empty(len(offsets) - 1, np.int32)
    np.subtract(offsets[1:], offsets[:-1], out=lengths, casting="unsafe")
    return lengths


class Corpus:
    """A prepared corpus, opened with `Corpus.open`."""

    def __init__(self, folder: Path, attributes: Mapping[str, Any], splits: dict[str, Split]) -> None:
        self.folder = folder
        self.attributes = dict(attributes)
        self.splits = splits
        self.sealed = False  # whether the file has a SHA-256 over every byte
        self.source_language = str(attributes["source_language"])
        self.target_language = str(attributes["target_language"])
        self.settings: dict[str, Any] = parse_json(attributes["settings"])
        if not isinstance(self.settings, dict):
            raise ValueError("its settings are not an object")
        self.source_vocabulary, self.target_vocabulary = (Vocabulary.load(folder / name) for name in VOCABULARY_FILES)

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenisers that the text went through."""
        return Tokenizers.load(self.folder)

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 over settings, vocabularies, tokeniser and every id: what a resumed training compares."""
        identity = {key: str(value) for key, value in self.attributes.items() if key != "nmtalign_version"}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def info(self) -> dict[str, Any]:
        """What `nmtalign info` says of it."""
        return {
            "kind": "corpus",
            "format_version": int(self.attributes["format_version"]),
            "nmtalign_version": str(self.attributes["nmtalign_version"]),
            "languages": f"{self.source_language}-{self.target_language}",
            "tokenizer": self.tokenizers.kind,
            "source_vocabulary": len(self.source_vocabulary),
            "target_vocabulary": len(self.target_vocabulary),
            "splits": {
                name: {
                    "pairs": len(split),
                    "source_tokens": int(split.source_lengths.sum()),
                    "target_tokens": int(split.target_lengths.sum()),
                }
                for name, split in self.splits.items()
            },
            "settings": self.settings,
            "hash": self.hash,
            "checked": "every byte" if self.sealed else "structure, ids and texts, not the attributes",
        }

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Opens the corpus in `folder` (or at the path of its corpus.h5).

        Raises FormatError where there is none, or it is foreign or damaged, or a file beside it was changed.
        """
        path = folder if folder.is_file() else folder / CORPUS_FILE
        if not path.is_file():
            raise FormatError(f"{folder}: no prepared corpus here (no {CORPUS_FILE}); run nmtalign prep")
        with damage(path, "prepared corpus", "run nmtalign prep again"):
            sealed = check_seal(path)
            with h5py.File(path, "r", locking=False) as file:
                attributes = _check_format(path, plain_attributes(file))
                datasets = plain_datasets(file)
                splits = {name: _split(path, name, datasets) for name in SPLITS if f"{name}/source/ids" in datasets}
            if "train" not in splits or not len(splits["train"]):
                raise ValueError("no training pairs")
            _check_files(path.parent, _texts(attributes, "sha256"))
            corpus = cls(path.parent, attributes, splits)
            corpus.sealed = sealed
            _check_values(corpus)
            if not sealed:
                _check_content(splits, _texts(attributes, "content_sha256"))
        return corpus


class ReversedCorpus(Corpus):
    """A prepared corpus with source and target exchanged, for a model of the other direction."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        """`folder` is where `write` writes its vocabularies and tokenisers."""
        self.folder, self.attributes, self.settings = folder, corpus.attributes, corpus.settings
        self.splits = {name: split.reversed() for name, split in corpus.splits.items()}
        self.source_language, self.target_language = corpus.target_language, corpus.source_language
        self.source_vocabulary, self.target_vocabulary = corpus.target_vocabulary, corpus.source_vocabulary
        self._corpus = corpus

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        """The tokenisers, exchanged."""
        return self._corpus.tokenizers.reversed()

    @functools.cached_property
    def hash(self) -> str:
        """The hash of the corpus, since the text is the same."""
        return self._corpus.hash

    def write(self) -> None:
        """Writes the vocabularies and tokenisers, as `nmtalign prep` would for this direction."""
        self.tokenizers.save(self.folder)
        for name, words in zip(VOCABULARY_FILES, (self.source_vocabulary, self.target_vocabulary), strict=True):
            words.save(self.folder / name)


def _check_format(path: Path, attributes: dict[str, Any]) -> dict[str, Any]:
    if attributes.get("format") != FORMAT:
        raise FormatError(f"{path}: an HDF5 file, but not a corpus prepared by nmtalign; run nmtalign prep")
    if attributes.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"{path}: corpus format {attributes.get('format_version')}, this nmtalign reads {FORMAT_VERSION}; "
            "run nmtalign prep again"
        )
    for name in _TEXT_ATTRIBUTES:
        if not isinstance(attributes[name], str):
            raise ValueError(f"its attribute {name!r} is not a text")
    return attributes


def _texts(attributes: Mapping[str, Any], name: str) -> dict[str, str]:
    """The JSON object of an attribute whose values are texts."""
    found = parse_json(attributes[name])
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise ValueError(f"its attribute {name!r} is not an object of texts")
    return found


def _split(path: Path, name: str, datasets: Mapping[str, h5py.Dataset]) -> Split:
    parts = [f"{side}/{part}" for side in SIDES for part in ("ids", "offsets")]
    parts += [
        f"{side}/{part}" for side in SIDES for part in ("text", "text_offsets") if f"{name}/{side}/text" in datasets
    ]
    arrays = {part: _mapped(path, datasets[f"{name}/{part}"]) for part in parts}
    total = None
    if f"{name}/line" in datasets:
        line = datasets[f"{name}/line"]
        arrays["line"], total = _mapped(path, line), int(plain_attributes(line)["total"])
    return Split(name, arrays, total)


def _mapped(path: Path, dataset: h5py.Dataset) -> npt.NDArray[Any]:
    """A contiguous dataset as a memory map, which stays valid when the HDF5 file is closed, and in forks."""
    kinds = _TYPES[dataset.name.rpartition("/")[2]]
    if dataset.dtype.newbyteorder("=") not in kinds or dataset.ndim != 1:
        raise ValueError(f"{dataset.name} has the type {dataset.dtype} and {dataset.ndim} dimensions")
    start = dataset.id.get_offset()
    if dataset.size == 0 or start is None:
        return np.asarray(dataset[()])
    # As a plain array: slicing a memmap object takes several times as long.
    return np.memmap(path, mode="r", dtype=dataset.dtype, offset=start, shape=dataset.shape).view(np.ndarray)


def _check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    if not {*VOCABULARY_FILES, TOKENIZER_FILE} <= hashes.keys() <= _FILES:
        raise ValueError("it does not name the files beside it")
    for name, expected in hashes.items():
        file = folder / Path(name).name  # a name from a file never leads out of the folder
        if not file.is_file():
            raise FormatError(f"{file}: missing, but {CORPUS_FILE} needs it; run nmtalign prep again")
        if sha256_of(file) != expected:
            raise FormatError(f"{file}: changed since {CORPUS_FILE} was made; put it back or run nmtalign prep again")


def _check_values(corpus: Corpus) -> None:
    """Raises ValueError unless all offsets, ids and line numbers can be what they say."""
    sizes = len(corpus.source_vocabulary), len(corpus.target_vocabulary)
    for split in corpus.splits.values():
        for side, size in zip(SIDES, sizes, strict=True):
            split.check_offsets(f"{side}/offsets", f"{side}/ids", shortest=1 if split.name == "train" else 0)
            if split.has(f"{side}/text"):
                split.check_offsets(f"{side}/text_offsets", f"{side}/text")
            split.check_ids(f"{side}/ids", size)
        split.check_lines()


def _check_content(splits: Mapping[str, Split], expected: Mapping[str, str]) -> None:
    """Raises ValueError unless each side of each split has the SHA-256 that was computed when it was written."""
    for split in splits.values():
        for side in SIDES:
            if split.content_hash(side) != expected[f"{split.name}/{side}"]:
                raise ValueError(f"{split.name}/{side} does not match its SHA-256: changed since it was written")
