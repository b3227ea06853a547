"""An output file that outlives an interruption: FILE.partial, renamed at the end, continued by a later run."""

import contextlib
import gzip
import itertools
import os
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import atomic_path, disk_errors, followed, keep_mode, make_folder, open_alone
from nmtalign.text.lines import open_bytes

_MOSES_ID = re.compile(rb"(\d+) \|\|\| ")


def entries(lines: BinaryIO, name: str, n_best: int = 0) -> Iterator[bytes]:
    """The complete entries of an output, one for each line of the input: a line of it or, with `n_best`, a Moses list.

    A last line without its end is left out, and so is a last list that may go on: one of fewer than `n_best` lines. The
    same for what cannot be read to its end. Raises FormatError naming file and line for what is no Moses list.
    """
    entry, size, found = b"", 0, 0
    for number, line in enumerate(_complete_lines(lines), 1):
        if not n_best:
            yield line
            continue
        match = _MOSES_ID.match(line)
        if match is None or not (int(match[1]) == found or (size and int(match[1]) == found + 1)):
            raise FormatError(f"{name}: line {number}: not the n-best list of input line {found + 1}: other options?")
        if int(match[1]) > found:
            yield entry
            entry, size, found = b"", 0, found + 1
        entry, size = entry + line, size + 1
    if n_best and size >= n_best:
        yield entry


def _complete_lines(lines: BinaryIO) -> Iterator[bytes]:
    with contextlib.suppress(EOFError, zlib.error, gzip.BadGzipFile):  # a compressed file that was cut off
        for line in lines:
            if line.endswith(b"\n"):
                yield line


class PartialFile:
    """FILE while it is written: FILE.partial beside it, which holds every line as soon as it is written.

    FILE may be a symbolic link: the file that it leads to is meant. `finish` flushes FILE.partial to the disk and
    renames it to FILE, compressed if that name ends in .gz. Otherwise it stays, for `look_back` of a later run to find
    what is there: `done` entries (of up to `n_best` lines where that is not 0) in `found`. Raises UsageError for a FILE
    that is there and no file, or that another process is writing.
    """

    def __init__(self, path: Path, n_best: int = 0) -> None:
        self.path = path = followed(path)
        self.partial = path.with_name(f"{path.name}.partial")
        self.old = path.with_name(f"{path.name}.partial.old")
        self.found: Path | None = None
        self.done = 0
        self._kept: int | None = None  # entries that are gone on after, though there are more
        self._n_best = n_best
        self._stream: BinaryIO | None = None
        if path.exists() and not path.is_file():
            raise UsageError(f"{path}: is no file that could be replaced; give another name with -o")

    def look_back(self) -> None:
        """Counts what FILE.partial holds or, where there is none, FILE; the next `open` goes on after it."""
        self.found = next((path for path in (self.partial, self.path) if path.exists()), None)
        self.done = sum(1 for _ in self.entries())

    def keep(self, done: int) -> None:
        """Goes on after so many entries, though there are more."""
        self.done = self._kept = done

    def entries(self) -> Iterator[bytes]:
        """What was found by `look_back`, an entry at a time."""
        if self.found is not None:
            with open_bytes(self.found) as lines:
                yield from itertools.islice(entries(lines, str(self.found), self._n_best), self._kept)

    def open(self) -> bool:
        """Opens FILE.partial to go on after what was found, or anew.

        Anew, a FILE.partial that is not empty lives on as FILE.partial.old until `finish`: True where that happened.
        """
        with disk_errors(self.partial):
            if self.found == self.path:
                with atomic_path(self.partial) as temporary, temporary.open("wb") as stream:
                    stream.writelines(self.entries())
            self._stream = self._opened()
            replaced = self.found is None and self.partial.stat().st_size > 0
            if replaced:
                self._stream.close()
                self.partial.replace(self.old)
                self._stream = self._opened()
            if self.found == self.partial:
                self._stream.truncate(sum(map(len, self.entries())))
            self._stream.seek(0, os.SEEK_END)
        return replaced

    def write(self, lines: bytes) -> None:
        """Writes complete lines, nothing kept back; raises ResourceError for what the disk refuses."""
        if self._stream is None:
            raise ValueError("open comes first")
        with disk_errors(self.partial):
            rest = memoryview(lines)
            while rest:
                rest = rest[self._stream.write(rest) :]

    def finish(self) -> None:
        """FILE.partial becomes FILE."""
        if self._stream is None:
            raise ValueError("open comes first")
        with disk_errors(self.path):
            keep_mode(self._stream.fileno(), self.path)
            os.fsync(self._stream.fileno())
            if self.path.suffix == ".gz":
                self._compress()
                self.partial.unlink()
            else:
                self.partial.replace(self.path)
            self.old.unlink(missing_ok=True)
        self._stream.close()
        self._stream = None

    def close(self) -> None:
        """Lets go of FILE.partial, which stays unless it is empty."""
        if self._stream is not None:
            empty = os.fstat(self._stream.fileno()).st_size == 0
            self._stream.close()
            self._stream = None
            if empty:
                self.partial.unlink(missing_ok=True)

    def _opened(self) -> BinaryIO:
        """FILE.partial, made where it is missing, unbuffered, and marked as being written by this process."""
        make_folder(self.partial.parent)
        try:
            return open_alone(self.partial, self.path)
        except BlockingIOError:
            raise UsageError(
                f"{self.partial}: is being written by another run; wait for its end, or give another name with -o"
            ) from None

    def _compress(self) -> None:
        """Neither name nor time goes into the header: the same lines are the same bytes."""
        with (
            atomic_path(self.path) as temporary,
            self.partial.open("rb") as lines,
            temporary.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(lines, packed, 1 << 20)
