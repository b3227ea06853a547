"""Lines as they come in: a flood in windows, a trickle at once."""

import os
import queue
import stat
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtalign.errors import InputError
from nmtalign.text.lines import STDIN, decode_lenient, open_bytes, shown

_PATIENCE = 0.003  # seconds to wait for the next line of a burst; one that comes alone is delayed by no more
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


_Item = InputLine | Exception | None  # what the reading thread hands over; None = the end


def read_windows(paths: Sequence[Path], lines: int) -> Iterator[list[InputLine]]:
    """The lines of the files, `-` = stdin, in windows of at most `lines` of them, none empty.

    A regular file gives full windows, the same at every run. Of anything else a thread reads ahead, and a window is
    what is there: the first line is waited for, the others hardly. Raises InputError for a file that cannot be read;
    bytes that are not UTF-8 become U+FFFD.
    """
    for path in paths:
        numbered = (_line(path, number, raw) for number, raw in enumerate(_raw_lines(path), 1))
        yield from _full_windows(numbered, lines) if _is_regular(path) else _ready_windows(numbered, lines)


def input_size(paths: Sequence[Path]) -> int | None:
    """Bytes of the files together; None where one is not a regular file, or is compressed."""
    if not all(_is_regular(path) and path.suffix != ".gz" for path in paths):
        return None
    return sum(_status(path).st_size for path in paths)


def _status(path: Path) -> os.stat_result:
    try:
        return os.fstat(0) if path == STDIN else path.stat()
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot read: {error.strerror}; give an existing text file") from None


def _is_regular(path: Path) -> bool:
    return stat.S_ISREG(_status(path).st_mode)


def _raw_lines(path: Path) -> Iterator[bytes]:
    try:
        with open_bytes(path) as stream:
            for number, raw in enumerate(stream):
                yield raw.removeprefix(_BOM) if number == 0 else raw
    except (EOFError, zlib.error, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InputError(f"{shown(path)}: cannot read on: {reason}; is the file complete?") from None


def _line(path: Path, number: int, raw: bytes) -> InputLine:
    text, replaced = decode_lenient(raw)
    return InputLine(path, number, text, not replaced, len(raw))


def _full_windows(items: Iterable[InputLine], lines: int) -> Iterator[list[InputLine]]:
    window: list[InputLine] = []
    for item in items:
        window.append(item)
        if len(window) == lines:
            yield window
            window = []
    if window:
        yield window


def _ready_windows(items: Iterable[InputLine], lines: int) -> Iterator[list[InputLine]]:
    """Windows of what is there, read by a thread that ends with the program: it may wait for ever for its next line."""
    ready: queue.Queue[_Item] = queue.Queue(maxsize=lines)
    threading.Thread(target=_pump, args=(items, ready), name="nmtalign-input", daemon=True).start()
    item: _Item = None
    while True:
        window, item = [], ready.get()
        while isinstance(item, InputLine):
            window.append(item)
            if len(window) == lines:
                break
            try:
                item = ready.get(timeout=_PATIENCE)
            except queue.Empty:
                break
        if window:
            yield window
        if isinstance(item, Exception):
            raise item
        if item is None:
            return


def _pump(items: Iterable[InputLine], ready: "queue.Queue[_Item]") -> None:
    """Puts every line into the queue, then None, or the error that ended the reading."""
    try:
        for item in items:
            ready.put(item)
    except Exception as error:
        ready.put(error)
    else:
        ready.put(None)
