"""From the statistics of every system to the report: each subset of the sentences scored as a corpus of its own."""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nmtalign.scoring.buckets import Cut, Mask
from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.report import Breakdown, Part, Report, Section, SystemReport
from nmtalign.scoring.resampling import Columns, Resampled, Resampling, Test, draws_of

Table = Sequence[Statistics]  # of one system, a metric each
Masks = tuple[Mask, ...]  # one for all systems, or one a system
Row = tuple[str, Masks]  # a label and its sentences
_FEWEST = 2  # sentences that a test makes sense of


def make_report(
    names: Sequence[str],
    tables: Sequence[Table],
    *,
    breakdowns: Sequence[Cut] = (),
    known: Mask | None = None,
    resampling: Resampling | None = None,
    tests: Sequence[Test] = (),
    intervals: bool = True,
    advance: Callable[[float], None] | None = None,
) -> Report:
    """Scores every system as a whole and in every part of `breakdowns`, and again its `known` (N,) sentences alone.

    `tables` holds the statistics of each system, metrics in the same order. With `resampling` every figure has its
    interval (unless `intervals` is False) and the p-values of `tests`, if there are two systems or more. `advance` is
    called with shares of the resampling done, which sum to 1.
    """
    tests = tuple(tests) if resampling and len(tables) > 1 else ()
    bounds = intervals and resampling is not None
    drawn = resampling if bounds or tests else None
    subsets = [np.ones(len(tables[0][0]), dtype=np.bool_), *([] if known is None else [known])]
    plans = [_SectionPlan.of(subset, breakdowns) for subset in subsets]
    scorer = _Scorer(tables, drawn, tests, bounds, advance)
    scorer.expect(row for plan in plans for row in plan.rows())
    sections = [_sections(plan, scorer, len(tables)) for plan in plans]
    part = sections[1] if known is not None else [None] * len(tables)
    return Report(
        tuple(one.name for one in tables[0]),
        tuple(_signature(one, drawn, tests, bounds) for one in tables[0]),
        tuple(SystemReport(*each) for each in zip(names, sections[0], part, strict=True)),
        drawn,
        tests,
    )


@dataclass(frozen=True)
class _SectionPlan:
    """The subsets to score: a whole, and the parts of every breakdown."""

    whole: Row
    cuts: tuple[tuple[Cut, tuple[Row, ...]], ...]

    @classmethod
    def of(cls, subset: Mask, cuts: Sequence[Cut]) -> "_SectionPlan":
        return cls(("all", (subset,)), tuple((cut, tuple(_rows(cut, subset))) for cut in cuts))

    def rows(self) -> Iterator[Row]:
        """Every subset, in order."""
        yield self.whole
        for _, rows in self.cuts:
            yield from rows


def _rows(cut: Cut, subset: Mask) -> Iterator[Row]:
    for number, label in enumerate(cut.labels):
        masks = tuple(mask & subset for mask in cut.part(number))
        if label not in cut.rare or any(mask.any() for mask in masks):
            yield label, masks


def _sections(plan: _SectionPlan, scorer: "_Scorer", systems: int) -> list[Section]:
    """The section of every system."""
    wholes = scorer.parts(plan.whole)
    broken = [(cut, [scorer.parts(row) for row in rows]) for cut, rows in plan.cuts]
    return [
        Section(
            wholes[system],
            tuple(
                Breakdown(cut.by, cut.title, cut.heading, tuple(row[system] for row in rows), cut.common)
                for cut, rows in broken
            ),
        )
        for system in range(systems)
    ]


class _Scorer:
    """Scores subsets of all systems, each subset once however often it occurs."""

    def __init__(
        self,
        tables: Sequence[Table],
        plan: Resampling | None,
        tests: tuple[Test, ...],
        bounds: bool,
        advance: Callable[[float], None] | None,
    ) -> None:
        self._tables, self._plan, self._tests, self._bounds, self._advance = tables, plan, tests, bounds, advance
        self._total = 0  # draws times sentences
        self._columns: dict[int | None, Columns] = {}
        self._known: dict[tuple[int | None, bytes], list[Part]] = {}

    def expect(self, rows: Iterable[Row]) -> None:
        """Takes note of all that will be scored, to tell progress by."""
        sizes = {(system, mask.tobytes()): int(mask.sum()) for _, masks in rows for system, mask in _groups(masks)}
        if self._plan:
            for (system, _), size in sizes.items():
                self._total += draws_of(size, self._plan, self._tests_of(system, size), self._bounds)

    def parts(self, row: Row) -> list[Part]:
        """The part of every system."""
        label, masks = row
        parts: list[Part] = []
        for system, mask in _groups(masks):
            key = (system, mask.tobytes())
            if key not in self._known:
                self._known[key] = self._scored(system, mask)
            parts += [dataclasses.replace(part, label=label) for part in self._known[key]]
        return parts

    def _scored(self, system: int | None, mask: Mask) -> list[Part]:
        """The parts of all systems, or of one."""
        tables = self._tables if system is None else [self._tables[system]]
        parts = [_part(table, mask) for table in tables]
        if self._plan is None:
            return parts
        size = parts[0].sentences
        nothing = (None,) * len(tables[0])
        untested = dict.fromkeys(self._tests, nothing) if system is None else {}
        if not size:
            empty = [dataclasses.replace(part, intervals=nothing if self._bounds else ()) for part in parts]
            return empty[:1] + [dataclasses.replace(part, p_values=untested) for part in empty[1:]]
        tests = self._tests_of(system, size)
        drawn = Resampled(tables, self._columns_of(system).subset(mask), self._plan, tests, self._bounds, self._step)
        return [
            dataclasses.replace(
                part,
                intervals=drawn.intervals(number) if self._bounds else (),
                p_values=(drawn.p_values(0, number) if tests else untested) if number else {},
                marks=drawn.marks(self._plan.level)[number] if tests else (),
            )
            for number, part in enumerate(parts)
        ]

    def _tests_of(self, system: int | None, size: int) -> tuple[Test, ...]:
        """The tests to make: systems are compared on the same sentences, if there are enough of them."""
        return self._tests if system is None and size >= _FEWEST else ()

    def _columns_of(self, system: int | None) -> Columns:
        if system not in self._columns:
            self._columns[system] = Columns.of(self._tables if system is None else [self._tables[system]])
        return self._columns[system]

    def _step(self, draws: int) -> None:
        if self._advance:
            self._advance(draws / self._total)


def _groups(masks: Masks) -> Iterator[tuple[int | None, Mask]]:
    """The sentences to score: (None, mask) for all systems together, or (its number, mask) for every system."""
    return ((None if len(masks) == 1 else number, mask) for number, mask in enumerate(masks))


def _part(table: Table, mask: Mask) -> Part:
    sentences = int(mask.sum())
    values = tuple(statistics.score(mask).value if sentences else None for statistics in table)
    ratios = (statistics.length_ratio(mask) for statistics in table)
    return Part("", sentences, values, next((ratio for ratio in ratios if ratio is not None), None))


def _signature(statistics: Statistics, plan: Resampling | None, tests: Sequence[Test], bounds: bool) -> str:
    """The metric's, with the draws that were made: `bs:1000|ar:10000|seed:12345`."""
    if plan is None:
        return statistics.signature
    samples = plan.samples if bounds or "bs" in tests else 0
    return statistics.signed(samples, plan.seed, plan.trials if "ar" in tests else 0)
