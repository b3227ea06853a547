"""Lines as they come in: a flood in windows, a trickle at once."""

import itertools
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")

_PATIENCE = 0.003  # seconds to wait for the next line of a burst; one that comes alone is delayed by no more
_LIMIT = 0.03  # seconds that a burst may go on arriving before its first line is translated
_FIRST = 8  # the first window is this part of a full one, so that something comes out soon; each further one twice that


class Rest(Generic[T]):
    """What is left of items whose first `passed` are dealt with already."""

    def __init__(self, items: Iterable[T], passed: int = 0) -> None:
        self.passed = passed
        self._items = items

    def __iter__(self) -> Iterator[T]:
        return iter(self._items)


class AtHand(Rest[T]):
    """Items each of which is there as soon as it is asked for, such as the lines of a file: they come in full windows.

    The first `done` of them were dealt with by an earlier run: windows of nothing else are passed over, and `passed`
    counts their items. All other windows are those that there would be with nothing done.
    """

    def __init__(self, items: Iterable[T], done: int = 0) -> None:
        super().__init__(items)
        self.done = done


def windows(lines: Iterable[T], count: int, characters: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """The lines in windows of at most `count`, none empty; one ends with the line that brings it to `characters`.

    `size` gives a line's characters. A sequence is cut into full windows, and so is what is `AtHand`, the first ones
    smaller. Any other iterable is read by a thread of its own, which stays ahead by a window at most, and a window is
    what is there: the first line is waited for, the others hardly. What the iterable raises is raised here after the
    lines before it came out.
    """
    if isinstance(lines, AtHand):
        for window in _full_windows(lines, _growing(count, characters), size):
            if lines.passed + len(window) > lines.done:
                lines.done = lines.passed  # from here on nothing is passed over
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
    source, going = iter(lines), True
    while going:
        count, characters = next(limits)
        window, total, failure = list[T](), 0, None
        try:
            while len(window) < count and total < characters:
                window.append(next(source))
                total += size(window[-1])
        except StopIteration:
            going = False
        except Exception as error:
            failure = error
        if window:
            yield window
        if failure is not None:
            raise failure


def _ready_windows(lines: Iterable[T], count: int, characters: int, size: Callable[[T], int]) -> Iterator[list[T]]:
    """Windows of what is there, read by a thread that ends with the program: it may wait for ever for its next line."""
    ready = _Buffer[T](count, characters, size)
    threading.Thread(target=_pump, args=(lines, ready), name="nmtalign-input", daemon=True).start()
    try:
        for limits in _growing(count, characters):
            window = ready.take(*limits)
            if not window:
                break
            yield window
    finally:
        ready.close()
    if ready.failure is not None:
        raise ready.failure


def _pump(lines: Iterable[T], ready: "_Buffer[T]") -> None:
    """Puts every line into the buffer, and at the end says so, with the error that ended the reading."""
    try:
        for line in lines:
            if not ready.put(line):
                return
    except Exception as error:
        ready.end(error)
    else:
        ready.end(None)


class _Buffer(Generic[T]):
    """What one thread has read and another has not taken yet: a window at most."""

    def __init__(self, count: int, characters: int, size: Callable[[T], int]) -> None:
        self.failure: Exception | None = None
        self._count, self._characters, self._size = count, characters, size
        self._lines, self._held = deque[tuple[T, int]](), 0
        self._ended = False
        self._changed = threading.Condition()

    def put(self, line: T) -> bool:
        """Waits for room and puts a line there; False where nobody will take it any more."""
        size = self._size(line)
        with self._changed:
            self._changed.wait_for(lambda: self._ended or not self._full(self._count, self._characters))
            if self._ended:
                return False
            self._lines.append((line, size))
            self._held += size
            self._changed.notify_all()
        return True

    def take(self, count: int, characters: int) -> list[T]:
        """A window: waits for its first line, for others only while they keep coming; empty at the end."""
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
            self._held -= total
            self._changed.notify_all()
        return window

    def end(self, failure: Exception | None) -> None:
        """Nothing more will be put: the input has ended, or failed."""
        with self._changed:
            self.failure, self._ended = failure, True
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing more will be taken: the thread that reads need not go on."""
        with self._changed:
            self._ended = True
            self._lines.clear()
            self._changed.notify_all()

    def _full(self, count: int, characters: int) -> bool:
        return len(self._lines) >= count or self._held >= characters
