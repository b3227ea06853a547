"""Learning curves: loss, dev BLEU and speed from the log of a training, in a figure or in the terminal.

The log may be from a running training and end within a line, from a resumed one, from one without a dev set, with
losses that are not finite, or from an earlier version. Values that it does not have are nan. A training is a line, a
validation a mark; the mark of the validation whose weights were kept is different.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Literal, get_args

from nmtalign.errors import FormatError, UsageError
from nmtalign.figures import (
    GREY,
    SMALL,
    USUAL,
    check_figure_name,
    legend_above,
    line_style,
    need_matplotlib,
    plain_axes,
    save,
    small_print,
    usual_settings,
)
from nmtalign.files import parse_json
from nmtalign.model_files import LOG
from nmtalign.text.text_table import TextTable, cut

Axis = Literal["updates", "epochs", "hours", "words"]
AXES: tuple[Axis, ...] = get_args(Axis)
_FIX = "give a model directory that `nmtalign train` has written, or its train.jsonl"
# (title, field of the points of the training, of the validations); "" has none
_PANELS = (
    ("loss per word", "loss", "loss"),
    ("dev BLEU", "", "bleu"),
    ("target words per second", "words_per_second", ""),
)
_WIDTH, _HEIGHT = 3.6, 2.6  # inches of a panel
_ROWS, _LEAST, _MOST = 12, 34, 62  # lines of a chart, its smallest and its largest number of columns
_COLOURS = (33, 208, 35, 170, 220, 81, 124, 250, 63, 130)  # of the 256 colours of a terminal
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_LARGEST = 1e100  # value that a chart in the terminal draws
DEV, KEPT = "●", "◆"


@dataclass(frozen=True)
class Point:
    """A moment of a training: a report of means over some updates, a validation, or its last event."""

    update: int
    epoch: float
    seconds: float
    words: float  # the approximate number of target words until then
    loss: float = math.nan  # in nats per target word
    loss_sentence: float = math.nan
    words_per_second: float = math.nan  # target words
    learning_rate: float = math.nan
    bleu: float = math.nan
    signature: str = ""
    best: bool = False  # the best validation so far, by the metric of the training

    @property
    def perplexity(self) -> float:
        """exp of the loss."""
        return math.exp(min(self.loss, 700)) if math.isfinite(self.loss) else math.nan

    def at(self, axis: Axis) -> float:
        """The coordinate on an axis."""
        return {"updates": self.update, "epochs": self.epoch, "hours": self.seconds / 3600, "words": self.words}[axis]


@dataclass
class Curves:
    """All curves of one model, in the order of the updates; `take` adds an event of the log."""

    path: Path
    progress: list[Point] = field(default_factory=list)
    validations: list[Point] = field(default_factory=list)
    last: Point = Point(0, 0.0, 0.0, 0.0)  # the last event
    ended: str = ""  # the reason, or "" for a training that runs or was interrupted
    start: Mapping[str, Any] = field(default_factory=dict)  # the last event of a start: device, parameters, versions
    ends: list[int] = field(default_factory=list)  # updates at which a budget was used up; several if it was increased
    _counted: tuple[float, float] = (0.0, 0.0)  # (epoch, words until then)
    _words_per_sentence: float = math.nan

    @property
    def best(self) -> Point | None:
        """The validation whose weights were kept as the best."""
        return next((point for point in reversed(self.validations) if point.best), None)

    @property
    def signature(self) -> str:
        """The signature of dev BLEU, or ""."""
        return next((point.signature for point in reversed(self.validations) if point.signature), "")

    def take(self, event: Mapping[str, Any]) -> None:
        """Adds one event; raises KeyError, TypeError or ValueError if it is not an event."""
        name, when = event["event"], (int(event["update"]), float(event["epoch"]), float(event["seconds"]))
        if name == "started":  # drops what an earlier run wrote after the checkpoint from which this one resumes
            self.start = dict(event)
            self.progress = [point for point in self.progress if point.update <= when[0]]
            self.validations = [point for point in self.validations if point.update <= when[0]]
            self._counted = (self.progress[-1].epoch, self.progress[-1].words) if self.progress else (0.0, 0.0)
        elif name in ("progressed", "validated"):
            loss, loss_sentence = _number(event, "loss"), _number(event, "loss_sentence")
            if name == "progressed" and loss > 0 and math.isfinite(loss_sentence):
                self._words_per_sentence = loss_sentence / loss
            point = Point(
                *when,
                self._words(when[1]),
                loss,
                loss_sentence,
                _number(event, "target_words_per_second"),
                _number(event, "learning_rate"),
                _number(event, "bleu"),
                str(event.get("signature") or ""),
                bool(event.get("best")),
            )
            if name == "progressed":
                self._counted = (point.epoch, point.words)
                self.progress.append(point)
            else:
                self.validations.append(point)
        self.last = Point(*when, self._words(when[1]))
        self.ended = str(event.get("reason", "")) if name == "finished" else ""
        self.ended += ", diverged" if event.get("diverged") else ""
        if name == "finished" and event.get("complete"):
            self.ends = sorted({*self.ends, when[0]})

    def _words(self, epoch: float) -> float:
        since, words = self._counted
        pairs = _number(self.start, "pairs")
        return words if epoch <= since else words + (epoch - since) * pairs * self._words_per_sentence


@dataclass(frozen=True)
class CurveTrace:
    """A line of a panel; nan is a gap."""

    model: int
    dev: bool
    x: Sequence[float]
    y: Sequence[float]
    best: tuple[float, float] | None = None  # the validation whose weights were kept


def panels(curves: Sequence[Curves], axis: Axis = "updates") -> dict[str, list[CurveTrace]]:
    """The lines of each panel, first all of training, then all of dev; a panel without values is left out.

    Raises UsageError if the axis is words and a log does not contain their number.
    """
    for each in curves:
        if axis == "words" and all(math.isnan(point.words) for point in (*each.progress, *each.validations)):
            raise UsageError(f"{each.path}: has too little to count words; give --x updates, epochs or hours")
    drawn = {}
    for title, *names in _PANELS:
        traces = []
        for dev, name in enumerate(names):
            for model, each in enumerate(curves if name else ()):
                points = each.validations if dev else each.progress
                best = (each.best.at(axis), getattr(each.best, name)) if dev and each.best else None
                x, y = [point.at(axis) for point in points], [getattr(point, name) for point in points]
                best = best if best and all(map(math.isfinite, best)) else None
                traces.append(CurveTrace(model, bool(dev), x, y, best))
        if any(math.isfinite(y) for trace in traces for y in trace.y):
            drawn[title] = traces
    return drawn


def _signatures(curves: Sequence[Curves], names: Sequence[str]) -> list[str]:
    """The signatures of dev BLEU: one line if they are all equal, else one line each."""
    models: dict[str, list[str]] = {}
    for each, name in zip(curves, names, strict=True):
        if each.signature:
            models.setdefault(each.signature, []).append(name)
    if len(models) == 1:
        return [f"dev BLEU, greedy: {next(iter(models))}"]
    return [f"dev BLEU, greedy, of {', '.join(named)}: {signature}" for signature, named in models.items()]


# Figures


def draw_curves(curves: Sequence[Curves], names: Sequence[str], path: Path, axis: Axis = "updates") -> list[str]:
    """Writes a .png, .svg or .pdf file; returns notes for the reader, one sentence each.

    Raises UsageError for a name without a known ending, where matplotlib is missing, and as `panels`.
    """
    kind = check_figure_name(path)
    need_matplotlib("without -o the curves are drawn in the terminal")
    with usual_settings(names, kind) as notes:
        save(curve_figure(curves, names, axis), path)
    return notes


def curve_figure(curves: Sequence[Curves], names: Sequence[str], axis: Axis = "updates") -> Any:
    """The matplotlib figure: one pair of axes per panel, side by side."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    drawn = panels(curves, axis) or {"loss per word": []}
    figure = Figure(figsize=(_WIDTH * len(drawn), _HEIGHT))
    places = figure.subplots(1, len(drawn), squeeze=False, gridspec_kw={"wspace": 0.2}).flatten()
    reach = (
        max((x for traces in drawn.values() for trace in traces for x in trace.x if math.isfinite(x)), default=0) or 1
    )
    for axes, (title, traces) in zip(places, drawn.items(), strict=True):
        _draw_panel(axes, title, traces)
        axes.set_xlim(-0.02 * reach, 1.04 * reach)
        axes.set_xlabel({"words": "target words", "hours": "hours of training"}.get(axis, axis), fontsize=USUAL - 1)
    if any(trace.dev and trace.x for traces in drawn.values() for trace in traces):
        _explain_marks(places[0])
    # The names of the models are on invisible axes above all panels and their titles.
    first, last = places[0].get_position(), places[-1].get_position()
    holder = figure.add_axes((first.x0, first.y1, first.width, 0.3 / figure.get_figheight()))
    holder.set_axis_off()
    lines = [Line2D([], [], **line_style(model)) for model in range(len(names))]
    legend_above(holder, lines, names, figure.get_figwidth() * (last.x1 - first.x0))
    small_print(figure, _signatures(curves, names))
    return figure


