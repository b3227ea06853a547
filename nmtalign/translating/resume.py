"""Output files that survive an interruption: FILE.partial is renamed at the end, and a later run can continue it."""

import contextlib
import gzip
import itertools
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from nmtalign.errors import FormatError, InputError, UsageError
from nmtalign.files import PartialFile, atomic_path, disk_errors, keep_mode
from nmtalign.text.lines import open_bytes

_MOSES_ID = re.compile(rb"(\d+) \|\|\| ")


def entries(lines: BinaryIO, name: str, n_best: int = 0, first: int = 0) -> Iterator[bytes]:
    """Yields the complete entries of an output, one per input line: a line or, with `n_best`, a Moses n-best list.

    The ids of the lists count from `first`. Omits a last line without a line break, and a last list that may be
    incomplete because it has fewer than `n_best` lines; also in a compressed file that is cut off. Raises FormatError
    with file and line if a line is not part of a Moses n-best list.
    """
    entry, size, found = b"", 0, first
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
    with contextlib.suppress(InputError):  # a compressed file that is cut off
        for line in lines:
            if line.endswith(b"\n"):
                yield line


class ResumableOutput(PartialFile):
    """An output FILE with one entry per input line, written as FILE.partial; each line is written at once.

    `finish` flushes FILE.partial to the disk and renames it to FILE, compressed if the name ends in .gz. Without
    `finish` FILE.partial remains, and `look_back` of a later run finds `done` entries (of up to `n_best` lines, if it
    is not 0) in the file `found`.
    """

    def __init__(self, path: Path, n_best: int = 0, first: int = 0) -> None:
        """`first` is the number of the first line of the input, from 0."""
        super().__init__(path)
        self.found: Path | None = None
        self.done = 0
        self._kept: int | None = None  # the number of entries that are kept; None: all
        self._n_best, self._first = n_best, first

    def look_back(self) -> None:
        """Counts the entries of FILE.partial, or of FILE if there is none; the next `begin` continues after them."""
        self.found = next((path for path in (self.partial, self.path) if path.exists()), None)
        self.done = sum(1 for _ in self.entries())

    def keep(self, done: int) -> None:
        """Keeps only the first `done` entries."""
        self.done = self._kept = done

    def entries(self) -> Iterator[bytes]:
        """Yields the entries that `look_back` found and `keep` kept."""
        if self.found is not None:
            with open_bytes(self.found) as lines:
                yield from itertools.islice(entries(lines, str(self.found), self._n_best, self._first), self._kept)

    def begin(self) -> bool:
        """Opens FILE.partial, to continue after the found entries or to begin anew.

        Returns True if a FILE.partial that was not empty was renamed to FILE.partial.old, which `finish` removes.
        """
        self.open()  # which locks it: another run may have written since `look_back`
        kept = [len(entry) for entry in self.entries()] if self.found is not None and self.found.exists() else []
        if len(kept) != self.done or (self.found == self.path and not self.is_empty()):
            self.close()
            raise UsageError(f"{self.partial}: another run has written this file meanwhile; repeat the command")
        if self.found == self.path:
            for entry in self.entries():
                self.write(entry)
        elif self.found == self.partial:
            self.cut(sum(kept))
        replaced = self.found is None and not self.is_empty()
        if replaced:
            self.set_aside()
        return replaced

    def finish(self) -> None:
        """Renames FILE.partial to FILE."""
        with disk_errors(self.path):
            keep_mode(self.stream.fileno(), self.path)
            if self.path.suffix == ".gz":
                self._compress()
                self.close(remove=True)
            else:
                self.rename(self.path)
            self.old.unlink(missing_ok=True)

    def _compress(self) -> None:
        """Compresses without name and time in the header, so that equal lines give equal bytes."""
        with (
            atomic_path(self.path) as temporary,
            self.partial.open("rb") as lines,
            temporary.open("wb") as raw,
            gzip.GzipFile("", "wb", 6, raw, mtime=0) as packed,
        ):
            shutil.copyfileobj(lines, packed, 1 << 20)
