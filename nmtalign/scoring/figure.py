"""Pictures of a report: scores by sentence length (the article's Figure 2), scores by place, F1 of words by frequency.

Each system is a line with its own colour, dashes and marks; the 95% intervals of up to six systems are bands. Below are
the number of sentences of each bucket, the signature, and how the intervals were drawn. A bucket without sentences is a
gap.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import UsageError
from nmtalign.figures import (
    COLOURS,
    GREY,
    LETTERS_AN_INCH,
    SMALL,
    USUAL,
    check_figure_name,
    legend_above,
    line_style,
    need_matplotlib,
    plain_axes,
    save,
    small_print,
    svg_for_page,
    usual_settings,
)
from nmtalign.scoring.report import Breakdown, Part, Report
from nmtalign.scoring.words import WordBreakdown

By = Literal["length", "place"]
Line = NDArray[np.float64]
_WIDTH, _HEIGHT = 6.4, 4.2  # inches; wider for many buckets
_BUCKET = 0.5  # inches per bucket, at least
_WIDEST = 16.0
_MOST_BANDS = 6  # intervals of more lines would hide each other
_HATCHES = ("", "////", "....", "xxxx", "\\\\\\\\", "----", "++++", "oo", "||||", "**")


def draw_by_length(report: Report, path: Path, metric: str = "BLEU") -> list[str]:
    """Writes the article's Figure 2 to a .png, .svg or .pdf file: a metric by sentence length, one line per system.

    Returns notes for the user, one sentence each. Raises UsageError for a name without a known ending, for a report
    without that metric or without lengths, and if matplotlib is missing.
    """
    kind = check_figure_name(path)
    need_matplotlib()
    with usual_settings((system.name for system in report.systems), kind) as notes:
        save(by_figure(report, metric), path)
    return notes


def breakdown_svg(report: Report, metric: str = "BLEU", by: By = "length") -> str:
    """The figure of `by_figure` as an `<svg>` element for a page of HTML; raises the errors of `draw_by_length`."""
    need_matplotlib()
    with usual_settings((), "svg"):
        return svg_for_page(by_figure(report, metric, by), f"{metric} {_breakdown(report, 0, by).title}")


def words_svg(table: WordBreakdown, names: Sequence[str]) -> str:
    """The figure of `words_figure` as an `<svg>` element for a page of HTML."""
    need_matplotlib()
    with usual_settings((), "svg"):
        return svg_for_page(words_figure(table, names), f"F1 of {table.title}")


def by_figure(report: Report, metric: str = "BLEU", by: By = "length") -> Any:
    """The matplotlib figure: scores in its first axes, numbers of sentences in the second one."""
    if metric not in report.metrics:
        raise UsageError(f"no {metric} to draw: the report has {', '.join(report.metrics)}; name one of these")
    column = report.metrics.index(metric)
    cuts = [_breakdown(report, number, by) for number in range(len(report.systems))]
    parts = cuts[0].parts
    figure, axes, strip = _frame(
        [part.label.replace("<=", "\u2264") for part in parts], cuts[0].title.removeprefix("by ")
    )
    lines = np.array([[_ends(part, column) for part in cut.parts] for cut in cuts]).transpose(0, 2, 1)
    apart = 0.08 if len(parts) == 1 else 0.0  # the systems of a single bucket are beside each other
    if len(lines) > _MOST_BANDS:
        lines[:, 1:] = np.nan
    marks = [
        _draw_line(axes, line, number, apart * (number - (len(lines) - 1) / 2)) for number, line in enumerate(lines)
    ]
    _limit(axes, lines)
    axes.set_ylabel(f"{metric} (lower is better)" if metric == "TER" else metric, fontsize=USUAL)
    if by == "length" and len(parts) > 1 and parts[-1].label.startswith(">"):
        for each in (axes, strip):  # the last bucket has no end, so it is not a step of the scale
            each.axvspan(len(parts) - 1.5, len(parts) - 0.5, facecolor="0.94", edgecolor="none", zorder=0)
    _count(strip, [[part.sentences for part in cut.parts] for cut in cuts], "sentences")
    legend_above(axes, marks, [system.name for system in report.systems])
    drawn = report.resampling
    bands = [f"bands: 95% intervals of {drawn.samples:,} bootstrap samples, seed {drawn.seed}"] if drawn else []
    small_print(figure, [report.signatures[column], *([] if np.isnan(lines[:, 1]).all() else bands)])
    return figure


def words_figure(table: WordBreakdown, names: Sequence[str]) -> Any:
    """F1 of words as bars: one group per row of the table, one bar per system; below the words of the references."""
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


def _ends(part: Part, column: int) -> tuple[float, float, float]:
    """A score and the ends of its interval; nan for those that do not exist."""
    interval = part.interval(column)
    return (_number(part.values[column]), *((interval.low, interval.high) if interval else (math.nan, math.nan)))


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def _breakdown(report: Report, number: int, by: By) -> Breakdown:
    for breakdown in report.systems[number].everything.breakdowns:
        if breakdown.by == by:
            return breakdown
    raise UsageError(f"nothing to draw: the report has no scores by {by}; score with --by-{by}")


def _frame(labels: Sequence[str], label: str, weight: int = 1) -> tuple[Any, Any, Any]:
    """(figure, axes for scores, axes below them for numbers of sentences or words), with one place per label."""
    from matplotlib.figure import Figure

    width = min(_WIDEST, max(_WIDTH, (_BUCKET + 0.06 * weight) * len(labels) + 1))
    figure = Figure(figsize=(width, _HEIGHT))
    axes, strip = figure.subplots(
        2, 1, sharex=True, height_ratios=(5, 1), gridspec_kw={"hspace": 0.08, "left": 0.1, "right": 0.98}
    )
    plain_axes(axes)
    plain_axes(strip)
    axes.grid(axis="y", color="0.88", linewidth=0.6)
    axes.tick_params(bottom=False, labelbottom=False)
    axes.set_xlim(-0.5, len(labels) - 0.5)
    step = math.ceil(len(labels) / 40)
    crowded = step * width / max(1, len(labels)) * LETTERS_AN_INCH < max(map(len, labels), default=0) + 2
    turned = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if crowded else {}
    strip.set_xticks(range(0, len(labels), step), labels[::step], parse_math=False, **turned)
    strip.set_xlabel(label, fontsize=USUAL, parse_math=False)
    return figure, axes, strip


def _draw_line(axes: Any, line: Line, number: int, shift: float) -> Any:
    """Draws one system; `line` is (3, buckets), its scores and the ends of their intervals."""
    values, lows, highs = line
    places, style = np.arange(len(values)) + shift, line_style(number)
    colour = style["color"]
    known = np.pad(~np.isnan(lows), 1)
    if known.any():
        band = {"facecolor": colour, "alpha": 0.16, "edgecolor": colour, "linewidth": 0.5}
        axes.fill_between(places, lows, highs, zorder=1, **band)
    # An interval without a neighbour would be a band without width.
    for x in np.flatnonzero(known[1:-1] & ~known[:-2] & ~known[2:]):
        axes.plot([places[x]] * 2, [lows[x], highs[x]], color=colour, linewidth=5, alpha=0.3, solid_capstyle="butt")
    (drawn,) = axes.plot(
        places, values, **style, linewidth=1.6, zorder=3 - number / 100,
        markersize=5.5, markeredgecolor="white", markeredgewidth=0.6,
    )  # fmt: skip
    return drawn


def _limit(axes: Any, lines: Line) -> None:
    """Sets the y axis so that it contains every score and interval, or reports that there is none."""
    if np.isnan(lines).all():
        axes.set_ylim(0, 1)
        axes.text(0.5, 0.5, "no sentence to score", transform=axes.transAxes, ha="center", color=GREY)
        return
    low, high = float(np.nanmin(lines)), float(np.nanmax(lines))
    room = 0.06 * (high - low) or 1.0
    axes.set_ylim(low - room if low < 0 else max(-room / 2, low - room), high + room)


def _count(strip: Any, counts: Sequence[Sequence[int]], label: str) -> None:
    """Draws the size of each bucket as a grey bar, or as one coloured bar per system if the systems differ."""
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
