"""Pictures of a report: scores over sentence length (the paper's Figure 2), over the place, F1 over frequency.

A line a system, told apart by colour, dashes and marks; its 95% interval is a band, below stand the sentences of each
bucket, the signature, and what the intervals were drawn with. A bucket without sentences is a gap.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from nmtalign.errors import UsageError
from nmtalign.figures import (
    COLOURS,
    DASHES,
    GREY,
    LETTERS_AN_INCH,
    MARKERS,
    SMALL,
    USUAL,
    check_figure_name,
    legend_above,
    need_matplotlib,
    save,
    small_print,
    svg_for_page,
    usual_settings,
)
from nmtalign.scoring.report import Breakdown, Report
from nmtalign.scoring.resampling import Interval
from nmtalign.scoring.words import WordTable

By = Literal["length", "place"]
_WIDTH, _HEIGHT = 6.4, 4.2  # inches, more where there are many buckets
_BUCKET = 0.5  # inches a bucket at least
_WIDEST = 16.0
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++", "oo", "||||", "**")


def draw_by_length(report: Report, path: Path, metric: str = "BLEU") -> list[str]:
    """Writes the paper's Figure 2 to a .png, .svg or .pdf file: a metric of the report over length, a line a system.

    Returns what its reader should know, a sentence each. Raises UsageError for a name without a known ending, for a
    report without that metric or without lengths, and where matplotlib is missing.
    """
    kind = check_figure_name(path)
    need_matplotlib()
    with usual_settings((system.name for system in report.systems), kind) as notes:
        save(by_figure(report, metric), path)
    return notes


def by_length_svg(report: Report, metric: str = "BLEU") -> str:
    """The figure of `draw_by_length` as an `<svg>` element for a page of HTML; raises as that does."""
    return _by_svg(report, metric, "length")


def by_place_svg(report: Report, metric: str = "BLEU") -> str:
    """The same over the place of the sentences in the text; raises as `draw_by_length`."""
    return _by_svg(report, metric, "place")


def words_svg(table: WordTable, names: Sequence[str]) -> str:
    """F1 of words as bars, a group a row of the table and a bar a system, as an `<svg>` element for a page of HTML."""
    need_matplotlib()
    with usual_settings((), "svg"):
        return svg_for_page(words_figure(table, names), f"F1 of {table.title}")


def _by_svg(report: Report, metric: str, by: By) -> str:
    need_matplotlib()
    with usual_settings((), "svg"):
        figure = by_figure(report, metric, by)
        return svg_for_page(figure, f"{metric} {_breakdown(report, 0, by).title}")


def by_figure(report: Report, metric: str = "BLEU", by: By = "length") -> Any:
    """The matplotlib figure: lines in its first axes, numbers of sentences in the second one."""
    if metric not in report.metrics:
        raise UsageError(f"no {metric} to draw: the report has {', '.join(report.metrics)}; name one of these")
    column = report.metrics.index(metric)
    cuts = [_breakdown(report, number, by) for number in range(len(report.systems))]
    names = [system.name for system in report.systems]
    first = cuts[0]
    figure, axes, strip = _frame(
        [part.label.replace("<=", "\u2264") for part in first.parts], first.title.removeprefix("by ")
    )
    lines = [_Line.of(cut, column) for cut in cuts]
    apart = 0.08 if len(first.parts) == 1 else 0.0  # of one bucket the systems stand beside each other
    marks = [
        _draw_line(axes, line, number, apart * (number - (len(lines) - 1) / 2)) for number, line in enumerate(lines)
    ]
    _limit(axes, lines)
    axes.set_ylabel(f"{metric} (lower is better)" if metric == "TER" else metric, fontsize=USUAL)
    if by == "length" and len(first.parts) > 1 and first.parts[-1].label.startswith(">"):
        for each in (axes, strip):  # the last bucket has no end: it is no further step of the scale
            each.axvspan(len(first.parts) - 1.5, len(first.parts) - 0.5, facecolor="0.94", edgecolor="none", zorder=0)
    _count(strip, [[part.sentences for part in cut.parts] for cut in cuts], "sentences")
    legend_above(axes, marks, names)
    small_print(figure, [report.signatures[column], *_intervals(report, lines)])
    return figure


def words_figure(table: WordTable, names: Sequence[str]) -> Any:
    """The matplotlib figure: groups of bars in its first axes, words of the references in the second one."""
    figure, axes, strip = _frame([row.label for row in table.rows], table.heading, len(names))
    share = 0.8 / len(names)
    bars = []
    for number in range(len(names)):
        values = [row.counts[number].f1 for row in table.rows]
        places = [x - 0.4 + share * (number + 0.5) for x in range(len(values))]
        drawn = axes.bar(
            places, [_number(value) for value in values], 0.92 * share, color=COLOURS[number % len(COLOURS)],
            hatch=_HATCHES[number % len(_HATCHES)], edgecolor="white", linewidth=0,
        )  # fmt: skip
        bars.append(drawn)
        if len(names) <= 3:
            axes.bar_label(drawn, ["" if value is None else f"{value:.1f}" for value in values], fontsize=SMALL - 1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("F1 of words, %", fontsize=USUAL)
    _count(strip, [[row.counts[0].reference for row in table.rows]], "words")
    legend_above(axes, bars, names)
    return figure


@dataclass(frozen=True)
class _Line:
    """One system over the buckets; nan where there is nothing."""

    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]

    @classmethod
    def of(cls, cut: Breakdown, column: int) -> "_Line":
        """The values of a metric, and the ends of their intervals."""
        intervals: list[Interval | None] = [part.intervals[column] if part.intervals else None for part in cut.parts]
        return cls(
            [_number(part.values[column]) for part in cut.parts],
            [interval.low if interval else math.nan for interval in intervals],
            [interval.high if interval else math.nan for interval in intervals],
        )

    def alone(self) -> list[int]:
        """The buckets with an interval and none beside them: a band there has no breadth."""
        known = [False, *(not math.isnan(low) for low in self.lows), False]
        return [x - 1 for x in range(1, len(known) - 1) if known[x] and not known[x - 1] and not known[x + 1]]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _breakdown(report: Report, number: int, by: By) -> Breakdown:
    for breakdown in report.systems[number].everything.breakdowns if report.systems else ():
        if breakdown.by == by:
            return breakdown
    raise UsageError(f"nothing to draw: the report has no scores by {by}; score with --by-{by}")


def _frame(labels: Sequence[str], label: str, weight: int = 1) -> tuple[Any, Any, Any]:
    """(figure, axes for the scores, axes below them for numbers of sentences), a place a label."""
    from matplotlib.figure import Figure

    width = min(_WIDEST, max(_WIDTH, (_BUCKET + 0.06 * weight) * len(labels) + 1))
    figure = Figure(figsize=(width, _HEIGHT))
    axes, strip = figure.subplots(
        2, 1, sharex=True, height_ratios=(5, 1), gridspec_kw={"hspace": 0.08, "left": 0.1, "right": 0.98}
    )
    for each in (axes, strip):
        each.tick_params(labelsize=USUAL - 1, length=2, color=GREY)
        each.set_axisbelow(True)
        for side in ("top", "right"):
            each.spines[side].set_visible(False)
    axes.grid(axis="y", color="0.88", linewidth=0.6)
    axes.tick_params(bottom=False, labelbottom=False)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    step = math.ceil(len(labels) / 40)
    crowded = step * width / max(1, len(labels)) * LETTERS_AN_INCH < max(map(len, labels), default=0) + 2
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    strip.set_xticks(range(0, len(labels), step), labels[::step], parse_math=False, **turned)
    strip.set_xlabel(label, fontsize=USUAL, parse_math=False)
    return figure, axes, strip


def _draw_line(axes: Any, line: _Line, number: int, shift: float) -> Any:
    colour = COLOURS[number % len(COLOURS)]
    places = [x + shift for x in range(len(line.values))]
    if not all(map(math.isnan, line.lows)):
        band = {"facecolor": colour, "alpha": 0.16, "edgecolor": colour, "linewidth": 0.5}
        axes.fill_between(places, line.lows, line.highs, zorder=1, **band)
    for x in line.alone():
        axes.plot(
            [places[x]] * 2, [line.lows[x], line.highs[x]], color=colour, linewidth=5, alpha=0.3, solid_capstyle="butt"
        )
    (drawn,) = axes.plot(
        places, line.values, color=colour, linestyle=DASHES[number % len(DASHES)], linewidth=1.6,
        marker=MARKERS[number % len(MARKERS)], markersize=5.5, markeredgecolor="white", markeredgewidth=0.6,
        zorder=3 - number / 100,
    )  # fmt: skip
    return drawn


def _limit(axes: Any, lines: Sequence[_Line]) -> None:
    """The y axis holds every value and interval, and says so where there is none."""
    numbers = [n for line in lines for n in (*line.values, *line.lows, *line.highs) if not math.isnan(n)]
    if not numbers:
        axes.set_ylim(0, 1)
        axes.text(0.5, 0.5, "no sentence to score", transform=axes.transAxes, ha="center", color=GREY)
        return
    low, high = min(numbers), max(numbers)
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room if low < 0 else max(-room / 2, low - room), high + room)


def _count(strip: Any, counts: Sequence[Sequence[int]], label: str) -> None:
    """Grey bars of how much there is in each bucket; one bar a system where they differ."""
    same = all(row == counts[0] for row in counts)
    rows = counts[:1] if same else counts
    share = 0.8 / len(rows)
    for number, row in enumerate(rows):
        places = [x - 0.4 + share * (number + 0.5) for x in range(len(row))]
        colour = "0.75" if same else COLOURS[number % len(COLOURS)]
        bars = strip.bar(places, row, 0.92 * share, color=colour, alpha=1 if same else 0.6)
        if same and len(row) <= 30:
            strip.bar_label(bars, [_short(count) for count in row], fontsize=SMALL - 0.5, padding=1, color="0.25")
    strip.set_ylim(0, 1.45 * max(1, *(count for row in rows for count in row)))
    strip.set_yticks([])
    strip.spines["left"].set_visible(False)
    strip.set_ylabel(label, fontsize=SMALL, color="0.25", rotation=0, ha="right", va="center")


def _short(count: int) -> str:
    return f"{count:,}" if count < 100_000 else f"{count / 1000:,.0f}k" if count < 10**7 else f"{count / 10**6:,.0f}M"


def _intervals(report: Report, lines: Sequence[_Line]) -> list[str]:
    if report.resampling is None or all(math.isnan(low) for line in lines for low in line.lows):
        return []
    drawn = report.resampling
    return [f"bands: 95% intervals of {drawn.samples:,} bootstrap samples, seed {drawn.seed}"]