def _draw_panel(axes: Any, title: str, traces: Sequence[CurveTrace]) -> None:
    """Training is a line, dev a line with marks; a ring marks the validation whose weights were kept."""
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.set_title(title, fontsize=USUAL, loc="left")
    axes.grid(axis="y", color="0.88", linewidth=0.6)
    plain_axes(axes)
    if not traces:
        axes.text(0.5, 0.5, "nothing reported yet", transform=axes.transAxes, ha="center", color=GREY)
    trained = any(not trace.dev for trace in traces)
    for trace in traces:
        style = line_style(trace.model) | {"linewidth": 1.1}
        if trace.dev:
            style |= {"markersize": 4.5, "markeredgewidth": 0, "zorder": 3}
            style |= {"linestyle": (0, (1, 1.5))} if trained else {}
        else:  # a line of one point is not visible
            style["marker"] = "." if sum(map(math.isfinite, trace.y)) == 1 else None
        axes.plot(trace.x, trace.y, **style)
        if trace.best:
            ring = {"marker": "o", "markersize": 10, "fillstyle": "none", "markeredgewidth": 1.1}
            axes.plot(*([value] for value in trace.best), color=style["color"], linestyle="none", zorder=4, **ring)
    for side in (axes.xaxis, axes.yaxis):
        side.set_major_formatter(FuncFormatter(lambda value, _: short(value)))
        side.set_major_locator(MaxNLocator(6))
    if traces and not any(trace.dev for trace in traces):
        axes.set_ylim(bottom=0)  # a speed


