"""A queue of lines from many requests: one thread takes them in batches.

A request that comes while nothing waits starts at once. Requests that wait while the thread works are merged, if they
need the same work.
"""

import contextlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from nmtalign.core.numerics import Abandoned, abandoned_if
from nmtalign.errors import NmtalignError

_LINES, _CHARACTERS = 128, 20_000  # in a batch: a small request waits for no more than this part of a large one

Work = Callable[[Sequence[Any]], Sequence[Any]]  # one result per item; equal functions are called once for all


class QueueFullError(NmtalignError):
    """More lines wait than the queue may contain."""


@dataclass(eq=False)
class _QueuedLines:
    """The items of one request, and the results of those that are done; a cancelled future drops the rest."""

    work: Work
    items: Sequence[Any]
    sizes: Sequence[int]
    results: list[Any] = field(default_factory=list)
    future: "Future[list[Any]]" = field(default_factory=Future)

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
        while batch := self._next():
            _work_on(batch)

    def _next(self) -> list[tuple[_QueuedLines, Sequence[Any]]]:
        """Waits for jobs, and returns the items of the next batch by job; an empty list when the queue is closed.

        The batch has equal shares of the oldest job and of all others with the same work; other work comes next. An
        item that does not fit waits until its job is the oldest, so that the clients of small ones do not wait for it.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._pending())
            jobs = self._pending()
            same = [job for job in jobs if job.work == jobs[0].work]
            self._jobs = [*(job for job in jobs if job.work != jobs[0].work), *same]
            batch, lines, room = list[tuple[_QueuedLines, Sequence[Any]]](), _LINES, _CHARACTERS
            for number, job in enumerate(same[:_LINES]):
                done, others = len(job.results), len(same) - number
                sizes = accumulate(job.sizes[done : done + max(1, lines // others)])
                fitting = [total for total in sizes if total <= room // others] or ([room] if not batch else [])
                if fitting:
                    batch.append((job, job.items[done : done + len(fitting)]))
                    lines, room = lines - len(fitting), room - fitting[-1]
            return batch

    def _pending(self) -> list[_QueuedLines]:
        return [job for job in self._jobs if not job.future.done()]


def _work_on(batch: Sequence[tuple[_QueuedLines, Sequence[Any]]]) -> None:
    """Does the work of a batch; if it fails, each job is tried on its own, so that only the faulty one fails.

    The work ends at its next step once no job of the batch waits for a result.
    """
    try:
        with contextlib.suppress(Abandoned), abandoned_if(lambda: all(job.future.done() for job, _ in batch)):
            results = iter(batch[0][0].work([item for _, items in batch for item in items]))
            for job, items in batch:
                job.add([next(results) for _ in items])
    except Exception as error:
        if len(batch) > 1:
            for one in batch:
                _work_on([one])
        else:
            with contextlib.suppress(InvalidStateError):
                batch[0][0].future.set_exception(error)
