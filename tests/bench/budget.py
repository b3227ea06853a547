"""A run with a time limit: parts that no longer fit are skipped, and all results measured so far are kept."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bench.report import say

GRACE = 20.0  # seconds after the budget until a part that cannot be interrupted, such as a hanging kernel, is killed


class TimeUp(Exception):  # noqa: N818
    """The time is up."""


class Budget:
    """A number of seconds from now. `section` runs a part if it is likely to fit; `skipped` names the other parts."""

    def __init__(self, seconds: float, keep: Callable[[], None]) -> None:
        """`keep` writes the results so far; it is called after each part, and before the process is killed."""
        self._end, self._keep = time.monotonic() + seconds, keep
        self.skipped: dict[str, str] = {}

    @property
    def left(self) -> float:
        """Seconds."""
        return self._end - time.monotonic()

    def section(self, name: str, part: Callable[[], None], needs: float = 5.0) -> bool:
        """Runs a part and returns whether it finished. An exception is recorded in `skipped`; other parts still run."""
        if self.left < needs:
            self.skipped[name] = f"no time left ({self.left:.0f} s)"
            return False
        say(f"{name} ({self.left:.0f} s left)")
        try:
            part()
        except TimeUp:
            self.skipped[name] = "cut off by the end of the budget"
        except Exception as error:  # a part that fails must not lose the results of the others
            self.skipped[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        self._keep()
        if name in self.skipped:
            say(f"{name}: {self.skipped[name]}")
        return name not in self.skipped

    @contextmanager
    def enforced(self) -> Iterator[None]:
        """Ends the running part when the time is up, and the process if the part does not react."""
        in_main = threading.current_thread() is threading.main_thread()
        before: Any = None
        watch = threading.Timer(self.left + GRACE, self._force)
        watch.daemon = True
        watch.start()
        if in_main:
            before = signal.signal(signal.SIGALRM, _time_up)
            signal.setitimer(signal.ITIMER_REAL, max(0.01, self.left))
        try:
            yield
        finally:
            watch.cancel()
            if in_main:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)

    def _force(self) -> None:
        say("the device does not answer; the results so far are kept")
        self._keep()
        os._exit(5)


def _time_up(number: int, frame: object) -> None:
    raise TimeUp
