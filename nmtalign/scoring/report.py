"""The report of a scoring: every figure of every system, before anything is printed, drawn or written.

Sections, breakdowns and parts are subsets of the sentences. Each subset is scored as a separate corpus. The figures of
a part have the order of the report's metrics.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from nmtalign.scoring.buckets import Cut, Mask
from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.resampling import Columns, Interval, Mark, Resampled, Resampling, Test, draws_of

if TYPE_CHECKING:
    from nmtalign.scoring.differences import Difference
    from nmtalign.scoring.words import UnknownRates, WordBreakdown

Table = Sequence[Statistics]  # of one system, one per metric
Masks = tuple[Mask, ...]  # one for all systems, or one per system
Row = tuple[str, Masks]  # a label and its sentences
_FEWEST = 2  # sentences that can be tested


@dataclass(frozen=True)
class Part:
    """The corpus scores of some of the sentences, one value per metric; None if there is no sentence."""

    label: str  # `11-20`, `all`
    sentences: int
    values: tuple[float | None, ...]
    length_ratio: float | None  # tokens of the hypotheses over tokens of the references, as BLEU counts them
    intervals: tuple[Interval | None, ...] = ()  # one per metric; () if none was requested
    # One per metric, of the test against the first system; {} for the first system and where nothing was tested.
    p_values: Mapping[Test, tuple[float | None, ...]] = field(default_factory=dict)
    # One per metric; () for one system or without tests. A winner is better than every other system, significantly by
    # every test. A tie is not the winner, but not significantly worse than the best system by some test. All systems
    # are ties if there are too few sentences for a decision (2 / 2**sentences is not below the level).
    marks: tuple[Mark, ...] = ()

    def interval(self, metric: int) -> Interval | None:
        """The interval of a metric, if it was drawn."""
        return self.intervals[metric] if self.intervals else None

    def mark(self, metric: int) -> Mark:
        """The mark of a metric; empty without a test."""
        return self.marks[metric] if self.marks else ""


@dataclass(frozen=True)
class Breakdown:
    """The sentences split by one property, one part for each range of it, in order."""

    by: Literal["length", "place"]
    title: str  # `by words of the source`, `by place in the text`
    heading: str  # of the column of labels: `words`, `lines`
    parts: tuple[Part, ...]
    common: bool = True  # the parts contain the same sentences of every system; not so by words of the hypothesis


@dataclass(frozen=True)
class Section:
    """The scores of a complete subset, and of its parts."""

    whole: Part
    breakdowns: tuple[Breakdown, ...] = ()

    def without(self, kinds: Collection[str]) -> "Section":
        """The section without the breakdowns of these kinds."""
        return replace(self, breakdowns=tuple(one for one in self.breakdowns if one.by not in kinds))


@dataclass(frozen=True)
class SystemReport:
    """All figures of one system."""

    name: str
    everything: Section
    no_unk: Section | None = None


@dataclass(frozen=True)
class Report:
    """All figures of all systems; the first one is the baseline that the others are tested against."""

    metrics: tuple[str, ...]  # names as printed: BLEU, chrF2, chrF2++, TER, multi-bleu
    signatures: tuple[str, ...]  # one per metric
    systems: tuple[SystemReport, ...]
    resampling: Resampling | None = None  # None without intervals and p-values
    tests: tuple[Test, ...] = ()
    words: tuple["WordBreakdown", ...] = ()  # by training frequency, by place in the sentence
    unknown: "UnknownRates | None" = None
    differences: tuple["Difference", ...] = ()  # of the first two systems, the most different sentences first

    def without(self, kinds: Collection[str]) -> "Report":
        """The report without some of `length`, `place` and `differences`."""
        systems = tuple(
            replace(one, everything=one.everything.without(kinds), no_unk=one.no_unk and one.no_unk.without(kinds))
            for one in self.systems
        )
        words = tuple(table for table in self.words if table.by not in kinds)
        differences = () if "differences" in kinds else self.differences
        return replace(self, systems=systems, words=words, differences=differences)


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
    """Scores every system on all sentences and on every part of `breakdowns`, and again on only its `known` (N,) ones.

    `tables` contains the statistics of each system, metrics in the same order. With `resampling` every figure has its
    interval (unless `intervals` is False) and the p-values of `tests`, if there are two systems or more. `advance` is
    called with shares of the resampling done, which sum to 1.
    """
    tests = tuple(tests) if resampling and len(tables) > 1 else ()
    drawn = resampling if intervals or tests else None
    subsets = [np.ones(len(tables[0][0]), dtype=np.bool_), *([] if known is None else [known])]
    plans = [_SectionPlan.of(subset, breakdowns) for subset in subsets]
    # Each subset is scored once, even if it occurs in several places.
    jobs = {key: mask for plan in plans for _, masks in plan.rows() for key, mask in _keyed(masks)}
    scorer = _Scorer(tables, drawn, tests, intervals and drawn is not None)
    total = sum(scorer.draws(system, mask) for (system, _), mask in jobs.items())
    step = (lambda draws: advance(draws / total)) if advance else None
    scored = {key: scorer.parts(key[0], mask, step) for key, mask in jobs.items()}
    sections = [[plan.section(scored, number) for number in range(len(tables))] for plan in plans]
    return Report(
        tuple(one.name for one in tables[0]),
        tuple(scorer.signature(one) for one in tables[0]),
        tuple(SystemReport(name, *each) for name, *each in zip(names, *sections, strict=True)),
        drawn,
        tests,
    )


_Key = tuple[int | None, bytes]  # (None for all systems together, or the number of one; the sentences)


def _keyed(masks: Masks) -> Iterator[tuple[_Key, Mask]]:
    """The sentences to score, with a key of the subset."""
    for number, mask in enumerate(masks):
        yield (None if len(masks) == 1 else number, mask.tobytes()), mask


@dataclass(frozen=True)
class _SectionPlan:
    """The subsets of a section: the complete one, and the parts of every breakdown."""

    whole: Row
    cuts: Sequence[tuple[Cut, Sequence[Row]]]

    @classmethod
    def of(cls, subset: Mask, cuts: Sequence[Cut]) -> "_SectionPlan":
        return cls(("all", (subset,)), [(cut, list(_rows(cut, subset))) for cut in cuts])

    def rows(self) -> Iterator[Row]:
        yield self.whole
        for _, rows in self.cuts:
            yield from rows

    def section(self, scored: Mapping[_Key, Sequence[Part]], system: int) -> Section:
        """The section of one system, from the parts of all subsets."""

        def part(row: Row) -> Part:
            label, masks = row
            key, _ = list(_keyed(masks))[0 if len(masks) == 1 else system]
            return replace(scored[key][system if key[0] is None else 0], label=label)

        breakdowns = (
            Breakdown(cut.by, cut.title, cut.heading, tuple(map(part, rows)), cut.common) for cut, rows in self.cuts
        )
        return Section(part(self.whole), tuple(breakdowns))


def _rows(cut: Cut, subset: Mask) -> Iterator[Row]:
    for number, label in enumerate(cut.labels):
        masks = tuple(mask & subset for mask in cut.part(number))
        if label not in cut.rare or any(mask.any() for mask in masks):
            yield label, masks


class _Scorer:
    """Scores subsets of the sentences."""

    def __init__(
        self, tables: Sequence[Table], resampling: Resampling | None, tests: tuple[Test, ...], intervals: bool
    ) -> None:
        self._tables, self._resampling, self._tests, self._intervals = tables, resampling, tests, intervals
        self._columns: dict[int | None, Columns] = {}

    def draws(self, system: int | None, mask: Mask) -> int:
        """The number of draws times sentences that a subset costs."""
        if self._resampling is None:
            return 0
        size = int(mask.sum())
        return draws_of(size, self._resampling, self._tests_of(system, size), self._intervals)

    def parts(self, system: int | None, mask: Mask, step: Callable[[int], None] | None) -> list[Part]:
        """The parts of all systems, or of one; their labels are empty."""
        tables = self._tables if system is None else [self._tables[system]]
        parts = [_part(table, mask) for table in tables]
        if self._resampling is None:
            return parts
        size, nothing = parts[0].sentences, (None,) * len(tables[0])
        untested = dict.fromkeys(self._tests, nothing) if system is None else {}
        if not size:
            empty = [replace(part, intervals=nothing if self._intervals else ()) for part in parts]
            return empty[:1] + [replace(part, p_values=untested) for part in empty[1:]]
        tests = self._tests_of(system, size)
        if system not in self._columns:
            self._columns[system] = Columns.of(tables)
        columns = self._columns[system].subset(mask)
        drawn = Resampled(tables, columns, self._resampling, tests, self._intervals, step)
        return [
            replace(
                part,
                intervals=drawn.intervals(number) if self._intervals else (),
                p_values=(drawn.p_values(0, number) if tests else untested) if number else {},
                marks=drawn.marks(self._resampling.level)[number] if tests else (),
            )
            for number, part in enumerate(parts)
        ]

    def signature(self, statistics: Statistics) -> str:
        """The metric's signature, with the draws that were made: `bs:1000|ar:10000|seed:12345`."""
        plan = self._resampling
        if plan is None:
            return statistics.signature
        samples = plan.samples if self._intervals or "bs" in self._tests else 0
        return statistics.signed(samples, plan.seed, plan.trials if "ar" in self._tests else 0)

    def _tests_of(self, system: int | None, size: int) -> tuple[Test, ...]:
        """The tests to make: systems are compared on the same sentences, if there are enough of them."""
        return self._tests if system is None and size >= _FEWEST else ()


def _part(table: Table, mask: Mask) -> Part:
    sentences = int(mask.sum())
    values = tuple(statistics.score(mask).value if sentences else None for statistics in table)
    ratios = (statistics.length_ratio(mask) for statistics in table)
    return Part("", sentences, values, next((ratio for ratio in ratios if ratio is not None), None))
