"""Learning curves as a picture: loss, perplexity, dev BLEU and speed of one or several models, in colours."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from nmtalign.training.curves import Axis, CurvePanel, Curves, CurveTrace, panels, short, signatures

_PANEL = (3.9, 2.6)  # inches
_LABELS = {"updates": "updates", "epochs": "epochs", "hours": "hours of training", "words": "target words"}


def draw_curves(curves: Sequence[Curves], names: Sequence[str], path: Path, axis: Axis = "updates") -> list[str]:
    """Writes a .png, .svg or .pdf file; returns notes for the reader, one sentence each.

    Raises UsageError for a name without a known ending, where matplotlib is missing, and as `panels`.
    """
    kind = check_figure_name(path)
    need_matplotlib()
    with usual_settings(names, kind) as notes:
        save(curve_figure(curves, names, axis), path)
    return notes


def curve_figure(curves: Sequence[Curves], names: Sequence[str], axis: Axis = "updates") -> Any:
    """The matplotlib figure: one pair of axes per panel, two side by side."""
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    drawn = panels(curves, axis) or [CurvePanel("loss per word", ())]
    across = min(2, len(drawn))
    down = math.ceil(len(drawn) / across)
    figure = Figure(figsize=(_PANEL[0] * across, _PANEL[1] * down))
    grid = figure.subplots(down, across, squeeze=False, gridspec_kw={"hspace": 0.42, "wspace": 0.2})
    places = grid.flatten()
    reach = max((x for panel in drawn for trace in panel.traces for x in trace.x if math.isfinite(x)), default=0) or 1
    for number, (axes, panel) in enumerate(zip(places, drawn, strict=False)):
        _draw_panel(axes, panel, with_key=number == 0)
        axes.set_xlim(-0.02 * reach, 1.04 * reach)
        axes.set_xlabel(_LABELS[axis], fontsize=USUAL - 1)
    for axes in places[len(drawn) :]:
        axes.remove()
    lines = [Line2D([], [], **line_style(model)) for model in range(len(names))]
    width = figure.get_figwidth() * (places[across - 1].get_position().x1 - places[0].get_position().x0)
    _legend(figure, places[0], lines, names, width)
    small_print(figure, signatures(curves, names))
    return figure


def _legend(figure: Any, first: Any, lines: Sequence[Any], names: Sequence[str], width: float) -> None:
    """The legend of the models, on invisible axes above all panels and their titles."""
    box = first.get_position()
    height = 0.3 / figure.get_figheight()
    holder = figure.add_axes((box.x0, box.y1, box.width, height))
    holder.set_axis_off()
    legend_above(holder, lines, names, width)


def _draw_panel(axes: Any, panel: CurvePanel, with_key: bool) -> None:
    axes.set_title(panel.title, fontsize=USUAL, loc="left")
    axes.grid(axis="y", color="0.88", linewidth=0.6)
    plain_axes(axes)
    if not panel.values:
        axes.text(0.5, 0.5, "nothing reported yet", transform=axes.transAxes, ha="center", color=GREY)
        return
    trained = any(not trace.dev for trace in panel.traces)
    for trace in panel.traces:
        _draw_trace(axes, trace, beside_training=trained)
    _scale(axes, panel)
    if with_key and any(trace.dev and trace.x for trace in panel.traces):
        _key(axes)


def _draw_trace(axes: Any, trace: CurveTrace, beside_training: bool) -> None:
    """Training is a line, dev a line with marks; a ring marks the validation whose weights were kept."""
    style = line_style(trace.model) | {"linewidth": 1.1}
    if trace.dev:
        style |= {"markersize": 4.5, "markeredgewidth": 0, "zorder": 3}
        style |= {"linestyle": (0, (1, 1.5))} if beside_training else {}
    else:  # a line of one point is not visible
        style["marker"] = "." if sum(map(math.isfinite, trace.y)) == 1 else None
    axes.plot(trace.x, trace.y, **style)
    if trace.best:
        ring = {"marker": "o", "markersize": 10, "fillstyle": "none", "markeredgewidth": 1.1}
        axes.plot(*([value] for value in trace.best), color=style["color"], linestyle="none", zorder=4, **ring)


def _scale(axes: Any, panel: CurvePanel) -> None:
    """Numbers at the axes as `short`; a speed is seen from 0."""
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    plain = FuncFormatter(lambda value, _: short(value))
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_major_locator(MaxNLocator(6))
    if panel.from_zero:
        axes.set_ylim(bottom=0)
    if panel.log:
        axes.set_yscale("log")
        narrow = max(panel.values) < 10 * min(panel.values)
        axes.yaxis.set_major_locator(MaxNLocator(5) if narrow else LogLocator(subs=(1, 2, 5), numticks=8))
        axes.yaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(plain)


def _key(axes: Any) -> None:
    from matplotlib.lines import Line2D

    style: dict[str, Any] = {"color": "0.35", "linewidth": 1.1}
    ring: dict[str, Any] = {"marker": "o", "markersize": 8, "fillstyle": "none", "linestyle": "none", "color": "0.35"}
    handles = [
        Line2D([], [], label="training", **style),
        Line2D([], [], label="dev", linestyle=(0, (1, 1.5)), marker="o", markersize=4, **style),
        Line2D([], [], label="kept as best", **ring),
    ]
    axes.legend(handles=handles, loc="best", frameon=False, fontsize=SMALL, handlelength=2.6)
