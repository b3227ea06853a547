"""FILE.h5.partial: an alignment file while it is written, in a form that no kill can damage.

HDF5 keeps its tables in many places of a file; a process that is killed between two writes leaves it unreadable. So the
compressed chunks of the datasets are appended to this file instead, each in a frame with its length and a checksum, and
are copied into an HDF5 file at the end. From time to time the values that fill no chunk yet follow, and then a commit:
a frame that declares everything before it complete. After a kill everything up to the last commit can be used.
"""

import json
import os
import struct
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import disk_errors, make_folder, open_alone
from nmtalign.hdf5 import damage
from nmtalign.untrusted import parse_json

SETTINGS, CHUNK, TAIL, COMMIT = range(1, 5)  # kinds of frames
_MAGIC = b"nmtalign alignments, not yet HDF5: --resume goes on with it\n"  # unchanged since version 0.1.0
_HEADER = struct.Struct("<BBHI")  # kind, dataset, 0, bytes of the payload
_CHECKSUM = struct.Struct("<I")
_LONGEST = 1 << 26  # bytes of a payload; a longer one is damage
# Settings and options that may differ between a run and the one that resumes it.
_FREE = frozenset(("source_file", "target_file", "nmtalign_version"))
_FREE_OPTIONS = frozenset(("threads", "device", "max_memory"))


class Frame(NamedTuple):
    """A frame: its kind, the number of its dataset, and its bytes."""

    kind: int
    dataset: int
    payload: bytes


@dataclass
class Commit:
    """The content of a partial file up to one of its commits.

    settings: as given to `begin`; state: as given to `commit`; tails: by dataset the bytes that fill no chunk.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    tails: Mapping[int, bytes] = field(default_factory=dict)
    end: int = 0  # where the commit ends, in bytes


class PartialFile:
    """The file, which only one process can open at a time; raises ResourceError where the disk refuses."""

    def __init__(self, path: Path, final: Path) -> None:
        """`final`: the file that will be built from this one; if it exists, its mode is copied."""
        self.path, self._final = path, final
        self.end = 0  # of the last commit, in bytes
        self._stream: BinaryIO | None = None

    def open(self) -> None:
        """Opens or creates the file; raises UsageError if another process is writing it."""
        with disk_errors(self.path):
            make_folder(self.path.parent)
            try:
                self._stream = open_alone(self.path, self._final)
            except BlockingIOError:
                raise UsageError(
                    f"{self.path}: another run is writing this file; wait for its end, or give another name"
                ) from None

    @property
    def stream(self) -> BinaryIO:
        """The file, once it is open."""
        if self._stream is None:
            raise ValueError(f"{self.path}: is not open")
        return self._stream

    def is_empty(self) -> bool:
        """Returns whether the file has no content."""
        return os.fstat(self.stream.fileno()).st_size == 0

    def begin(self, settings: Mapping[str, Any]) -> None:
        """Writes the settings into an empty file."""
        self._write(_MAGIC)
        self.append(SETTINGS, 0, _json(settings))

    def append(self, kind: int, dataset: int, payload: bytes) -> None:
        """Adds a frame."""
        header = _HEADER.pack(kind, dataset, 0, len(payload))
        self._write(header + _CHECKSUM.pack(zlib.crc32(payload, zlib.crc32(header))) + payload)

    def commit(self, state: Mapping[str, Any]) -> None:
        """Declares everything so far complete and flushes it to the disk."""
        self.append(COMMIT, 0, _json(state))
        with disk_errors(self.path):
            os.fsync(self.stream.fileno())
            self.end = self.stream.tell()

    def cut(self, end: int | None = None) -> None:
        """Truncates the file to `end` bytes, or to the last commit of this run."""
        self.end = self.end if end is None else end
        with disk_errors(self.path):
            self.stream.truncate(self.end)
            self.stream.seek(self.end)

    def has_commit(self) -> bool:
        """Returns whether a run can resume from this file."""
        return any(frame.kind == COMMIT for frame, _ in self._frames())

    def last_commit(self, at_most: int | None = None) -> Commit | None:
        """Returns the last commit of at most `at_most` sentences, or None if there is no such commit.

        Raises FormatError for a file that `begin` did not start, or with a commit that this module never writes.
        """
        with damage(self.path, "file of an interrupted run", "move it away, or leave out --resume"):
            return self._last_commit(at_most)

    def _last_commit(self, at_most: int | None) -> Commit | None:
        content, settings, tails = None, {}, dict[int, bytes]()
        for frame, end in self._frames():
            if frame.kind == SETTINGS:
                settings = dict(parse_json(frame.payload))
            elif frame.kind == CHUNK:
                tails[frame.dataset] = b""
            elif frame.kind == TAIL:
                tails[frame.dataset] = tails.get(frame.dataset, b"") + frame.payload
            elif frame.kind == COMMIT:
                state = _checked(parse_json(frame.payload))
                if at_most is None or state["sentences"] <= at_most:
                    content = Commit(settings, state, dict(tails), end)
        return content

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Yields (dataset number, bytes) of each committed chunk, in order."""
        for frame, end in self._frames():
            if end > self.end:
                break
            if frame.kind == CHUNK:
                yield frame.dataset, frame.payload

    def close(self, remove: bool = False) -> None:
        """Closes the file; with `remove` deletes it."""
        if self._stream is not None:
            if remove:
                self.path.unlink(missing_ok=True)
            self._stream.close()
            self._stream = None

    def _write(self, data: bytes) -> None:
        with disk_errors(self.path):
            rest = memoryview(data)
            while rest:
                rest = rest[self.stream.write(rest) :]

    def _frames(self) -> Iterator[tuple[Frame, int]]:
        """Yields the complete frames, each with the place where it ends."""
        with disk_errors(self.path, "read"), self.path.open("rb", buffering=1 << 20) as lines:
            start = lines.read(len(_MAGIC))
            if start != _MAGIC:
                if _MAGIC.startswith(start):  # the run was killed at once
                    return
                raise FormatError(f"{self.path}: is no file of an interrupted run; move it away, or leave out --resume")
            while frame := _read(lines):
                yield frame, lines.tell()