def short(value: float) -> str:
    """A number with at most about four digits, for an axis: 0.05, 12.5, 800, 2.5k, 1.5M."""
    for size, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.4g}{name}"
    return f"{value:.4g}"


def _explain_marks(axes: Any) -> None:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"color": "0.35", "linewidth": 1.1}
    ring: dict[str, Any] = {"marker": "o", "markersize": 8, "fillstyle": "none", "linestyle": "none", "color": "0.35"}
    handles = [
        Line2D([], [], label="training", **style),
        Line2D([], [], label="dev", linestyle=(0, (1, 1.5)), marker="o", markersize=4, **style),
        Line2D([], [], label="kept as best", **ring),
    ]
    axes.legend(handles=handles, loc="best", frameon=False, fontsize=SMALL, handlelength=2.6)


# The terminal


def render_curves(
    curves: Sequence[Curves], names: Sequence[str], width: int, axis: Axis = "updates", colour: bool = False
) -> str:
    """Charts by plotext, and a table with a column per model, in lines of at most `width` columns, ending in `\\n`.

    A training is a line of braille dots. A validation is ●, and ◆ if its weights were kept. Several models have
    different colours, or without colours different letters: small for training, capital for dev. A chart has at least
    34 columns. Without plotext, a line in place of the charts says what to install. Raises as `panels`.
    """
    drawn = panels(curves, axis)
    lines = _charts(drawn, names, width, axis, colour) if drawn else ["nothing reported yet", ""]
    rows = list(zip(*map(_figures, curves), strict=True))
    known = [row for row in rows if any(value != "-" for _, value in row)]
    table = TextTable(
        ["", *(cut(name, max(12, min(24, width - 20))) for name in names)],
        [[row[0][0], *(value for _, value in row)] for row in known],
    )
    for piece in table.pieces(width):
        lines += [*piece.lines(), ""]
    return "".join(f"{line.rstrip()}\n" for line in [*lines, *_signatures(curves, names)])


