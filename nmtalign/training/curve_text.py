"""Learning curves in the terminal: small charts by plotext, and a table of the last and the best figures of each model.

A training is a line of braille dots, which are finer than letters. A validation is ●, and ◆ if its weights were kept.
Several models have different colours, or without colours different letters: small for training, capital for dev.
"""

import itertools
import math
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich.cells import cell_len

from nmtalign.text.text_table import cut
from nmtalign.training.curves import Axis, CurvePanel, Curves, CurveTrace, panels, signatures

DEV, KEPT = "●", "◆"
_ROWS, _LEAST, _MOST = 12, 34, 62  # lines of a chart, its smallest and its largest number of columns
_COLOURS = (33, 208, 35, 170, 220, 81, 124, 250, 63, 130)  # of the 256 colours of a terminal
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LARGEST = 1e100  # value that is drawn; a logarithmic axis of plotext ends before the largest number
_NAME, _FIGURE = 15, 12  # columns of the table


def render_curves(
    curves: Sequence[Curves], names: Sequence[str], width: int, axis: Axis = "updates", colour: bool = False
) -> str:
    """Charts and the table in lines of at most `width` columns, ending in `\\n`; raises as `panels`.

    A chart has at least 34 columns. Without plotext, a line in place of the charts says what to install.
    """
    drawn = panels(curves, axis)
    lines = _charts(drawn, names, width, axis, colour) if drawn else ["nothing reported yet", ""]
    return "".join(f"{line.rstrip()}\n" for line in [*lines, *_table(curves, names, width)])


