"""FILE.h5.partial: an alignment file while it is written, in a form that no kill can damage.

HDF5 keeps its tables in many places of a file; a process that is killed between two writes leaves it unreadable. So the
compressed chunks of the datasets are appended to this file instead, each in a frame with its length and a checksum, and
`build` copies them into an HDF5 file at the end. From time to time the values that do not fill a chunk yet follow (the
tails), and then a commit: a frame that declares everything before it complete. After a kill everything up to the last
commit can be used.
"""

import contextlib
import glob
import itertools
import json
import math
import os
import re
import struct
import zlib
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from nmtalign.alignment.layout import COMPRESSION, DATASETS, NAMES, OFFSETS, dataset_type, lengths, pack, value_shape
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import PartialFile, atomic_path, disk_errors, parse_json
from nmtalign.hdf5 import created, damage, write_attributes
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import select

SETTINGS, CHUNK, TAIL, COMMIT = range(1, 5)  # kinds of frames
_MAGIC = b"nmtalign alignments, not yet HDF5: --resume goes on with it\n"  # unchanged since version 0.1.0
_HEADER = struct.Struct("<BBHI")  # kind, dataset, 0, bytes of the payload
_CHECKSUM = struct.Struct("<I")
_LONGEST = 1 << 26  # bytes of a payload; a longer one is damage
# Settings and options that may differ between a run and the one that resumes it. `files_sha256` has the files' content.
_FREE = frozenset(("source_file", "target_file", "nmtalign_version"))
_FREE_OPTIONS = {
    "prefix_file",
    "phrase_file",
    *select(TranslateConfig, lambda one: one.affects == "machine" or one.is_path),
}


class Frame(NamedTuple):
    """A frame: its kind, the number of its dataset, its bytes, and where it ends in the file."""

    kind: int
    dataset: int
    payload: bytes
    end: int


class Commit(NamedTuple):
    """The content of the file up to one of its commits."""

    settings: Mapping[str, Any]  # as given to `begin`
    state: Mapping[str, Any]  # as given to `commit`
    tails: Mapping[int, bytes]  # by dataset the bytes that fill no chunk
    end: int  # where the commit ends, in bytes


class PartialAlignments(PartialFile):
    """FILE.h5.partial; `end` (bytes) and `sentences` are those of the last commit."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.end = self.sentences = 0

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings into an empty file."""
        self.cut(0)
        self.write(_MAGIC)
        self.append(SETTINGS, 0, _json(settings))

    def append(self, kind: int, dataset: int, payload: bytes) -> None:
        """Adds a frame."""
        header = _HEADER.pack(kind, dataset, 0, len(payload))
        self.write(header + _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(header))) + payload)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Declares everything so far complete and flushes it to the disk.

        `state` has the counts `records`, `sentences` and `last_id`, `rises` (whether the ids of the sentences never
        fall), and `totals` (the last value of each of OFFSETS).
        """
        self.append(COMMIT, 0, _json(state))
        with disk_errors(self.partial):
            os.fsync(self.stream.fileno())
            self.end, self.sentences = self.stream.tell(), state["sentences"]

    def resume(self, commit: Commit) -> None:
        """Continues after a commit: removes what follows it."""
        self.cut(commit.end)
        self.end, self.sentences = commit.end, commit.state["sentences"]

    def last_commit(self, at_most: int | None = None) -> Commit | None:
        """Returns the last commit of at most `at_most` sentences, or None if there is no such commit.

        Raises FormatError for a file that `begin` did not start, or with content that this class never writes.
        """
        with damage(self.partial, "file of an interrupted run", "move it away, or leave out --resume"):
            found, settings = None, {}
            chunks, tails = Counter[int](), dict[int, bytes]()
            for frame in self._frames():
                if frame.kind == SETTINGS:
                    settings = dict(parse_json(frame.payload))
                elif frame.kind == CHUNK:
                    chunks[frame.dataset] += 1
                    tails[frame.dataset] = b""
                elif frame.kind == TAIL:
                    tails[frame.dataset] = tails.get(frame.dataset, b"") + frame.payload
                elif frame.kind == COMMIT:
                    commit = Commit(settings, dict(parse_json(frame.payload)), dict(tails), frame.end)
                    _check(commit, chunks)
                    if at_most is None or commit.state["sentences"] <= at_most:
                        found = commit
            return found

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yields (dataset number, bytes) of each committed chunk, in order."""
        for frame in itertools.takewhile(lambda frame: frame.end <= self.end, self._frames()):
            if frame.kind == CHUNK:
                yield frame.dataset, frame.payload

    def _frames(self) -> Iterator[Frame]:
        """Yields the complete frames."""
        with disk_errors(self.partial, "read"), self.partial.open("rb", buffering=1 << 20) as lines:
            start = lines.read(len(_MAGIC))
            if start != _MAGIC:
                if _MAGIC.startswith(start):  # the run was killed at once
                    return
                raise FormatError(
                    f"{self.partial}: is not a file of an interrupted run; move it away, or leave out --resume"
                )
            while frame := _read(lines):
                yield frame


