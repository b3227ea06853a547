"""Intervals and p-values of sacreBLEU: paired bootstrap and paired approximate randomisation.

Each subset of the sentences is a separate corpus: the figures are those of sacreBLEU for files with only its lines.

sacreBLEU keeps all draws in memory: 1,000 samples of 100,000 sentences are 800 MB of indices. Here the same random
numbers are drawn in slices. Each slice becomes the number of times that each sentence was drawn. The sums are then
one matrix product for all metrics of all systems. Statistics are whole numbers, so their sums are exact in any order.
"""

import hashlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.buckets import Mask
from nmtalign.scoring.metrics import Statistics

Mark = Literal["winner", "tie", ""]
Test = Literal["bs", "ar"]  # paired bootstrap, paired approximate randomisation
Scores = NDArray[np.floating[Any]]  # (samples,) or (trials,)
Sums = NDArray[np.float64]
Advance = Callable[[int], None]
_DRAWS = 2**21  # sentences drawn at once: 16 MB of indices
_COINS = 2**23  # coins tossed at once: 8 MB
_WORD = 32  # numpy makes this number of booleans from one random number, and drops those that a call does not need
_EXACT = 2.0**24  # float32 represents every whole number up to it


@dataclass(frozen=True)
class Interval:
    """The 95% interval of a score over bootstrap samples, as sacreBLEU estimates it."""

    mean: float  # over the samples
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """The number that sacreBLEU prints after ±."""
        return 0.5 * (self.high - self.low)


@dataclass(frozen=True)
class Resampling:
    """How intervals and p-values are drawn; the defaults are those of sacreBLEU."""

    samples: int = 1000  # bootstrap samples, of intervals and of the test bs
    trials: int = 10_000  # trials of the test ar
    seed: int = 12345
    level: float = 0.05  # p-values below it are significant


@dataclass(frozen=True)
class Columns:
    """The statistics of all metrics of all systems side by side, equal columns only once.

    The references' own counts are the same for every system, and the statistics of chrF are part of chrF++'s.
    """

    whole: NDArray[np.float32]  # (N, C) whole numbers
    # (N, D) each: a system's statistics by a metric that has other numbers, such as TER's mean length of 3 references.
    fractional: tuple[NDArray[np.float64], ...]
    # For each system and metric its columns, numbered through `whole`, then `fractional`.
    places: tuple[tuple[NDArray[np.intp], ...], ...]

    @classmethod
    def of(cls, tables: Sequence[Sequence[Statistics]]) -> "Columns":
        """Gathers the rows of `tables`, the statistics of each system."""
        fractional = [one.rows for table in tables for one in table if not _is_whole(one.rows)]
        columns: dict[bytes, NDArray[np.float32]] = {}
        keys = [[_keep(one.rows, columns) if _is_whole(one.rows) else [] for one in table] for table in tables]
        numbers = {key: number for number, key in enumerate(columns)}
        unused = iter(range(len(numbers), len(numbers) + sum(rows.shape[1] for rows in fractional)))
        places = tuple(
            tuple(
                np.array([numbers[key] for key in known] or [next(unused) for _ in range(one.rows.shape[1])])
                for one, known in zip(table, row, strict=True)
            )
            for table, row in zip(tables, keys, strict=True)
        )
        whole = np.empty((len(tables[0][0]), len(columns)), dtype=np.float32)
        for number, column in enumerate(columns.values()):
            whole[:, number] = column
        return cls(whole, tuple(fractional), places)

    def __len__(self) -> int:
        return len(self.whole)

    def subset(self, mask: Mask) -> "Columns":
        """The sentences where `mask` (N,) is True."""
        if mask.all():
            return self
        return Columns(self.whole[mask], tuple(rows[mask] for rows in self.fractional), self.places)

    def totals(self) -> Sums:
        """(columns,) the sums over all sentences."""
        whole = np.add.reduce(self.whole, axis=0, dtype=np.float64)
        return np.concatenate([whole, *(np.cumsum(rows, axis=0)[-1] for rows in self.fractional)])


def _is_whole(rows: NDArray[np.float64]) -> bool:
    return bool((rows == np.rint(rows)).all() and rows.max(initial=0) < _EXACT)