def _charts(panels: Sequence[CurvePanel], names: Sequence[str], width: int, axis: Axis, colour: bool) -> list[str]:
    """The charts, two side by side if they fit, and below them what the signs mean."""
    try:
        import plotext
    except ImportError:
        return ["charts in the terminal need plotext: pip install 'nmtalign[plot]'", ""]
    across = 2 if width >= 2 * _LEAST and len(panels) > 1 else 1
    down = math.ceil(len(panels) / across)
    plotext.main()
    plotext.clear_figure()  # plotext keeps one figure for the process
    plotext.theme("clear")
    plotext.limit_size(False, False)
    plotext.plot_size(across * min(_MOST, max(_LEAST, width // across)), down * _ROWS)
    plotext.subplots(down, across)
    plain = len(names) > 1 and not colour
    for number, panel in enumerate(panels):
        chart = plotext.subplot(number // across + 1, number % across + 1)
        chart.title(panel.title)
        chart.xlabel(axis)
        chart.yscale("log" if panel.log else "linear")
        if panel.from_zero:
            chart.ylim(0, max(panel.values))
        trained = any(not trace.dev for trace in panel.traces)
        for trace in panel.traces:
            _draw(chart, trace, plain, joined=not (trace.dev and trained))
    plotext.main()
    text = plotext.build() if colour else plotext.uncolorize(plotext.build())
    validated = any(trace.dev for panel in panels for trace in panel.traces)
    return [*text.splitlines(), "", *_legend(names, width, plain, validated, colour and len(names) > 1), ""]


def _draw(chart: Any, trace: CurveTrace, plain: bool, joined: bool) -> None:
    """A line, if it is `joined`, with gaps where a value is not finite; the validations of dev also as marks."""
    letter, colour = _LETTERS[trace.model % len(_LETTERS)], _COLOURS[trace.model % len(_COLOURS)]
    points = [(x, min(y, _LARGEST) if math.isfinite(y) else y) for x, y in zip(trace.x, trace.y, strict=True)]
    gaps = [-1, *(place for place, point in enumerate(points) if not all(map(math.isfinite, point))), len(points)]
    for before, after in itertools.pairwise(gaps):
        if part := points[before + 1 : after]:
            if joined:
                chart.plot(*zip(*part, strict=True), marker=letter if plain else "braille", color=colour)
            if trace.dev:
                chart.scatter(*zip(*part, strict=True), marker=letter.upper() if plain else DEV, color=colour)
    if trace.best and not plain and all(map(math.isfinite, trace.best)):
        chart.scatter([trace.best[0]], [min(trace.best[1], _LARGEST)], marker=KEPT, color=colour)


def _legend(names: Sequence[str], width: int, plain: bool, validated: bool, coloured: bool) -> list[str]:
    """The signs of the models and of dev, one line per model if there are several."""
    entries = []
    for model, name in enumerate(names if plain or coloured else ()):
        colour = f"\x1b[38;5;{_COLOURS[model % len(_COLOURS)]}m⠤⠤\x1b[0m"
        sign = _LETTERS[model % len(_LETTERS)] if plain else colour
        entries.append(f"{sign} {cut(name, width - 3)}")
    return [*entries, "capital letter: dev" if plain else f"{DEV} dev  {KEPT} kept as best"] if validated else entries


def _table(curves: Sequence[Curves], names: Sequence[str], width: int) -> list[str]:
    """A row per figure, a column per model; as many tables below each other as the width needs."""
    columns = [_figures(each) for each in curves]
    heads = [cut(name, max(_FIGURE, width - _NAME - 2)) if len(names) == 1 else cut(name, 24) for name in names]
    widths = [
        max(cell_len(text) for text in (head, *(value for _, value in rows)))
        for head, rows in zip(heads, columns, strict=True)
    ]
    lines: list[str] = []
    start = 0
    while start < len(columns):
        stop, used = start, _NAME
        while stop < len(columns) and (stop == start or used + 2 + widths[stop] <= width):
            used += 2 + widths[stop]
            stop += 1
        chosen = range(start, stop)
        lines += [""] if start else []
        lines.append(" " * _NAME + "".join(f"  {_right(heads[number], widths[number])}" for number in chosen))
        for row, (label, _) in enumerate(columns[0]):
            cells = {number: columns[number][row][1] for number in chosen}
            if any(value != "-" for value in cells.values()):
                line = "".join(f"  {_right(value, widths[number])}" for number, value in cells.items())
                lines.append(label.ljust(_NAME) + line)
        start = stop
    said = signatures(curves, names)
    return [*lines, "", *said] if said else lines


def _right(text: str, columns: int) -> str:
    return " " * (columns - cell_len(text)) + text


def _figures(curves: Curves) -> list[tuple[str, str]]:
    """The rows of a model's column; "-" = unknown."""
    last, best = curves.last, curves.best
    dev = curves.validations[-1] if curves.validations else None
    progress = curves.progress[-1] if curves.progress else None
    speeds = [point.words_per_second for point in curves.progress if math.isfinite(point.words_per_second)]
    bleus = [point.bleu for point in curves.validations if math.isfinite(point.bleu)]
    return [
        ("updates", f"{last.update:,}"),
        ("epochs", f"{last.epoch:.2f}"),
        ("time", _clock(last.seconds)),
        ("target words", _number(last.words, ",.0f")),
        ("ended", curves.ended or "-"),
        ("training loss", _number(progress.loss if progress else None, ".3f")),
        ("  perplexity", _number(progress.perplexity if progress else None, ".2f")),
        ("dev loss", _number(dev.loss if dev else None, ".3f")),
        ("  perplexity", _number(dev.perplexity if dev else None, ".2f")),
        ("dev BLEU", _number(dev.bleu if dev else None, ".2f")),
        ("  highest", _number(max(bleus, default=None), ".2f")),
        ("kept: of update", f"{best.update:,}" if best else "-"),
        ("  dev loss", _number(best.loss if best else None, ".3f")),
        ("  dev BLEU", _number(best.bleu if best else None, ".2f")),
        ("target words/s", _number(progress.words_per_second if progress else None, ",.0f")),
        ("  median", _number(median(speeds) if speeds else None, ",.0f")),
        ("learning rate", _number(progress.learning_rate if progress else None, ".3g")),
    ]


def _number(value: float | None, form: str) -> str:
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"
