"""What a scoring gives: every figure of every system, before anything is printed, drawn or written.

A report holds no text of its own but names and labels; sections, breakdowns and parts are subsets of the sentences, and
the figures of a part stand in the order of the report's metrics.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from nmtalign.scoring.resampling import Interval, Mark, Resampling, Test

if TYPE_CHECKING:
    from nmtalign.scoring.differences import Difference
    from nmtalign.scoring.words import UnknownRates, WordBreakdown


@dataclass(frozen=True)
class Part:
    """The corpus scores of some of the sentences, one value a metric; None where there is no sentence."""

    label: str  # `11-20`, `all`
    sentences: int
    values: tuple[float | None, ...]
    length_ratio: float | None  # tokens of the hypotheses over tokens of the references, as BLEU counts them
    intervals: tuple[Interval | None, ...] = ()  # one a metric; () where none was asked for
    # One a metric, of the test against the first system; {} for that one and where nothing was tested.
    p_values: Mapping[Test, tuple[float | None, ...]] = field(default_factory=dict)
    # One a metric; () where there is one system or nothing was tested. Better than every other system, significantly by
    # every test made: winner. Not the winner, and not significantly worse than the best one by some test: tie. Where so
    # few sentences cannot tell (2 / 2**sentences is not below the level), all are ties.
    marks: tuple[Mark, ...] = ()

    def interval(self, metric: int) -> Interval | None:
        """The interval of a metric, if it was drawn."""
        return self.intervals[metric] if self.intervals else None

    def mark(self, metric: int) -> Mark:
        """The mark of a metric; empty without a test."""
        return self.marks[metric] if self.marks else ""


@dataclass(frozen=True)
class Breakdown:
    """The sentences cut by one property of them, a part each, in order."""

    by: Literal["length", "place"]
    title: str  # `by words of the source`, `by place in the text`
    heading: str  # of the column of labels: `words`, `lines`
    parts: tuple[Part, ...]
    common: bool = True  # the parts hold the same sentences of every system; not so by words of the hypothesis


@dataclass(frozen=True)
class Section:
    """The scores of a subset as a whole, and cut by what was asked for."""

    whole: Part
    breakdowns: tuple[Breakdown, ...] = ()


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
    signatures: tuple[str, ...]  # one a metric
    systems: tuple[SystemReport, ...]
    resampling: Resampling | None = None  # None where no interval and no p-value was asked for
    tests: tuple[Test, ...] = ()
    words: tuple["WordBreakdown", ...] = ()  # by training frequency, by place in the sentence
    unknown: "UnknownRates | None" = None
    differences: tuple["Difference", ...] = ()  # of the first two systems, the most different sentences first
