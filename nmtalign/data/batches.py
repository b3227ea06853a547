"""Minibatches: pairs are ordered, cut into batches, padded, and prefetched by a thread."""

import dataclasses
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtalign.data.corpus import Flat, Split
from nmtalign.text.vocabulary import EOS_ID

T = TypeVar("T")
Ids = Sequence[int] | npt.NDArray[np.integer]
Indices = npt.NDArray[np.integer]

AHEAD = 8  # batches that are prefetched
_BLOCK = 1 << 20  # pairs sorted at a time


@dataclass(frozen=True)
class Batch:
    """B padded pairs, each side ending with `</s>`; masks are True at real tokens.

    The counts are plain numbers, so that the host need not wait for a device to know them.
    """

    source: Tensor  # (B, Tx) int64
    source_mask: Tensor  # (B, Tx) bool
    target: Tensor  # (B, Ty)
    target_mask: Tensor  # (B, Ty)
    indices: Indices  # (B,) positions of the pairs in their corpus
    source_words: int  # real tokens, `</s>` included
    target_words: int
    sentences: int  # B
    guide: Tensor | None = None  # (B, Ty, Tx) bool: the weights with a given link, if links are given
    linked: int = 0  # target tokens with a given link
    copies: Tensor | None = None  # (B, Tx) the ids that a copying model copies from each place

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; the host does not wait for a copy from pinned memory."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in pinned memory, from which a CUDA device copies without the host."""
        return self._map(Tensor.pin_memory)

    def inputs(self) -> tuple[Tensor, ...]:
        """The inputs of a loss: source, source_mask, target, target_mask, then copies and guide if there are any."""
        tensors = self.source, self.source_mask, self.target, self.target_mask, self.copies, self.guide
        return tuple(tensor for tensor in tensors if tensor is not None)

    def _map(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        changed: dict[str, Any] = {name: change(value) for name, value in vars(self).items() if torch.is_tensor(value)}
        return dataclasses.replace(self, **changed)


def make_source(sentences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """Returns ids (B, Tx) and mask (B, Tx) of sentences; it appends `</s>` to each and pads with id 0, mask False."""
    lengths = np.array([len(sentence) + 1 for sentence in sentences])
    ids = np.full((len(sentences), int(lengths.max())), EOS_ID, np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = sentence
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids), torch.from_numpy(mask)


def make_batch(
    pairs: Sequence[tuple[Ids, Ids]],
    indices: Sequence[int] | Indices | None = None,
    copies: Sequence[Ids] | None = None,
) -> Batch:
    """Returns the padded batch of pairs of ids without `</s>`; `indices` are stored in it.

    `copies` are the ids that a copying model copies from each source place (`pair_ids`).
    """
    source, source_mask = make_source([source for source, _ in pairs])
    target, target_mask = make_source([target for _, target in pairs])
    positions = np.arange(len(pairs)) if indices is None else np.asarray(indices)
    source_words, target_words = (sum(len(pair[side]) + 1 for pair in pairs) for side in (0, 1))
    counts = source_words, target_words, len(pairs)
    copied = None if copies is None else make_source(copies)[0]
    return Batch(source, source_mask, target, target_mask, positions, *counts, copies=copied)


@dataclass(frozen=True)
class BatchPolicy:
    """How an epoch is cut into batches.

    A window of pairs is sorted by length and cut into batches; a window of the article has 20 minibatches (appendix
    B.2). `unit` "sentences": `size` pairs per batch; "tokens": at most `size` padded tokens on the longer side.
    `shuffle` "once": one shuffle, the same order in every epoch, the batches of a window in order of length (the
    article); "epoch": in every epoch a new shuffle of the pairs, and of the batches of a window.
    """

    size: int
    unit: str = "sentences"
    window: int = 20
    shuffle: str = "epoch"
    seed: int = 0


class EpochPlan(Sequence[Indices]):
    """The batches of an epoch, each the indices of its pairs; a slice of a plan is a plan.

    It is stored in three arrays, not as a list of small ones: 12 million pairs make 150,000 batches.
    """

    def __init__(self, order: Indices, bounds: Indices, turns: Indices) -> None:
        self._order = order  # (N,) indices of pairs
        self._bounds = bounds  # (batches + 1,) where `order` is cut
        self._turns = turns  # (batches,) the order of the batches

    def __len__(self) -> int:
        return len(self._turns)

    @overload
    def __getitem__(self, index: int) -> Indices: ...
    @overload
    def __getitem__(self, index: slice) -> "EpochPlan": ...
    def __getitem__(self, index: int | slice) -> "Indices | EpochPlan":
        if isinstance(index, slice):
            return EpochPlan(self._order, self._bounds, self._turns[index])
        turn = self._turns[index]
        return self._order[self._bounds[turn] : self._bounds[turn + 1]]


def eligible(pairs: Split, max_length: int) -> Indices:
    """Returns the pairs with no empty side and at most `max_length` tokens per side (0 = no limit), without `</s>`."""
    keep = np.minimum(pairs.source_lengths, pairs.target_lengths) > 0
    if max_length:
        keep &= np.maximum(pairs.source_lengths, pairs.target_lengths) <= max_length
    # int32 halves the memory of several such arrays.
    return np.flatnonzero(keep).astype(np.int32 if len(keep) < 1 << 31 else np.int64)


def plan_epoch(pairs: Split, chosen: Indices, policy: BatchPolicy, epoch: int) -> EpochPlan:
    """The batches of an epoch (0, 1, ...), as indices of pairs; equal policies and epochs give equal plans."""
    generator = np.random.default_rng([policy.seed, epoch if policy.shuffle == "epoch" else 0])
    order = generator.permutation(chosen)
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths) + 1
    pairs_per_batch = policy.size
    if policy.unit == "tokens":
        pairs_per_batch = max(1, int(policy.size / float(longest[chosen].mean())))
    span = pairs_per_batch * max(1, policy.window)
    _sort_windows(order, span, pairs)
    bounds = [_cut(longest[order[start : start + span]], policy) + start for start in range(0, len(order), span)]
    counts = [len(part) for part in bounds]
    if policy.shuffle == "epoch":
        turns = [generator.permutation(count) for count in counts]
    else:
        turns = [np.arange(count) for count in counts]
    firsts = np.cumsum([0, *counts])
    return EpochPlan(
        order,
        np.concatenate([*bounds, [len(order)]]).astype(np.int64),
        np.concatenate([[], *(part + first for part, first in zip(turns, firsts, strict=False))]).astype(np.int64),
    )


def _sort_windows(order: Indices, span: int, pairs: Split) -> None:
    """Sorts each `span` of `order` in place, by the longer side, then source, then target; the sort is stable."""
    base = int(max(pairs.source_lengths.max(initial=0), pairs.target_lengths.max(initial=0))) + 1
    rows = max(1, _BLOCK // span) * span
    whole = len(order) // span * span
    for start, end in [*((at, min(at + rows, whole)) for at in range(0, whole, rows)), (whole, len(order))]:
        if start == end:
            continue
        windows = order[start:end].reshape(-1, min(span, end - start))
        source, target = (side[windows].astype(np.int64) for side in (pairs.source_lengths, pairs.target_lengths))
        key = (np.maximum(source, target) * base + source) * base + target
        windows[:] = np.take_along_axis(windows, np.argsort(key, axis=1, kind="stable"), axis=1)


def _cut(longest: Indices, policy: BatchPolicy) -> Indices:
    """Where the batches of a window start; its pairs have these lengths, in rising order."""
    if policy.unit == "sentences":
        return np.arange(0, len(longest), policy.size)
    starts, start = [], 0
    while start < len(longest):
        starts.append(start)
        part = longest[start : start + max(1, policy.size // int(longest[start]))]
        padded = part * np.arange(1, len(part) + 1)
        start += max(1, int(np.searchsorted(padded, policy.size, side="right")))
    return np.array(starts)


def useful_work(pairs: Split, plan: Iterable[Indices]) -> float:
    """The share of all positions, on both sides, that are real tokens, `</s>` included."""
    real = padded = 0
    for indices in plan:
        for lengths in (pairs.source_lengths[indices], pairs.target_lengths[indices]):
            real += int(lengths.sum()) + len(lengths)
            padded += (int(lengths.max()) + 1) * len(lengths)
    return real / padded if padded else 1.0


def load_batches(
    pairs: Split, plan: Iterable[Indices], pin: bool = False, complete: Callable[[Batch], Batch] | None = None
) -> Iterator[Batch]:
    """The planned batches in order, read and padded by a thread before they are needed.

    `complete` changes each batch, for example adds its guide. `pin` puts the batches into pinned memory, for a CUDA
    device. Close or delete the iterator to end early.
    """
    device = torch.cuda.current_device() if pin else None

    def batches() -> Iterator[Batch]:
        if device is not None:
            torch.cuda.set_device(device)  # each thread has its own; pinning would initialise device 0
        for indices in plan:
            batch = _read(pairs, indices)
            if complete is not None:
                batch = complete(batch)
            yield batch if device is None else batch.pinned()

    return prefetched(batches(), AHEAD)


def _read(pairs: Split, indices: Indices) -> Batch:
    source, target = pairs.flat()
    source_ids, source_mask, source_words = _gather(source, indices)
    target_ids, target_mask, target_words = _gather(target, indices)
    return Batch(source_ids, source_mask, target_ids, target_mask, indices, source_words, target_words, len(indices))


def _gather(side: Flat, indices: Indices) -> tuple[Tensor, Tensor, int]:
    """(ids (B, T), mask (B, T), real tokens) of the sentences of one side."""
    ids, offsets = side
    starts = offsets[indices]
    lengths = offsets[indices + 1] - starts
    places = np.arange(int(lengths.max(initial=0)) + 1)
    # Every row is read to the width of the batch; the tokens of the following sentences are set to 0.
    padded = np.zeros((len(indices), len(places)), np.int64)
    if len(ids):
        np.multiply(ids.take(starts[:, None] + places, mode="clip"), places < lengths[:, None], out=padded)
    mask = places <= lengths[:, None]
    return torch.from_numpy(padded), torch.from_numpy(mask), int(lengths.sum()) + len(indices)


@dataclass(frozen=True)
class _End:
    """The last item of the thread: nothing follows, because of this error if there is one."""

    error: BaseException | None = None


def prefetched(items: Iterator[T], ahead: int) -> Iterator[T]:
    """Yields the items in order; a thread prefetches at most `ahead` of them.

    The thread starts with the request for the first item. An error of `items` is raised in the place of its item. The
    thread has ended when the last item is taken, or when the iterator is closed or deleted before.
    """
    ready: SimpleQueue[T | _End] = SimpleQueue()
    room, stop = threading.Semaphore(ahead), threading.Event()
    # A daemon, so that a process that ends within an epoch does not wait for it.
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