def _charts(
    drawn: Mapping[str, Sequence[CurveTrace]], names: Sequence[str], width: int, axis: Axis, colour: bool
) -> list[str]:
    """The charts, two side by side if they fit, and below them what the signs mean."""
    try:
        import plotext
    except ImportError:
        return ["charts in the terminal need plotext: pip install 'nmtalign[plot]'", ""]
    lettered = len(names) > 1 and not colour
    across = min(len(drawn), max(1, width // _LEAST))
    lines: list[str] = []
    for start in range(0, len(drawn), across):
        row = list(drawn.items())[start : start + across]
        plotext.main()
        plotext.clear_figure()  # plotext keeps one figure for the process
        plotext.theme("clear")
        plotext.limit_size(False, False)
        plotext.plot_size(len(row) * min(_MOST, max(_LEAST, width // across)), _ROWS)
        plotext.subplots(1, len(row))
        for number, (title, traces) in enumerate(row, 1):
            _draw_chart(plotext.subplot(1, number), title, traces, axis, lettered)
        plotext.main()
        lines += (plotext.build() if colour else plotext.uncolorize(plotext.build())).splitlines()
    signs = []
    for model, name in enumerate(names if len(names) > 1 else ()):
        sign = _LETTERS[model % len(_LETTERS)]
        sign = sign if lettered else f"\x1b[38;5;{_COLOURS[model % len(_COLOURS)]}m⠤⠤\x1b[0m"
        signs.append(f"{sign} {cut(name, width - 3)}")
    if any(trace.dev for traces in drawn.values() for trace in traces):
        signs.append("capital letter: dev" if lettered else f"{DEV} dev  {KEPT} kept as best")
    return [*lines, "", *signs, ""]


def _draw_chart(chart: Any, title: str, traces: Sequence[CurveTrace], axis: Axis, lettered: bool) -> None:
    """Training is a line with gaps where a value is not finite; validations are marks, joined if there is no line."""
    chart.title(title)
    chart.xlabel(axis)
    trained = any(not trace.dev for trace in traces)
    if not any(trace.dev for trace in traces):  # a speed
        chart.ylim(0, max(y for trace in traces for y in trace.y if math.isfinite(y)))
    for trace in traces:
        letter, colour = _LETTERS[trace.model % len(_LETTERS)], _COLOURS[trace.model % len(_COLOURS)]
        points = zip(trace.x, trace.y, strict=True)
        for finite, group in itertools.groupby(points, lambda point: all(map(math.isfinite, point))):
            x, y = zip(*((x, min(y, _LARGEST)) for x, y in group), strict=True)
            if finite and not (trace.dev and trained):
                chart.plot(x, y, marker=letter if lettered else "braille", color=colour)
            if finite and trace.dev:
                chart.scatter(x, y, marker=letter.upper() if lettered else DEV, color=colour)
        if trace.best and not lettered:
            chart.scatter([trace.best[0]], [min(trace.best[1], _LARGEST)], marker=KEPT, color=colour)


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
        ("target words", _shown(last.words, ",.0f")),
        ("ended", curves.ended or "-"),
        ("training loss", _shown(progress.loss if progress else None, ".3f")),
        ("  perplexity", _shown(progress.perplexity if progress else None, ".2f")),
        ("dev loss", _shown(dev.loss if dev else None, ".3f")),
        ("  perplexity", _shown(dev.perplexity if dev else None, ".2f")),
        ("dev BLEU", _shown(dev.bleu if dev else None, ".2f")),
        ("  highest", _shown(max(bleus, default=None), ".2f")),
        ("kept: of update", f"{best.update:,}" if best else "-"),
        ("  dev loss", _shown(best.loss if best else None, ".3f")),
        ("  dev BLEU", _shown(best.bleu if best else None, ".2f")),
        ("target words/s", _shown(progress.words_per_second if progress else None, ",.0f")),
        ("  median", _shown(median(speeds) if speeds else None, ",.0f")),
        ("learning rate", _shown(progress.learning_rate if progress else None, ".3g")),
    ]


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None or not math.isfinite(value) else format(value, form)


def _clock(seconds: float) -> str:
    if not math.isfinite(seconds):
        return "-"
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}"


# The log


def read_curves(path: Path) -> Curves:
    """The curves of a model directory, or of its train.jsonl.

    Raises FormatError with the file and the line if it is not such a log.
    """
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder; {_FIX}")
    curves, line = Curves(path / LOG if path.is_dir() else path), 0
    if not curves.path.is_file() and path.is_dir():
        raise FormatError(f"{path}: no {LOG} in it; {_FIX}")
    try:
        for line, event in _events(curves.path):
            try:
                curves.take(event)
            except (KeyError, TypeError, ValueError, OverflowError):
                raise FormatError(f"{curves.path}: line {line}: not an event of a training; {_FIX}") from None
    except OSError as error:
        raise FormatError(f"{curves.path}: cannot read: {error.strerror}; {_FIX}") from None
    if not line:
        raise FormatError(f"{curves.path}: has no event yet; {_FIX}")
    return curves


def _events(file: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line number, event); an incomplete last line is left out."""
    with file.open("rb") as stream:
        for number, line in enumerate(stream, start=1):
            if not line.strip():
                continue
            try:
                event = parse_json(line.decode())
            except ValueError:
                if number > 1 and not line.endswith(b"\n"):
                    return
                event = None
            if not isinstance(event, dict):
                raise FormatError(f"{file}: line {number}: not an event of a training; {_FIX}")
            yield number, event


def _number(event: Mapping[str, Any], name: str) -> float:
    """A number of an event; nan if it is missing, or null, which means a number that is not finite."""
    value = event.get(name)
    return math.nan if value is None else float(value)
