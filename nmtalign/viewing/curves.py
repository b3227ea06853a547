"""Learning curves: loss, dev BLEU and speed from the log of a training, in a figure or in the terminal.

The log may be from a running training and end within a line, from a resumed one, from one without a dev set, with
losses that are not finite, or from an earlier version. Values that it does not have are nan.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from nmtalign import figures
from nmtalign.errors import FormatError
from nmtalign.files import LOG, disk_errors, parse_json
from nmtalign.text.text_table import aligned, cut

Axis = Literal["updates", "epochs", "hours"]
_FIX = "give a model directory that `nmtalign train` has written, or its train.jsonl"
# Title, field of the points of the training, field of the validations; "" has none.
_PANELS = (("loss (nats/word)", "loss", "loss"), ("dev BLEU", "", "bleu"), ("target words/s", "words_per_second", ""))
# Rows of the table: the label, which point, its field, the format.
_TABLE = (
    ("updates", "last", "update", ",.0f"),
    ("epochs", "last", "epoch", ",.2f"),
    ("hours", "last", "hours", ",.2f"),
    ("training loss", "training", "loss", ".3f"),
    ("  perplexity", "training", "perplexity", ".2f"),
    ("dev loss", "dev", "loss", ".3f"),
    ("  perplexity", "dev", "perplexity", ".2f"),
    ("dev BLEU", "dev", "bleu", ".2f"),
    ("kept: of update", "kept", "update", ",.0f"),
    ("  dev loss", "kept", "loss", ".3f"),
    ("  dev BLEU", "kept", "bleu", ".2f"),
    ("target words/s", "training", "words_per_second", ",.0f"),
    ("learning rate", "training", "learning_rate", ".3g"),
)
_WIDTH, _HEIGHT = 3.6, 2.6  # inches of a panel
_ROWS, _LEAST, _MOST = 12, 34, 62  # lines of a chart, its smallest and its largest number of columns
_COLOURS = (33, 208, 35, 170, 220, 81, 124, 250, 63, 130)  # of the 256 colours of a terminal
# Numbers of an event, in the order of the fields of a `Point`.
_NUMBERS = ("loss", "loss_sentence", "target_words_per_second", "learning_rate", "bleu")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
DEV, KEPT = "●", "◆"


@dataclass(frozen=True)
class Point:
    """A moment of a training: a report of means over some updates, a validation, or its last event."""

    update: int
    epoch: float
    seconds: float
    loss: float = math.nan  # in nats per target word
    loss_sentence: float = math.nan
    words_per_second: float = math.nan  # target words
    learning_rate: float = math.nan
    bleu: float = math.nan
    signature: str = ""
    best: bool = False  # the best validation so far, by the metric of the training

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700)) if math.isfinite(self.loss) else math.nan

    @property
    def hours(self) -> float:
        return self.seconds / 3600


@dataclass
class Curves:
    """All curves of one model, in the order of the updates; `take` adds an event of the log."""

    path: Path
    progress: list[Point] = field(default_factory=list)
    validations: list[Point] = field(default_factory=list)
    last: Point = Point(0, 0.0, 0.0)  # the last event
    ended: str = ""  # the reason, or "" for a training that runs or was interrupted
    start: Mapping[str, Any] = field(default_factory=dict)  # the last event of a start: device, parameters, versions

    @property
    def best(self) -> Point | None:
        """The validation whose weights were kept as the best."""
        return next((point for point in reversed(self.validations) if point.best), None)

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds one event; raises KeyError, TypeError or ValueError if it is not an event."""
        name, when = event["event"], (int(event["update"]), float(event["epoch"]), float(event["seconds"]))
        if name == "started":
            self.start = dict(event)
        elif name in ("progressed", "validated"):
            # An earlier version did not write all of them, and a number that was not finite is null.
            numbers = [math.nan if event.get(key) is None else float(event[key]) for key in _NUMBERS]
            values: list[Any] = [*when, *numbers, str(event.get("signature") or ""), bool(event.get("best"))]
            (self.progress if name == "progressed" else self.validations).append(Point(*values))
        self.last = Point(*when)
        self.ended = str(event.get("reason", "")) if name == "finished" else ""
        self.ended += ", diverged" if event.get("diverged") else ""


def read_curves(path: Path) -> Curves:
    """The curves of a model directory, or of its train.jsonl; raises FormatError with the file and the line."""
    curves, line = Curves(path / LOG if path.is_dir() else path), 0
    try:
        for line, event in _events(curves.path):  # noqa: B007 - the message names the line
            curves.take(event)
    except (KeyError, TypeError, ValueError, OverflowError):
        raise FormatError(f"{curves.path}: line {line}: not an event of a training; {_FIX}") from None
    except OSError as error:
        raise FormatError(f"{curves.path}: cannot read: {error.strerror}; {_FIX}") from None
    if not line:
        raise FormatError(f"{curves.path}: has no event yet; {_FIX}")
    return curves