def _read(lines: BinaryIO) -> Frame | None:
    header, checksum = lines.read(_HEADER.size), lines.read(_CHECKSUM.size)
    if len(checksum) < _CHECKSUM.size:
        return None
    kind, dataset, _, length = _HEADER.unpack(header)
    if length > _LONGEST:
        return None
    payload = lines.read(length)
    if len(payload) < length or zlib.crc32(payload, zlib.crc32(header)) != _CHECKSUM.unpack(checksum)[0]:
        return None
    return Frame(kind, dataset, payload)


def _checked(state: Any) -> Mapping[str, Any]:
    """The state of a commit; raises TypeError, LookupError or ValueError unless it counts as `Background` does."""
    counts = [state[name] for name in ("records", "sentences", "last_id")] + list(state["totals"].values())
    if not all(type(count) is int for count in counts) or not isinstance(state["rises"], bool):
        raise ValueError("a commit without its counts")
    return dict(state)


def _json(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")


def check_same(path: Path, begun: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Raises UsageError naming the first setting that differs between this run and the one that began `path`.

    The places of the texts, and options of the machine such as threads, may differ.
    """
    for name, ours in now.items():
        if name in _FREE:
            continue
        different = _difference(name, begun.get(name), ours)
        if different is not None:
            place, before, after = different
            raise UsageError(
                f"{path}: was begun with {place} = {_shown(before)}, and now it is {_shown(after)}; resume with the "
                "same model, texts and options, or leave out --resume"
            )


def _difference(name: str, before: Any, after: Any) -> tuple[str, Any, Any] | None:
    """Returns (name, before, after) of a difference; in JSON objects that of the first key that differs."""
    if before == after:
        return None
    objects = _object(before), _object(after)
    if objects[0] is None or objects[1] is None:
        return name, before, after
    keys = [key for key in {**objects[0], **objects[1]} if key not in _FREE_OPTIONS]
    found = (key for key in keys if objects[0].get(key) != objects[1].get(key))
    return next(((f"{name}.{key}", objects[0].get(key), objects[1].get(key)) for key in found), None)


def _object(text: Any) -> dict[str, Any] | None:
    try:
        value = parse_json(text)
    except (TypeError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def _shown(value: Any) -> str:
    text = "nothing" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
