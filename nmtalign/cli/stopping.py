"""SIGINT, SIGTERM and SIGHUP, for commands that save what they have or end their output with a complete line."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import FrameType, TracebackType
from typing import Any, Self

from nmtalign.cli.common import say
from nmtalign.errors import NmtalignError

_HANGUP = "ended by SIGHUP"
REASONS: Mapping[int, str] = {
    signal.SIGINT: "interrupted",
    signal.SIGTERM: "ended by SIGTERM",
    **({signal.SIGHUP: _HANGUP} if hasattr(signal, "SIGHUP") else {}),  # Windows has none
}
"""The signals that end a command, and the words that report each."""


def handle_signals(
    handler: Callable[[int, FrameType | None], None], numbers: Iterable[int] = tuple(REASONS)
) -> Mapping[int, Any]:
    """Installs the handler for the signals and returns the handlers before it.

    SIGHUP stays ignored where `nohup` has started the command. SIGINT does not, although a shell may have told a
    command in the background to ignore Ctrl-C: a process that sends SIGINT means it.
    """
    heeded = [number for number in numbers if REASONS[number] != _HANGUP or signal.getsignal(number) != signal.SIG_IGN]
    return {number: signal.signal(number, handler) for number in heeded}


def exit_on_signals() -> None:
    """Lets SIGTERM and SIGHUP end the command as an exception does, so that temporary files are removed."""
    handle_signals(
        lambda number, frame: sys.exit(128 + number), [number for number in REASONS if number != signal.SIGINT]
    )


class Stop(BaseException):
    """A signal has come; no `except Exception` on its way keeps it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopped(NmtalignError):  # noqa: N818
    """The end that a signal asked for, in one line."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(f"{REASONS[number]}{detail}")
        self.exit_code = 128 + number


class Signals:
    """The signals of `REASONS` end the block with Stopped, at once or, where something is `whole`, after that.

    `detail` is asked for the rest of the message. A second signal waits for nothing.
    """

    def __init__(self) -> None:
        self.detail: Callable[[], str] = lambda: ""
        self._whole = False
        self._came: int | None = None
        self._before: Mapping[int, Any] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = handle_signals(self._heed)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            # A signal that comes again while the program ends is not to be told a second time.
            again = signal.SIG_DFL if isinstance(error, Stop) else handler
            signal.signal(number, again)
        if isinstance(error, Stop):
            stopped = Stopped(error.number, self.detail())
            _leave_at_once(stopped)
            raise stopped from None
        if isinstance(error, BrokenPipeError):
            _leave_at_once(None)

    @contextlib.contextmanager
    def whole(self) -> Iterator[None]:
        """What is done in the block is done wholly, unless a second signal comes."""
        self._whole = True
        try:
            yield
        finally:
            self._whole = False
        if self._came is not None:
            raise Stop(self._came)

    def _heed(self, number: int, _: FrameType | None) -> None:
        if self._whole and self._came is None:
            self._came = number
        else:
            raise Stop(number)


def _leave_at_once(stopped: Stopped | None) -> None:
    """Ends the process if threads are searching still: Python would wait for what nobody will read."""
    others = [thread for thread in threading.enumerate() if not thread.daemon]
    if len(others) > 1:
        if stopped is not None:
            say(f"error: {stopped}")
        sys.stderr.flush()
        os._exit(stopped.exit_code if stopped is not None else 0)
