"""FILE.h5.partial: what there is of an alignment file while it is written, in a form that no kill can spoil.

HDF5 keeps its tables in many places of a file, which a process killed between two of them leaves unreadable. So the
chunks of the datasets, compressed already, are appended to this file one after the other, each in a frame with its
length and a checksum, and become HDF5 at the end. From time to time the values that fill no chunk yet follow, and a
frame that says: all before this is whole. After a kill everything up to the last of these is there.
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
_MAGIC = b"nmtalign alignments, not yet HDF5: --resume goes on with it\n"
_HEADER = struct.Struct("<BBHI")  # kind, dataset, 0, bytes of the payload
_CHECKSUM = struct.Struct("<I")
_LONGEST = 1 << 26  # bytes of a payload; a length beyond it is damage


class Frame(NamedTuple):
    """A frame: its kind, the number of the dataset it belongs to, and what it holds."""

    kind: int
    dataset: int
    payload: bytes


@dataclass
class Content:
    """What a spool holds up to one of its commits.

    settings: as given to `begin`; state: as given to `commit`; tails: for each dataset the bytes that fill no chunk.
    """

    settings: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    tails: Mapping[int, bytes] = field(default_factory=dict)
    end: int = 0  # of the commit, in bytes


class Spool:
    """The file, open for one process alone; raises ResourceError for what the disk refuses."""

    def __init__(self, path: Path, final: Path) -> None:
        """`final`: the file that is to be built from it, whose mode it takes over if it is there."""
        self.path, self._final = path, final
        self.end = 0  # of what is committed
        self._stream: BinaryIO | None = None

    def open(self) -> None:
        """Opens the file, made where it is missing; raises UsageError if another process is writing it."""
        with disk_errors(self.path):
            make_folder(self.path.parent)
            try:
                self._stream = open_alone(self.path, self._final)
            except BlockingIOError:
                raise UsageError(
                    f"{self.path}: is being written by another run; wait for its end, or give another name"
                ) from None

    @property
    def stream(self) -> BinaryIO:
        """The open file."""
        if self._stream is None:
            raise ValueError(f"{self.path}: is not open")
        return self._stream

    def is_empty(self) -> bool:
        """Whether there is nothing in it."""
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
        """Says that all so far is whole, and brings it to the disk."""
        self.append(COMMIT, 0, _json(state))
        with disk_errors(self.path):
            os.fsync(self.stream.fileno())
            self.end = self.stream.tell()

    def cut(self, end: int | None = None) -> None:
        """Takes away what comes after a place, or after the last commit of this run."""
        self.end = self.end if end is None else end
        with disk_errors(self.path):
            self.stream.truncate(self.end)
            self.stream.seek(self.end)

    def holds_a_commit(self) -> bool:
        """Whether there is anything to go on with."""
        return any(frame.kind == COMMIT for frame, _ in self._frames())

    def look_back(self, at_most: int | None = None) -> Content | None:
        """What there is up to the last commit of at most so many sentences, or None where there is no such commit.

        Raises FormatError for a file that was not begun by `begin`, or holds a commit that this module never writes.
        """
        with damage(self.path, "file of an interrupted run", "move it away, or leave out --resume"):
            return self._look_back(at_most)

    def _look_back(self, at_most: int | None) -> Content | None:
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
                    content = Content(settings, state, dict(tails), end)
        return content

    def chunks(self) -> Iterator[tuple[int, bytes]]:
        """Number of the dataset and bytes of each chunk that is committed, in order."""
        for frame, end in self._frames():
            if end > self.end:
                break
            if frame.kind == CHUNK:
                yield frame.dataset, frame.payload

    def close(self, remove: bool = False) -> None:
        """Lets go of the file; with `remove` it is gone."""
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
        """The frames, each with the place where it ends, as far as they are whole."""
        with disk_errors(self.path, "read"), self.path.open("rb", buffering=1 << 20) as lines:
            start = lines.read(len(_MAGIC))
            if start != _MAGIC:
                if _MAGIC.startswith(start):  # killed in the first moment
                    return
                raise FormatError(
                    f"{self.path}: was not left by a run that was cut off; move it away, or leave out --resume"
                )
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
