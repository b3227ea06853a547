"""Batches: which pieces are searched together, and the threads that search several batches at the same time."""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from functools import cache, partial
from types import TracebackType
from typing import Self, TypeVar

import psutil
import torch

from nmtalign.core.devices import using_threads
from nmtalign.settings.definition import byte_count
from nmtalign.settings.training_settings import ModelConfig

T = TypeVar("T")
R = TypeVar("R")

_MEMORY_SHARE = 0.1  # share of the machine's memory, the default limit
_GPU_SHARE = 0.5  # share of the free memory of a GPU
_MIN_MEMORY = 64 << 20  # bytes; a search gets at least this, whatever the setting
# The default number of words in a batch times the beam, and the largest number of words; more words are not faster.
_ROWS, _MAX_WORDS = 12_000, 6_000
_GPU_ROWS, _MAX_GPU_WORDS = 200_000, 60_000


def memory_limit(text: str, device: torch.device) -> int:
    """Bytes of a setting such as "2G"; by default a tenth of the machine's memory, or half of a GPU's free memory."""
    if text:
        return byte_count("max_memory", text)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0] * _GPU_SHARE)
    return int(psutil.virtual_memory().total * _MEMORY_SHARE)


def default_words(beam: int, device: torch.device) -> int:
    """The default number of source words in a batch."""
    rows, most = (_GPU_ROWS, _MAX_GPU_WORDS) if device.type == "cuda" else (_ROWS, _MAX_WORDS)
    return min(most, max(1, rows // beam))


@dataclass(frozen=True)
class BatchLimits:
    """The limits of a batch: `words` source words including `</s>` and padding, and `memory` bytes."""

    words: int
    memory: int
    model: ModelConfig
    beam: int
    itemsize: int  # bytes of a number in a product
    scored: int  # words that are scored at each step
    length_ratio: float  # largest number of steps per source word
    keep_weights: bool

    def cut(self, lengths: Sequence[int], min_batches: int = 1) -> list[list[int]]:
        """The positions of sentences of these lengths (including `</s>`) in batches, the longest sentences first.

        There are at least `min_batches` batches of similar size, if there are enough sentences.
        """
        words = min(self.words, max(1, -(-sum(lengths) // min_batches)))
        memory = max(_MIN_MEMORY, self.memory)
        batches: list[list[int]] = []
        longest = 0
        for place in sorted(range(len(lengths)), key=lambda place: -lengths[place]):
            count = len(batches[-1]) + 1 if batches else 0
            if not batches or count * longest > words or count * self.bytes_of(longest) > memory:
                batches.append([])
                longest = lengths[place]
            batches[-1].append(place)
        return batches

    def bytes_of(self, length: int) -> int:
        """An estimate of the memory that encoding and searching one sentence takes."""
        model, rows = self.model, self.beam
        annotation = 2 * model.hidden
        folded = 3 * model.hidden + 2 * model.maxout
        encoder = length * (7 * model.hidden * self.itemsize + 4 * annotation * 4)
        # Annotations, keys and folded values; keys and values exist twice while sentences are removed from the batch.
        keys = model.attention_hidden if model.attention == "additive" else model.hidden
        source = length * (annotation + 2 * (keys + folded)) * self.itemsize
        if model.architecture == "transformer":  # keys and values of all layers, twice while rows are selected
            folded = 2 * model.layers * model.embedding
            source += 2 * rows * int(self.length_ratio * length) * folded * self.itemsize
        step = rows * (2 * self.scored + 4 * folded + 8 * model.hidden) * self.itemsize
        if model.attention_kind == "marginal":  # shares and readout of each alternative
            alternatives = model.attention_positions + 1
            step += rows * alternatives * (4 * length + 6 * model.maxout * self.itemsize)
        kept = rows * length * 4 * int(self.length_ratio * length) if self.keep_weights else 0
        return max(encoder, source) + source + step + kept


class _ThreadCount:
    """PyTorch's number of threads, a setting of the complete process: 1 while batches are searched in parallel."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = self._configured = 0

    def configured(self) -> int:
        """The number of threads outside parallel searches."""
        with self._lock:
            return self._configured if self._users else torch.get_num_threads()

    def begin(self) -> None:
        """Registers one more parallel search."""
        with self._lock:
            if not self._users:
                self._configured = torch.get_num_threads()
            self._users += 1

    def end(self) -> None:
        """Ends a parallel search; the last one restores the number."""
        with self._lock:
            self._users -= 1
            if not self._users:
                torch.set_num_threads(self._configured)


_thread_count = _ThreadCount()


class Workers:
    """Searches batches in several threads; on a GPU, and for a single batch, in the caller's thread.

    Two threads with one batch each are 1.3 times as fast as two threads that share each product: neither waits for the
    other, and the Python code of one runs during the products of the other. The threads share the weights.
    """

    def __init__(self, device: torch.device, ahead: bool, threads: int = 0) -> None:
        """With `ahead` the next window may be read before the previous one is finished.

        `threads` 0 = as many as PyTorch has.
        """
        self._threads = threads or _thread_count.configured()
        self._count = self.count(device, threads)
        self._ahead = ahead
        self._pool: ThreadPoolExecutor | None = None

    @staticmethod
    def count(device: torch.device, threads: int = 0) -> int:
        """The largest number of batches that are searched at the same time."""
        return 1 if device.type == "cuda" else threads or _thread_count.configured()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=kind is None, cancel_futures=True)
            _thread_count.end()

    def run(
        self, work: Callable[[list[T]], list[R]], items: Sequence[T], lengths: Sequence[int], limits: BatchLimits
    ) -> Iterator[R]:
        """Cuts items of these lengths into batches and starts the work on them.

        Returns one result per item in the order of the items. Several batches are worked on in parallel; otherwise the
        work on a batch is done when the first of its results is needed.
        """
        batches = limits.cut(lengths, self._count if len(items) >= 2 * self._count else 1)
        parallel = self._count > 1 and (len(batches) > 1 or (self._ahead and self._pool is not None))
        if parallel and self._pool is None:
            self._pool = ThreadPoolExecutor(self._count, thread_name_prefix="nmtalign-search")
            _thread_count.begin()
        if parallel:
            torch.set_num_threads(1)  # for the complete process: PyTorch has no setting per thread
        results: dict[int, tuple[Callable[[], list[R]], int]] = {}
        for batch in batches:
            own = [items[place] for place in batch]
            if parallel and self._pool is not None:
                result = self._pool.submit(copy_context().run, work, own).result  # `check_wanted` reads the context
            else:
                result = cache(partial(self._in_this_thread, work, own))
            results.update((place, (result, number)) for number, place in enumerate(batch))
        return self._in_order(results)

    def _in_this_thread(self, work: Callable[[list[T]], list[R]], batch: list[T]) -> list[R]:
        with using_threads(self._threads):
            return work(batch)

    @staticmethod
    def _in_order(results: dict[int, tuple[Callable[[], list[R]], int]]) -> Iterator[R]:
        for place in range(len(results)):
            result, number = results.pop(place)
            yield result()[number]

    def read_ahead(self, windows: Iterable[Iterator[T]]) -> Iterator[Iterator[T]]:
        """The windows in order; with `ahead`, the work on the next window begins before this one is finished.

        An error that ends the reading is raised after the windows that were read before it.
        """
        waiting: deque[Iterator[T]] = deque()
        try:
            for window in windows:
                waiting.append(window)
                if not self._ahead or len(waiting) > 1:
                    yield waiting.popleft()
        except Exception:
            yield from waiting
            raise
        yield from waiting
