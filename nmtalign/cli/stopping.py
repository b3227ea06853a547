"""How SIGINT (Ctrl-C), SIGTERM and SIGHUP end a command.

`exit_on_signals` removes temporary files, `stopping` asks a training to save its work, and `Signals` ends a stream of
results after a complete line. Each ends the command with exit code 128 + the number of the signal.
"""

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, Self

from nmtalign.cli.common import say
from nmtalign.errors import NmtalignError

REASONS: Mapping[int, str] = {
    getattr(signal, name): reason
    for name, reason in (("SIGINT", "interrupted"), ("SIGTERM", "ended by SIGTERM"), ("SIGHUP", "ended by SIGHUP"))
    if hasattr(signal, name)  # Windows has no SIGHUP
}
"""The signals that end a command, and what is reported for each."""
_REPEATS = 5  # seconds in which torchrun passes on a Ctrl-C that the terminal has already sent to all processes


def _install(handler: Callable[[int, FrameType | None], None], numbers: Iterable[int] = REASONS) -> Mapping[int, Any]:
    """Installs a handler of signals; returns the handlers before it.

    A signal that the caller ignores stays ignored, as SIGHUP under `nohup`. SIGINT does not: a shell ignores it for a
    command in the background, but a process that sends SIGINT wants the command to end.
    """
    heeded = [number for number in numbers if number == signal.SIGINT or signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


def exit_on_signals() -> None:
    """Makes SIGTERM and SIGHUP end a command by an exception, as SIGINT does, so that temporary files are removed."""
    if threading.current_thread() is threading.main_thread():
        _install(lambda number, _: sys.exit(128 + number), set(REASONS) - {signal.SIGINT})


@contextlib.contextmanager
def stopping(stop: Callable[[str], None]) -> Iterator[list[int]]:
    """The first signal calls `stop` with its reason, a second one ends the command at once; yields those that came."""
    came: list[int] = []
    began = 0.0

    def handle(number: int, _: FrameType | None) -> None:
        nonlocal began
        if not came:
            began = time.monotonic()
            stop(REASONS[number])
        elif "LOCAL_RANK" not in os.environ or time.monotonic() - began > _REPEATS:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        came.append(number)

    before = _install(handle)
    try:
        yield came
    finally:
        if "LOCAL_RANK" not in os.environ:
            _restore(before)


def _restore(handlers: Mapping[int, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


class Stop(BaseException):
    """A signal has come. It is no Exception, so that `except Exception` does not catch it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopped(NmtalignError):  # noqa: N818
    """The error that reports a signal in one line."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(f"{REASONS[number]}{detail}")
        self.exit_code = 128 + number


class Signals:
    """A block that a signal ends with Stopped: at once, or after a part that is marked by `whole`.

    `detail` returns the rest of the message, such as what is left to do. A second signal does not wait for the part.
    """

    def __init__(self) -> None:
        self.detail: Callable[[], str] = lambda: ""
        self._whole = False
        self._came: int | None = None
        self._before: Mapping[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = _install(self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        # After a signal, another one ends the process without a second message.
        _restore(dict.fromkeys(self._before, signal.SIG_DFL) if isinstance(error, Stop) else self._before)
        if isinstance(error, Stop):
            stopped = Stopped(error.number, self.detail())
            end_threads(stopped.exit_code, f"error: {stopped}")
            raise stopped from None
        if isinstance(error, BrokenPipeError):
            end_threads(0)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """A part that the first signal does not interrupt, such as a line and its alignment."""
        self._whole = True
        try:
            yield
        finally:
            self._whole = False
        if self._came is not None:
            raise Stop(self._came)

    def _handle(self, number: int, _: FrameType | None) -> None:
        if not self._whole or self._came is not None:
            raise Stop(number)
        self._came = number


def end_threads(code: int, message: str = "") -> None:
    """Ends the process if threads still compute; Python would wait for their results, which nobody needs."""
    if sum(not thread.daemon for thread in threading.enumerate()) > 1:
        if message:
            say(message)
        sys.stderr.flush()
        with contextlib.suppress(OSError, NmtalignError):  # finished lines are kept
            sys.stdout.flush()
        os._exit(code)
