"""Picture files of soft alignments as in the paper's Figure 3: source along x, target along y, 0 black to 1 white.

A filled dot is a sure gold link, a dashed ring one that is only possible, a frame a hard link. matplotlib is needed for
picture files only, and imported only then.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

from nmtalign.alignment.panels import Panel
from nmtalign.errors import UsageError
from nmtalign.figures import check_figure_name, need_matplotlib, save, svg_for_page, usual_settings

_CELL = 0.22  # inches
_SIDE = 40.0  # inches at most: cells and letters shrink where a picture would be larger
_FONT = 0.62 * 72  # points an inch of cell
_EM = _FONT / 72  # cells a point of the font's size
_DPI, _PIXELS_A_CELL, _PIXELS = 150, 13, 8_000  # of a PNG: usual, for words to be read, a side at most
_GOLD, _LINK = "#ff7f0e", "#2b8cff"  # as far from black as from white
_BAR = 3.0  # cells that the colour bar takes


def draw(
    panels: Sequence[Panel], path: Path, *, across: int | None = None, end: bool = True, color_bar: bool = False
) -> list[str]:
    """Writes a picture of one or several alignments (a grid `across` panels wide), whole or not at all.

    Returns what its reader should know, a sentence each: letters for which this machine has no font, which are boxes
    then (an SVG holds text, and whoever shows it has the fonts), and words too small to be read. Raises
    UsageError for a name without a known ending, for a pair without words, and where matplotlib is missing.
    """
    kind = check_figure_name(path)
    need_matplotlib("without -o the picture is drawn in the terminal")
    words = {word for panel in panels for side in panel.labels(end=end)[:2] for word in side}
    with usual_settings([*words, *(panel.caption for panel in panels)], kind) as notes:
        figure = make_figure(panels, across=across, end=end, color_bar=color_bar)
        first, sides = figure.axes[0], figure.get_size_inches()
        cell = first.get_position().width * sides[0] / first.images[0].get_array().shape[1]  # inches
        dpi = min(max(_DPI, _PIXELS_A_CELL / cell), _PIXELS / max(sides))
        save(figure, path, dpi)
    if kind == "png" and cell * dpi < 0.8 * _PIXELS_A_CELL:
        notes.append("the words are too small to be read; write an .svg or a .pdf, which can be magnified")
    return notes


def heatmap_svg(panels: Sequence[Panel], title: str, *, end: bool = True) -> str:
    """One or several alignments beside each other as an `<svg>` element for a page of HTML; raises as `draw`."""
    need_matplotlib()
    with usual_settings([], "svg"):
        return svg_for_page(make_figure(panels, across=len(panels), end=end), title)


@dataclass(frozen=True)
class _Box:
    """A panel and what it takes, in cells: the words beside and above, the matrix, the caption below."""

    panel: Panel
    labels: tuple[list[str], list[str], Any]
    left: float
    top: float
    over: float  # how far the caption reaches beyond the matrix on either side

    @property
    def columns(self) -> int:
        return len(self.labels[0])

    @property
    def rows(self) -> int:
        return len(self.labels[1])


def make_figure(
    panels: Sequence[Panel], *, across: int | None = None, end: bool = True, color_bar: bool = False
) -> Any:
    """The matplotlib figure of `draw`: each alignment has axes of its own, with cells of the same size."""
    from matplotlib.figure import Figure

    boxes = [_box(panel, end) for panel in panels]
    across = across or math.ceil(math.sqrt(len(boxes)))
    lefts, rights, above, heights = _grid(boxes, across)
    widths = [left + right for left, right in zip(lefts, rights, strict=True)]
    marks = any(panel.gold is not None or panel.links for panel in panels)
    height, width = sum(heights) + 1.2 * marks, sum(widths) + _BAR * color_bar
    cell = min(_CELL, _SIDE / max(width, height))
    figure = Figure(figsize=(width * cell, height * cell))
    starts, tops = [0.0, *accumulate(widths)], [0.0, *accumulate(heights)]
    for number, box in enumerate(boxes):
        row, column = divmod(number, across)
        left = starts[column] + lefts[column]
        bottom = height - tops[row] - above[row] - box.rows
        place = (left / width, bottom / height, box.columns / width, box.rows / height)
        _panel(figure.add_axes(place), box, cell)
    if color_bar:
        _color_bar(figure, (sum(widths) + 0.2) / width, 0.8 / width, cell)
    if marks:
        _legend(figure, panels, cell)
    return figure


def _box(panel: Panel, end: bool) -> _Box:
    if reason := panel.no_words():
        raise UsageError(f"sentence {panel.record.sentence_id}: {reason}; choose another one")
    source, target, weights = panel.labels(end=end)
    caption = max(map(_length, panel.caption.split("\n")))
    over = max(0.0, (caption - len(source)) / 2)
    left, top = (max(map(_length, words)) + 1 for words in (target, source))
    return _Box(panel, (source, target, weights), left, top, over)


def _grid(boxes: Sequence[_Box], across: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """What a grid of panels takes, words and captions included, in cells.

    (to the left of the matrices of each column, from there to the right, above the matrices of each row, a row's whole)
    """
    lefts, rights = [0.0] * across, [0.0] * across
    above, below = ([0.0] * math.ceil(len(boxes) / across) for _ in range(2))
    for number, box in enumerate(boxes):
        row, column = divmod(number, across)
        lefts[column] = max(lefts[column], box.left, box.over)
        rights[column] = max(rights[column], box.columns + max(box.over, 1))
        caption = box.panel.caption.count("\n") + 2.5 if box.panel.caption else 0.8
        above[row] = max(above[row], box.top)
        below[row] = max(below[row], box.rows + caption)
    return lefts, rights, above, [top + rest for top, rest in zip(above, below, strict=True)]


def _length(word: str) -> float:
    """The length of a word in cells, as it is drawn."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size = 20.0
    width, _, _ = text_to_path.get_text_width_height_descent(word, FontProperties(size=size), ismath=False)
    return float(width / size * _EM)


def _panel(axes: Any, box: _Box, cell: float) -> None:
    source, target, weights = box.labels
    size = cell * _FONT
    axes.imshow(weights, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    # A `$` in a text is not the start of a formula.
    axes.set_xticks(range(len(source)), source, rotation=90, fontsize=size, parse_math=False)
    axes.set_yticks(range(len(target)), target, fontsize=size, parse_math=False)
    axes.tick_params(length=0, pad=size / 3, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_linewidth(0.05 * 72 * cell)
    if box.panel.caption:
        axes.set_xlabel(box.panel.caption, fontsize=size, labelpad=size / 2, parse_math=False)
    _marks(axes, box.panel, 72 * cell)


def _marks(axes: Any, panel: Panel, points: float) -> None:
    """Gold links and hard links over the cells; `points` is the side of a cell. Light edges part them from the grey."""
    from matplotlib.patches import Circle, Rectangle

    for (i, j), sure, hard in panel.marks():
        if hard:
            frame = Rectangle((i - 0.4, j - 0.4), 0.8, 0.8, fill=False, edgecolor=_LINK, linewidth=0.1 * points)
            axes.add_patch(frame)
        if sure:
            axes.add_patch(Circle((i, j), 0.22, facecolor=_GOLD, edgecolor="white", linewidth=0.04 * points))
        elif sure is not None:
            axes.add_patch(
                Circle((i, j), 0.25, fill=False, edgecolor=_GOLD, linewidth=0.09 * points, linestyle=(0, (1.7, 1)))
            )


def _legend(figure: Any, panels: Sequence[Panel], cell: float) -> None:
    from matplotlib.lines import Line2D

    points = 72 * cell
    kinds: list[tuple[str, dict[str, Any]]] = []
    if any(panel.gold is not None for panel in panels):
        kinds.append(("sure", {"marker": "o", "markerfacecolor": _GOLD, "markeredgewidth": 0}))
        ring = {"marker": "$\u25cc$", "markerfacecolor": _GOLD, "markeredgewidth": 0, "markersize": 0.6 * points}
        kinds.append(("possible", ring))
    if any(panel.links for panel in panels):
        kinds.append(("link", {"marker": "s", "markerfacecolor": "none", "markeredgewidth": 0.1 * points}))
    usual: dict[str, Any] = {"linestyle": "none", "markersize": 0.5 * points, "markeredgecolor": _LINK}
    handles = [Line2D([], [], label=name, **(usual | style)) for name, style in kinds]
    figure.legend(
        handles=handles, loc="lower center", ncols=len(handles), frameon=False, fontsize=cell * _FONT,
        handletextpad=0.1, columnspacing=1.2, borderpad=0, borderaxespad=0,
    )  # fmt: skip


def _color_bar(figure: Any, left: float, width: float, cell: float) -> None:
    """A bar beside the first row of panels, as high as its first panel."""
    first = figure.axes[0].get_position()
    axes = figure.add_axes((left, first.y0, width, first.height))
    bar = figure.colorbar(figure.axes[0].images[0], cax=axes)
    bar.set_ticks([0, 0.5, 1])
    axes.tick_params(labelsize=cell * _FONT, length=0)
