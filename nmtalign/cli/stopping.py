"""SIGINT and SIGTERM for a command whose output may be cut between lines, but not inside one."""

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType, TracebackType
from typing import Self

from nmtalign.cli.common import say
from nmtalign.errors import NmtalignError

_NAMES = {signal.SIGINT: "interrupted", signal.SIGTERM: "ended by SIGTERM"}


class Stop(BaseException):
    """A signal has come; no `except Exception` on its way keeps it."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Stopped(NmtalignError):  # noqa: N818
    """The end that a signal asked for, in one line."""

    def __init__(self, number: int, detail: str) -> None:
        super().__init__(f"{_NAMES[signal.Signals(number)]}{detail}")
        self.exit_code = 128 + number


class Signals:
    """Both signals end the block with Stopped, at once or, where something is `whole`, after that.

    They do so even where the shell has told a command in the background to ignore Ctrl-C: who sends it means it.
    `detail` is asked for the rest of the message. A second signal waits for nothing.
    """

    def __init__(self) -> None:
        self.detail: Callable[[], str] = lambda: ""
        self._whole = False
        self._came: int | None = None
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heed) for number in _NAMES}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._before.items():
            # A signal that comes again while the program ends is not to be told a second time.
            again = signal.SIG_DFL if isinstance(error, Stop) else handler
            signal.signal(number, again)  # type: ignore[arg-type]
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
