"""Minibatches: how pairs are ordered, cut into batches and padded."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtalign.text.vocabulary import EOS_ID

Ids = Sequence[int] | npt.NDArray[np.integer]
Indices = npt.NDArray[np.int64]


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

    def to(self, device: torch.device) -> "Batch":
        """The same batch on a device."""
        return dataclasses.replace(
            self,
            source=self.source.to(device, non_blocking=True),
            source_mask=self.source_mask.to(device, non_blocking=True),
            target=self.target.to(device, non_blocking=True),
            target_mask=self.target_mask.to(device, non_blocking=True),
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


def eligible(pairs: Pairs, max_length: int) -> Indices:
    """The pairs of which neither side is empty or longer than `max_length` (0 = no limit), `</s>` not counted."""
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths)
    shortest = np.minimum(pairs.source_lengths, pairs.target_lengths)
    keep = shortest > 0
    if max_length:
        keep &= longest <= max_length
    return np.flatnonzero(keep)


def plan_epoch(pairs: Pairs, chosen: Indices, policy: BatchPolicy, epoch: int) -> list[Indices]:
    """The batches of an epoch (0, 1, ...), as indices of pairs; the same for the same policy and epoch."""
    generator = np.random.default_rng([policy.seed, epoch if policy.shuffle == "epoch" else 0])
    order = generator.permutation(chosen)
    longest = np.maximum(pairs.source_lengths, pairs.target_lengths) + 1
    pairs_a_batch = policy.size
    if policy.unit == "tokens":
        pairs_a_batch = max(1, int(policy.size / float(longest[chosen].mean())))
    span = pairs_a_batch * max(1, policy.window)
    plan: list[Indices] = []
    for start in range(0, len(order), span):
        window = order[start : start + span]
        keys = (pairs.target_lengths[window], pairs.source_lengths[window], longest[window])
        window = window[np.lexsort(keys)]
        batches = _cut(window, longest[window], policy)
        if policy.shuffle == "epoch":
            batches = [batches[index] for index in generator.permutation(len(batches))]
        plan.extend(batches)
    return plan


def _cut(window: Indices, longest: Indices, policy: BatchPolicy) -> list[Indices]:
    """Cuts a window that is sorted by length."""
    if policy.unit == "sentences":
        return [window[start : start + policy.size] for start in range(0, len(window), policy.size)]
    batches, start = [], 0
    for end in range(1, len(window) + 1):
        full = end < len(window) and (end + 1 - start) * longest[end] > policy.size
        if full or end == len(window):
            batches.append(window[start:end])
            start = end
    return batches


def load_batches(pairs: Pairs, plan: Sequence[Indices]) -> Iterator[Batch]:
    """Reads and pads the planned batches, one after the other."""
    for indices in plan:
        yield make_batch([pairs.pair(int(index)) for index in indices], indices)
