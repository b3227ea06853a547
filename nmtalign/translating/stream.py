"""Windows of lines: large ones from files, and whatever is ready from a pipe or an iterator."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_PATIENCE = 0.003  # seconds to wait for the next line of a burst; a single line is delayed by no more than this
_LIMIT = 0.03  # seconds after which the first line of a burst is translated, even if more lines arrive
_FIRST = 8  # the first window is 1/8 of a full one, so that results appear soon; each further window is twice as large


class Rest(Generic[T]):
    """Items of which the first `passed` have been removed already."""

    def __init__(self, items: Iterable[T], passed: int = 0) -> None:
        self.passed = passed
        self._items = items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)


class AtHand(Rest[T]):
    """Items that are available without waiting, such as the lines of a file; they are cut into full windows.

    An earlier run has processed the first `done` items. Windows with no other items are skipped, and `passed` counts
    their items. All other windows are the same as with `done` = 0.
    """

    def __init__(self, items: Iterable[T], done: int = 0) -> None:
        super().__init__(items)
        self.done = done


def windows(lines: Iterable[T], count: int, characters: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Cuts lines into windows of 1 to `count` lines; a window ends with the line that brings it to `characters`.

    `size` gives the number of characters of a line. A sequence is cut into full windows; so is an `AtHand`, whose first
    windows are smaller. Any other iterable is read by a separate thread, at most one window ahead; a window contains
    the lines that are ready: it waits for its first line and hardly for others. An error of the iterable is raised
    here, after the lines before it.
    """
    if isinstance(lines, AtHand):
        for window in _full_windows(lines, _growing(count, characters), size):
            if lines.passed + len(window) > lines.done:
                lines.done = lines.passed  # no further window is skipped
                yield window
            else:
                lines.passed += len(window)
    elif isinstance(lines, Sequence):
        yield from _full_windows(lines, itertools.repeat((count, characters)), size)
    else:
        yield from _ready_windows(lines, count, characters, size)


def _growing(count: int, characters: int) -> Iterator[tuple[int, int]]:
    """The limits of one window after the other."""
    part = _FIRST
    while True:
        yield -(-count // part), -(-characters // part)
        part = max(1, part // 2)


def _full_windows(lines: Iterable[T], limits: Iterator[tuple[int, int]], size: Callable[[T], int]) -> Iterator[list[T]]:
    source, more = iter(lines), True
    while more:
        count, characters = next(limits)
        window, total, failure = list[T](), 0, None
        try:
            while len(window) < count and total < characters:
                window.append(next(source))
                total += size(window[-1])
        except StopIteration:
            more = False
        except Exception as error:
            failure = error
        if window:
            yield window
        if failure is not None:
            raise failure


def _ready_windows(lines: Iterable[T], count: int, characters: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Windows of the lines that are ready; a daemon thread reads them, since it may wait for its next line forever."""
    buffer = _LineBuffer[T](count, characters, size)
    threading.Thread(target=_pump, args=(lines, buffer), name="nmtalign-input", daemon=True).start()
    try:
        for limits in _growing(count, characters):
            window = buffer.take(*limits)
            if not window:
                break
            yield window
    finally:
        buffer.close()
    if buffer.failure is not None:
        raise buffer.failure


def _pump(lines: Iterable[T], buffer: "_LineBuffer[T]") -> None:
    """Puts all lines into the buffer, then its end or the error that ended the reading."""
    try:
        for line in lines:
            if not buffer.put(line):
                return
    except Exception as error:
        buffer.end(error)
    else:
        buffer.end(None)


class _LineBuffer(Generic[T]):
    """The lines, at most one window, that the reading thread has put and the translating thread has not taken yet."""

    def __init__(self, count: int, characters: int, size: Callable[[T], int]) -> None:
        self.failure: Exception | None = None
        self._count, self._characters, self._size = count, characters, size
        self._lines, self._total = deque[tuple[T, int]](), 0
        self._ended = False
        self._changed = threading.Condition()

    def put(self, line: T) -> bool:
        """Waits for room and adds a line; returns False if the buffer is closed."""
        size = self._size(line)
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._full(self._count, self._characters))
            if self._ended:
                return False
            self._lines.append((line, size))
            self._total += size
            self._changed.notify_all()
        return True

    def take(self, count: int, characters: int) -> list[T]:
        """A window: waits for its first line, and for others only while they keep arriving; empty at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            deadline = time.monotonic() + _LIMIT
            while not (self._full(count, characters) or self._ended):
                patience = min(_PATIENCE, deadline - time.monotonic())
                if patience <= 0 or not self._changed.wait(patience):
                    break
            window, total = list[T](), 0
            while self._lines and len(window) < count and total < characters:
                line, size = self._lines.popleft()
                window.append(line)
                total += size
            self._total -= total
            self._changed.notify_all()
        return window

    def end(self, failure: Exception | None) -> None:
        """Called by the reader after its last line, or with the error that ended the reading."""
        with self._changed:
            self.failure, self._ended = failure, True
            self._changed.notify_all()

    def close(self) -> None:
        """Called by the consumer, which takes no more lines; the reader stops."""
        with self._changed:
            self._ended = True
            self._lines.clear()
            self._changed.notify_all()

    def _full(self, count: int, characters: int) -> bool:
        return len(self._lines) >= count or self._total >= characters