def _events(file: Path) -> Iterator[tuple[int, Any]]:
    """(line number, event); an incomplete last line is left out, and what is no JSON is None."""
    with disk_errors(file, "read"), file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            try:
                event = parse_json(line.decode()) if line.strip() else {}
            except ValueError:
                if number > 1 and not line.endswith(b"\n"):
                    return
                event = None
            if event != {}:
                yield number, event


@dataclass(frozen=True)
class CurveTrace:
    """A line of a panel; nan is a gap."""

    model: int
    dev: bool
    x: Sequence[float]
    y: Sequence[float]
    best: tuple[float, float] | None = None  # the validation whose weights were kept


def panels(curves: Sequence[Curves], axis: Axis = "updates") -> dict[str, list[CurveTrace]]:
    """The lines of each panel, first all of training, then all of dev; a panel without values is left out."""
    drawn, across = {}, axis if axis == "hours" else axis.removesuffix("s")
    for title, *names in _PANELS:
        traces = []
        for dev, name in enumerate(names):
            for model, each in enumerate(curves if name else ()):
                points = each.validations if dev else each.progress
                x, y = ([float(getattr(point, of)) for point in points] for of in (across, name))
                best = (float(getattr(each.best, across)), getattr(each.best, name)) if dev and each.best else None
                best = best if best and math.isfinite(best[1]) else None
                traces.append(CurveTrace(model, bool(dev), x, y, best))
        if any(math.isfinite(y) for trace in traces for y in trace.y):
            drawn[title] = traces
    return drawn


def _signatures(curves: Sequence[Curves], names: Sequence[str]) -> list[str]:
    """The signatures of dev BLEU: one line if they are all equal, else one line each."""
    models: dict[str, list[str]] = {}
    for each, name in zip(curves, names, strict=True):
        if found := [point.signature for point in each.validations if point.signature]:
            models.setdefault(found[-1], []).append(name)
    of = ", of {}" if len(models) > 1 else ""
    return [f"dev BLEU, greedy{of.format(', '.join(named))}: {signature}" for signature, named in models.items()]


def curve_figure(curves: Sequence[Curves], names: Sequence[str], axis: Axis = "updates") -> Any:
    """The matplotlib figure: one pair of axes per panel, side by side."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    drawn = panels(curves, axis) or {"loss (nats/word)": []}
    figure = Figure(figsize=(_WIDTH * len(drawn), _HEIGHT))
    places = figure.subplots(1, len(drawn), squeeze=False, gridspec_kw={"wspace": 0.2}).flatten()
    for axes, (title, traces) in zip(places, drawn.items(), strict=True):
        _draw_panel(axes, title, traces)
        axes.set_xlabel(axis, fontsize=figures.USUAL - 1)
    # The names of the models are on invisible axes above all panels and their titles.
    first, last = places[0].get_position(), places[-1].get_position()
    holder = figure.add_axes((first.x0, first.y1, first.width, 0.3 / figure.get_figheight()))
    holder.set_axis_off()
    lines = [Line2D([], [], **figures.line_style(model)) for model in range(len(names))]
    figures.legend_above(holder, lines, names, figure.get_figwidth() * (last.x1 - first.x0))
    validated = any(trace.dev and trace.x for traces in drawn.values() for trace in traces)
    marks = ["Lines: training. Marks: dev. Rings: the weights that were kept as the best."] if validated else []
    figures.small_print(figure, [*marks, *_signatures(curves, names)])
    return figure


def _draw_panel(axes: Any, title: str, traces: Sequence[CurveTrace]) -> None:
    """Training is a line, dev a line with marks; a ring marks the validation whose weights were kept."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title(title, fontsize=figures.USUAL, loc="left")
    axes.grid(axis="y", color="0.88", linewidth=0.6)
    figures.plain_axes(axes)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    if not traces:
        axes.text(0.5, 0.5, "nothing reported yet", transform=axes.transAxes, ha="center", color=figures.GREY)
    trained = any(not trace.dev for trace in traces)
    for trace in traces:
        style = figures.line_style(trace.model) | {"linewidth": 1.1}
        if trace.dev:
            style |= {"markersize": 4.5, "markeredgewidth": 0, "zorder": 3}
            style |= {"linestyle": (0, (1, 1.5))} if trained else {}
        else:  # a line of one point is not visible
            style["marker"] = "." if sum(map(math.isfinite, trace.y)) == 1 else None
        axes.plot(trace.x, trace.y, **style)
        if trace.best:
            ring = {"marker": "o", "markersize": 10, "fillstyle": "none", "markeredgewidth": 1.1, "clip_on": False}
            axes.plot(*([value] for value in trace.best), color=style["color"], linestyle="none", zorder=4, **ring)
    axes.set_xlim(left=0)
    if traces and not any(trace.dev for trace in traces):
        axes.set_ylim(bottom=0)  # a speed


