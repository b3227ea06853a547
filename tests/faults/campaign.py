"""Campaigns: parts with many attempts, each made from a seed, and the rows of their results."""

import os
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

_SHOWN = 5  # failures of a part that are printed

Attempt = Callable[[random.Random], str]


@dataclass(frozen=True)
class Part:
    """Attempts of one kind. `attempt` returns "" if the program survived, else one line that describes the fault.

    `full` and `quick` are the numbers of attempts in a full run, and in the tests. With `limit`, attempts run in a
    forked process that handles many of them: one that takes longer than `limit` seconds counts as hanging, one that
    ends the process as a crash.
    """

    name: str
    attempt: Attempt
    full: int
    quick: int
    limit: float = 0.0


@dataclass
class Result:
    """The number of attempts of a part, and its failures: the number of the attempt and what happened."""

    name: str
    attempts: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list)

    def row(self) -> str:
        """Returns a row of the table."""
        found = self.failures[0][1][:120].replace("|", "\\|").replace("\n", " ") if self.failures else ""
        return f"| {self.name} | {self.attempts:,} | {self.attempts - len(self.failures):,} | {found} |"


def attempt_number(part: Part, seed: int, number: int) -> str:
    """Makes one attempt; the same seed and number make the same attempt again."""
    try:
        return part.attempt(random.Random(f"{seed} {part.name} {number}"))
    except Exception:
        return f"the attempt failed: {traceback.format_exc(limit=-4)}"


def run_part(part: Part, seed: int, numbers: Iterable[int], seconds: float) -> Result:
    """Makes attempts until the time is over."""
    result, deadline = Result(part.name), time.monotonic() + seconds
    made = _isolated(part, seed, iter(numbers), deadline) if part.limit else _direct(part, seed, numbers, deadline)
    for number, fault in made:
        result.attempts += 1
        if fault:
            result.failures.append((number, fault))
            if len(result.failures) <= _SHOWN:
                sys.stderr.write(f"{part.name}, attempt {number}: {fault}\n")
    return result


def _direct(part: Part, seed: int, numbers: Iterable[int], deadline: float) -> Iterable[tuple[int, str]]:
    for number in numbers:
        if time.monotonic() > deadline:
            return
        yield number, attempt_number(part, seed, number)


def _isolated(part: Part, seed: int, numbers: Iterable[int], deadline: float) -> Iterable[tuple[int, str]]:
    """Makes attempts in a process that is replaced when it ends."""
    numbers, worker = list(numbers), None
    for number in numbers:
        if time.monotonic() > deadline:
            break
        worker = worker or _Worker(part, seed)
        fault = worker.attempt(number)
        if worker.ended:
            worker = None
        yield number, fault
    if worker is not None:
        worker.close()


class _Worker:
    """A forked process that reads the numbers of attempts from a pipe and writes their faults to another."""

    def __init__(self, part: Part, seed: int) -> None:
        (theirs, self._requests), (self._replies, there) = os.pipe(), os.pipe()
        self._part, self.ended = part, False
        self._number = os.fork()
        if not self._number:
            os.close(self._requests)
            os.close(self._replies)
            self._work(seed, theirs, there)
        os.close(theirs)
        os.close(there)

    def _work(self, seed: int, requests: int, replies: int) -> None:
        try:
            while raw := os.read(requests, 8):
                fault = attempt_number(self._part, seed, int.from_bytes(raw, "big")).encode(errors="replace")[:8000]
                os.write(replies, len(fault).to_bytes(4, "big") + fault)
        finally:
            os._exit(0)

    def attempt(self, number: int) -> str:
        os.write(self._requests, number.to_bytes(8, "big"))
        ready, _, _ = select.select([self._replies], [], [], self._part.limit)
        if not ready:
            self.close()
            return f"no answer for {self._part.limit:.0f} seconds"
        size = os.read(self._replies, 4)
        if not size:
            code = self.close()
            return f"the process ended: {signal.Signals(-code).name if code < 0 else code}"
        return os.read(self._replies, int.from_bytes(size, "big")).decode() if any(size) else ""

    def close(self) -> int:
        """Ends the process; returns its exit code, or the negative number of the signal that has ended it."""
        self.ended = True
        os.close(self._requests)
        os.close(self._replies)
        ended, status = os.waitpid(self._number, os.WNOHANG)
        if not ended:
            time.sleep(0.05)
            ended, status = os.waitpid(self._number, os.WNOHANG)
        if not ended:
            os.kill(self._number, signal.SIGKILL)
            _, status = os.waitpid(self._number, 0)
        return os.waitstatus_to_exitcode(status)
