"""Intervals and p-values of sacreBLEU: paired bootstrap and paired approximate randomisation.

Each subset of the sentences is a corpus of its own: the figures are what sacreBLEU says of files with its lines alone.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.report import Interval, Mark, Resampling, Test
from nmtalign.scoring.resampling import Advance, Columns, Sums, bootstrap, interval, swaps

Scores = NDArray[np.floating[Any]]  # (samples,) or (trials,)


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
            return _p_value(gaps - gaps.mean(), difference)
        one, other = self._shuffled(metric, first, second), self._shuffled(metric, second, first)
        return _p_value(np.abs(one - other), difference)

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


def _p_value(drawn: Scores, difference: float) -> float:
    """The share of draws whose difference is greater than the real one, which counts as one more draw."""
    return (int(np.count_nonzero(drawn > difference)) + 1) / (len(drawn) + 1)
