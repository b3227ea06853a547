"""Learning curves in the terminal: small charts, and a table of the last and the best figures of each model.

A training is drawn in braille dots, which are finer than letters. A validation is ●, and ◆ if its weights were kept.
Several models have different colours, or without colours different letters: small for training, capital for dev.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from statistics import median

from nmtalign.text.width import columns_of, cut
from nmtalign.training.curves import Axis, CurvePanel, Curves, CurveTrace, panels, short, signatures

DEV, KEPT = "●", "◆"
_ROWS, _LEAST, _MOST = 8, 34, 60  # rows of a chart, its smallest and its largest number of columns
_GAP = 3  # columns between charts
_COLOURS = (33, 208, 35, 170, 220, 81, 124, 250, 63, 130)  # of the 256 colours of a terminal
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))  # bits of a braille sign, by row and column
_NAME, _FIGURE = 15, 12  # columns of the table


def render_curves(
    curves: Sequence[Curves], names: Sequence[str], width: int, axis: Axis = "updates", colour: bool = False
) -> str:
    """Charts and the table in lines of at most `width` columns, ending in `\\n`; raises as `panels`."""
    drawn = panels(curves, axis)
    plain = len(curves) > 1 and not colour
    across = 2 if width >= 2 * _LEAST + _GAP and len(drawn) > 1 else 1
    room = max(12, min(_MOST, (width - _GAP * (across - 1)) // across))
    charts = [_chart(panel, room, axis, plain, colour and len(curves) > 1) for panel in drawn]
    lines = [] if charts else ["nothing reported yet"]
    for start in range(0, len(charts), across):
        lines += [_beside(parts, room) for parts in zip(*charts[start : start + across], strict=True)] + [""]
    if charts:
        lines += [*_legend(curves, names, width, plain, colour), ""]
    return "".join(f"{line.rstrip()}\n" for line in [*lines, *_table(curves, names, width)])


def _beside(parts: Sequence[str], room: int) -> str:
    return (" " * _GAP).join(part + " " * (room - columns_of(part)) for part in parts)


def _legend(curves: Sequence[Curves], names: Sequence[str], width: int, plain: bool, colour: bool) -> list[str]:
    """The signs of the models and of dev, in as many lines as they need."""
    validated = any(each.validations for each in curves)
    if plain:
        entries = [f"{_letter(model, False)} {cut(name, width - 2)}" for model, name in enumerate(names)]
        entries += ["capital: dev"] if validated else []
    else:
        models = enumerate(names) if colour and len(curves) > 1 else ()
        entries = [_coloured("⠤⠤", model, True) + f" {cut(name, width - 3)}" for model, name in models]
        entries += [f"{DEV} dev", f"{KEPT} kept as best"] if validated else []
    lines: list[str] = []
    for entry in entries:
        if lines and columns_of(lines[-1]) + 2 + columns_of(entry) <= width:
            lines[-1] += f"  {entry}"
        else:
            lines.append(entry)
    return lines


def _letter(model: int, dev: bool) -> str:
    letter = _LETTERS[model % len(_LETTERS)]
    return letter.upper() if dev else letter


def _coloured(text: str, model: int, colour: bool) -> str:
    return f"\x1b[38;5;{_COLOURS[model % len(_COLOURS)]}m{text}\x1b[0m" if colour else text


@dataclass
class _Canvas:
    """The cells of a chart, 2 by 4 dots each. A mark covers dots; the first owner of a cell stays."""

    columns: int
    rows: int
    dots: dict[tuple[int, int], int] = field(default_factory=dict)
    marks: dict[tuple[int, int], str] = field(default_factory=dict)
    owners: dict[tuple[int, int], int] = field(default_factory=dict)

    def dot(self, x: int, y: int, model: int) -> None:
        """Sets the dot in column x, row y from above."""
        cell = y // 4, x // 2
        self.dots[cell] = self.dots.get(cell, 0) | _DOTS[y % 4][x % 2]
        self.owners.setdefault(cell, model)

    def mark(self, x: int, y: int, model: int, sign: str, over: bool) -> None:
        """Sets a sign in the cell of a dot."""
        cell = y // 4, x // 2
        if over or cell not in self.marks:
            self.marks[cell], self.owners[cell] = sign, model

    def line(self, row: int, colour: bool) -> str:
        """A row of cells."""
        cells = [(row, column) for column in range(self.columns)]
        runs = groupby(cells, self.owners.get)
        texts = [(model, "".join(map(self._sign, run))) for model, run in runs]
        return "".join(text if model is None else _coloured(text, model, colour) for model, text in texts)

    def _sign(self, cell: tuple[int, int]) -> str:
        return self.marks.get(cell) or (chr(0x2800 + self.dots[cell]) if cell in self.dots else " ")


def _chart(panel: CurvePanel, room: int, axis: Axis, plain: bool, colour: bool) -> list[str]:
    """A title, the rows, the axis and its ends: always the same number of lines."""
    low, high = min(panel.values), max(panel.values)
    low = 0.0 if panel.from_zero else low
    middle = math.sqrt(low * high) if panel.log else (low + high) / 2
    labels = {0: high, _ROWS // 2: middle, _ROWS - 1: low} if high > low else {_ROWS // 2: high}
    shown = {row: f"{_three(value)} " for row, value in labels.items()}
    margin = max(map(len, shown.values()))
    reach = max((x for trace in panel.traces for x in trace.x if math.isfinite(x)), default=0.0) or 1.0
    canvas = _Canvas(max(4, room - margin - 1), _ROWS)
    to_dot = _placing(canvas, reach, low, high, panel.log)
    trained = any(not trace.dev for trace in panel.traces)
    for trace in panel.traces:
        _draw(canvas, trace, to_dot, plain, trained)
    lines = [cut(panel.title, room)]
    for row in range(_ROWS):
        side = shown.get(row, "").rjust(margin)
        lines.append(f"{side}{'┤' if row in shown else '│'}{canvas.line(row, colour)}")
    end = cut((f"{reach:,.0f}" if axis == "updates" else _three(reach)) + f" {axis}", canvas.columns - 2)
    lines.append(" " * margin + "└" + "─" * canvas.columns)
    lines.append(" " * margin + " 0" + end.rjust(canvas.columns - 1))
    return lines


def _three(value: float) -> str:
    """A number with three digits."""
    return short(float(f"{value:.3g}"))


_Placing = Callable[[float, float], tuple[int, int]]


def _placing(canvas: _Canvas, reach: float, low: float, high: float, log: bool) -> _Placing:
    """From a point to its dot: column from the left, row from above."""
    across, down = 2 * canvas.columns - 1, 4 * canvas.rows - 1
    scale: Callable[[float], float] = math.log if log else float
    bottom, top = scale(low), scale(high)

    def place(x: float, y: float) -> tuple[int, int]:
        share = (scale(y) - bottom) / (top - bottom) if top > bottom else 0.5
        return round(x / reach * across), round((1 - share) * down)

    return place


def _draw(canvas: _Canvas, trace: CurveTrace, place: _Placing, plain: bool, trained: bool) -> None:
    """A line; dev is drawn as marks, and also as a line if there is no training curve."""
    before: tuple[int, int] | None = None
    for x, y in zip(trace.x, trace.y, strict=True):
        if not (math.isfinite(x) and math.isfinite(y)):
            before = None
            continue
        now = place(x, y)
        for dot in _between(before or now, now) if not (trace.dev and trained) else ():
            if plain:
                canvas.mark(*dot, trace.model, _letter(trace.model, False), over=False)
            else:
                canvas.dot(*dot, trace.model)
        if trace.dev:
            canvas.mark(*now, trace.model, _letter(trace.model, True) if plain else DEV, over=True)
        before = now
    if trace.best and not plain and math.isfinite(trace.best[0]):
        canvas.mark(*place(*trace.best), trace.model, KEPT, over=True)


def _between(start: tuple[int, int], end: tuple[int, int]) -> list[tuple[int, int]]:
    """The dots of a straight line, both ends included."""
    steps = max(abs(end[0] - start[0]), abs(end[1] - start[1]), 1)
    return [
        (round(start[0] + (end[0] - start[0]) * step / steps), round(start[1] + (end[1] - start[1]) * step / steps))
        for step in range(steps + 1)
    ]


def _table(curves: Sequence[Curves], names: Sequence[str], width: int) -> list[str]:
    """A row per figure, a column per model; as many tables below each other as the width needs."""
    columns = [_figures(each) for each in curves]
    heads = [cut(name, max(_FIGURE, width - _NAME - 2)) if len(names) == 1 else cut(name, 24) for name in names]
    widths = [
        max(columns_of(text) for text in (head, *(value for _, value in rows)))
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
    return " " * (columns - columns_of(text)) + text


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
