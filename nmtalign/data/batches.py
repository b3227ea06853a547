"""Minibatches: pairs are ordered, cut into batches, padded, and prefetched by a thread."""

import dataclasses
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice, pairwise

import numpy as np
import numpy.typing as npt
import torch

from nmtalign.core.model import Batch, Indices, make_source
from nmtalign.data.corpus import CORPUS_FILE, Corpus, Split, SplitSide
from nmtalign.errors import FormatError
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.text.tokenizer import EOS_ID, UNK_ID

AHEAD = 8  # batches that are prefetched


def eligible(pairs: Split, max_length: int) -> Indices:
    """Returns the pairs with no empty side and at most `max_length` tokens per side (0 = no limit), without `</s>`."""
    keep = np.minimum(pairs.source.lengths, pairs.target.lengths) > 0
    if max_length:
        keep &= np.maximum(pairs.source.lengths, pairs.target.lengths) <= max_length
    # int32 halves the memory of several such arrays.
    return np.flatnonzero(keep).astype(np.int32 if len(keep) < 1 << 31 else np.int64)


def plan_epoch(pairs: Split, chosen: Indices, config: TrainingConfig, epoch: int) -> list[Indices]:
    """The batches of an epoch (0, 1, ...), each as the indices of its pairs; it depends only on the arguments.

    A window of pairs is sorted by length and cut into batches; a window of the article has 20 minibatches (appendix
    B.2). `batch_unit` "sentences": `batch_size` pairs per batch; "tokens": at most `batch_size` padded tokens on the
    longer side. `shuffle` "once": one shuffle, the same order in every epoch, the batches of a window in order of
    length (the article); "epoch": in every epoch a new shuffle of the pairs, and of the batches of a window.
    """
    generator = np.random.default_rng([config.seed, epoch if config.shuffle == "epoch" else 0])
    order = generator.permutation(chosen)
    source, target = pairs.source.lengths, pairs.target.lengths
    longest = np.maximum(source, target) + 1
    pairs_per_batch = config.batch_size
    if config.batch_unit == "tokens":
        pairs_per_batch = max(1, int(config.batch_size / float(longest[chosen].mean())))
    span = pairs_per_batch * max(1, config.window)
    plan: list[Indices] = []
    for start in range(0, len(order), span):
        window = order[start : start + span]
        window = window[np.lexsort((target[window], source[window], longest[window]))]
        starts = _cut(longest[window], config)
        batches = [window[first:end] for first, end in pairwise([*starts, len(window)])]
        turns = generator.permutation(len(batches)) if config.shuffle == "epoch" else range(len(batches))
        plan += [batches[turn] for turn in turns]
    return plan


def _cut(longest: Indices, config: TrainingConfig) -> list[int]:
    """Where the batches of a window start; its pairs have these lengths, in rising order."""
    if config.batch_unit == "sentences":
        return list(range(0, len(longest), config.batch_size))
    starts, start = [], 0
    while start < len(longest):
        starts.append(start)
        part = longest[start : start + max(1, config.batch_size // int(longest[start]))]
        padded = part * np.arange(1, len(part) + 1)
        start += max(1, int(np.searchsorted(padded, config.batch_size, side="right")))
    return starts


def load_batches(
    pairs: Split, plan: Iterable[Indices], pin: bool = False, additions: Sequence[Callable[[Batch], Batch]] = ()
) -> Iterator[Batch]:
    """Yields the planned batches in order; a thread reads and pads the next `AHEAD` batches.

    Each of the `additions` changes each batch, for example adds its guide. `pin` puts the batches into pinned memory,
    for a CUDA device. The thread starts with the request for the first batch. It ends when the last batch is taken, or
    when the iterator is closed or deleted before. An error is raised in the place of its batch.

    Closing does not wait for the thread: the garbage collector may close the iterator while it holds a lock that the
    end of a thread needs.
    """

    def read(indices: Indices) -> Batch:
        (source, source_mask), (target, target_mask) = (
            make_source([side.ids[first:end] for first, end in side.offsets[indices[:, None] + (0, 1)].tolist()])
            for side in (pairs.source, pairs.target)
        )
        words = int(source_mask.sum()), int(target_mask.sum())
        batch = Batch(source, source_mask, target, target_mask, indices, *words)
        for add in additions:
            batch = add(batch)
        return batch.pinned() if pin else batch

    # Each thread has its own device; pinning would initialise device 0.
    start = partial(torch.cuda.set_device, torch.cuda.current_device()) if pin else None
    rest = iter(plan)
    pool = ThreadPoolExecutor(1, "prefetch", start)
    try:
        coming = deque(pool.submit(read, indices) for indices in islice(rest, AHEAD))
        while coming:
            batch = coming.popleft().result()
            coming.extend(pool.submit(read, indices) for indices in islice(rest, 1))
            yield batch
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


class CopyIds:
    """A call with a batch of a split returns it with the ids of a copying model (`pair_ids`)."""

    def __init__(self, corpus: Corpus, split: Split) -> None:
        """Raises FormatError for a damaged corpus."""
        for side in (split.source, split.target):
            places = np.flatnonzero(side.ids == UNK_ID)
            if len(side.unknown) != len(places) or not np.array_equal(places, side.unknown_at):
                raise FormatError(f"{corpus.folder / CORPUS_FILE}: damaged: unknown words; run nmtalign prep again")
        self._split, self._size = split, len(corpus.target_vocabulary)
        # What each word is on the target side: an id below K, or a number from K that no word of the target has.
        self._known = np.array(corpus.target_vocabulary.encode(corpus.source_vocabulary.words), np.int64)
        missing = self._known == UNK_ID
        self._known[missing] = self._size + np.flatnonzero(missing)
        self._known[EOS_ID] = EOS_ID

    def __call__(self, batch: Batch) -> Batch:
        """Equal words of a pair get equal numbers; then the numbers from K become places of the source."""
        size, source, target = self._size, batch.source.numpy(), batch.target.numpy().copy()
        words, ids = self._known[source], _unknown(self._split.source, source, batch)
        words[source == UNK_ID] = np.where(ids < size, ids, ids + len(self._known))
        target[target == UNK_ID] = size + _unknown(self._split.target, target, batch)
        first = (words[:, :, None] == words[:, None]).argmax(2)
        copies = np.where(words < size, words, size + first)
        equal = target[:, :, None] == words[:, None]
        places = np.where(equal.any(2), size + equal.argmax(2), UNK_ID)
        return dataclasses.replace(
            batch, copies=torch.from_numpy(copies), target=torch.from_numpy(np.where(target < size, target, places))
        )


def _unknown(side: SplitSide, ids: npt.NDArray[np.int64], batch: Batch) -> npt.NDArray[np.int64]:
    """What the `<unk>` of ids (B, T) are on the other side, in the order of rows and places."""
    rows, places = np.nonzero(ids == UNK_ID)
    at = side.offsets[batch.indices][rows] + places
    return side.unknown[np.searchsorted(side.unknown_at, at)].astype(np.int64)
