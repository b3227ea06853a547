"""The prepared corpus: `corpus.h5` beside its vocabularies and tokeniser, read by memory map.

docs/formats.md describes the layout. Sentence i of a side is ids[offsets[i]:offsets[i + 1]], without `</s>`.

The attribute `content_sha256` has the SHA-256 of each side of each split. It identifies the text: a resumed training
compares it. The seal (nmtalign.hdf5) covers every byte; every id and offset is checked, too.
"""

import functools
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from nmtalign.errors import FormatError
from nmtalign.files import SOURCE_VOCABULARY, TARGET_VOCABULARY, kind_of, parse_json, sha256_of
from nmtalign.hdf5 import check_seal, damage, opened, plain_attributes, plain_datasets
from nmtalign.text.lines import SIDES
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, Tokenizers, Vocabulary

CORPUS_FILE = "corpus.h5"
VOCABULARY_FILES = SOURCE_VOCABULARY, TARGET_VOCABULARY

FORMAT, FORMAT_VERSION = "nmtalign corpus", 2
SPLITS = ("train", "dev", "test")
_FILES = frozenset((*VOCABULARY_FILES, TOKENIZER_FILE, *MODEL_FILES))
_TEXT_ATTRIBUTES = ("nmtalign_version", "source_language", "target_language", "settings", "sha256", "content_sha256")
_TYPES: Mapping[str, tuple[npt.DTypeLike, ...]] = {
    "ids": (np.uint16, np.uint32),
    "offsets": (np.int64,),
    "text": (np.uint8,),
    "text_offsets": (np.int64,),
    "line": (np.int32,),
    "unknown": (np.uint32,),
    "unknown_at": (np.int64,),
}

Array = npt.NDArray[Any]
_empty = functools.partial(np.empty, 0, np.int64)


@dataclass(eq=False)
class SplitSide:
    """One side of a split, memory-mapped from the file; dev and test have the raw text, too."""

    ids: Array
    offsets: Array
    unknown: Array
    unknown_at: Array
    raw_text: Array = field(default_factory=_empty)
    text_offsets: Array = field(default_factory=_empty)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @functools.cached_property
    def lengths(self) -> npt.NDArray[np.int32]:
        """(N,) tokens per sentence, without `</s>`."""
        lengths = np.empty(len(self), np.int32)
        np.subtract(self.offsets[1:], self.offsets[:-1], out=lengths, casting="unsafe")
        return lengths

    def sentence(self, index: int) -> Array:
        """The ids (uint16 or uint32) of a sentence, without `</s>`."""
        return self.ids[self.offsets[index] : self.offsets[index + 1]]

    def text(self, index: int) -> str:
        """The raw line of dev or test; raises FormatError if it is not UTF-8."""
        try:
            return self.raw_text[self.text_offsets[index] : self.text_offsets[index + 1]].tobytes().decode("utf-8")
        except UnicodeDecodeError:
            message = f"{CORPUS_FILE}: damaged: text {index + 1} is not UTF-8; run nmtalign prep again"
            raise FormatError(message) from None

    def check(self, name: str, size: int, training: bool) -> None:
        """Raises ValueError unless offsets rise (in training no sentence is empty) and ids are below `size`."""
        texts = () if training else (("text", self.raw_text, self.text_offsets),)
        for part, flat, offsets in (("ids", self.ids, self.offsets), *texts):
            if len(offsets) != len(self.offsets) or not len(offsets) or offsets[0] != 0 or offsets[-1] != len(flat):
                raise ValueError(f"the offsets do not fit {name}/{part}")
            # A difference could overflow.
            if not (offsets[1:] > offsets[:-1] if training else offsets[1:] >= offsets[:-1]).all():
                raise ValueError(f"the offsets of {name}/{part} do not rise")
        if len(self.ids) and self.ids.max() >= size:
            raise ValueError(f"an id of {name} is not in the vocabulary")


@dataclass(frozen=True, eq=False)
class Split:
    """The sentence pairs of one split.

    Of training pairs, `lines` (N,) are the lines of the text, counted from 0, on which they were, in rising order;
    `text_lines` is the number of lines of that text.
    """

    name: str
    source: SplitSide
    target: SplitSide
    lines: Array = field(default_factory=_empty)
    text_lines: int = 0

    def __len__(self) -> int:
        return len(self.source)

    def pair(self, index: int) -> tuple[Array, Array]:
        """The ids of both sentences, without `</s>`."""
        return self.source.sentence(index), self.target.sentence(index)

    def check(self, sizes: tuple[int, int]) -> None:
        """Raises ValueError for a value that cannot be right; `sizes` are those of the vocabularies."""
        if len(self.source) != len(self.target):
            raise ValueError(f"{self.name} has sides of unequal length")
        for side, part, size in zip(SIDES, (self.source, self.target), sizes, strict=True):
            part.check(f"{self.name}/{side}", size, self.name == "train")
        lines = self.lines
        if self.name != "train":
            return
        if len(lines) != len(self) or (len(lines) and (lines[0] < 0 or lines[-1] >= self.text_lines)):
            raise ValueError("train/line does not fit the pairs")
        if not (lines[1:] > lines[:-1]).all():
            raise ValueError("train/line does not rise")


