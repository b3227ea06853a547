"""Minibatches: how pairs are ordered, cut into batches and padded."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, overload, runtime_checkable

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtalign.data.prefetch import prefetched
from nmtalign.text.vocabulary import EOS_ID

Ids = Sequence[int] | npt.NDArray[np.integer]
Indices = npt.NDArray[np.integer]
Flat = tuple[npt.NDArray[np.integer], npt.NDArray[np.integer]]

AHEAD = 8  # batches made before they are asked for
_BLOCK = 1 << 20  # pairs sorted at a time


class Pairs(Protocol):
    """What batches are made of: a split of a prepared corpus, or anything alike."""

    @property
    def source_lengths(self) -> Indices:
        """(N,) tokens a source sentence, `</s>` not counted."""

    @property
    def target_lengths(self) -> Indices:
        """(N,) tokens a target sentence."""

    def __len__(self) -> int: ...

    def pair(self, index: int) -> tuple[Ids, Ids]:
        """(source ids, target ids) without `</s>`."""
        ...


@runtime_checkable
class FlatPairs(Protocol):
    """Pairs whose sentences lie one after the other, so that a batch can be gathered at once."""

    def flat(self) -> tuple[Flat, Flat]:
        """(ids, offsets) of each side; sentence i is ids[offsets[i]:offsets[i + 1]]."""
        ...


@dataclass(frozen=True)
class Batch:
    """B padded pairs, each side ending with `</s>`; masks are True at real tokens.

    The counts are plain numbers, known on the host without waiting for a device.
    """

    source: Tensor  # (B, Tx) int64
    source_mask: Tensor  # (B, Tx) bool
    target: Tensor  # (B, Ty)
    target_mask: Tensor  # (B, Ty)
    indices: Indices  # (B,) positions of the pairs in their corpus
    source_words: int  # real tokens, `</s>` counted
    target_words: int  # likewise
    sentences: int  # B
    guide: Tensor | None = None  # (B, Ty, Tx) bool, the cells of the weights that are linked, where links are given
    linked: int = 0  # target tokens with such cells

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device; from pinned memory nobody waits for the copy."""
        return self._each(lambda tensor: tensor.to(device, non_blocking=True))

    def pinned(self) -> "Batch":
        """The same batch in memory that a CUDA device reads by itself."""
        return self._each(Tensor.pin_memory)

    def inputs(self) -> tuple[Tensor, ...]:
        """What a loss reads: source, source_mask, target, target_mask, and the guide where there is one."""
        tensors = self.source, self.source_mask, self.target, self.target_mask
        return tensors if self.guide is None else (*tensors, self.guide)

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Batch":
        return dataclasses.replace(
            self,
            source=change(self.source),
            source_mask=change(self.source_mask),
            target=change(self.target),
            target_mask=change(self.target_mask),
            guide=None if self.guide is None else change(self.guide),
        )


def make_source(sentences: Sequence[Ids]) -> tuple[Tensor, Tensor]:
    """(ids (B, Tx), mask (B, Tx)) of sentences without `</s>`, which is appended; padding is id 0, mask False."""
    lengths = np.array([len(sentence) + 1 for sentence in sentences])
    ids = np.full((len(sentences), int(lengths.max())), EOS_ID, np.int64)
    for row, sentence in zip(ids, sentences, strict=True):
        row[: len(sentence)] = sentence
    mask = np.arange(ids.shape[1]) < lengths[:, None]
    return torch.from_numpy(ids), torch.from_numpy(mask)


def make_batch(pairs: Sequence[tuple[Ids, Ids]], indices: Sequence[int] | Indices | None = None) -> Batch:
    """The padded batch of pairs of ids without `</s>`; `indices` are kept with it."""
    source, source_mask = make_source([source for source, _ in pairs])
    target, target_mask = make_source([target for _, target in pairs])
    positions = np.arange(len(pairs)) if indices is None else np.asarray(indices)
    source_words, target_words = (sum(len(pair[side]) + 1 for pair in pairs) for side in (0, 1))
    return Batch(source, source_mask, target, target_mask, positions, source_words, target_words, len(pairs))


@dataclass(frozen=True)
class BatchPolicy:
    """How an epoch is cut into batches.

    A window of pairs is read at a time, sorted by length and cut: the paper reads 20 minibatches' worth. `unit`
    "sentences": `size` pairs a batch. "tokens": as many pairs as keep the padded tokens of the longer side at `size`.
    `shuffle` "once": one shuffle, the same order in every epoch, batches of a window in order of length (the paper);
    "epoch": a new shuffle every epoch, of the pairs and of the batches in a window.
    """

    size: int
    unit: str = "sentences"
    window: int = 20
    shuffle: str = "epoch"
    seed: int = 0


