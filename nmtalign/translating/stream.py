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


def windows(
    lines: Iterable[T], count: int, characters: int, size: Callable[[T], int], available: bool = False
) -> Iterator[list[T]]:
    """Cuts lines into windows of 1 to `count` lines; a window ends with the line that brings it to `characters`.

    `size` gives the number of characters of a line. A sequence is cut into full windows. So are lines that are
    `available` without waiting, such as those of a file, but the first windows are smaller. Any other iterable is read
    by a separate thread, at most one window ahead; a window contains the lines that are ready: it waits for its first
    line and hardly for others. An error of the iterable is raised here, after the lines before it.
    """
    if isinstance(lines, Sequence):
        yield from _full_windows(lines, itertools.repeat((count, characters)), size)
    elif available:
        yield from _full_windows(lines, _growing(count, characters), size)
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
    reader = _LineReader(lines, count, characters, size)
    try:
        for limits in _growing(count, characters):
            window = reader.take(*limits)
            if not window:
                break
            yield window
    finally:
        reader.close()
    if reader.failure is not None:
        raise reader.failure


class _LineReader(Generic[T]):
    """Reads lines in a separate thread, at most one window ahead of the thread that takes them.

    It is a daemon thread, since it may wait for its next line forever.
    """

    def __init__(self, lines: Iterable[T], count: int, characters: int, size: Callable[[T], int]) -> None:
        self.failure: Exception | None = None  # the error that ended the reading
        self._count, self._characters, self._size = count, characters, size
        self._lines, self._total = deque[tuple[T, int]](), 0
        self._ended = False
        self._changed = threading.Condition()
        threading.Thread(target=self._read, args=(lines,), name="nmtalign-input", daemon=True).start()

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

    def close(self) -> None:
        """Takes no more lines, so that the reading ends."""
        with self._changed:
            self._ended = True
            self._lines.clear()
            self._changed.notify_all()

    def _read(self, lines: Iterable[T]) -> None:
        failure = None
        try:
            for line in lines:
                size = self._size(line)
                with self._changed:
                    self._changed.wait_for(lambda: self._ended or not self._full(self._count, self._characters))
                    if self._ended:
                        return
                    self._lines.append((line, size))
                    self._total += size
                    self._changed.notify_all()
        except Exception as error:
            failure = error
        with self._changed:
            self.failure, self._ended = failure, True
            self._changed.notify_all()

    def _full(self, count: int, characters: int) -> bool:
        return len(self._lines) >= count or self._total >= characters