class Corpus:
    """A prepared corpus, opened with `Corpus.open`."""

    def __init__(self, folder: Path, attributes: Mapping[str, Any], splits: dict[str, Split]) -> None:
        self.folder, self.attributes, self.splits = folder, dict(attributes), splits
        self.source_language, self.target_language = (str(attributes[f"{side}_language"]) for side in SIDES)
        self.settings: dict[str, Any] = parse_json(attributes["settings"])
        if not isinstance(self.settings, dict):
            raise ValueError("its settings are not an object")
        self.source_vocabulary, self.target_vocabulary = (Vocabulary.load(folder / name) for name in VOCABULARY_FILES)

    @functools.cached_property
    def tokenizers(self) -> Tokenizers:
        return Tokenizers.load(self.folder)

    @functools.cached_property
    def hash(self) -> str:
        """SHA-256 over settings, vocabularies, tokeniser and every id, which a resumed training compares."""
        identity = {key: str(value) for key, value in self.attributes.items() if key != "nmtalign_version"}
        return hashlib.sha256(json.dumps(identity, sort_keys=True).encode()).hexdigest()

    def info(self) -> dict[str, Any]:
        """The description that `nmtalign info` prints."""
        return {
            "kind": "corpus",
            "format_version": int(self.attributes["format_version"]),
            "nmtalign_version": str(self.attributes["nmtalign_version"]),
            "languages": f"{self.source_language}-{self.target_language}",
            "tokenizer": self.tokenizers.kind,
            "source_vocabulary": len(self.source_vocabulary),
            "target_vocabulary": len(self.target_vocabulary),
            "splits": {
                name: {"pairs": len(own), "source_tokens": len(own.source.ids), "target_tokens": len(own.target.ids)}
                for name, own in self.splits.items()
            },
            "settings": self.settings,
            "hash": self.hash,
        }

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Opens the corpus in a folder, or its corpus.h5; raises FormatError if it is missing, foreign or damaged."""
        path, kind = folder if folder.is_file() else folder / CORPUS_FILE, kind_of(folder)
        if not path.is_file() or kind == "a text file":
            found = f", but {kind}" if kind not in ("", "a folder") else ""
            raise FormatError(f"{folder}: no prepared corpus here (no {CORPUS_FILE}){found}; run nmtalign prep")
        with damage(path, "prepared corpus", "run nmtalign prep again"):
            check_seal(path)
            with opened(path) as file:
                attributes = _check_format(path, plain_attributes(file))
                datasets = plain_datasets(file)
                splits = {name: _split(path, name, datasets) for name in SPLITS if f"{name}/source/ids" in datasets}
            if "train" not in splits or not len(splits["train"]):
                raise ValueError("no training pairs")
            _check_files(path.parent, parse_json(attributes["sha256"]))
            corpus = cls(path.parent, attributes, splits)
            for split in splits.values():
                split.check((len(corpus.source_vocabulary), len(corpus.target_vocabulary)))
        return corpus


def _check_format(path: Path, attributes: dict[str, Any]) -> dict[str, Any]:
    if attributes.get("format") != FORMAT:
        raise FormatError(f"{path}: an HDF5 file, but not a corpus prepared by nmtalign; run nmtalign prep")
    if (version := attributes.get("format_version")) != FORMAT_VERSION:
        fix = "run nmtalign prep again"
        raise FormatError(f"{path}: corpus format {version}, this nmtalign reads {FORMAT_VERSION}; {fix}")
    for name in _TEXT_ATTRIBUTES:
        if not isinstance(attributes[name], str):
            raise ValueError(f"its attribute {name!r} is not a text")
    return attributes


def _split(path: Path, name: str, datasets: Mapping[str, h5py.Dataset]) -> Split:
    parts = ("ids", "offsets", "unknown", "unknown_at", *(() if name == "train" else ("text", "text_offsets")))
    source, target = (
        SplitSide(*(_mapped(path, datasets[f"{name}/{side}/{part}"]) for part in parts)) for side in SIDES
    )
    if name != "train":
        return Split(name, source, target)
    line = datasets["train/line"]
    return Split(name, source, target, _mapped(path, line), int(plain_attributes(line)["total"]))


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


def _check_files(folder: Path, hashes: Any) -> None:
    if not isinstance(hashes, dict) or not {*VOCABULARY_FILES, TOKENIZER_FILE} <= hashes.keys() <= _FILES:
        raise ValueError("it does not name the files beside it")
    for name, expected in hashes.items():
        file = folder / name
        if not file.is_file():
            raise FormatError(f"{file}: missing, but {CORPUS_FILE} needs it; run nmtalign prep again")
        if sha256_of(file) != expected:
            raise FormatError(f"{file}: changed since {CORPUS_FILE} was made; put it back or run nmtalign prep again")