def render_curves(
    curves: Sequence[Curves], names: Sequence[str], width: int, axis: Axis = "updates", colour: bool = False
) -> str:
    """Charts by plotext, and a table with a column per model, in lines of at most `width` columns, ending in `\\n`.

    A training is a line of braille dots. A validation is ●, and ◆ if its weights were kept. Several models have
    different letters: small for training, capital for dev. A chart has at least 34 columns. Without plotext, a line in
    place of the charts says what to install.
    """
    drawn = panels(curves, axis)
    lines = _charts(drawn, names, width, axis, colour) if drawn else ["nothing reported yet", ""]
    rows = zip(["ended", *(row[0] for row in _TABLE)], *map(_figures, curves), strict=True)
    heads = [cut(name, max(12, min(24, width - 20))) for name in names]
    known = [row for row in rows if {*row[1:]} != {"-"}]
    lines += [*aligned(list(zip(["", *heads], *known, strict=True)), width=width), ""]
    return "".join(f"{line.rstrip()}\n" for line in [*lines, *_signatures(curves, names)])


def _figures(curves: Curves) -> Iterator[str]:
    """A model's column of the table: why it ended, then the rows of `_TABLE`; "-" = unknown."""
    points = {
        "last": curves.last,
        "training": curves.progress[-1] if curves.progress else None,
        "dev": curves.validations[-1] if curves.validations else None,
        "kept": curves.best,
    }
    yield curves.ended or "-"
    for _, which, name, form in _TABLE:
        value = getattr(points[which], name, math.nan)
        yield format(value, form) if math.isfinite(value) else "-"


def _charts(
    drawn: Mapping[str, Sequence[CurveTrace]], names: Sequence[str], width: int, axis: Axis, colour: bool
) -> list[str]:
    """The charts, side by side if they fit, and below them what the signs mean."""
    try:
        import plotext
        from plotext import main  # plotext 6 has no `main`: its interface is different
    except ImportError:
        return ["charts in the terminal need plotext: pip install 'nmtalign[plot]'", ""]
    across = min(len(drawn), max(1, width // _LEAST))
    lines: list[str] = []
    for start in range(0, len(drawn), across):
        row = list(drawn.items())[start : start + across]
        main()
        plotext.clear_figure()  # plotext keeps one figure for the process
        plotext.theme("clear")
        plotext.limit_size(False, False)
        plotext.plot_size(len(row) * min(_MOST, max(_LEAST, width // across)), _ROWS)
        plotext.subplots(1, len(row))
        for number, (title, traces) in enumerate(row, 1):
            chart = plotext.subplot(1, number)
            chart.title(title)
            chart.xlabel(axis)
            _draw_chart(chart, traces, len(names) > 1)
        main()
        lines += (plotext.build() if colour else plotext.uncolorize(plotext.build())).splitlines()
    if len(names) == 1:
        return [*lines, "", f"{DEV} dev  {KEPT} kept as best", ""]
    signs = [f"{letter} {cut(name, width - 3)}" for letter, name in zip(itertools.cycle(_LETTERS), names, strict=False)]
    return [*lines, "", *signs, "capital letter: dev", ""]


def _draw_chart(chart: Any, traces: Sequence[CurveTrace], lettered: bool) -> None:
    """Training is a line with gaps where a value is not finite; validations are marks, joined if there is no line."""
    trained = any(not trace.dev for trace in traces)
    if not any(trace.dev for trace in traces):  # a speed
        chart.ylim(0, max(y for trace in traces for y in trace.y if math.isfinite(y)))
    for trace in traces:
        letter, colour = _LETTERS[trace.model % len(_LETTERS)], _COLOURS[trace.model % len(_COLOURS)]
        points = zip(trace.x, trace.y, strict=True)
        for finite, group in itertools.groupby(points, lambda point: all(map(math.isfinite, point))):
            x, y = zip(*group, strict=True)
            if finite and not (trace.dev and trained):
                chart.plot(x, y, marker=letter if lettered else "braille", color=colour)
            if finite and trace.dev:
                chart.scatter(x, y, marker=letter.upper() if lettered else DEV, color=colour)
        if trace.best and not lettered:
            chart.scatter([trace.best[0]], [trace.best[1]], marker=KEPT, color=colour)
