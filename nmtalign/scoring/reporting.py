"""From the statistics of every system to the report: each subset of the sentences scored as a corpus of its own."""

from collections.abc import Callable, Sequence

import numpy as np

from nmtalign.scoring.cuts import Cut, Mask
from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.report import Breakdown, Part, Report, Resampling, Section, SystemReport, Test

Table = Sequence[Statistics]  # of one system, a metric each


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
    interval (unless `intervals` is False) and the p-values of `tests`. `advance` is called with shares of the
    resampling done, which sum to 1.
    """
    everything = np.ones(len(tables[0][0]), dtype=np.bool_)
    whole = _sections(tables, breakdowns, everything)
    part = [None] * len(names) if known is None else _sections(tables, breakdowns, known)
    return Report(
        tuple(statistics.name for statistics in tables[0]),
        tuple(statistics.signature for statistics in tables[0]),
        tuple(SystemReport(*each) for each in zip(names, whole, part, strict=True)),
    )


def _sections(tables: Sequence[Table], cuts: Sequence[Cut], subset: Mask) -> list[Section]:
    """The section of every system."""
    wholes = _parts("all", tables, (subset,))
    broken = [_breakdowns(tables, cut, subset) for cut in cuts]
    return [Section(whole, tuple(breakdowns[number] for breakdowns in broken)) for number, whole in enumerate(wholes)]


def _breakdowns(tables: Sequence[Table], cut: Cut, subset: Mask) -> list[Breakdown]:
    """The breakdown of every system."""
    rows = []
    for number, label in enumerate(cut.labels):
        masks = tuple(mask & subset for mask in cut.part(number))
        if label not in cut.rare or any(mask.any() for mask in masks):
            rows.append(_parts(label, tables, masks))
    return [
        Breakdown(cut.by, cut.title, cut.heading, tuple(row[system] for row in rows), cut.common)
        for system in range(len(tables))
    ]


def _parts(label: str, tables: Sequence[Table], masks: tuple[Mask, ...]) -> list[Part]:
    """The part of every system."""
    each = masks * len(tables) if len(masks) == 1 else masks
    return [_part(label, table, mask) for table, mask in zip(tables, each, strict=True)]


def _part(label: str, table: Table, mask: Mask) -> Part:
    sentences = int(mask.sum())
    values = tuple(statistics.score(mask).value if sentences else None for statistics in table)
    ratios = (statistics.length_ratio(mask) for statistics in table)
    return Part(label, sentences, values, next((ratio for ratio in ratios if ratio is not None), None))
