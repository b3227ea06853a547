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

from nmtalign.errors import Abandoned, NmtalignError, abandoned_if

_LINES, _CHARACTERS = 128, 20_000  # in a batch: a small request waits for no more than this part of a large one
_PATIENCE = 20  # the time of a batch, as a multiple of the time to wait for a further job of the next one

Work = Callable[[Sequence[Any]], Sequence[Any]]  # one result per item; equal functions are called once for all


class QueueFullError(NmtalignError):
    """More lines wait than the queue may contain."""


class _QueuedLines:
    """The items of one request, and the results of those that are done; a cancelled future drops the rest."""

    def __init__(self, work: Work, items: Sequence[Any], sizes: Sequence[int]) -> None:
        self.work, self.items = work, items
        self._sizes = sizes
        self.results: list[Any] = []
        self.future: Future[list[Any]] = Future()

    def left(self) -> int:
        """The number of items without a result."""
        return len(self.items) - len(self.results)

    def size(self, place: int) -> int:
        """The number of characters of one of the next items."""
        return self._sizes[len(self.results) + place]

    def rest(self, count: int) -> Sequence[Any]:
        """The next items."""
        return self.items[len(self.results) : len(self.results) + count]

    def add(self, results: Sequence[Any]) -> None:
        """Adds the results of the next items; the last ones complete the future."""
        self.results += results
        if not self.left():
            self._end(lambda: self.future.set_result(self.results))

    def fail(self, error: BaseException) -> None:
        """Ends the job with an error."""
        self._end(lambda: self.future.set_exception(error))

    def _end(self, report: Callable[[], None]) -> None:
        with contextlib.suppress(InvalidStateError):  # it was cancelled
            report()


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
            waiting = self._waiting()
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
            return len(self._pending()), self._waiting()

    def close(self) -> None:
        """Takes no more jobs, drops those that wait, and lets the thread end after its batch."""
        with self._changed:
            self._closed = True
            for job in self._jobs:
                job.future.cancel()
            self._changed.notify()

    def _waiting(self) -> int:
        return sum(job.left() for job in self._pending())

    def _run(self) -> None:
        patience = 0.0
        while batch := self._next(patience):
            begun = time.monotonic()
            _work_on(batch)
            patience = (time.monotonic() - begun) / _PATIENCE if len(batch) > 1 else 0.0

    def _next(self, patience: float) -> list[tuple[_QueuedLines, Sequence[Any]]]:
        """Waits for jobs, and returns the items of the next batch by job; an empty list when the queue is closed.

        After a batch of several jobs, their clients have their results and may send more at once. A batch of the first
        of them would make the others wait, so it waits `patience` seconds for each next job, at most twice that time.
        """
        with self._changed:
            while True:
                self._changed.wait_for(lambda: self._closed or self._pending())
                end = time.monotonic() + 2 * patience
                while (seconds := min(patience, end - time.monotonic())) > 0 and self._changed.wait(seconds):
                    pass
                self._jobs, patience = self._pending(), 0.0
                if self._jobs:
                    return self._batch()
                if self._closed:
                    return []

    def _batch(self) -> list[tuple[_QueuedLines, Sequence[Any]]]:
        """The items of the oldest job, and of others with the same work; other work comes next."""
        first = self._jobs[0]
        same = [job for job in self._jobs if job.work == first.work]
        self._jobs = [*(job for job in self._jobs if job.work != first.work), *same]
        return _shared(same)

    def _pending(self) -> list[_QueuedLines]:
        return [job for job in self._jobs if not job.future.done()]


def _shared(jobs: Sequence[_QueuedLines]) -> list[tuple[_QueuedLines, Sequence[Any]]]:
    """The items of a batch: one of each job in turn, until the batch is full.

    An item that would not fit waits for a batch of its own, so that the clients of small ones do not wait for it.
    """
    counts, room = dict.fromkeys(jobs, 0), _CHARACTERS
    turns = deque(jobs)
    for _ in range(_LINES):
        if not turns or room <= 0:
            break
        job = turns.popleft()
        size = job.size(counts[job])
        if size > room < _CHARACTERS:
            continue
        room -= size
        counts[job] += 1
        if counts[job] < job.left():
            turns.append(job)
    return [(job, job.rest(count)) for job, count in counts.items() if count]


def _work_on(batch: Sequence[tuple[_QueuedLines, Sequence[Any]]]) -> None:
    """Does the work of a batch; if it fails, each job is tried on its own, so that only the faulty one fails.

    The work ends at its next step once no job of the batch waits for a result.
    """
    try:
        with abandoned_if(lambda: all(job.future.done() for job, _ in batch)):
            results = batch[0][0].work([item for _, items in batch for item in items])
    except Abandoned:
        return
    except Exception as error:
        if len(batch) == 1:
            batch[0][0].fail(error)
            return
        for one in batch:
            _work_on([one])
        return
    begin = 0
    for job, items in batch:
        job.add(results[begin : begin + len(items)])
        begin += len(items)
