"""Batches of sentence pairs for the models of word alignment, with the cells of each pair.

A "cell" is a source word together with a target word of its sentence pair. The probabilities of all different cells are
in one table; a batch has the place in it (four bytes) of each of its cells.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmtalign.alignment.hmm import Posteriors, forward_backward
from nmtalign.alignment.lexical import Ids, Numbers, Table, different

BATCH_CELLS = 40_000
_MOST_PAIRS = 4_000  # of a batch
_BLOCK_BITS = 22  # 4 million cells are sorted together
_LEAST = 1e-9  # the smallest count without those of the pair itself

In = TypeVar("In")
Out = TypeVar("Out")


class Sentences(NamedTuple):
    """One side of a bitext: sentence k is ids[offsets[k]:offsets[k + 1]]."""

    ids: Ids
    offsets: Numbers

    def lengths(self) -> Numbers:
        """Returns the (sentences,) word counts."""
        return np.diff(self.offsets)

    def padded(self, rows: Numbers, padding: int) -> Numbers:
        """Returns the ids of some sentences (rows, longest)."""
        starts = self.offsets[rows]
        lengths = self.offsets[rows + 1] - starts
        places = np.arange(lengths.max(initial=0))
        inside = places < lengths[:, None]
        ids = self.ids[np.where(inside, starts[:, None] + places, 0)].astype(np.int64)
        return np.where(inside, ids, padding)


class CellBatch(NamedTuple):
    """Pairs of similar length: ids (B, S) and (B, T), lengths (B,), and the places of the cells (B, T, S).

    `rows` are the numbers of the pairs. Padding has the id, and the place, after the last one.
    """

    rows: Numbers
    source: Numbers
    target: Numbers
    source_lengths: Tensor
    target_lengths: Tensor
    places: Ids


def make_batches(
    sides: tuple[Sentences, Sentences], sizes: tuple[int, int], rows: Numbers
) -> tuple[list[CellBatch], Numbers]:
    """Returns batches of the pairs `rows`, which have no empty side, and the keys of their different cells, rising.

    `sizes` are the numbers of different ids; the key of a cell is source id * target size + target id. The place of a
    cell is that of its key.
    """
    source, target = sides
    lengths = source.lengths(), target.lengths()
    cut = _cut_by_length(lengths[0], lengths[1], rows)
    blocks = list(_blocks([(part, int(lengths[0][part].max() * lengths[1][part].max()) * len(part)) for part in cut]))

    def ids_of(part: Numbers) -> tuple[Numbers, Numbers]:
        return source.padded(part, sizes[0]), target.padded(part, sizes[1])

    keys = np.zeros(0, np.int64)
    for block in blocks:
        keys = different(np.concatenate([keys, *(different(_keys(*ids_of(part), sizes).ravel()) for part in block)]))
    keys = keys[: np.searchsorted(keys, sizes[0] * sizes[1])]
    batches: list[CellBatch] = []
    for block in blocks:
        ids = list(map(ids_of, block))
        cells = [_keys(*both, sizes) for both in ids]
        places = _places(np.concatenate([own.ravel() for own in cells]), keys, sizes[0] * sizes[1])
        own_places = np.split(places, np.cumsum([own.size for own in cells])[:-1])
        for part, both, own, found in zip(block, ids, cells, own_places, strict=True):
            counts = [torch.from_numpy(side[part]) for side in lengths]
            batches.append(CellBatch(part, *both, counts[0], counts[1], found.reshape(own.shape)))
    return batches, keys


def _cut_by_length(source: Numbers, target: Numbers, rows: Numbers) -> list[Numbers]:
    """Cuts pairs with these lengths into batches of similar length; returns the numbers of the pairs of each batch."""
    order = rows[np.lexsort((target[rows], source[rows]))]
    batches: list[Numbers] = []
    start = 0
    while start < len(order):
        part = order[start : start + _MOST_PAIRS]
        cells = np.arange(1, len(part) + 1) * source[part] * np.maximum.accumulate(target[part])
        batches.append(part[: max(1, int(np.searchsorted(cells, BATCH_CELLS, side="right")))])
        start += len(batches[-1])
    return batches


def _blocks(parts: Sequence[tuple[Numbers, int]]) -> Iterator[list[Numbers]]:
    """Yields consecutive batches that have about 2^_BLOCK_BITS cells together."""
    block: list[Numbers] = []
    cells = 0
    for part, size in parts:
        if block and cells + size > 1 << _BLOCK_BITS:
            yield block
            block, cells = [], 0
        block.append(part)
        cells += size
    if block:
        yield block


def _keys(source: Numbers, target: Numbers, sizes: tuple[int, int]) -> Numbers:
    """Returns the keys of the cells (B, T, S); the key of padding is after all others."""
    keys = source[:, None, :] * sizes[1] + target[:, :, None]
    keys[(source == sizes[0])[:, None, :] | (target == sizes[1])[:, :, None]] = sizes[0] * sizes[1]
    return keys


def _places(cells: Numbers, keys: Numbers, most: int) -> Ids:
    """Returns the place in `keys` of each cell (N,); `most` is the largest key.

    Sorting and then searching in order is several times as fast as searching for each cell. NumPy sorts numbers much
    faster than their places, so each number contains its place.
    """
    bits = 63 - max(1, most).bit_length()
    places = np.empty(len(cells), np.int32)
    for first in range(0, len(cells), 1 << bits):
        part = cells[first : first + (1 << bits)]
        order = (part << bits) | np.arange(len(part))
        order.sort()
        places[first + (order & ((1 << bits) - 1))] = np.searchsorted(keys, order >> bits)
    return places


def posteriors(
    batch: CellBatch, tables: tuple[Table, Table], jumps: Sequence[Tensor], own: Tensor | None = None
) -> tuple[Posteriors, Posteriors]:
    """Returns the posteriors of both models of a batch: p(target | source), then p(source | target).

    `own` (B, T, S) is the part of the counts that each pair itself has contributed, which is left out for this pair.
    """
    lengths = batch.source_lengths, batch.target_lengths
    probabilities = translation_probabilities(batch, tables, own)
    null = null_probabilities(batch, tables)
    return (
        forward_backward(probabilities[0], null[0], *lengths, jumps[0]),
        forward_backward(probabilities[1], null[1], *lengths[::-1], jumps[1]),
    )


def null_probabilities(batch: CellBatch, tables: tuple[Table, Table]) -> tuple[Tensor, Tensor]:
    """Returns p(target word | NULL) (B, T), and p(source word | NULL) (B, S)."""
    return torch.from_numpy(tables[0].null[batch.target]), torch.from_numpy(tables[1].null[batch.source])


def translation_probabilities(
    batch: CellBatch, tables: tuple[Table, Table], own: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Returns t(target word | source word) (B, T, S), and t(source word | target word) (B, S, T); see `posteriors`."""
    found = []
    for table, ids, axis in zip(tables, (batch.source, batch.target), (1, 2), strict=True):
        counts = torch.from_numpy(table.counts[batch.places])
        totals = torch.from_numpy(table.totals[ids]).unsqueeze(axis)
        if own is not None:
            counts = torch.where(counts > 0, (counts - own).clamp_(min=_LEAST), 0)
            totals = totals - own.sum(axis, keepdim=True)
        found.append(counts / totals)
    return found[0], found[1].transpose(1, 2)


def in_order(function: Callable[[In], Out], items: Iterable[In], threads: int) -> Iterator[Out]:
    """Yields the results in order, computed by threads that use one core each and are a few results ahead."""
    rest = iter(items)
    with ThreadPoolExecutor(threads, "align", lambda: torch.set_num_threads(1)) as pool:
        coming = deque(pool.submit(function, item) for item in islice(rest, 3 * threads))
        try:
            while coming:
                done = coming.popleft().result()
                coming.extend(pool.submit(function, item) for item in islice(rest, 1))
                yield done
        finally:
            pool.shutdown(cancel_futures=True)