class Plan(Sequence[Indices]):
    """The batches of an epoch, each the indices of its pairs; a part of a plan is a plan.

    Two arrays and not a list of many small ones: 12 million pairs make 150,000 batches.
    """

    def __init__(self, order: Indices, bounds: Indices, turns: Indices) -> None:
        self._order = order  # (N,) indices of pairs
        self._bounds = bounds  # (cuts + 1,) where `order` is cut
        self._turns = turns  # (batches,) which cut comes when

    def __len__(self) -> int:
        return len(self._turns)

    @overload
    def __getitem__(self, index: int) -> Indices: ...
    @overload
    def __getitem__(self, index: slice) -> "Plan": ...
    def __getitem__(self, index: int | slice) -> "Indices | Plan":
        if isinstance(index, slice):
            return Plan(self._order, self._bounds, self._turns[index])
        turn = self._turns[index]
        return self._order[self._bounds[turn] : self._bounds[turn + 1]]


def eligible(pairs: Pairs, max_length: int) -> Indices:
    """The pairs of which neither side is empty or longer than `max_length` (0 = no limit), `</s>` not counted."""
    keep = np.minimum(pairs.source_lengths, pairs.target_lengths) > 0
    if max_length:
        keep &= np.maximum(pairs.source_lengths, pairs.target_lengths) <= max_length
    # Half the memory: there are several such arrays, and no corpus has 2 billion pairs.
    return np.flatnonzero(keep).astype(np.int32 if len(keep) < 1 << 31 else np.int64)


def plan_epoch(pairs: Pairs, chosen: Indices, policy: BatchPolicy, epoch: int) -> Plan:
    """The batches of an epoch (0, 1, ...), as indices of pairs; the same for the same policy and epoch."""
    generator = np.random.default_rng([policy.seed, epoch if policy.shuffle == "epoch" else 0])
    order = generator.permutation(chosen)
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths) + 1
    pairs_a_batch = policy.size
    if policy.unit == "tokens":
        pairs_a_batch = max(1, int(policy.size / float(longest[chosen].mean())))
    span = pairs_a_batch * max(1, policy.window)
    _sort_windows(order, span, pairs)
    bounds = [_cut(longest[order[start : start + span]], policy) + start for start in range(0, len(order), span)]
    counts = [len(part) for part in bounds]
    if policy.shuffle == "epoch":
        turns = [generator.permutation(count) for count in counts]
    else:
        turns = [np.arange(count) for count in counts]
    firsts = np.cumsum([0, *counts])
    return Plan(
        order,
        np.concatenate([*bounds, [len(order)]]).astype(np.int64),
        np.concatenate([[], *(part + first for part, first in zip(turns, firsts, strict=False))]).astype(np.int64),
    )


def _sort_windows(order: Indices, span: int, pairs: Pairs) -> None:
    """Sorts each `span` of `order`, in place, by the longer side, then source, then target; ties stay in order."""
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
    """Where the batches of a window start whose pairs have these lengths, the shortest first."""
    if policy.unit == "sentences":
        return np.arange(0, len(longest), policy.size)
    starts, start = [], 0
    while start < len(longest):
        starts.append(start)
        part = longest[start : start + max(1, policy.size // int(longest[start]))]
        padded = part * np.arange(1, len(part) + 1)
        start += max(1, int(np.searchsorted(padded, policy.size, side="right")))
    return np.array(starts)


def useful_work(pairs: Pairs, plan: Iterable[Indices]) -> float:
    """The share of the positions of all batches, both sides, that holds a real token; `</s>` is one."""
    real = padded = 0
    for indices in plan:
        for lengths in (pairs.source_lengths[indices], pairs.target_lengths[indices]):
            real += int(lengths.sum()) + len(lengths)
            padded += (int(lengths.max()) + 1) * len(lengths)
    return real / padded if padded else 1.0


def load_batches(
    pairs: Pairs, plan: Iterable[Indices], pin: bool = False, complete: Callable[[Batch], Batch] | None = None
) -> Iterator[Batch]:
    """The planned batches, one after the other, read and padded ahead of their use in a thread of their own.

    `complete` adds to each what it lacks. `pin` puts them into pinned memory, for a CUDA device. Close the iterator, or
    let go of it, to end early.
    """
    device = torch.cuda.current_device() if pin else None
    return prefetched(_batches(pairs, plan, device, complete), AHEAD)


def _batches(
    pairs: Pairs, plan: Iterable[Indices], device: int | None, complete: Callable[[Batch], Batch] | None
) -> Iterator[Batch]:
    if device is not None:
        torch.cuda.set_device(device)  # each thread has its own; pinning would wake the first device
    for indices in plan:
        batch = _read(pairs, indices)
        if complete is not None:
            batch = complete(batch)
        yield batch if device is None else batch.pinned()


def _read(pairs: Pairs, indices: Indices) -> Batch:
    if not isinstance(pairs, FlatPairs):
        return make_batch([pairs.pair(int(index)) for index in indices], indices)
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
    # Rows are read to the width of the batch; what belongs to the next sentences is wiped out.
    padded = np.zeros((len(indices), len(places)), np.int64)
    if len(ids):
        np.multiply(ids.take(starts[:, None] + places, mode="clip"), places < lengths[:, None], out=padded)
    mask = places <= lengths[:, None]
    return torch.from_numpy(padded), torch.from_numpy(mask), int(lengths.sum()) + len(indices)
