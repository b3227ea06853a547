"""Several trainings at once, each the plain `nmtalign train` in a process of its own.

Of small models one thread computes nearly as fast as two: side by side they use the processor better than in turn.
"""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass

_SPEAKER = "nmtalign: "  # begins every line of a command
_ERROR = f"{_SPEAKER}error: "


@dataclass(frozen=True)
class TrainingJob:
    """A training: what its lines are told under, and the arguments of `nmtalign`."""

    name: str
    arguments: Sequence[str]


class SideBySide:
    """Runs jobs, so many at once; `stop` ends them all as soon as nothing is lost by it."""

    def __init__(self, begins: Callable[[TrainingJob], None], tells: Callable[[str], None]) -> None:
        """`begins` and `tells`, of a line that a job says, are called by other threads."""
        self._begins, self._tells = begins, tells
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run(self, jobs: Sequence[TrainingJob], at_once: int) -> dict[str, str]:
        """Returns what was wrong with those that failed, by their names, once all have ended."""
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
        """May be called from a signal handler."""
        self._end(subprocess.Popen.terminate)

    def _end(self, how: Callable[[subprocess.Popen[str]], None]) -> None:
        self._stopped = True
        for process in tuple(self._running):
            how(process)

    def _run(self, job: TrainingJob) -> str:
        """What was wrong, or nothing."""
        with self._lock:  # so that none begins unseen while all are told to end
            if self._stopped:
                return ""
            self._begins(job)
            # In a session of its own it gets the signals of this process alone, and not the terminal's as well.
            try:
                process = subprocess.Popen(  # noqa: S603
                    [sys.executable, "-P", "-m", "nmtalign.cli.job", *job.arguments],
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
        said = ""
        with process:
            for line in process.stderr or ():
                said = line.rstrip("\n")
                if not said.startswith(_ERROR):
                    self._tells(f"{job.name}: {said.removeprefix(_SPEAKER)}")
        self._running.discard(process)
        if self._stopped or not process.returncode:
            return ""
        if process.returncode < 0:
            name = signal.Signals(-process.returncode).name
            return f"its process was killed by {name}" + (", perhaps for lack of memory" if name == "SIGKILL" else "")
        return said.removeprefix(_ERROR) if said.startswith(_ERROR) else f"it ended with {process.returncode}: {said}"
