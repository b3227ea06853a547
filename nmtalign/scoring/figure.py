"""The article's Figure 2: scores by sentence length, with a line for each system.

The 95% intervals of up to six systems are bands. Below are the number of sentences of each bucket, the signature, and
how the intervals were drawn. A bucket without sentences is a gap.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np

from nmtalign import figures
from nmtalign.scoring.report import Report

_WIDTH, _HEIGHT, _BUCKET, _WIDEST = 6.4, 4.2, 0.56, 16.0  # inches; of a bucket at least
_MOST_BANDS = 6  # intervals of more lines would hide each other


def draw_by_length(report: Report, path: Path) -> list[str]:
    """Writes the figure of a report with lengths to a .png, .svg or .pdf file; returns notes for the user.

    Raises UsageError for a name without a known ending, and if matplotlib is missing.
    """
    names = (system.name for system in report.systems)
    with figures.usual_settings(names, figures.check_figure_name(path)) as notes:
        figures.save(length_figure(report), path)
    return notes


def length_svg(report: Report) -> str:
    """The figure as an `<svg>` element for a page of HTML; raises the errors of `draw_by_length`."""
    with figures.usual_settings((), "svg"):
        return figures.picture(length_figure(report), "svg", title=f"{report.metrics[0]} by sentence length").decode()


def length_figure(report: Report) -> Any:
    """The matplotlib figure: scores by the first metric in its first axes, numbers of sentences in the second one."""
    from matplotlib.figure import Figure

    metric, columns = report.metrics[0], [system.everything.lengths for system in report.systems]
    labels, places = [part.label for part in columns[0]], np.arange(len(columns[0]))
    figure = Figure(figsize=(min(_WIDEST, max(_WIDTH, _BUCKET * len(labels) + 1)), _HEIGHT))
    margins = {"hspace": 0.08, "left": 0.1, "right": 0.98}
    axes, strip = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1), gridspec_kw=margins)
    marks, ends, bands = [], [0.0], False
    for number, parts in enumerate(columns):
        scores = [part.scores[metric] for part in parts]
        values, lows, highs = np.array([[one.value, one.low, one.high] for one in scores], np.float64).T  # None is nan
        style = figures.line_style(number)
        if len(columns) <= _MOST_BANDS and not np.isnan(lows).all():
            bands = True
            # Narrow bars, because an interval without a neighbour would be a band without width.
            axes.vlines(places, lows, highs, color=style["color"], linewidth=4, alpha=0.2)
            axes.fill_between(places, lows, highs, color=style["color"], alpha=0.16, linewidth=0.5)
            ends += [float(end) for end in highs if not math.isnan(end)]
        marks += axes.plot(places, values, **style, linewidth=1.6, markersize=5.5, markeredgecolor="white")
        ends += [float(value) for value in values if not math.isnan(value)]
    sizes = [part.sentences for part in columns[0]]
    bars = strip.bar(places, sizes, 0.74, color="0.75")
    if len(labels) <= 30:
        counts = [f"{size:,}" for size in sizes]
        strip.bar_label(bars, counts, fontsize=figures.SMALL - 0.5, padding=1, color="0.25")
    axes.set_ylim(min(ends), 1.06 * max(ends) or 1.0)
    figures.plain_axes(axes)
    figures.plain_axes(strip)
    axes.grid(axis="y", color="0.88", linewidth=0.6)
    axes.tick_params(bottom=False, labelbottom=False)
    axes.set_ylabel(f"{metric} (lower is better)" if metric == "TER" else metric, fontsize=figures.USUAL)
    step = math.ceil(len(labels) / 40)
    strip.set_xticks(places[::step], labels[::step])
    strip.set_xlabel(report.lengths.removeprefix("by "), fontsize=figures.USUAL)
    strip.set_yticks([])
    strip.margins(y=0.45)
    strip.spines["left"].set_visible(False)
    strip.set_ylabel("sentences", fontsize=figures.SMALL, color="0.25", rotation=0, ha="right", va="center")
    figures.legend_above(axes, marks, [system.name for system in report.systems])
    drawn = report.resampling
    texts = [f"bands: 95% intervals of {drawn.samples:,} bootstrap samples, seed {drawn.seed}"] if drawn else []
    figures.small_print(figure, [report.signatures[metric], *(texts if bands else [])])
    return figure
