"""Tokenising sentence pairs in parallel processes, in order and in bounded memory."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from nmtalign.errors import ResourceError
from nmtalign.processor import usable_cores
from nmtalign.text.moses import MosesWords
from nmtalign.text.spacing import Counts
from nmtalign.text.tokenizer import Tokenizers

Pairs = Sequence[tuple[str, str]]

CHUNK = 2_000  # pairs handed to a process at a time
PARALLEL_FROM = 10  # blocks; fewer are tokenised before processes could start
_IN_FLIGHT = 3  # chunks per process
_COUNTED_WHOLE = 4  # chunks whose spacing is learned from every line
_COUNTED_STEP = 16  # in later chunks, the spacing is learned from every 16th line
_KILLED = "a process of prep was killed (out of memory?); try fewer with --workers"


@dataclass(frozen=True)
class LengthLimit:
    """Pairs with more than `longest` tokens on either side are left out (0 = no limit)."""

    longest: int = 0
    keep_empty: bool = False


class WordIndex(dict[str, int]):
    """Numbers words in the order of their first occurrence."""

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class Side(NamedTuple):
    """One side of a chunk: its different tokens, joined by spaces, and the text as their numbers.

    Thus the worker processes handle every token, and the main process only the different ones. One string and two
    arrays are quick to send between processes.
    """

    types: str
    ids: npt.NDArray[np.uint32]  # (tokens,)
    lengths: npt.NDArray[np.int32]  # (sentences,)

    @classmethod
    def of(cls, sentences: Sequence[Sequence[str]]) -> "Side":
        """The tokens of sentences."""
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        index = WordIndex()
        tokens = map(index.__getitem__, itertools.chain.from_iterable(sentences))
        ids = np.fromiter(tokens, np.uint32, int(lengths.sum()))
        return cls(" ".join(index), ids, lengths)

    def words(self) -> list[str]:
        """The different tokens, by number."""
        return self.types.split(" ") if self.types else []


class Chunk(NamedTuple):
    """Tokenised pairs: those kept, by position in the chunk, and the numbers of those dropped."""

    kept: list[int]
    source: Side
    target: Side
    empty: int
    too_long: int
    spacing: Counts  # spacing of the target


def worker_count(asked: int) -> int:
    """The number of processes: `asked`, or for 0 one per core that this process may use."""
    return asked or max(1, int(usable_cores()))


def tokenize_chunk(tokenizers: Tokenizers, limit: LengthLimit, pairs: Pairs, step: int = 0) -> Chunk:
    """Tokenises pairs and drops those that are empty or too long on either side.

    The positions of spaces are counted in every `step`-th target line that is kept (0 = none).
    """
    sources = [tokenizers.source.tokenize(source) for source, _ in pairs]
    targets = [tokenizers.target.tokenize(target) for _, target in pairs]
    kept, empty, too_long = [], 0, 0
    for number, pair in enumerate(zip(sources, targets, strict=True)):
        if not all(pair) and not limit.keep_empty:
            empty += 1
        elif limit.longest and max(map(len, pair)) > limit.longest:
            too_long += 1
        else:
            kept.append(number)
    spacing: Counts = Counter()
    if step and isinstance(tokenizers.target, MosesWords):
        for number in kept[::step]:
            tokenizers.target.spacing.count(pairs[number][1], targets[number], spacing)
    source, target = (Side.of([side[number] for number in kept]) for side in (sources, targets))
    return Chunk(kept, source, target, empty, too_long, spacing)


def tokenize_pairs(
    tokenizers: Tokenizers, limit: LengthLimit, blocks: Iterator[Pairs], workers: int, spacing: bool = False
) -> Iterator[tuple[Pairs, Chunk]]:
    """Yields each block of raw pairs with its chunk, in order; the number of workers does not change the result.

    With `spacing` the positions of spaces are counted: in all lines at first, then in a few. A small corpus, or any
    corpus with one worker, is tokenised in this process.
    """
    head = list(itertools.islice(blocks, PARALLEL_FROM if workers > 1 else 0))
    work = _with_steps(itertools.chain(head, blocks), spacing)
    if len(head) == PARALLEL_FROM:
        return _in_processes(tokenizers, limit, work, workers)
    return ((block, tokenize_chunk(tokenizers, limit, block, step)) for block, step in work)


def _with_steps(blocks: Iterable[Pairs], spacing: bool) -> Iterator[tuple[Pairs, int]]:
    for number, block in enumerate(blocks):
        yield block, (1 if number < _COUNTED_WHOLE else _COUNTED_STEP) if spacing else 0


def _in_processes(
    tokenizers: Tokenizers, limit: LengthLimit, blocks: Iterable[tuple[Pairs, int]], workers: int
) -> Iterator[tuple[Pairs, Chunk]]:
    waiting: deque[tuple[Pairs, Future[Chunk]]] = deque()
    with process_pool(workers, tokenizers, limit) as pool:
        for block, step in blocks:
            waiting.append((block, pool.submit(_work, block, step)))
            if len(waiting) >= _IN_FLIGHT * workers:
                done, future = waiting.popleft()
                yield done, future.result()
        while waiting:
            done, future = waiting.popleft()
            yield done, future.result()


@contextlib.contextmanager
def process_pool(
    workers: int, tokenizers: Tokenizers | None = None, limit: LengthLimit | None = None, killed: str = _KILLED
) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes (a plain fork would inherit the locks of threads that it does not have).

    An error or an interruption ends them at once. Raises ResourceError with the message `killed` if one was killed.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    others = set(multiprocessing.active_children())
    with ProcessPoolExecutor(workers, mp_context=context, initializer=_start, initargs=(tokenizers, limit)) as pool:
        try:
            yield pool
        except BaseException as error:
            # The work in progress could take minutes, and its results are not needed.
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            pool.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise ResourceError(killed) from None
            raise


_worker: dict[str, tuple[Tokenizers, LengthLimit]] = {}


def _start(tokenizers: Tokenizers | None, limit: LengthLimit | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, with one line
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if tokenizers is not None and limit is not None:
        _worker["settings"] = (tokenizers, limit)


def _end_with_parent() -> None:
    """Ends this process when its parent has ended for any reason, so that it does not wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(pairs: Pairs, step: int) -> Chunk:
    tokenizers, limit = _worker["settings"]
    return tokenize_chunk(tokenizers, limit, pairs, step)
