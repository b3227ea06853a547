"""Making things ahead of their use, in a thread of their own."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class _End:
    """What the thread says last: nothing more comes, for this error if there was one."""

    error: BaseException | None = None


def prefetched(items: Iterator[T], ahead: int) -> Iterator[T]:
    """The items in their order, each made while the ones before it are in use, `ahead` of them at the most.

    The thread starts with the first item asked for. An error of `items` is raised where its item would have come.
    When the last item was taken, or the iterator is closed or thrown away before that, the thread has ended.
    """
    ready: SimpleQueue[T | _End] = SimpleQueue()
    room, stop = threading.Semaphore(ahead), threading.Event()
    # A daemon: a process that is left in the middle of an epoch does not wait for it.
    thread = threading.Thread(target=_fill, args=(items, ready, room, stop), name="prefetch", daemon=True)
    thread.start()
    try:
        while not isinstance(item := ready.get(), _End):
            room.release()
            yield item
        if item.error is not None:
            raise item.error
    finally:
        stop.set()
        room.release()
        thread.join()


def _fill(items: Iterator[T], ready: "SimpleQueue[T | _End]", room: threading.Semaphore, stop: threading.Event) -> None:
    try:
        while room.acquire() and not stop.is_set():
            ready.put(next(items))
    except StopIteration:
        ready.put(_End())
    except BaseException as error:
        ready.put(_End(error))
