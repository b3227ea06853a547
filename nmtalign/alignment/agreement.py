"""Learns word alignment from a bitext alone: two hidden Markov models that must agree (Liang, Taskar & Klein 2006).

One model writes the target given the source, the other one the source given the target. Each iteration of
expectation-maximisation computes the posterior of every link in both models. The product of both is the expected count
of the link in both models, so that a link counts only where both directions see it. The first iterations are those of
IBM Model 1, without positions and without agreement; they begin with probabilities from the spelling.

The counts from a pair are left out when this pair is aligned again ("leaving one out"): rare words would otherwise
confirm any link that they once got. The aligner that is saved has all counts.

A "cell" is a source word together with a target word of its sentence pair. The probabilities of all different cells
are in one table; a batch has the place in it (four bytes) of each of its cells.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.hmm import FARTHEST, Posteriors, equal_choices, forward_backward, jump_weights
from nmtalign.alignment.lexical import Counts, Floats, Ids, LexicalModel, Numbers, Tables, different
from nmtalign.alignment.links import in_order
from nmtalign.text.lines import blocks

LONGEST = 100  # words on each side of a training pair, at most
MODEL_1, ITERATIONS = 5, 10  # iterations of IBM Model 1, and iterations in total
MODEL_1_TIME = 0.45  # the time of an iteration of Model 1, as a share of that of the hidden Markov models
BATCH_CELLS = 40_000
_MOST_PAIRS = 4_000  # pairs per batch, at most
_BLOCK_CELLS = 1 << 22  # cells that are sorted together
_LEAST_COUNT = 1e-9  # the smallest count that remains when the counts from the pair itself are left out


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


Sides = tuple[Sentences, Sentences]  # source and target


class CellBatch(NamedTuple):
    """Pairs of similar length: ids (B, S) and (B, T), lengths (B,), and the places of the cells (B, T, S).

    `rows` are the numbers of the pairs. The id of padding follows the last id of a word, its place the last of a cell.
    """

    rows: Numbers
    source: Numbers
    target: Numbers
    source_lengths: Numbers
    target_lengths: Numbers
    places: Ids


def make_batches(sides: Sides, sizes: tuple[int, int], rows: Numbers) -> tuple[list[CellBatch], Numbers]:
    """Returns batches of the pairs `rows`, which have no empty side, and the sorted keys of their different cells.

    `sizes` are the numbers of different ids; the key of a cell is source id * target size + target id. The place of a
    cell is that of its key.
    """
    source, target = sides
    lengths = source.lengths(), target.lengths()
    cut = _cut_by_length(lengths[0], lengths[1], rows)
    sized = [(part, int(lengths[0][part].max() * lengths[1][part].max()) * len(part)) for part in cut]
    cut_blocks = list(blocks(sized, _BLOCK_CELLS))

    def ids_of(part: Numbers) -> tuple[Numbers, Numbers]:
        return source.padded(part, sizes[0]), target.padded(part, sizes[1])

    keys = np.zeros(0, np.int64)
    for block in cut_blocks:
        keys = different(np.concatenate([keys, *(different(_keys(*ids_of(part), sizes).ravel()) for part in block)]))
    keys = keys[: np.searchsorted(keys, sizes[0] * sizes[1])]
    batches: list[CellBatch] = []
    for block in cut_blocks:
        ids = list(map(ids_of, block))
        cells = [_keys(*both, sizes) for both in ids]
        places = _places(np.concatenate([own.ravel() for own in cells]), keys, sizes[0] * sizes[1])
        own_places = np.split(places, np.cumsum([own.size for own in cells])[:-1])
        for part, both, own, found in zip(block, ids, cells, own_places, strict=True):
            batches.append(CellBatch(part, *both, lengths[0][part], lengths[1][part], found.reshape(own.shape)))
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
    batch: CellBatch, tables: Tables, jumps: Sequence[Counts], own: Floats | None = None, count_jumps: bool = True
) -> tuple[Posteriors, Posteriors]:
    """Returns the posteriors of both models of a batch: p(target | source), then p(source | target).

    `own` (B, T, S) is the part of the counts that each pair itself has contributed, which is left out for this pair.
    `count_jumps` is that of `forward_backward`.
    """
    lengths = batch.source_lengths, batch.target_lengths
    ahead, back = word_probabilities(batch, tables, own)
    return (
        forward_backward(*ahead, lengths, jumps[0], count_jumps),
        forward_backward(*back, lengths[::-1], jumps[1], count_jumps),
    )


def word_probabilities(
    batch: CellBatch, tables: Tables, own: Floats | None = None
) -> tuple[tuple[Floats, Floats], tuple[Floats, Floats]]:
    """Returns t(target word | source word) (B, T, S) and t(target word | NULL) (B, T), then the same of source words.

    `own` is that of `posteriors`.
    """
    found = []
    for table, ids, axis in zip(tables, (batch.source, batch.target), (1, 2), strict=True):
        counts = table.counts[batch.places]
        totals = np.expand_dims(table.totals[ids], axis)
        if own is not None:
            counts = np.maximum(counts - own, np.float32(_LEAST_COUNT)) * (counts > 0)
            totals = totals - own.sum(axis, keepdims=True)
        counts /= totals
        found.append(counts)
    return (found[0], tables[0].null[batch.target]), (found[1].transpose(0, 2, 1), tables[1].null[batch.source])


# Expected counts of a batch: of its cells (once, or by direction), of NULL and of the distances by direction.
_Expected = tuple[list[NDArray[Any]], list[Floats], list[Counts]]


class AgreeingModels:
    """Learns from pairs of sentences: call `iterate` until `done` is `ITERATIONS`.

    `names` are the words of both sides, indexed by the ids of the sentences. At most `most` pairs are used, evenly
    spaced among those without more than `LONGEST` words on a side. Memory: six bytes per cell, and about 100 per
    pair of words that share a sentence pair.
    """

    def __init__(
        self, names: tuple[Sequence[str], Sequence[str]], sides: Sides, threads: int = 1, most: int = sys.maxsize
    ) -> None:
        self.done, self._threads = 0, threads
        sizes = len(names[0]), len(names[1])
        rows = usable(sides)
        self._batches, keys = make_batches(sides, sizes, rows[is_chosen(np.arange(len(rows)), most, len(rows))])
        self.cells = sum(batch.places.size for batch in self._batches)
        occurrences = [np.bincount(side.ids, minlength=size) for side, size in zip(sides, sizes, strict=True)]
        self.model = LexicalModel(names, [own.astype(np.float64) for own in occurrences], keys)
        self.counts = self.model.counted([np.zeros(len(keys))] * 2, list(map(np.zeros, sizes[::-1])))
        self.jumps = [np.ones(2 * FARTHEST + 1)] * 2  # all distances are equally likely
        self._own = np.zeros(self.cells, np.float16)  # what each cell has contributed to its counts

    def iterate(self, progress: Callable[[float], object] = lambda share: None) -> None:
        """Runs one iteration; `progress` is called with the share of it that is done."""
        agree = self.done >= MODEL_1
        cells = [np.zeros(len(self.model.keys) + 1) for _ in range(1 if agree else 2)]  # the last one is of padding
        null = [np.zeros(len(self.model.names[1]) + 1), np.zeros(len(self.model.names[0]) + 1)]
        jumps = [np.zeros(len(one)) for one in self.jumps]
        expect = partial(self._expect, tables=self.tables(), agree=agree)
        own_parts = np.split(self._own, np.cumsum([batch.places.size for batch in self._batches]))[:-1]
        seen = 0
        expected = in_order(expect, zip(self._batches, own_parts, strict=True), self._threads)
        for batch, part, (links, absent, moved) in zip(self._batches, own_parts, expected, strict=True):
            places = batch.places.ravel().astype(np.int64)
            for own, more in zip(cells, links, strict=True):
                np.add.at(own, places, more.astype(np.float64).ravel())
            for own, ids, more in zip(null, (batch.target, batch.source), absent, strict=True):
                np.add.at(own, ids.ravel(), more.astype(np.float64).ravel())
            for own, more in zip(jumps, moved, strict=False):
                own += more
            if agree:
                part[:] = links[0].ravel()
            seen += batch.places.size
            progress(seen / self.cells)
        self.counts = self.model.counted([own[:-1] for own in (cells * 2)[:2]], [own[:-1] for own in null])
        if agree:
            self.jumps = list(map(jump_weights, jumps))
        self.done += 1

    def _expect(self, item: tuple[CellBatch, NDArray[Any]], tables: Tables, agree: bool) -> _Expected:
        """Returns the expected counts of a batch, given what its cells have contributed to the counts in `tables`."""
        batch, own = item
        if agree:
            left_out = own.reshape(batch.places.shape).astype(np.float32) if self.done > MODEL_1 else None
            forward, backward = posteriors(batch, tables, self.jumps, left_out)
            both = (forward.links * backward.links.transpose(0, 2, 1)).astype(np.float16)
            return [both], [forward.null, backward.null], [forward.jumps, backward.jumps]
        ahead, back = word_probabilities(batch, tables)
        links, absent = equal_choices(*ahead, batch.source_lengths)
        others, other_absent = equal_choices(*back, batch.target_lengths)
        return [links, others.transpose(0, 2, 1)], [absent, other_absent], []

    def tables(self) -> Tables:
        """Returns the probabilities of both directions: before the first iteration those that the spelling gives."""
        return self.counts.tables(self.model.cells, self.model.words)

    def state(self) -> dict[str, NDArray[Any]]:
        """Returns what the iterations so far have learned, for `restore`."""
        arrays = [*self.counts.counts, *self.counts.null_counts, *self.jumps]
        named = {f"counts.{number}": own for number, own in enumerate(arrays)}
        return {**named, "own": self._own, "done": np.array(self.done)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continues from a `state`; raises KeyError, ValueError or TypeError for that of other sentences."""
        if any(state[name].shape != own.shape for name, own in self.state().items()):
            raise ValueError("this is the state of other sentences")
        arrays = [state[f"counts.{number}"] for number in range(6)]
        self.counts = self.model.counted([own[:-1] for own in arrays[:2]], [own[:-1] for own in arrays[2:4]])
        self._own[:] = state["own"]
        self.jumps, self.done = [own.copy() for own in arrays[4:]], int(state["done"])


def usable(sides: Sides) -> Numbers:
    """Returns the numbers of the pairs without more than `LONGEST` words on a side; no side is empty (`read_sides`)."""
    return np.flatnonzero(np.maximum(*(side.lengths() for side in sides)) <= LONGEST)


def is_chosen(number: Any, most: int, count: int) -> Any:
    """Returns whether a number, or each of an array, is one of `most` evenly spaced ones from 0 to below `count`."""
    return number * min(most, count) % max(count, 1) < most
