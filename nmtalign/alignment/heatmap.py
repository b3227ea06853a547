"""Heat maps of soft alignments as in the paper's Figure 3: source along x, target along y, 0 black to 1 white.

A `Panel` is one alignment to draw, in a picture file (here) or in the terminal (`nmtalign.alignment.terminal`). In a
picture a filled dot is a sure gold link, a dashed ring one that is only possible, and a frame a hard link. matplotlib
is imported only when a picture file is drawn.

A heat map is not an explanation. The weights show from where the model read when it wrote a word, not why it wrote it.
Jain & Wallace (2019) changed attention weights of text classifiers without changing their answers; Wiegreffe & Pinter
(2019) showed limits of that finding, and neither article makes weights a reason.
"""

import contextlib
import math
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmtalign.alignment.link_files import GoldLinks, LinkFile
from nmtalign.alignment.links import AlignmentRecord, Link, Matrix
from nmtalign.errors import InputError, UsageError
from nmtalign.figures import check_figure_name, need_matplotlib, save, svg_for_page, usual_settings
from nmtalign.text.vocabulary import EOS

if TYPE_CHECKING:
    from nmtalign.alignment.alignment_file import AlignmentFile

_CELL = 0.22  # inches
_SIDE = 40.0  # largest side in inches; cells and letters of larger pictures shrink
_FONT = 0.62 * 72  # points of the font per inch of cell
_EM = _FONT / 72  # cells per point of the font's size
_DPI, _PIXELS_A_CELL, _PIXELS = 150, 13, 8_000  # a PNG's resolution, pixels per cell to read its words, largest side
_GOLD, _LINK = "#ff7f0e", "#2b8cff"  # colours with contrast to both black and white
_BAR = 3.0  # width of the colour bar in cells
_JOINERS = "\u200c\u200d"  # visible only in the shape of the letters beside them
_DOT = "·"


@dataclass(frozen=True)
class Panel:
    """One alignment to draw, with the marks over it."""

    record: AlignmentRecord
    caption: str = ""
    gold: GoldLinks | None = None
    links: bool = False  # also draw the hard links of the record

    def no_words(self) -> str:
        """Returns why there is nothing to draw, "" if there is something."""
        if not self.record.empty():
            return ""
        return f"nothing to draw: {len(self.record.source)} source words, {len(self.record.target)} target words"

    def labels(self, *, end: bool = True) -> tuple[list[str], list[str], Matrix]:
        """Returns (source words, target words, weights) to draw, with the row and the column of `</s>` or without.

        They are never drawn if the record has none.
        """
        source, target = ([printable(word) for word in side] for side in (self.record.source, self.record.target))
        if not self.record.end:
            return source, target, self.record.weights
        if end:
            return [*source, EOS], [*target, EOS], self.record.weights
        return source, target, self.record.weights[:-1, :-1]

    def marks(self) -> Iterator[tuple[Link, bool | None, bool]]:
        """Yields (link, whether it is a sure gold link or None if no gold link, whether it is a hard link)."""
        hard = set(self.record.hard_links) if self.links else set()
        gold = self.gold.possible if self.gold else frozenset()
        for link in sorted(gold | hard):
            yield link, (link in self.gold.sure if self.gold and link in gold else None), link in hard


def printable(word: str) -> str:
    """Returns the word with composed accents, and a dot for each character that moves the cursor or is invisible."""
    composed = unicodedata.normalize("NFC", word)
    shown = "".join(letter if letter.isprintable() or letter in _JOINERS else _DOT for letter in composed)
    return shown if shown.strip(_JOINERS + " ") else _DOT


def read_panels(
    files: Sequence[tuple[str, Path]],
    numbers: Sequence[int],
    rank: int = 0,
    gold: LinkFile | None = None,
    *,
    links: bool = False,
    short_captions: bool = False,
) -> list[Panel]:
    """Reads the alignments of some sentences (by number, from 0) from (name, path) files: for each sentence all files.

    `rank` is the place in n-best lists, `links` also draws the hard links. Captions name the file and the sentence;
    with `short_captions` only what distinguishes the panels. Raises UsageError for a sentence that a file does not
    have, InputError if the files have different sources, or gold links do not fit.
    """
    from nmtalign.alignment.alignment_file import AlignmentFile
    from nmtalign.alignment.link_files import check_gold

    panels = []
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(AlignmentFile(path)) for _, path in files]
        if gold is not None:
            check_gold(gold, opened[0])
        for number in numbers:
            records = [_record(file, number, rank) for file in opened]
            _check_same_source(opened, records, number)
            for (name, _), record in zip(files, records, strict=True):
                caption = _caption(record, name if len(files) > 1 else "", len(numbers) > 1, short_captions)
                if gold is not None:
                    gold.check_inside(record.sentence_id, len(record.source), len(record.target))
                panels.append(Panel(record, caption, gold.pair(record.sentence_id) if gold else None, links))
    return panels


def _record(file: "AlignmentFile", number: int, rank: int) -> AlignmentRecord:
    entries = file.sentence(number) if number >= 0 else []
    if not entries:
        known = f"choose one from {file[0].sentence_id} to {file[-1].sentence_id}" if len(file) else "the file has none"
        raise UsageError(f"{file.path}: no sentence {number}: {known}")
    if rank >= len(entries):
        raise UsageError(
            f"{file.path}: sentence {number} has {len(entries)} entries; give a --rank from 0 to {len(entries) - 1}"
        )
    return entries[rank]


