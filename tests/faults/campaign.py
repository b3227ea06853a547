"""Campaigns: parts with many attempts, each made from a seed, and the rows of their results."""

import multiprocessing
import random
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

_SHOWN = 5  # failures of a part that are printed
_FORK = multiprocessing.get_context("fork")


@dataclass(frozen=True)
class Part:
    """Attempts of one kind. `attempt` returns "" if the program survived, else one line that describes the fault.

    `full` and `quick` are the numbers of attempts in a full run, and in the tests. With `limit`, attempts run in a
    forked process that handles many of them: one that takes longer than `limit` seconds counts as hanging, one that
    ends the process as a crash.
    """

    name: str
    attempt: Callable[[random.Random], str]
    full: int
    quick: int
    limit: float = 0.0


@dataclass
class Result:
    """The number of attempts of a part, and its failures: the number of the attempt and what happened."""

    name: str
    attempts: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def row(self):
        """Returns a row of the table."""
        first = self.failures[0][1][:120].replace("|", "\\|").replace("\n", " ") if self.failures else ""
        return f"| {self.name} | {self.attempts:,} | {self.attempts - len(self.failures):,} | {first} |"


def run_part(part, seed, numbers, seconds):
    """Makes attempts until the time is over; the same seed and number make the same attempt again."""
    result, deadline, worker = Result(part.name), time.monotonic() + seconds, None
    for number in numbers:
        if time.monotonic() > deadline:
            break
        if part.limit:
            worker = worker if worker and worker.lives else _Worker(part, seed)
            fault = worker.attempt(number)
        else:
            fault = _attempt(part, seed, number)
        result.attempts += 1
        if fault:
            result.failures.append((number, fault))
            if len(result.failures) <= _SHOWN:
                sys.stderr.write(f"{part.name}, attempt {number}: {fault}\n")
    if worker:
        worker.end()
    return result


def _attempt(part, seed, number):
    try:
        return part.attempt(random.Random(f"{seed} {part.name} {number}"))
    except Exception:
        return f"the attempt failed: {traceback.format_exc(limit=-4)}"


class _Worker:
    """A forked process that makes attempts until one of them hangs or ends it."""

    def __init__(self, part, seed):
        self._limit, (self._pipe, theirs) = part.limit, _FORK.Pipe()
        self._process = _FORK.Process(target=self._work, args=(part, seed, theirs))
        self._process.start()
        theirs.close()
        self.lives = True

    def _work(self, part, seed, pipe):
        self._pipe.close()
        while (number := pipe.recv()) is not None:
            pipe.send(_attempt(part, seed, number))

    def attempt(self, number):
        """Returns the fault of an attempt."""
        self._pipe.send(number)
        if not self._pipe.poll(self._limit):
            self.end()
            return f"no answer for {self._limit:.0f} seconds"
        try:
            return self._pipe.recv()
        except (EOFError, ConnectionResetError):
            self._process.join()
            self.lives, code = False, self._process.exitcode
            return f"the process ended: {signal.Signals(-code).name if code < 0 else code}"

    def end(self):
        """Ends the process."""
        self.lives = False
        self._process.kill()
        self._process.join()
        self._pipe.close()
