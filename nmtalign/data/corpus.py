"""The prepared corpus: `corpus.h5` beside its vocabularies and tokeniser, read by memory map.

Layout of corpus.h5, format 1: a group for each split (train, and dev and test where they were given), in it the groups
`source` and `target`, in those the contiguous datasets `ids` (uint16, or uint32 for more than 65,536 ids; no `</s>`)
and `offsets` (int64, one more than there are pairs); sentence i is ids[offsets[i]:offsets[i + 1]]. dev and test also
hold `text` (the raw lines, UTF-8 bytes) and `text_offsets`. train holds `line` (int32): on which line of the text, from
0, each pair stood; its attribute `total` says how many lines there were. Files of earlier versions lack it.
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
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import Vocabulary
from nmtalign.untrusted import parse_json

CORPUS_FILE = "corpus.h5"
VOCABULARY_FILES = ("source.vocabulary.txt", "target.vocabulary.txt")
SUMMARY_FILE = "summary.json"
FORMAT, FORMAT_VERSION = "nmtalign corpus", 1
SPLITS = ("train", "dev", "test")
SIDES = ("source", "target")


class Split:
    """The sentence pairs of one split, mapped from the file, not read into memory.

    `arrays` maps "source/ids", "source/offsets" and so on to the datasets; `text_lines` is how many lines the text had.
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
        """(N,) tokens a source sentence, `</s>` not counted."""
        return _lengths(self._source[1])

    @functools.cached_property
    def target_lengths(self) -> npt.NDArray[np.int32]:
        """(N,) tokens a target sentence, `</s>` not counted."""
        return _lengths(self._target[1])

    def flat(self) -> tuple[tuple[npt.NDArray[Any], npt.NDArray[Any]], tuple[npt.NDArray[Any], npt.NDArray[Any]]]:
        """(ids, offsets) of each side; sentence i is ids[offsets[i]:offsets[i + 1]]."""
        return self._source, self._target

    def pair(self, index: int) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """The ids (uint16 or uint32) of both sentences, without `</s>`."""
        (sources, source_offsets), (targets, target_offsets) = self._source, self._target
        return (
            sources[source_offsets[index] : source_offsets[index + 1]],
            targets[target_offsets[index] : target_offsets[index + 1]],
        )

    def reversed(self) -> "Split":
        """The same pairs, source and target in each other's place."""
        other = dict(zip(SIDES, reversed(SIDES), strict=True))
        arrays = {"/".join(other.get(part, part) for part in name.split("/")): x for name, x in self._arrays.items()}
        return Split(self.name, arrays, self.text_lines)

    @property
    def lines(self) -> npt.NDArray[np.int32] | None:
        """(N,) the line of the training text, from 0, on which each pair stood, rising; None where it was not kept."""
        return self._arrays.get("line")

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
        return self._arrays[f"{side}/text"][offsets[index] : offsets[index + 1]].tobytes().decode("utf-8")


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
        self.source_language = str(attributes["source_language"])
        self.target_language = str(attributes["target_language"])
        self.settings: dict[str, Any] = parse_json(attributes["settings"])
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
        }

    @classmethod
    def open(cls, folder: Path) -> "Corpus":
        """Opens the corpus in `folder` (or at the path of its corpus.h5).

        Raises FormatError where there is none, or it is foreign or damaged, or a file beside it was changed.
        """
        path = folder if folder.is_file() else folder / CORPUS_FILE
        if not path.is_file():
            raise FormatError(f"{folder}: no prepared corpus here (no {CORPUS_FILE}); run nmtalign prep")
        try:
            with h5py.File(path, "r") as file:
                attributes = _check_format(path, dict(file.attrs))
                splits = {name: _split(path, file[name]) for name in SPLITS if name in file}
        except (OSError, KeyError, ValueError, RuntimeError) as error:
            raise FormatError(f"{path}: not a whole HDF5 file of nmtalign ({error}); run nmtalign prep again") from None
        if "train" not in splits:
            raise FormatError(f"{path}: damaged: no train part; run nmtalign prep again")
        _check_files(path.parent, parse_json(attributes["sha256"]))
        corpus = cls(path.parent, attributes, splits)
        _check_ids(path, corpus)
        return corpus


def _check_format(path: Path, attributes: dict[str, Any]) -> dict[str, Any]:
    if attributes.get("format") != FORMAT:
        raise FormatError(f"{path}: an HDF5 file, but not a corpus prepared by nmtalign; run nmtalign prep")
    if attributes.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"{path}: corpus format {attributes.get('format_version')}, this nmtalign reads {FORMAT_VERSION}; "
            "run nmtalign prep again"
        )
    for name in ("settings", "sha256"):
        try:
            whole = isinstance(parse_json(attributes[name]), dict)
        except (KeyError, TypeError, ValueError):
            whole = False
        if not whole:
            raise FormatError(f"{path}: damaged: its attribute '{name}' is no JSON object; run nmtalign prep again")
    return attributes


def _split(path: Path, group: h5py.Group) -> Split:
    arrays, total = _arrays(path, group), None
    if "line" in group:
        arrays["line"], total = _mapped(path, group["line"]), int(group["line"].attrs["total"])
        if len(arrays["line"]) != len(arrays["source/offsets"]) - 1:
            raise ValueError(f"{group.name}/line does not fit the pairs")
    return Split(group.name.strip("/"), arrays, total)


def _arrays(path: Path, group: h5py.Group) -> dict[str, npt.NDArray[Any]]:
    arrays: dict[str, npt.NDArray[Any]] = {}
    for side in SIDES:
        for name, dataset in group[side].items():
            arrays[f"{side}/{name}"] = _mapped(path, dataset)
        for flat, offsets in (("ids", "offsets"), ("text", "text_offsets")):
            if f"{side}/{flat}" in arrays and arrays[f"{side}/{offsets}"][-1] != len(arrays[f"{side}/{flat}"]):
                raise ValueError(f"{group.name}/{side}/{offsets} does not fit {flat}")
    if len(arrays["source/offsets"]) != len(arrays["target/offsets"]):
        raise ValueError(f"{group.name} has sides of unequal length")
    return arrays


def _mapped(path: Path, dataset: h5py.Dataset) -> npt.NDArray[Any]:
    """A contiguous dataset as a memory map, which stays valid when the HDF5 file is closed, and in forks."""
    start = dataset.id.get_offset()
    if dataset.size == 0 or start is None:
        return np.asarray(dataset[()])
    # As a plain array: slicing a memmap object takes several times as long.
    return np.memmap(path, mode="r", dtype=dataset.dtype, offset=start, shape=dataset.shape).view(np.ndarray)


def _check_files(folder: Path, hashes: Mapping[str, str]) -> None:
    for name, expected in hashes.items():
        file = folder / Path(name).name  # a name from a file never leads out of the folder
        if not file.is_file():
            raise FormatError(f"{file}: missing, but {CORPUS_FILE} needs it; run nmtalign prep again")
        if sha256_of(file) != expected:
            raise FormatError(f"{file}: changed since {CORPUS_FILE} was made; put it back or run nmtalign prep again")


def _check_ids(path: Path, corpus: Corpus) -> None:
    """The first and last ids of every split fit the vocabularies (all of them would mean to read the whole file)."""
    for split in corpus.splits.values():
        for index in {0, len(split) - 1} if len(split) else ():
            vocabularies = corpus.source_vocabulary, corpus.target_vocabulary
            for ids, vocabulary in zip(split.pair(index), vocabularies, strict=True):
                if len(ids) and ids.max() >= len(vocabulary):
                    raise FormatError(f"{path}: damaged: an id of {split.name} is not in the vocabulary")
