"""Reads small files that a stranger may have written, so that no content can hang the process or fill the memory.

Every function raises OSError if a file cannot be opened, and ValueError with a short reason for content it refuses.
"""

import contextlib
import errno
import io
import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

DEEPEST = 200  # objects and lists inside each other; deeper ones could overflow the stack when they are written
_MOST_BYTES = 256 << 20  # the largest file that is read at once; a vocabulary of a million words has some 10 MB
_MOST_INTEGER = 2**63  # TOML has integers of 64 bits
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")


def open_regular(path: Path) -> io.FileIO:
    """Opens a regular file to read, unbuffered; OSError for a folder, named pipe, socket or device, which may hang.

    A symbolic link is followed: the owner of the folder made it.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return io.FileIO(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """Returns the bytes of a regular file; raises OSError for any other file and for one that is too large."""
    with open_regular(path) as stream:
        if os.fstat(stream.fileno()).st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {_MOST_BYTES >> 20} MiB", str(path))
        return stream.read()


def parse_json(text: str | bytes, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Returns the value of a JSON text; raises ValueError also for nesting deeper than DEEPEST and long integers."""
    with _refusals():
        found = json.loads(text, parse_constant=parse_constant)
        opening = text.count(b"[") + text.count(b"{") if isinstance(text, bytes) else text.count("[") + text.count("{")
        if opening > DEEPEST and _depth(found) > DEEPEST:
            raise RecursionError
    return found


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file in UTF-8; raises OSError or ValueError as `read_regular` and `parse_json` do."""
    data = read_regular(path)
    found = parse_json(data.decode("utf-8"))
    if _HALF_CHARACTER.search(data):
        json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be printed: a ValueError
    return found


def parse_toml(data: bytes) -> dict[str, Any]:
    """Returns the table of a TOML file; raises ValueError also for deep nesting and integers of more than 64 bits."""
    with _refusals():
        found = tomllib.loads(data.decode("utf-8").replace("\r\n", "\n"))
        for value in (value for level in _levels(found) for value in level):
            if isinstance(value, int) and not -_MOST_INTEGER <= value < _MOST_INTEGER:
                raise ValueError("an integer does not fit in 64 bits")
    return found


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns the errors of a parser for a hostile text into a ValueError of one short line."""
    try:
        yield
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise ValueError("an integer has too many digits") from None
        raise


def _depth(value: Any) -> int:
    return sum(any(isinstance(part, dict | list) for part in level) for level in _levels(value))


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yields [the value], then the list of all values inside it, then of all values inside those, and so on."""
    level = [value]
    while level:
        yield level
        inner = (part for part in level if isinstance(part, dict | list))
        level = [value for part in inner for value in (part.values() if isinstance(part, dict) else part)]
