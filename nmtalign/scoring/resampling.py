"""Intervals and p-values of sacreBLEU: paired bootstrap and paired approximate randomisation.

Each subset of the sentences is a corpus of its own: the figures are those of sacreBLEU for files with only its lines.

sacreBLEU holds all draws at once: 1,000 samples of 100,000 sentences are 800 MB of indices. Here the same random
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

from nmtalign.scoring.cuts import Mask
from nmtalign.scoring.metrics import Statistics

Mark = Literal["winner", "tie", ""]
Test = Literal["bs", "ar"]  # paired bootstrap, paired approximate randomisation
Scores = NDArray[np.floating[Any]]  # (samples,) or (trials,)
Sums = NDArray[np.float64]
Advance = Callable[[int], None]
_DRAWS = 2**21  # of sentences at once: 16 MB of indices
_COINS = 2**23  # tossed at once: 8 MB
_WORD = 32  # numpy draws so many booleans from one random number, and drops what a call leaves over
_EXACT = 2.0**24  # float32 holds every whole number up to it


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
    trials: int = 10_000  # of the test ar
    seed: int = 12345
    level: float = 0.05  # p-values below it are significant


@dataclass(frozen=True)
class Columns:
    """The statistics of all metrics of all systems side by side, columns that are alike only once.

    The references' own counts are the same for every system, and the statistics of chrF are part of chrF++'s.
    """

    whole: NDArray[np.float32]  # (N, C) whole numbers
    # (N, D) each: a system's statistics by a metric that has other numbers, such as TER's mean length of 3 references.
    broken: tuple[NDArray[np.float64], ...]
    # Of each system and metric: the columns it needs, numbered through `whole`, then `broken`.
    places: tuple[tuple[NDArray[np.intp], ...], ...]

    @classmethod
    def of(cls, tables: Sequence[Sequence[Statistics]]) -> "Columns":
        """Gathers the rows of `tables`, the statistics of each system."""
        columns: dict[bytes, NDArray[np.float32]] = {}
        broken = [one.rows for table in tables for one in table if not _is_whole(one.rows)]
        keys = [[_keep(one.rows, columns) if _is_whole(one.rows) else None for one in table] for table in tables]
        numbers = {key: number for number, key in enumerate(columns)}
        whole = np.empty((len(tables[0][0]), len(columns)), dtype=np.float32)
        for number, column in enumerate(columns.values()):
            whole[:, number] = column
        places, end = [], len(columns)
        for table, row in zip(tables, keys, strict=True):
            found = []
            for one, known in zip(table, row, strict=True):
                width = one.rows.shape[1]
                found.append(np.array([numbers[key] for key in known] if known else range(end, end + width)))
                end += 0 if known else width
            places.append(tuple(found))
        return cls(whole, tuple(broken), tuple(places))

    def __len__(self) -> int:
        return len(self.whole)

    def subset(self, mask: Mask) -> "Columns":
        """The sentences where `mask` (N,) is True."""
        if mask.all():
            return self
        return Columns(self.whole[mask], tuple(rows[mask] for rows in self.broken), self.places)

    def totals(self) -> Sums:
        """(columns,) the sums over all sentences."""
        whole = np.add.reduce(self.whole, axis=0, dtype=np.float64)
        return np.concatenate([whole, *(np.cumsum(rows, axis=0)[-1] for rows in self.broken)])


def _is_whole(rows: NDArray[np.float64]) -> bool:
    return bool((rows == np.rint(rows)).all() and rows.max(initial=0) < _EXACT)


def _keep(rows: NDArray[np.float64], columns: dict[bytes, NDArray[np.float32]]) -> list[bytes]:
    """The key of every column of `rows`, under which it is kept among `columns` if it is new there."""
    keys = []
    for column in rows.T:
        values = column.astype(np.float32)
        key = hashlib.blake2b(values.tobytes(), digest_size=16).digest()
        columns.setdefault(key, values)
        keys.append(key)
    return keys


def bootstrap(columns: Columns, samples: int, seed: int, advance: Advance | None = None) -> NDArray[np.float32]:
    """(samples, columns) sums over samples of as many sentences as there are, drawn with replacement.

    In sacreBLEU's float32, which holds sums of whole numbers up to 16.7 million; above it theirs are rounded at every
    sentence, these once. Other numbers are added in the order drawn, as there. `advance` gets numbers of samples done.
    """
    size = len(columns)
    generator = np.random.default_rng(seed)
    product = _Product(columns.whole)
    broken = [column.astype(np.float32) for rows in columns.broken for column in rows.T]
    sums = np.empty((samples, columns.whole.shape[1] + len(broken)), dtype=np.float32)
    start = 0
    for count in _slices(samples, max(1, _DRAWS // size)):
        drawn = generator.integers(size, size=(count, size))
        counts = np.empty((count, size), dtype=np.float32)
        for number, sample in enumerate(drawn):
            counts[number] = np.bincount(sample, minlength=size)
        in_order = [np.cumsum(column[drawn], axis=1, dtype=np.float32)[:, -1:] for column in broken]
        sums[start : start + count] = np.concatenate([product.sums(counts), *in_order], axis=1)
        start += count
        if advance:
            advance(count)
    return sums


def swaps(columns: Columns, trials: int, seed: int, advance: Advance | None = None) -> tuple[Sums, Sums]:
    """Two (trials, columns) sums: over the sentences that a fair coin picks, and over those it leaves.

    Two systems exchange the sentences picked: the sums of one over them, and of the other over the rest, are those of
    a shuffled system. Sums of other than whole numbers have sacreBLEU's last bits, on which ties depend, only if the
    trials are one slice or the matrix product runs in one thread. `advance` gets the number of trials done.
    """
    size = len(columns)
    generator = np.random.default_rng(seed)
    product = _Product(columns.whole)
    totals = columns.totals()[: columns.whole.shape[1]]
    picked, left = [], []
    for count in _slices(trials, max(1, _COINS // size // _WORD) * _WORD):
        coins = generator.integers(2, size=(count, size), dtype=np.bool_)
        sums = product.sums(coins.astype(np.float32))
        picked.append(np.concatenate([sums, *(coins @ rows for rows in columns.broken)], axis=1))
        left.append(np.concatenate([totals - sums, *(~coins @ rows for rows in columns.broken)], axis=1))
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


class Resampled:
    """Everything drawn of one subset of the sentences, at least one: scores of every system and metric.

    Two sentences of two systems are the least that can be tested. `bounds` says whether intervals are wanted. `advance`
    gets numbers of draws times sentences, whose sum `draws_of` tells beforehand.
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
        self._tables, self._columns, self._plan, self._tests = tables, columns, plan, tests
        size = len(columns)
        step = (lambda count: advance(count * size)) if advance else None
        real = columns.totals()
        self._real = self._scored(real[None, :])
        self._samples: list[list[Scores]] = []
        if bounds or "bs" in tests:
            self._samples = self._scored(bootstrap(columns, plan.samples, plan.seed, step))
        self._halves = swaps(columns, plan.trials, plan.seed, step) if "ar" in tests else None
        self._known: dict[tuple[int, int], dict[Test, tuple[float, ...]]] = {}

    def intervals(self, system: int) -> tuple[Interval, ...]:
        """One a metric."""
        return tuple(interval(scores, paired="bs" in self._tests) for scores in self._samples[system])

    def p_values(self, first: int, second: int) -> Mapping[Test, tuple[float, ...]]:
        """Of the difference between two systems: one a metric for every test."""
        pair = (min(first, second), max(first, second))
        if pair not in self._known:
            metrics = range(len(self._tables[0]))
            self._known[pair] = {
                test: tuple(self._p_value(test, metric, *pair) for metric in metrics) for test in self._tests
            }
        return self._known[pair]

    def marks(self, level: float) -> list[tuple[Mark, ...]]:
        """Of every system, one a metric: a winner and ties by the p-values below `level`.

        Of N sentences there are 2**N swaps, and the real one and its mirror are as far apart as any: where 2 / 2**N is
        not below `level`, no system is called worse, whatever the sampled p-values of so few sentences are.
        """
        if 2.0 ** (1 - len(self._columns)) >= level:
            tie: Mark = "tie"
            return [(tie,) * len(self._tables[0])] * len(self._tables)
        columns = [self._marks(metric, level) for metric in range(len(self._tables[0]))]
        return list(zip(*columns, strict=True))

    def _marks(self, metric: int, level: float) -> list[Mark]:
        """Of one metric, every system's."""
        better = 1 if self._tables[0][metric].higher_is_better else -1
        values = [better * float(table[metric][0]) for table in self._real]
        best = max(range(len(values)), key=values.__getitem__)
        worse = [
            value < values[best] and all(p[metric] < level for p in self.p_values(best, system).values())
            for system, value in enumerate(values)
        ]
        marks: list[Mark] = ["" if clearly else "tie" for clearly in worse]
        if sum(worse) == len(worse) - 1:
            marks[best] = "winner"
        return marks

    def _p_value(self, test: Test, metric: int, first: int, second: int) -> float:
        difference = abs(float(self._real[first][metric][0]) - float(self._real[second][metric][0]))
        if test == "bs":
            gaps = np.abs(self._samples[second][metric] - self._samples[first][metric])
            return _share_above(gaps - gaps.mean(), difference)
        one, other = self._shuffled(metric, first, second), self._shuffled(metric, second, first)
        return _share_above(np.abs(one - other), difference)

    def _shuffled(self, metric: int, first: int, second: int) -> Scores:
        """(trials,) scores of a system made of the sentences picked from one and left by the other."""
        if self._halves is None:
            return np.empty(0)
        picked, left = self._halves
        places = self._columns.places
        sums = picked[:, places[first][metric]] + left[:, places[second][metric]]
        return self._tables[first][metric].values(sums)

    def _scored(self, sums: Sums | NDArray[np.float32]) -> list[list[Scores]]:
        """Of every system and metric, the scores of the (samples, columns) sums."""
        return [
            [one.values(sums[:, places]) for one, places in zip(table, row, strict=True)]
            for table, row in zip(self._tables, self._columns.places, strict=True)
        ]


def draws_of(size: int, plan: Resampling, tests: Sequence[Test], bounds: bool) -> int:
    """Draws times sentences of a subset of `size` sentences."""
    samples = plan.samples if bounds or "bs" in tests else 0
    return size * (samples + (plan.trials if "ar" in tests else 0))


def _share_above(drawn: Scores, difference: float) -> float:
    """The share of draws whose difference is greater than the real one, which counts as one more draw."""
    return (int(np.count_nonzero(drawn > difference)) + 1) / (len(drawn) + 1)
