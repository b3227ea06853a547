"""What is translated: the lines of files, each a request with its place for messages."""

import contextlib
import os
import stat
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Literal

from nmtalign.decoding.json_lines import read_request
from nmtalign.decoding.results import Request
from nmtalign.errors import InputError
from nmtalign.text.lines import STDIN, bounded_lines, decode_lenient, open_bytes, read_lines, shown

_BOM = b"\xef\xbb\xbf"
_BLOCK = 1 << 20  # bytes
_GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, kw_only=True)
class InputRequest(Request):
    """A line of an input as a request."""

    path: Path
    line: int  # of its file, from 1
    index: int  # of all lines, from 0
    end: int  # bytes of all lines up to its end
    valid: bool  # whether all of it was UTF-8

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return _place(self.path, self.line)


@dataclass(frozen=True)
class Inputs:
    """The files to translate, `-` = stdin, one after the other.

    In format `json` their lines are objects. The files `prefixes` and `phrases` (those of a line set apart by tabs)
    have a line for each of theirs.
    """

    paths: tuple[Path, ...]
    format: Literal["text", "json"] = "text"
    prefixes: Path | None = None
    phrases: Path | None = None

    def __iter__(self) -> Iterator[InputRequest]:
        """The lines; only `\\n` ends one, and no file's last is another's first.

        Raises InputError for a file that cannot be read, for what is not JSON where it should be, and where one of the
        files has more lines than another or a line longer than `LONGEST_LINE`; bytes that are not UTF-8 become U+FFFD.
        """
        prefixes, phrases = _Beside(self.prefixes), _Beside(self.phrases)
        index = end = 0
        for path in self.paths:
            for number, raw in enumerate(_raw_lines(path), 1):
                text, replaced = decode_lenient(raw)
                place = _place(path, number)
                found = read_request(text, place) if self.format == "json" else Request(text)
                end += len(raw)
                yield InputRequest(
                    text=found.text,
                    prefix=prefixes.next(place) or found.prefix,
                    phrases=tuple(part for part in phrases.next(place).split("\t") if part.strip()) or found.phrases,
                    extra=found.extra,
                    path=path,
                    line=number,
                    index=index,
                    end=end,
                    valid=not replaced,
                )
                index += 1
        for beside in (prefixes, phrases):
            beside.finish(" and ".join(map(shown, self.paths)), index)

    @property
    def at_hand(self) -> bool:
        """Whether all are regular files, whose lines need not be waited for; raises InputError for one not there."""
        files = [*self.paths, *(path for path in (self.prefixes, self.phrases) if path is not None)]
        modes = [_status(path).st_mode for path in files]
        return all(map(stat.S_ISREG, modes))

    def count(self) -> int:
        """How many lines there are; reads them all, and stdin, which has to be a regular file, is read again after."""
        return sum(map(_count_lines, self.paths))

    def size(self) -> int | None:
        """Bytes of the lines, to show how far it is; None where that cannot be told before they are read."""
        if not self.at_hand:
            return None
        sizes = [_unpacked_size(path) for path in self.paths]
        return None if None in sizes else sum(size or 0 for size in sizes)


class _Beside:
    """A file with a line for each line of the inputs; none at all gives empty ones."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._lines = read_lines(path) if path is not None else iter(())

    def next(self, place: str) -> str:
        """The line that belongs to the one at `place`."""
        if self._path is None:
            return ""
        line = next(self._lines, None)
        if line is None:
            raise InputError(f"{shown(self._path)}: has no line for {place}; the two must have as many lines")
        return line

    def finish(self, inputs: str, count: int) -> None:
        """Raises InputError if lines are left when the inputs have ended after `count`."""
        if self._path is not None and next(self._lines, None) is not None:
            raise InputError(
                f"{shown(self._path)}: has a line {count + 1}, but {inputs} ended after {count} lines; "
                "the two must have as many lines"
            )


def after(requests: Iterator[InputRequest], done: int, where: Path) -> Iterator[InputRequest]:
    """The requests without the first `done`; raises InputError where there are fewer, naming `where` they are done."""
    for number in range(done):
        if next(requests, None) is None:
            raise too_many(where, done, number)
    yield from requests


def too_many(where: Path, done: int, lines: int) -> InputError:
    """The error for an output that holds more lines than the input has."""
    return InputError(
        f"{where}: holds the translations of {done} lines, but the input has {lines}; "
        "to go on give the input that it is of, to begin anew leave out --resume"
    )


def _place(path: Path, number: int) -> str:
    return f"{shown(path)}: line {number}"


def _status(path: Path) -> os.stat_result:
    try:
        return os.fstat(0) if path == STDIN else path.stat()
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot read: {error.strerror}; give an existing text file") from None


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with open_bytes(path) as stream:
            yield stream
    except (EOFError, zlib.error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{shown(path)}: cannot read on: {reason}; is the file complete?") from None


def _raw_lines(path: Path) -> Iterator[bytes]:
    with _opened(path) as stream:
        for number, raw in enumerate(bounded_lines(stream, path)):
            yield raw.removeprefix(_BOM) if number == 0 else raw


def _count_lines(path: Path) -> int:
    offset = os.lseek(0, 0, os.SEEK_CUR) if path == STDIN else 0
    count, last = 0, b"\n"
    with _opened(path) as stream:
        while block := stream.read(_BLOCK):
            count += block.count(b"\n")
            last = block[-1:]
    if path == STDIN:
        os.lseek(0, offset, os.SEEK_SET)
    return count + (last != b"\n")


def _unpacked_size(path: Path) -> int | None:
    """The size of a regular file; of a compressed one what its last bytes say (modulo 2^32, of its last member)."""
    size = _status(path).st_size
    if path == STDIN or size < 18:
        return size
    with path.open("rb") as stream:
        if stream.read(2) != _GZIP_MAGIC:
            return size
        stream.seek(-4, os.SEEK_END)
        unpacked: int = struct.unpack("<I", stream.read(4))[0]
    return unpacked if unpacked >= size else None
