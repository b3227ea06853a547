"""Trains several models at once, each by an `nmtalign train` in its own process.

One thread trains a small model nearly as fast as two threads, so trainings side by side use the processor better than
trainings one after the other.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

_PREFIX = "nmtalign: "  # of every line that a command prints
_ERROR = f"{_PREFIX}error: "


@dataclass(frozen=True)
class TrainingJob:
    """A training: the name for its messages, and the arguments of `nmtalign`."""

    name: str
    arguments: Sequence[str]


class SideBySide:
    """Runs trainings at the same time; `stop` ends all of them after they have saved their state."""

    def __init__(self, begins: Callable[[TrainingJob], None], tells: Callable[[str], None]) -> None:
        """Other threads call `begins` when a training starts, and `tells` with every line that it prints."""
        self._begins, self._tells = begins, tells
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, jobs: Sequence[TrainingJob], at_once: int) -> dict[str, str]:
        """Waits for all trainings and returns the error message of each one that failed, by its name."""
        with ThreadPoolExecutor(at_once) as pool:
            futures = {job.name: pool.submit(self._run, job) for job in jobs}
            try:
                wait(futures.values(), return_when=FIRST_EXCEPTION)
                problems = {name: future.result() for name, future in futures.items()}
            except BaseException:
                self._end(subprocess.Popen.kill)
                raise
        return {name: problem for name, problem in problems.items() if problem}

    def stop(self) -> None:
        """Asks all trainings to end; a signal handler may call it."""
        self._end(subprocess.Popen.terminate)

    def _end(self, how: Callable[[subprocess.Popen[str]], None]) -> None:
        self._stopped = True
        for process in tuple(self._running):
            how(process)

    def _run(self, job: TrainingJob) -> str:
        """Runs one training and returns its error message, which is empty on success."""
        with self._lock:  # no process may start unseen while `_end` ends all of them
            if self._stopped:
                return ""
            self._begins(job)
            # In its own session the process gets signals only from this process, and not from the terminal as well.
            try:
                process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-P", "-m", "nmtalign.cli.app", *job.arguments],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,
                )
            except OSError as error:
                return f"its process could not be started: {error.strerror}"
            self._running.add(process)
        if self._stopped:
            process.terminate()
        last = ""
        with process:
            for line in process.stderr or ():
                last = line.rstrip("\n")
                if not last.startswith(_ERROR):
                    self._tells(f"{job.name}: {last.removeprefix(_PREFIX)}")
        self._running.discard(process)
        if self._stopped or not process.returncode:
            return ""
        if process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            return f"its process was killed by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")
        return last.removeprefix(_ERROR) if last.startswith(_ERROR) else f"it ended with {process.returncode}: {last}"