def _keep(rows: NDArray[np.float64], columns: dict[bytes, NDArray[np.float32]]) -> list[bytes]:
    """Adds the columns of `rows` that are new to `columns`; returns the key of each column."""
    values = [column.astype(np.float32) for column in rows.T]
    keys = [hashlib.blake2b(column.tobytes(), digest_size=16).digest() for column in values]
    for key, column in zip(keys, values, strict=True):
        columns.setdefault(key, column)
    return keys


def bootstrap(
    columns: Columns, samples: int, seed: int, advance: Advance | None = None, at_once: int = _DRAWS
) -> NDArray[np.float32]:
    """(samples, columns) sums over samples of N sentences, drawn with replacement.

    The sums are float32 as in sacreBLEU, which is exact for whole numbers up to 16.7 million; above it sacreBLEU rounds
    after every sentence, this function once. Other numbers are added in the order drawn, as in sacreBLEU. `advance` is
    called with the number of samples done.
    """
    size = len(columns)
    generator = np.random.default_rng(seed)
    product = _Product(columns.whole)
    fractional = [column.astype(np.float32) for rows in columns.fractional for column in rows.T]
    sums = []
    for count in _slices(samples, max(1, at_once // size)):
        drawn = generator.integers(size, size=(count, size))
        counts = np.empty((count, size), dtype=np.float32)
        for number, sample in enumerate(drawn):
            counts[number] = np.bincount(sample, minlength=size)
        in_order = [np.cumsum(column[drawn], axis=1, dtype=np.float32)[:, -1:] for column in fractional]
        sums.append(np.concatenate([product.sums(counts).astype(np.float32), *in_order], axis=1))
        if advance:
            advance(count)
    return np.concatenate(sums)


def swaps(
    columns: Columns, trials: int, seed: int, advance: Advance | None = None, at_once: int = _COINS
) -> tuple[Sums, Sums]:
    """Two (trials, columns) sums: over the sentences that a fair coin picks, and over the other sentences.

    Two systems exchange the sentences picked: the sums of one over them, and of the other over the rest, are those of
    a shuffled system. Sums of other than whole numbers have sacreBLEU's last bits, on which ties depend, only if the
    trials are one slice or the matrix product runs in one thread. `advance` is called with the number of trials done.
    """
    size = len(columns)
    generator = np.random.default_rng(seed)
    product = _Product(columns.whole)
    totals = columns.totals()[: columns.whole.shape[1]]
    picked, left = [], []
    for count in _slices(trials, max(1, at_once // size // _WORD) * _WORD):
        coins = generator.integers(2, size=(count, size), dtype=np.bool_)
        sums = product.sums(coins.astype(np.float32))
        picked.append(np.concatenate([sums, *(coins @ rows for rows in columns.fractional)], axis=1))
        left.append(np.concatenate([totals - sums, *(~coins @ rows for rows in columns.fractional)], axis=1))
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
    """Exact sums of rows of whole numbers, in float32 as long as that is exact: it is twice as fast."""

    def __init__(self, rows: NDArray[np.float32]) -> None:
        self._rows: NDArray[Any] = rows

    def sums(self, counts: NDArray[np.float32]) -> Sums:
        """(samples, C) of (samples, N) counts."""
        sums: NDArray[Any] = counts.astype(self._rows.dtype, copy=False) @ self._rows
        # No number is negative, so the partial sums of a sum below the limit were below it, too.
        if self._rows.dtype == np.float32 and sums.max(initial=0) >= _EXACT:
            self._rows = self._rows.astype(np.float64)
            return self.sums(counts)
        return sums.astype(np.float64, copy=False)


def _slices(total: int, size: int) -> Iterator[int]:
    """Sizes of slices, the last one smaller, that sum to `total`."""
    for start in range(0, total, size):
        yield min(size, total - start)


class Resampled:
    """All draws of one subset of the sentences: scores of every system and metric.

    The subset has at least one sentence, and at least two for tests. `bounds` says whether intervals are wanted.
    `advance` is called with numbers of draws times sentences; `draws_of` gives their sum.
    """

    def __init__(
        self,
        tables: Sequence[Sequence[Statistics]],
        columns: Columns,
        plan: Resampling,
        tests: Sequence[Test],
        bounds: bool,
        advance: Advance | None = None,
    ) -> None:
        self._tables, self._columns, self._tests = tables, columns, tests
        size = len(columns)
        step = (lambda count: advance(count * size)) if advance else None
        self._real = [[float(values[0]) for values in row] for row in self._scored(columns.totals()[None])]
        self._samples: list[list[Scores]] = []
        if bounds or "bs" in tests:
            self._samples = self._scored(bootstrap(columns, plan.samples, plan.seed, step))
        self._picked = self._left = np.empty((0, 0))
        if "ar" in tests:
            self._picked, self._left = swaps(columns, plan.trials, plan.seed, step)
        self._known: dict[tuple[int, int], dict[Test, tuple[float, ...]]] = {}

    def intervals(self, system: int) -> tuple[Interval, ...]:
        """One per metric."""
        return tuple(interval(scores, paired="bs" in self._tests) for scores in self._samples[system])

    def p_values(self, first: int, second: int) -> Mapping[Test, tuple[float, ...]]:
        """The p-values of the difference between two systems: for every test one per metric."""
        pair = (min(first, second), max(first, second))
        if pair not in self._known:
            metrics = range(len(self._tables[0]))
            self._known[pair] = {
                test: tuple(self._p_value(test, metric, *pair) for metric in metrics) for test in self._tests
            }
        return self._known[pair]

    def marks(self, level: float) -> list[tuple[Mark, ...]]:
        """For every system one per metric: a winner and ties by the p-values below `level`.

        N sentences have 2**N swaps, and the real one and its mirror have the greatest difference of all. If 2 / 2**N is
        not below `level`, no system is called worse, even if the sampled p-value of so few sentences is lower.
        """
        metrics = range(len(self._tables[0]))
        if 2.0 ** (1 - len(self._columns)) >= level:
            tie: Mark = "tie"
            return [(tie,) * len(metrics)] * len(self._tables)
        return list(zip(*(self._marks(metric, level) for metric in metrics), strict=True))

    def _marks(self, metric: int, level: float) -> list[Mark]:
        """The marks of every system by one metric."""
        better = 1 if self._tables[0][metric].higher_is_better else -1
        values = [better * row[metric] for row in self._real]
        best = values.index(max(values))
        worse = [
            value < values[best] and all(p[metric] < level for p in self.p_values(best, system).values())
            for system, value in enumerate(values)
        ]
        marks: list[Mark] = ["" if clearly else "tie" for clearly in worse]
        if sum(worse) == len(worse) - 1:
            marks[best] = "winner"
        return marks

    def _p_value(self, test: Test, metric: int, first: int, second: int) -> float:
        """The share of draws with a greater difference than the real one, which counts as one more draw."""
        if test == "bs":
            gaps = np.abs(self._samples[second][metric] - self._samples[first][metric])
            drawn = gaps - gaps.mean()
        else:
            drawn = np.abs(self._shuffled(metric, first, second) - self._shuffled(metric, second, first))
        difference = abs(self._real[first][metric] - self._real[second][metric])
        return (int(np.count_nonzero(drawn > difference)) + 1) / (len(drawn) + 1)

    def _shuffled(self, metric: int, first: int, second: int) -> Scores:
        """(trials,) scores of a system made of the sentences picked from one and left by the other."""
        places = self._columns.places
        sums = self._picked[:, places[first][metric]] + self._left[:, places[second][metric]]
        return self._tables[first][metric].values(sums)

    def _scored(self, sums: Sums | NDArray[np.float32]) -> list[list[Scores]]:
        """For every system and metric the scores of the (samples, columns) sums."""
        return [
            [one.values(sums[:, places]) for one, places in zip(table, row, strict=True)]
            for table, row in zip(self._tables, self._columns.places, strict=True)
        ]


def draws_of(size: int, plan: Resampling, tests: Sequence[Test], bounds: bool) -> int:
    """Draws times sentences of a subset of `size` sentences."""
    samples = plan.samples if bounds or "bs" in tests else 0
    return size * (samples + (plan.trials if "ar" in tests else 0))
