"""The lines of the files that are translated, each with its place for messages."""

import os
import stat
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtalign.errors import InputError
from nmtalign.text.lines import STDIN, decode_lenient, open_bytes, shown

_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class InputLine:
    """A line of an input: where it stands (`number` from 1), its text without the end, whether all of it was UTF-8."""

    path: Path
    number: int
    text: str
    valid: bool
    size: int  # bytes, end included

    @property
    def place(self) -> str:
        """File and line, for messages."""
        return f"{shown(self.path)}: line {self.number}"


def read_inputs(paths: Sequence[Path]) -> Iterator[InputLine]:
    """The lines of the files one after the other, `-` = stdin; only `\\n` ends a line, and no file's end is another's.

    Raises InputError for a file that cannot be read; bytes that are not UTF-8 become U+FFFD.
    """
    for path in paths:
        for number, raw in enumerate(_raw_lines(path), 1):
            text, replaced = decode_lenient(raw)
            yield InputLine(path, number, text, not replaced, len(raw))


def are_at_hand(paths: Sequence[Path]) -> bool:
    """Whether all are regular files, whose lines need not be waited for; raises InputError for one that is missing."""
    return all(stat.S_ISREG(_status(path).st_mode) for path in paths)


def input_size(paths: Sequence[Path]) -> int | None:
    """Bytes of the files together; None where one is not a regular file, or is compressed."""
    if not are_at_hand(paths) or any(path.suffix == ".gz" for path in paths):
        return None
    return sum(_status(path).st_size for path in paths)


def _status(path: Path) -> os.stat_result:
    try:
        return os.fstat(0) if path == STDIN else path.stat()
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot read: {error.strerror}; give an existing text file") from None


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_bytes(path) as stream:
            for number, raw in enumerate(stream):
                yield raw.removeprefix(_BOM) if number == 0 else raw
    except (EOFError, zlib.error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{shown(path)}: cannot read on: {reason}; is the file complete?") from None
