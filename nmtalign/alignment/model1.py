"""IBM Model 1 (Brown et al. 1993): translation probabilities of words, learned from sentence pairs alone.

Each target word comes from one source word of its sentence, or from none (the NULL word), whichever equally likely:

    p(a_j = i) = t(f_j | e_i) / Z_j    with    Z_j = t(f_j | NULL) + sum over i of t(f_j | e_i)

An iteration (of expectation and maximisation) sums these over the corpus to counts, and makes probabilities of them.
A "cell" is a source token with a target token of its sentence. There are too many to keep (400 million of a million
pairs), so they are made anew in each iteration, and by source word, whose probabilities then stay in the cache.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.bitext import Bitext

CUTOFF = 1e-6  # a less probable translation is forgotten
_CELLS = 1 << 20  # made at a time
_SCRATCH = 1 << 23  # places for the pairs of different words of a block
_LEAST = np.float32(1e-30)  # keeps a target word that all have forgotten from a division by 0

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]
Cells = tuple[NDArray[np.int64], NDArray[np.int64]]  # of each cell: the target token's place in the corpus, and its key


@dataclass(frozen=True)
class Translations:
    """t(target | source) of each pair of words that was kept, by source id, then target id; NULL is not in it."""

    sources: Ids
    targets: Ids
    probabilities: Floats


@dataclass
class _Block:
    """Source words `first` to `last` - 1 and their translations; a key is (source - first) * target words + target."""

    first: int
    last: int
    keys: Ids  # sorted
    probabilities: Floats


def learn(
    bitext: Bitext,
    iterations: int = 5,
    cutoff: float = CUTOFF,
    progress: Callable[[int, float], None] = lambda iteration, share: None,
) -> Translations:
    """Runs the iterations from uniform probabilities.

    `progress` is called with the iteration, from 1, and the share of it that is done. Memory: about 25 bytes a token,
    and 8 for each pair of words whose probability is at least `cutoff`. The same bitext gives the same result.
    """
    model = _Model(bitext)
    for iteration in range(1, iterations + 1):
        model.iterate(cutoff, iteration == iterations, partial(progress, iteration))
    return model.translations()


class _Model:
    """The probabilities, and the tokens of the corpus in the order of their source words."""

    def __init__(self, bitext: Bitext) -> None:
        source, target = bitext.source, bitext.target
        source_lengths, self._lengths = source.lengths(), target.lengths()
        self._target, self._offsets = target.ids, target.offsets
        self._width = len(target.words)
        self._null = np.ones(self._width, np.float32)
        self._sums = np.repeat((source_lengths + 1).astype(np.float32), self._lengths)  # Z, (target tokens,)
        sentences = np.repeat(np.arange(len(bitext), dtype=np.int32), source_lengths)
        self._sentences = sentences[np.argsort(source.ids, kind="stable")]  # of each source token, by source word
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(source.ids, minlength=len(source.words)))))
        cells = np.concatenate(([0], np.cumsum(self._lengths[self._sentences])))
        self._slots = np.zeros(max(_SCRATCH, self._width), np.int32)
        self._blocks = self._cut(cells[self._starts])

    def _cut(self, cells: NDArray[np.int64]) -> list[_Block]:
        """Blocks of source words that fit into the scratch and, a word with very many cells aside, have few cells."""
        words, most = len(cells) - 1, max(_SCRATCH // max(self._width, 1), 1)
        bounds = [0]
        while bounds[-1] < words:
            start = bounds[-1]
            fitting = int(np.searchsorted(cells, cells[start] + _CELLS, side="right")) - 1
            bounds.append(min(max(fitting, start + 1), start + most, words))
        empty = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return [_Block(first, last, *empty) for first, last in pairwise(bounds)]

    def iterate(self, cutoff: float, last: bool, progress: Callable[[float], None]) -> None:
        """One iteration; after the last one, Z is of no use and is not made."""
        self._null = self._null_probabilities()
        sums = self._null[self._target]
        for block in self._blocks:
            self._update(block, cutoff, None if last else sums)
            progress(float(self._starts[block.last] / max(self._starts[-1], 1)))
        self._sums = np.maximum(sums, _LEAST, out=sums)

    def _null_probabilities(self) -> Floats:
        counts = np.zeros(self._width)
        for start in range(0, len(self._target), _CELLS):
            ids, sums = self._target[start : start + _CELLS], self._sums[start : start + _CELLS]
            counts += np.bincount(ids, self._null[ids] / sums, minlength=self._width)
        return np.asarray(counts / max(counts.sum(), 1e-300), np.float32)

    def _update(self, block: _Block, cutoff: float, sums: Floats | None) -> None:
        """The block's new probabilities, from Z and the old ones; adds them to the next Z, `sums`."""
        ranges = self._ranges(block)
        # Cells that were made at one go are not made again for the second pass.
        parts = list(self._cells(block, ranges)) if len(ranges) == 1 else None
        if not len(block.keys):
            block.keys = self._keys(block, parts or self._cells(block, ranges))
            block.probabilities = np.ones(len(block.keys), np.float32)
        self._slots[block.keys] = np.arange(1, len(block.keys) + 1)
        old = np.concatenate(([np.float32(0)], block.probabilities))  # place 0 is that of the forgotten
        counts = np.zeros(len(old))
        for positions, keys in parts or self._cells(block, ranges):
            slots = self._slots[keys]
            counts += np.bincount(slots, old[slots] / self._sums[positions], minlength=len(old))
        rows = block.keys // self._width
        totals = np.bincount(rows, counts[1:], minlength=block.last - block.first)
        new = (counts[1:] / np.maximum(totals[rows], 1e-300)).astype(np.float32)
        kept = new >= cutoff
        padded = np.concatenate(([np.float32(0)], np.where(kept, new, np.float32(0))))
        if sums is not None:
            for positions, keys in parts or self._cells(block, ranges):
                np.add.at(sums, positions, padded[self._slots[keys]])
        self._slots[block.keys] = 0
        block.keys, block.probabilities = block.keys[kept], new[kept]

    def _keys(self, block: _Block, parts: Iterable[Cells]) -> Ids:
        """The different keys of the block's cells, sorted."""
        seen = np.zeros(0, np.int32)
        for _, keys in parts:
            seen = _different(np.concatenate((seen, _different(keys.astype(np.int32)))))
        return seen

    def _ranges(self, block: _Block) -> list[tuple[int, int]]:
        """The block's tokens in ranges of few cells."""
        first, last = int(self._starts[block.first]), int(self._starts[block.last])
        cells = np.cumsum(self._lengths[self._sentences[first:last]])
        steps = np.arange(_CELLS, cells[-1] if len(cells) else 0, _CELLS)
        bounds = [first, *(first + np.searchsorted(cells, steps, side="right")).tolist(), last]
        return [(start, stop) for start, stop in pairwise(bounds) if start < stop]

    def _cells(self, block: _Block, ranges: list[tuple[int, int]]) -> Iterator[Cells]:
        """The cells of each range of the block's tokens."""
        counts = np.diff(self._starts[block.first : block.last + 1])
        bases = np.repeat(np.arange(len(counts)) * self._width, counts)
        first = int(self._starts[block.first])
        for start, stop in ranges:
            sentences = self._sentences[start:stop]
            lengths = self._lengths[sentences]
            ends = np.cumsum(lengths)
            positions = np.repeat(self._offsets[sentences] - ends + lengths, lengths)
            positions += np.arange(len(positions))
            keys = np.repeat(bases[start - first : stop - first], lengths)
            keys += self._target[positions]
            yield positions, keys

    def translations(self) -> Translations:
        """All that is kept."""
        sources = [np.zeros(0, np.int32)] + [block.first + block.keys // self._width for block in self._blocks]
        targets = [np.zeros(0, np.int32)] + [block.keys % self._width for block in self._blocks]
        probabilities = [np.zeros(0, np.float32)] + [block.probabilities for block in self._blocks]
        return Translations(np.concatenate(sources), np.concatenate(targets), np.concatenate(probabilities))


def _different(values: Ids) -> Ids:
    """The different values, rising; sorting is several times as fast as NumPy's `unique`."""
    values.sort()
    return values[np.diff(values, prepend=-1) > 0]
