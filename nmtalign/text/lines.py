"""Lines of text files: only `\\n` ends a line, and bytes that are not UTF-8 are an error naming file and line."""

import contextlib
import io
import math
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from nmtalign.errors import InputError, UsageError
from nmtalign.files import kind_of
from nmtalign.text.conversion import converted

STDIN = STDOUT = Path("-")
LONGEST_LINE = 4 << 20  # bytes with its end; real sentences have a few hundred, and JSON with alignments some 100,000
BOM = b"\xef\xbb\xbf"
_BUFFER = 1 << 20  # bytes
_UNMARKED_UTF16 = re.compile(rb"([^\0]\0){2}|(\0[^\0]){2}")


def shown(path: Path) -> str:
    """The name of a text file in messages; `-` is standard input."""
    return "standard input" if path == STDIN else str(path)


def escaped_breaks(text: str) -> str:
    """JSON with the characters escaped that some readers take for line breaks: U+2028, U+2029 and U+0085."""
    if text.isascii():
        return text
    return text.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029").replace("\u0085", "\\u0085")


def finite(value: Any) -> Any:
    """A value for JSON, which has no NaN and no infinity: they become None."""
    if isinstance(value, Mapping):
        return {key: finite(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def checked_pairs(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yields pairs (source line, target line); raises UsageError for anything else."""
    for number, pair in enumerate(pairs, 1):
        try:
            source, target = pair
            if isinstance(pair, str) or not (isinstance(source, str) and isinstance(target, str)):
                raise TypeError
        except (TypeError, ValueError):
            wrong = f"pair {number}: {str(pair)[:60]!r} is not a pair of lines; give (source, target)"
            raise UsageError(wrong) from None
        yield source, target


def open_bytes(path: Path) -> BinaryIO:
    """Opens a file for reading as UTF-8 (see `nmtalign.text.conversion`); `-` is standard input.

    Raises InputError if the file cannot be opened; reading raises InputError if it is compressed and damaged.
    """
    if path.suffix == ".h5" and (kind := kind_of(path)) not in ("", "a text file"):
        raise InputError(f"{path}: is {kind}, and not a text; give a text file")
    try:
        raw = io.FileIO(sys.stdin.fileno(), closefd=False) if path == STDIN else io.FileIO(path)
        try:
            return io.BufferedReader(converted(raw, shown(path)), _BUFFER)
        except BaseException:
            raw.close()
            raise
    except OSError as error:
        kind = kind_of(path) if path != STDIN and path.is_dir() else ""
        reason = f"is {kind}" if kind else f"cannot read: {error.strerror}"
        fix = "give a text file, and the model with -m" if "model" in kind else "give an existing text file"
        raise InputError(f"{shown(path)}: {reason}; {fix}") from None


@contextlib.contextmanager
def reading(path: Path) -> Iterator[BinaryIO]:
    """`open_bytes`, and an InputError instead of an error of the operating system while the file is read."""
    try:
        with open_bytes(path) as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot read on: {error.strerror or error}; is the file complete?") from None


def bounded_lines(stream: BinaryIO, path: Path, head: bytes = b"") -> Iterator[bytes]:
    """The raw lines of a stream, without a byte order mark.

    `path` is its name for messages, `head` its first line if this has been read. Raises InputError naming file and line
    for a line of more than `LONGEST_LINE` bytes, without reading all of it: a small compressed file may contain a line
    that does not fit into memory. UTF-16 without a byte order mark is refused, too: its Latin letters would be valid
    UTF-8.
    """
    number = 1
    while raw := head or stream.readline(LONGEST_LINE + 1):
        if len(raw) > LONGEST_LINE:
            raise InputError(
                f"{shown(path)}: line {number}: longer than {LONGEST_LINE:,} bytes; give text with one sentence "
                "per line"
            )
        if number == 1 and _UNMARKED_UTF16.match(raw):
            encoding = "UTF-16LE" if raw[1] == 0 else "UTF-16BE"
            raise InputError(
                f"{shown(path)}: line 1: UTF-16 without a byte order mark; convert the file to UTF-8: "
                f"iconv -f {encoding} -t UTF-8"
            )
        yield raw if number > 1 else raw.removeprefix(BOM)
        head, number = b"", number + 1


def strip_end(raw: bytes) -> bytes:
    """A line without its `\\n` and without one `\\r` before it (files from Windows)."""
    return raw.removesuffix(b"\n").removesuffix(b"\r")


def decode_lenient(raw: bytes) -> tuple[str, bool]:
    """The text of a raw line without its end, and whether some bytes were not UTF-8 and became U+FFFD."""
    stripped = strip_end(raw)
    try:
        return stripped.decode("utf-8"), False
    except UnicodeDecodeError:
        return stripped.decode("utf-8", errors="replace"), True


def read_lines(path: Path) -> Iterator[str]:
    """The lines of a UTF-8 file without their ends; `\\r` and U+2028 inside a line remain.

    Raises InputError naming file and line: the file is missing, damaged (compressed), not UTF-8, or has a line that is
    longer than `LONGEST_LINE`.
    """
    for number, raw in enumerate(raw_lines(path), 1):
        yield decode_line(path, number, raw)


def read_pairs(source: Path, target: Path) -> Iterator[tuple[str, str]]:
    """The lines of two files side by side.

    Raises InputError as `read_lines` does, and if one file has fewer lines; it names the first missing line and both
    counts.
    """
    lefts, rights = raw_lines(source), raw_lines(target)
    number = 0
    for left in lefts:
        right = next(rights, None)
        if right is None:
            raise _unequal(target, number, source, number + 1 + sum(1 for _ in lefts))
        number += 1
        yield decode_line(source, number, left), decode_line(target, number, right)
    if rest := sum(1 for _ in rights):
        raise _unequal(source, number, target, number + rest)


def raw_lines(path: Path) -> Iterator[bytes]:
    """The lines of a file with their ends, without a byte order mark.

    Raises InputError if the file is missing or damaged (compressed), or has a line that is longer than `LONGEST_LINE`.
    """
    with reading(path) as stream:
        yield from bounded_lines(stream, path)


def decode_line(path: Path, number: int, raw: bytes) -> str:
    """The text of line `number` of a file without its end; raises InputError if it is not UTF-8."""
    try:
        return strip_end(raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{shown(path)}: line {number}: not UTF-8 (byte 0x{raw[error.start]:02x} at column {error.start + 1}); "
            "convert the file to UTF-8, for example: iconv -f WINDOWS-1252 -t UTF-8"
        ) from None


def _unequal(short: Path, short_lines: int, long: Path, long_lines: int) -> InputError:
    return InputError(
        f"{shown(short)}: has no line {short_lines + 1}, but {shown(long)} has {long_lines} lines; "
        "line n of one file must be the translation of line n of the other"
    )
