"""Sums of statistics over bootstrap samples and over swaps of two systems, drawn as sacreBLEU draws them.

sacreBLEU holds all draws at once: 1,000 samples of 100,000 sentences are 800 MB of indices, and it gathers the
statistics of every one. Here the same stream of random numbers is drawn in slices, each turned into how often every
sentence was drawn, and the sums are one matrix product for all metrics of all systems. Statistics are whole numbers,
whose sums are exact in any order: the product gives what adding row by row gives.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.cuts import Mask
from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.report import Interval

Sums = NDArray[np.float64]
Advance = Callable[[int], None]
_SLICE = 2**21  # draws at once: 16 MB of indices
_WORD = 32  # numpy draws so many booleans from one random number, and drops what a call leaves over
_EXACT = 2.0**24  # float32 holds every whole number up to it


@dataclass(frozen=True)
class Columns:
    """The statistics of all metrics of all systems side by side, columns that are alike only once.

    The references' own counts are the same for every system, and the statistics of chrF are part of chrF++'s.
    """

    whole: NDArray[np.float32]  # (N, C) whole numbers
    rough: NDArray[np.float64]  # (N, F) other numbers: means over several references
    # Of each system and metric: the columns it needs, numbered through `whole`, then `rough`.
    places: tuple[tuple[NDArray[np.intp], ...], ...]

    @classmethod
    def of(cls, tables: Sequence[Sequence[Statistics]]) -> "Columns":
        """Gathers the rows of `tables`, the statistics of each system."""
        seen: dict[tuple[bool, bytes], int] = {}
        kept: tuple[list[NDArray[np.floating]], list[NDArray[np.floating]]] = ([], [])
        named: list[list[list[tuple[bool, int]]]] = []
        for table in tables:
            named.append([[_place(column, seen, kept) for column in one.rows.T] for one in table])
        shift = len(kept[0])
        places = tuple(
            tuple(np.array([number + shift * rough for rough, number in columns], dtype=np.intp) for columns in table)
            for table in named
        )
        size = len(tables[0][0])
        whole = np.empty((size, shift), dtype=np.float32)
        for number, column in enumerate(kept[0]):
            whole[:, number] = column
        return cls(whole, np.stack(kept[1], axis=1) if kept[1] else np.empty((size, 0)), places)

    def __len__(self) -> int:
        return len(self.whole)

    def subset(self, mask: Mask) -> "Columns":
        """The sentences where `mask` (N,) is True."""
        return self if mask.all() else Columns(self.whole[mask], self.rough[mask], self.places)

    def totals(self) -> Sums:
        """(columns,) the sums over all sentences."""
        whole = np.add.reduce(self.whole, axis=0, dtype=np.float64)
        return np.concatenate([whole, np.add.reduce(self.rough, axis=0)])


def _place(
    column: NDArray[np.float64],
    seen: dict[tuple[bool, bytes], int],
    kept: tuple[list[NDArray[np.floating]], list[NDArray[np.floating]]],
) -> tuple[bool, int]:
    """(is it rough, its number among those), after keeping a column that is new."""
    values = np.ascontiguousarray(column, dtype=np.float64)
    rough = bool((values != np.rint(values)).any() or values.max(initial=0) >= _EXACT)
    key = (rough, hashlib.blake2b(values.tobytes(), digest_size=16).digest())
    if key not in seen:
        seen[key] = len(kept[rough])
        kept[rough].append(values if rough else values.astype(np.float32))
    return rough, seen[key]


def bootstrap(columns: Columns, samples: int, seed: int, advance: Advance | None = None) -> Sums:
    """(samples, columns) sums over samples of as many sentences as there are, drawn with replacement.

    The sums of rough columns are added in float32 in the order drawn, as sacreBLEU adds them; the others are exact,
    where sacreBLEU's float32 rounds sums above 16.7 million. `advance` gets the number of samples done.
    """
    size = len(columns)
    generator = np.random.default_rng(seed)
    product = _Product(columns.whole)
    rough = np.ascontiguousarray(columns.rough.T, dtype=np.float32)
    parts = []
    for count in _slices(samples, max(1, _SLICE // size)):
        drawn = generator.integers(size, size=(count, size))
        counts = np.empty((count, size), dtype=np.float32)
        for number, sample in enumerate(drawn):
            counts[number] = np.bincount(sample, minlength=size)
        in_order = [np.cumsum(column[drawn], axis=1, dtype=np.float32)[:, -1:] for column in rough]
        parts.append(np.concatenate([product.sums(counts), *in_order], axis=1))
        if advance:
            advance(count)
    return np.concatenate(parts)


def swaps(columns: Columns, trials: int, seed: int, advance: Advance | None = None) -> tuple[Sums, Sums]:
    """Two (trials, columns) sums: over the sentences that a fair coin picks, and over those it leaves.

    Two systems exchange the sentences picked: the sums of one over them, and of the other over the rest, are those of
    a shuffled system. `advance` gets the number of trials done.
    """
    size = len(columns)
    generator = np.random.default_rng(seed)
    product = _Product(columns.whole)
    totals = columns.totals()[: columns.whole.shape[1]]
    picked, left = [], []
    for count in _slices(trials, max(1, _SLICE // size // _WORD) * _WORD):
        coins = generator.integers(2, size=(count, size), dtype=np.bool_)
        sums = product.sums(coins.astype(np.float32))
        picked.append(np.concatenate([sums, coins @ columns.rough], axis=1))
        left.append(np.concatenate([totals - sums, ~coins @ columns.rough], axis=1))
        if advance:
            advance(count)
    return np.concatenate(picked), np.concatenate(left)


def interval(scores: NDArray[np.floating], paired: bool = False) -> Interval:
    """The mean and the 95% interval of (samples,) bootstrap scores; the bounds leave out a fortieth on either side.

    sacreBLEU adds up the mean exactly for one system, but in the scores' own precision in a `paired` test.
    """
    ranked = np.sort(scores)
    out = len(ranked) // 40
    mean = scores.dtype.type(math.fsum(ranked.tolist()) / len(ranked))
    return Interval(float(ranked.mean() if paired else mean), float(ranked[out]), float(ranked[-out - 1]))


class _Product:
    """Exact sums of rows of whole numbers, in float32 for as long as that is exact: it is twice as fast."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self._rows: NDArray[Any] = rows

    def sums(self, counts: NDArray[np.float32]) -> Sums:
        """(samples, C) of (samples, N) counts."""
        sums: NDArray[Any] = counts.astype(self._rows.dtype, copy=False) @ self._rows
        # No number is negative: where a sum is below the limit, so was every sum on the way to it.
        if self._rows.dtype == np.float32 and sums.max(initial=0) >= _EXACT:
            self._rows = self._rows.astype(np.float64)
            return self.sums(counts)
        return sums.astype(np.float64, copy=False)


def _slices(total: int, size: int) -> Iterator[int]:
    """Sizes of slices, the last one smaller, that sum to `total`."""
    for start in range(0, total, size):
        yield min(size, total - start)
