"""A queue of lines from many requests: one thread takes them in batches, so that no other thread uses the models.

A request that comes while nothing waits starts at once. Requests that wait while the thread works are merged, if they
need the same work.
"""

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from typing import Any

from nmtalign.core.numerics import Abandoned, abandoned_if
from nmtalign.errors import NmtalignError

_LINES, _CHARACTERS = 128, 20_000  # in a batch: a small request waits for no more than this part of a large one
_PATIENCE = 10  # the time of a batch, as a multiple of the time to wait for the next requests of its clients

Work = Callable[[Sequence[Any]], Sequence[Any]]  # one result per item; equal functions are called once for all


class QueueFullError(NmtalignError):
    """More lines wait than the queue may contain."""


class _QueuedLines:
    """The items of one request, and the results of those that are done; a cancelled future drops the rest."""

    def __init__(self, work: Work, items: Sequence[Any], sizes: Sequence[int]) -> None:
        self.work, self.items, self.sizes = work, items, sizes
        self.results: list[Any] = []
        self.future: Future[list[Any]] = Future()

    def left(self) -> int:
        """The number of items without a result."""
        return len(self.items) - len(self.results)

    def add(self, results: Sequence[Any]) -> None:
        """Adds the results of the next items; the last ones complete the future."""
        self.results += results
        if not self.left():
            with contextlib.suppress(InvalidStateError):  # it was cancelled
                self.future.set_result(self.results)


class BatchQueue:
    """Does the work of jobs in a separate thread, which starts with the first job."""

    def __init__(self, max_items: int) -> None:
        self._max_items = max_items
        self._jobs: list[_QueuedLines] = []
        self._changed = threading.Condition()
        self._closed = False
        self._thread: threading.Thread | None = None

    def submit(self, work: Work, items: Sequence[Any], sizes: Sequence[int]) -> "Future[list[Any]]":
        """Puts items of these numbers of characters into the queue; the future gives one result per item.

        `work` is called in the thread of the queue, with items of several jobs of the same work, in any number of
        parts. Raises QueueFullError if too many items wait.
        """
        job = _QueuedLines(work, items, sizes)
        if not items:
            job.add(())
            return job.future
        with self._changed:
            _, waiting = self.size()
            if self._closed or (waiting and waiting + len(items) > self._max_items):
                raise QueueFullError("the server has too much to do; try again later")
            self._jobs.append(job)
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="nmtalign-serve", daemon=True)
                self._thread.start()
        return job.future

    def size(self) -> tuple[int, int]:
        """The number of jobs that are not done, and of their items."""
        with self._changed:
            pending = self._pending()
            return len(pending), sum(job.left() for job in pending)

    def close(self) -> None:
        """Takes no more jobs, drops those that wait, and lets the thread end after its batch."""
        with self._changed:
            self._closed = True
            for job in self._jobs:
                job.future.cancel()
            self._changed.notify()

    def _run(self) -> None:
        patience, count = 0.0, 0
        while batch := self._next(patience, count):
            begun, count = time.monotonic(), len(batch)
            _work_on(batch)
            patience = (time.monotonic() - begun) / _PATIENCE

    def _next(self, patience: float, count: int) -> list[tuple[_QueuedLines, Sequence[Any]]]:
        """Waits for jobs, and returns the items of the next batch by job; an empty list when the queue is closed.

        After a batch of `count` jobs, their clients have their results and may send more at once. A batch of the first
        of them would make the others wait, so it waits `patience` seconds for this number of jobs.
        """
        with self._changed:
            while not (jobs := self._pending()):
                if self._closed:
                    return []
                self._changed.wait_for(lambda: self._closed or self._pending())
                if count > 1:
                    self._changed.wait_for(lambda: self._closed or len(self._pending()) >= count, patience)
            # The oldest job and others with the same work; other work comes next.
            same = [job for job in jobs if job.work == jobs[0].work]
            self._jobs = [*(job for job in jobs if job.work != jobs[0].work), *same]
            return _shared(same)

    def _pending(self) -> list[_QueuedLines]:
        return [job for job in self._jobs if not job.future.done()]


def _shared(jobs: Sequence[_QueuedLines]) -> list[tuple[_QueuedLines, Sequence[Any]]]:
    """The items of a batch: one of each job in turn, until the batch is full.

    An item that would not fit waits for a batch of its own, so that the clients of small ones do not wait for it.
    """
    counts, room, turns = dict.fromkeys(jobs, 0), _CHARACTERS, deque(jobs)
    for _ in range(_LINES):
        if not turns or room <= 0:
            break
        job = turns.popleft()
        size = job.sizes[len(job.results) + counts[job]]
        if size > room < _CHARACTERS:
            continue
        room -= size
        counts[job] += 1
        if counts[job] < job.left():
            turns.append(job)
    return [(job, job.items[len(job.results) :][:count]) for job, count in counts.items() if count]


def _work_on(batch: Sequence[tuple[_QueuedLines, Sequence[Any]]]) -> None:
    """Does the work of a batch; if it fails, each job is tried on its own, so that only the faulty one fails.

    The work ends at its next step once no job of the batch waits for a result.
    """
    try:
        with abandoned_if(lambda: all(job.future.done() for job, _ in batch)):
            results = iter(batch[0][0].work([item for _, items in batch for item in items]))
    except Abandoned:
        return
    except Exception as error:
        if len(batch) > 1:
            for one in batch:
                _work_on([one])
        else:
            with contextlib.suppress(InvalidStateError):
                batch[0][0].future.set_exception(error)
        return
    for job, items in batch:
        job.add([next(results) for _ in items])