def _check_same_source(files: "Sequence[AlignmentFile]", records: Sequence[AlignmentRecord], number: int) -> None:
    for file, record in zip(files[1:], records[1:], strict=True):
        if record.source != records[0].source:
            pairs = zip_longest(records[0].source, record.source)
            left, right = next((one, other) for one, other in pairs if one != other)
            words = " instead of ".join("nothing" if word is None else repr(word) for word in (right, left))
            raise InputError(
                f"{file.path}: sentence {number} has another source than in {files[0].path} ({words}); give files of "
                "the same text, tokenised alike"
            )


def _caption(record: AlignmentRecord, name: str, several: bool, short: bool) -> str:
    place = f"sentence {record.sentence_id}" + (f", rank {record.rank}" if record.rank else "")
    if short:
        return ", ".join(part for part in (name, place if several else "") if part)
    known = f", log-probability {record.log_prob:.2f}" if math.isfinite(record.log_prob) else ""
    return (f"{name}: " if name else "") + place + known


def draw(
    panels: Sequence[Panel], path: Path, *, across: int | None = None, end: bool = True, color_bar: bool = False
) -> list[str]:
    """Draws one or several alignments (a grid `across` panels wide) into a picture file, atomically.

    Returns warnings, one sentence each: letters without a font on this machine, drawn as boxes (an SVG contains text
    and needs no font here), and words too small to read. Raises UsageError for a name with an unknown ending, for a
    pair without words, and if matplotlib is missing.
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
    """Returns alignments side by side as an `<svg>` element for an HTML page; raises the errors of `draw`."""
    need_matplotlib()
    with usual_settings([], "svg"):
        return svg_for_page(make_figure(panels, across=len(panels), end=end), title)


class _Box(NamedTuple):
    """A panel and its size in cells: the words beside and above, the matrix, the caption below."""

    panel: Panel
    source: list[str]
    target: list[str]
    weights: Matrix
    left: float
    top: float
    over: float  # how far the caption extends beyond the matrix on each side


def make_figure(
    panels: Sequence[Panel], *, across: int | None = None, end: bool = True, color_bar: bool = False
) -> Any:
    """Returns the matplotlib figure of `draw`: each alignment has its own axes, with cells of the same size."""
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
        bottom = height - tops[row] - above[row] - len(box.target)
        place = (left / width, bottom / height, len(box.source) / width, len(box.target) / height)
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
    left, top = (max(map(_length, words)) + 1 for words in (target, source))
    caption = max(map(_length, panel.caption.split("\n")))
    return _Box(panel, source, target, weights, left, top, max(0.0, (caption - len(source)) / 2))


def _grid(boxes: Sequence[_Box], across: int) -> tuple[list[float], list[float], list[float], list[float]]:
    """Returns the sizes of a grid of panels in cells, words and captions included.

    (left of the matrices of each column, from there to the right, above the matrices of each row, height of each row)
    """
    lefts, rights = [0.0] * across, [0.0] * across
    above, below = ([0.0] * math.ceil(len(boxes) / across) for _ in range(2))
    for number, box in enumerate(boxes):
        row, column = divmod(number, across)
        lefts[column] = max(lefts[column], box.left, box.over)
        rights[column] = max(rights[column], len(box.source) + max(box.over, 1))
        caption = box.panel.caption.count("\n") + 2.5 if box.panel.caption else 0.8
        above[row] = max(above[row], box.top)
        below[row] = max(below[row], len(box.target) + caption)
    return lefts, rights, above, [top + rest for top, rest in zip(above, below, strict=True)]


def _length(word: str) -> float:
    """Returns the drawn length of a word in cells."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size = 20.0
    width, _, _ = text_to_path.get_text_width_height_descent(word, FontProperties(size=size), ismath=False)
    return float(width / size * _EM)


def _panel(axes: Any, box: _Box, cell: float) -> None:
    size = cell * _FONT
    axes.imshow(box.weights, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    # parse_math: a `$` in a text does not start a formula.
    axes.set_xticks(range(len(box.source)), box.source, rotation=90, fontsize=size, parse_math=False)
    axes.set_yticks(range(len(box.target)), box.target, fontsize=size, parse_math=False)
    axes.tick_params(length=0, pad=size / 3, top=True, labeltop=True, bottom=False, labelbottom=False)
    for spine in axes.spines.values():
        spine.set_linewidth(0.05 * 72 * cell)
    if box.panel.caption:
        axes.set_xlabel(box.panel.caption, fontsize=size, labelpad=size / 2, parse_math=False)
    _marks(axes, box.panel, 72 * cell)


def _marks(axes: Any, panel: Panel, points: float) -> None:
    """Draws gold links and hard links over cells with sides of `points`; light edges separate them from the grey."""
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
    """Draws a bar beside the first row of panels, as high as the first panel."""
    first = figure.axes[0].get_position()
    axes = figure.add_axes((left, first.y0, width, first.height))
    bar = figure.colorbar(figure.axes[0].images[0], cax=axes)
    bar.set_ticks([0, 0.5, 1])
    axes.tick_params(labelsize=cell * _FONT, length=0)