def _read(lines: BinaryIO) -> Frame | None:
    """Reads a frame; returns None if there is no complete one."""
    header, checksum = lines.read(_HEADER.size), lines.read(_CHECKSUM.size)
    if len(checksum) < _CHECKSUM.size:
        return None
    kind, dataset, _, length = _HEADER.unpack(header)
    if length > _LONGEST:
        return None
    payload = lines.read(length)
    if len(payload) < length or zlib.crc32(payload, zlib.crc32(header)) != _CHECKSUM.unpack(checksum)[0]:
        return None
    return Frame(kind, dataset, payload, lines.tell())


def _check(commit: Commit, chunks: Mapping[int, int]) -> None:
    """Raises an error that `damage` catches unless the chunks and tails have the lengths that the counts require."""
    state, totals = commit.state, commit.state["totals"]
    counts = [state["records"], state["sentences"], *totals.values()]
    if not all(type(count) is int and count >= 0 for count in counts) or type(state["last_id"]) is not int:
        raise ValueError("a commit without its counts")
    if not isinstance(state["rises"], bool) or totals.keys() != set(OFFSETS):
        raise ValueError("a commit without its counts")
    if not {*chunks, *commit.tails} <= set(range(len(NAMES))):
        raise ValueError("it has a dataset that alignment files do not have")
    expected = lengths(state["records"], totals)
    for number, name in enumerate(NAMES):
        value = dataset_type(name, commit.settings["weights"]).itemsize * math.prod(value_shape(name))
        tail, rest = divmod(len(commit.tails.get(number, b"")), value)
        size = DATASETS[name][1]
        if rest or tail >= size or chunks.get(number, 0) * size + tail != expected[name]:
            raise ValueError(f"{name} does not have {expected[name]} values")


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def build(partial: PartialAlignments, attributes: Mapping[str, Any], weights: str) -> None:
    """Writes the HDF5 file of everything that is committed; `weights` is float16 or float32.

    The chunks are compressed already and are copied into the file. Raises ResourceError where the disk refuses, and
    FormatError if the partial file was damaged after it was written. Then there is no new file, and the partial file
    is unchanged.
    """
    path, content = partial.path, partial.last_commit()
    if content is None:
        raise FormatError(f"{partial.partial}: is damaged; write the file again")
    for left in path.parent.glob(f".{glob.escape(path.name)}.*.partial"):  # by a run that was killed in this function
        if re.fullmatch(rf"\.{re.escape(path.name)}\.\d+\.partial", left.name):
            left.unlink(missing_ok=True)
    with atomic_path(path) as temporary, created(temporary) as file:
        write_attributes(file, {**attributes, "sentence_ids_rise": content.state["rises"]})
        expected = lengths(content.state["records"], content.state["totals"])
        datasets = [_dataset(file, name, expected[name], dataset_type(name, weights)) for name in NAMES]
        done = [0] * len(NAMES)
        for number, packed in _all_chunks(partial, content.tails, weights):
            dataset = datasets[number]
            dataset.id.write_direct_chunk((done[number], 0)[: dataset.ndim], packed)
            done[number] += DATASETS[NAMES[number]][1]


def _dataset(file: Any, name: str, length: int, kind: np.dtype[Any]) -> Any:
    value = value_shape(name)
    return file.create_dataset(
        name,
        shape=(length, *value),
        maxshape=(None, *value),
        chunks=(DATASETS[name][1], *value),
        dtype=kind,
        compression="gzip",
        compression_opts=COMPRESSION,
        shuffle=True,
    )


def _all_chunks(partial: PartialAlignments, tails: Mapping[int, bytes], weights: str) -> Iterator[tuple[int, bytes]]:
    """Yields the committed chunks, then one chunk for each tail, filled up with zeros."""
    yield from partial.chunks()
    for number, name in enumerate(NAMES):
        if raw := tails.get(number):
            kind = dataset_type(name, weights)
            chunk = np.zeros(DATASETS[name][1] * math.prod(value_shape(name)), kind)
            chunk[: len(raw) // kind.itemsize] = np.frombuffer(raw, kind)
            yield number, pack(chunk)


def check_same(path: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError naming the first setting that differs between this run and the one that began `path`.

    The places of the texts, and options of the machine such as threads, may differ.
    """
    before, after = dict(_flat(begun)), dict(_flat(now))
    for name in {**after, **before}:
        if name.split(".")[0] in now and before.get(name) != after.get(name):
            raise UsageError(
                f"{path}: was begun with {name} = {_shown(before.get(name))}, and now it is {_shown(after.get(name))}; "
                "resume with the same model, texts and options, or leave out --resume"
            )


def _flat(settings: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yields (name, value) of the settings that must not change; `name.key` for each key of a JSON object."""
    for name in (name for name in settings if name not in _FREE):
        options = None
        with contextlib.suppress(TypeError, ValueError):
            options = parse_json(settings[name])
        if isinstance(options, dict):
            free = _FREE_OPTIONS if name == "options" else ()
            yield from ((f"{name}.{key}", options[key]) for key in options if key not in free)
        else:
            yield name, settings[name]


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
