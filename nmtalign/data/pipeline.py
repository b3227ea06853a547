"""Tokenising sentence pairs in parallel processes, in order and in bounded memory."""

import contextlib
import itertools
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from nmtalign.errors import ResourceError
from nmtalign.processor import usable_cores
from nmtalign.text.lines import blocks
from nmtalign.text.tokenizer import Counts, MosesWords, Tokenizers

Pairs = Sequence[tuple[str, str]]

CHUNK, _CHARACTERS = 2_000, 2_000_000  # pairs and characters handed to a process at a time
PARALLEL_FROM = 10  # blocks; fewer are tokenised before processes could start
_IN_FLIGHT = 3  # chunks per process
_COUNTED_WHOLE = 4  # chunks whose spacing is learned from every line
_COUNTED_STEP = 16  # in later chunks, the spacing is learned from every 16th line
_KILLED = "a process of prep was killed (out of memory?); try fewer with --set workers=1"


def blocks_of(pairs: Iterable[tuple[str, str]]) -> Iterator[Pairs]:
    """Pairs in blocks of `CHUNK`, or fewer if they are long, such as documents: several blocks are in memory."""
    return blocks(((pair, len(pair[0]) + len(pair[1])) for pair in pairs), _CHARACTERS, CHUNK)


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
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        index = defaultdict[str, int](itertools.count().__next__)  # in the order of their first occurrence
        tokens = map(index.__getitem__, itertools.chain.from_iterable(sentences))
        ids = np.fromiter(tokens, np.uint32, int(lengths.sum()))
        return cls(" ".join(index), ids, lengths)

    def words(self) -> list[str]:
        return self.types.split(" ") if self.types else []


class Chunk(NamedTuple):
    """Tokenised pairs: those kept, by position in the block, and the numbers of those dropped, by reason."""

    kept: list[int]
    source: Side
    target: Side
    dropped: Counter[str]
    spacing: Counts  # spacing of the target


def worker_count(asked: int) -> int:
    """The number of threads or processes: `asked`, or for 0 one per core that this process may use."""
    return asked or max(1, int(usable_cores()))


def process_count(asked: int) -> int:
    """The number of processes: `worker_count`, or 1 without room for what processes share: locks and a socket."""
    try:
        multiprocessing.Lock()
        tempfile.gettempdir()
    except (ImportError, OSError):
        return 1
    return worker_count(asked)


def tokenize_chunk(tokenizers: Tokenizers, longest: int | None, pairs: Pairs, step: int = 0) -> Chunk:
    """Tokenises pairs and drops those with an empty side or one of more than `longest` tokens (0 = no limit).

    If `longest` is None, every pair is kept. The positions of spaces are counted in every `step`-th target line that is
    kept (0 = none).
    """
    sources = [tokenizers.source.tokenize(source) for source, _ in pairs]
    targets = [tokenizers.target.tokenize(target) for _, target in pairs]
    kept, dropped = [], Counter[str]()
    for number, pair in enumerate(zip(sources, targets, strict=True)):
        if not all(pair) and longest is not None:
            dropped["empty"] += 1
        elif longest and max(map(len, pair)) > longest:
            dropped["too long"] += 1
        else:
            kept.append(number)
    spacing: Counts = Counter()
    if step and isinstance(tokenizers.target, MosesWords):
        for number in kept[::step]:
            tokenizers.target.spacing.count(pairs[number][1], targets[number], spacing)
    source, target = (Side.of([side[number] for number in kept]) for side in (sources, targets))
    return Chunk(kept, source, target, dropped, spacing)


def tokenize_pairs(
    tokenizers: Tokenizers, longest: int | None, blocks: Iterator[Pairs], workers: int, spacing: bool = False
) -> Iterator[Chunk]:
    """Yields the chunk of each block of raw pairs, in order; the number of workers does not change the result.

    With `spacing` the positions of spaces are counted: in all lines at first, then in a few. A small corpus, or any
    corpus with one worker, is tokenised in this process.
    """
    head = list(itertools.islice(blocks, PARALLEL_FROM if workers > 1 else 0))
    steps = itertools.chain(itertools.repeat(1, _COUNTED_WHOLE), itertools.repeat(_COUNTED_STEP))
    work = zip(itertools.chain(head, blocks), steps if spacing else itertools.repeat(0), strict=False)
    if len(head) < PARALLEL_FROM:
        for block, step in work:
            yield tokenize_chunk(tokenizers, longest, block, step)
        return
    waiting: deque[Future[Chunk]] = deque()
    with process_pool(workers, tokenizers, longest) as pool:
        for block, step in work:
            waiting.append(pool.submit(_work, block, step))
            if len(waiting) >= _IN_FLIGHT * workers:
                yield waiting.popleft().result()
        for future in waiting:
            yield future.result()


class _Pool(ProcessPoolExecutor):
    """A pool whose processes import nmtalign, but not the script of the user."""

    def submit(self, *arguments: Any, **more: Any) -> Future[Any]:
        """Starts a process if it is needed, which would run a script without `if __name__ == "__main__"` again."""
        main, can_block = sys.modules["__main__"], hasattr(signal, "pthread_sigmask")  # Windows cannot
        # Ctrl-C waits. The new process inherits this: it would print a traceback while it imports nmtalign.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else ()
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            return super().submit(*arguments, **more)
        finally:
            sys.modules["__main__"] = main
            if can_block:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def process_pool(workers: int, *shared: Any, killed: str = _KILLED) -> Iterator[ProcessPoolExecutor]:
    """A pool of fresh processes (a plain fork would inherit the locks of threads that it does not have).

    `shared` are the tokenisers and the most tokens for `tokenize_pairs`. An error or an interruption ends the processes
    at once. Raises ResourceError with the message `killed` if one was killed.
    """
    method = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context = multiprocessing.get_context(method)
    others = set(multiprocessing.active_children())
    with _Pool(workers, mp_context=context, initializer=_start, initargs=shared) as pool:
        try:
            yield pool
        except BaseException as error:
            # The work in progress could take minutes, and its results are not needed.
            for child in set(multiprocessing.active_children()) - others:
                child.terminate()
            with contextlib.suppress(AttributeError):  # while it is open, the reader of half a result waits
                pool._result_queue._writer.close()  # type: ignore[attr-defined]
            pool.shutdown(cancel_futures=True)
            if isinstance(error, BrokenProcessPool):
                raise ResourceError(killed) from None
            raise


_shared: list[Any] = []


def _start(*shared: Any) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C, with one line
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _shared.extend(shared)


def _end_with_parent() -> None:
    """Ends this process when its parent has ended for any reason, so that it does not wait for work for ever."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _work(pairs: Pairs, step: int) -> Chunk:
    return tokenize_chunk(_shared[0], _shared[1], pairs, step)
