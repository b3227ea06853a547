"""Heat maps of soft alignments as in the paper's Figure 3: source along x, target along y, 0 black to 1 white.

A `Panel` is one alignment to draw, in a picture file or in the terminal. In a picture a filled dot is a sure gold link,
a dashed ring one that is only possible, and a frame a hard link; in the terminal they are ●, ○ and +.

A heat map is not an explanation: it shows from where the model read when it wrote a word, not why it wrote the word.
"""

import contextlib
import math
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import regex
from rich.cells import cell_len

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.alignment.link_files import GoldLinks, LinkFile, check_gold
from nmtalign.alignment.links import AlignmentRecord, Link, Matrix
from nmtalign.errors import InputError, UsageError
from nmtalign.figures import check_figure_name, save, usual_settings
from nmtalign.settings.command_settings import ViewConfig
from nmtalign.text.lines import counted
from nmtalign.text.text_table import cut
from nmtalign.text.tokenizer import EOS, letters_of, normalized

_CELL = 0.22  # inches
_SIDE = 40.0  # largest side in inches; cells and letters of larger pictures shrink
_FONT = 0.62 * 72  # points of the font per inch of cell
_EM = _FONT / 72  # cells per point of the font's size
_DPI, _PIXELS_A_CELL, _PIXELS = 150, 13, 8_000  # a PNG's resolution, pixels per cell to read its words, largest side
_GOLD, _LINK = "#ff7f0e", "#2b8cff"  # colours with contrast to both black and white
_JOINERS = "\u200c\u200d"  # visible only in the shape of the letters beside them
_DOT = "·"

SHADES = " ░▒▓█"
SURE, POSSIBLE, HARD = "●", "○", "+"
_LABEL_COLUMNS, _HEADING_ROWS = 24, 16  # longer words are cut
_GAP = "   "  # between two pictures
_GREYS = (16, *range(232, 256), 231)  # of a terminal's 256 colours, from black to white
_MARK_COLOURS = {SURE: 208, POSSIBLE: 208, HARD: 33}
_COLOUR = regex.compile("\x1b\\[[0-9;]*m")  # a change of colour
_SIGN = regex.compile(r".\p{M}*", regex.DOTALL)  # a part of a letter


@dataclass(frozen=True)
class Panel:
    """One alignment to draw, with the marks over it."""

    record: AlignmentRecord
    caption: str = ""
    gold: GoldLinks | None = None
    links: bool = False  # also draw the hard links of the record
    end: bool = True  # also draw the row and the column of `</s>`

    def no_words(self) -> str:
        """Returns why there is nothing to draw, "" if there is something."""
        if not self.record.empty():
            return ""
        sides = ("source", self.record.source), ("target", self.record.target)
        return f"nothing to draw: {', '.join(counted(len(words), f'{side} word') for side, words in sides)}"

    def labels(self) -> tuple[list[str], list[str], Matrix]:
        """Returns (source words, target words, weights) to draw."""
        source, target = ([printable(word) for word in side] for side in (self.record.source, self.record.target))
        if self.end:
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
    composed = normalized("NFC", word)
    shown = "".join(letter if letter.isprintable() or letter in _JOINERS else _DOT for letter in composed)
    return shown if shown.strip(_JOINERS + " ") else _DOT


def read_panels(
    files: Sequence[tuple[str, Path]], numbers: Iterable[int], config: ViewConfig, gold: LinkFile | None = None
) -> Iterator[Panel]:
    """Yields the alignments of some sentences (by number, from 0) of (name, path) files: for each sentence all files.

    Raises UsageError for a sentence that a file does not have, InputError if the files have different sources, or gold
    links do not fit.
    """
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(AlignmentFile(path)) for _, path in files]
        if gold is not None:
            check_gold(gold, opened[0])
        for number in numbers:
            source = None
            for (name, path), file in zip(files, opened, strict=True):
                record = _record(file, number, config.rank)
                if source not in (None, record.source):
                    fix = "give files of the same text, tokenised alike"
                    raise InputError(f"{path}: sentence {number} has another source than in {files[0][1]}; {fix}")
                source = record.source
                if gold is not None:
                    gold.check_inside(number, len(record.source), len(record.target))
                caption = [name] if len(files) > 1 else []
                caption += [f"sentence {number}" + (f", rank {config.rank}" if config.rank else "")]
                links = gold.pair(number) if gold else None
                yield Panel(record, ": ".join(caption), links, config.hard_links, config.end)


def _record(file: AlignmentFile, number: int, rank: int) -> AlignmentRecord:
    if not (entries := file.sentence(number)):
        known = f"choose one from {file[0].sentence_id} to {file[-1].sentence_id}" if len(file) else "the file has none"
        raise UsageError(f"{file.path}: no sentence {number}: {known}")
    if rank >= len(entries):
        raise UsageError(f"{file.path}: sentence {number} has no rank {rank}; give a --rank up to {len(entries) - 1}")
    return entries[rank]


def draw(panels: Sequence[Panel], path: Path, across: int | None = None) -> list[str]:
    """Draws one or several alignments (a grid `across` panels wide) into a picture file, atomically.

    Returns warnings, one sentence each: letters without a font on this machine, drawn as boxes (an SVG contains text
    and needs no font here), and words too small to read. Raises UsageError for a name with an unknown ending, for a
    pair without words, and if matplotlib is missing.
    """
    kind = check_figure_name(path)
    words = {word for panel in panels for side in panel.labels()[:2] for word in side}
    with usual_settings([*words, *(panel.caption for panel in panels)], kind) as notes:
        figure = make_figure(panels, across)
        first, sides = figure.axes[0], figure.get_size_inches()
        cell = first.get_position().width * sides[0] / first.images[0].get_array().shape[1]  # inches
        dpi = min(max(_DPI, _PIXELS_A_CELL / cell), _PIXELS / max(sides))
        save(figure, path, dpi)
    if kind == "png" and cell * dpi < 0.8 * _PIXELS_A_CELL:
        notes.append("the words are too small to be read; write an .svg or a .pdf, which can be magnified")
    return notes


def make_figure(panels: Sequence[Panel], across: int | None = None) -> Any:
    """Returns the matplotlib figure of `draw`: each alignment has its own axes, with cells of the same size.

    All places of the grid are equally large; sizes are in cells until the size of a cell is known.
    """
    from matplotlib.figure import Figure

    for panel in panels:
        if reason := panel.no_words():
            raise UsageError(f"sentence {panel.record.sentence_id}: {reason}; choose another one")
    drawn = [panel.labels() for panel in panels]
    across = across or math.ceil(math.sqrt(len(panels)))
    left, top = (1 + max(_length(word) for labels in drawn for word in labels[side]) for side in (1, 0))
    columns, rows = (max(len(labels[side]) for labels in drawn) for side in (0, 1))
    caption = max(_length(panel.caption) for panel in panels)  # it is centred below the matrix
    over = max((caption - len(labels[0])) / 2 for labels in drawn)
    left, right = max(left, over), max(1, over)
    marked = any(panel.gold is not None or panel.links for panel in panels)
    step, drop = left + columns + right, top + rows + (2.5 if caption else 0.8)
    down = math.ceil(len(panels) / across)
    width, height = across * step, down * drop + 1.2 * marked
    cell = min(_CELL, _SIDE / max(width, height))
    figure = Figure(figsize=(width * cell, height * cell))
    for number, (panel, (source, target, weights)) in enumerate(zip(panels, drawn, strict=True)):
        x = number % across * step + left
        y = height - number // across * drop - top - len(target)
        axes = figure.add_axes((x / width, y / height, len(source) / width, len(target) / height))
        axes.imshow(weights, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
        size = cell * _FONT
        # parse_math: a `$` in a text does not start a formula.
        axes.set_xticks(range(len(source)), source, rotation=90, fontsize=size, parse_math=False)
        axes.set_yticks(range(len(target)), target, fontsize=size, parse_math=False)
        axes.tick_params(length=0, pad=size / 3, top=True, labeltop=True, bottom=False, labelbottom=False)
        axes.set_xlabel(panel.caption, fontsize=size, labelpad=size / 2, parse_math=False)
        axes.spines[:].set_linewidth(0.05 * 72 * cell)
        _draw_marks(axes, panel, 72 * cell)
    if marked:
        figure.text(0.5, 0, legend(panels).replace(HARD, "▢"), ha="center", fontsize=cell * _FONT)
    return figure


def _length(word: str) -> float:
    """Returns the drawn length of a word in cells."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size = 20.0
    width, _, _ = text_to_path.get_text_width_height_descent(word, FontProperties(size=size), ismath=False)
    return float(width / size * _EM)


def _draw_marks(axes: Any, panel: Panel, points: float) -> None:
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


def render_text(panels: Sequence[Panel], width: int, colour: bool = False) -> str:
    """Draws alignments in lines of at most `width` columns, ending in `\\n`; side by side if they fit.

    A row is a target word, and a cell has two columns. Without colour, ` ░▒▓█` are weights of 0, 1/4, 1/2, 3/4 and 1;
    with colour, the background is the weight, from black to white. Source words are written downwards above their
    columns; if they do not all fit side by side, the rest follows in further bands. Long words are cut with "…".
    """
    blocks = [_block(panel, width, colour) for panel in panels]
    if sum(cell_len(block[0]) for block in blocks) + len(_GAP) * (len(blocks) - 1) <= width:
        height = max(map(len, blocks))
        padded = [[head, *[" " * cell_len(head)] * (height - 1 - len(rest)), *rest] for head, *rest in blocks]
        blocks = [[_GAP.join(lines) for lines in zip(*padded, strict=True)]]
    return "\n".join("".join(line.rstrip(" ") + "\n" for line in block) for block in blocks)


def legend(panels: Sequence[Panel]) -> str:
    """Returns a line that explains the marks, "" if there are none."""
    marks = {SURE: "sure", POSSIBLE: "possible"} if any(panel.gold is not None for panel in panels) else {}
    marks |= {HARD: "link"} if any(panel.links for panel in panels) else {}
    return "  ".join(f"{mark} {name}" for mark, name in marks.items())


def _block(panel: Panel, width: int, colour: bool) -> list[str]:
    """Returns the lines of a picture, which all have the same number of columns."""
    lines = [cut(printable(panel.caption), width)] if panel.caption else []
    if reason := panel.no_words():
        lines.append(cut(reason, width))
    else:
        lines += _matrix(panel, width, colour)
    widths = [cell_len(_COLOUR.sub("", line)) for line in lines]
    widest = max(widths)  # once: a picture of a long pair has thousands of lines
    return [line + " " * (widest - width) for line, width in zip(lines, widths, strict=True)]


def _matrix(panel: Panel, width: int, colour: bool) -> Iterator[str]:
    source, target, weights = panel.labels()
    marks = {link: (sure, hard) for link, sure, hard in panel.marks()}
    names = [cut(_plain(word), max(1, min(_LABEL_COLUMNS, width - 4))) for word in target]
    margin = max(map(cell_len, names))
    bands = math.ceil(len(source) / max(1, (width - margin - 1) // 2))
    band = math.ceil(len(source) / bands)  # bands of about equal length
    for start in range(0, len(source), band):
        if start:
            yield ""
        letters = [_letters(cut(_plain(word), _HEADING_ROWS)) for word in source[start : start + band]]
        height = max(map(len, letters))  # the words are written downwards, with their ends on one line
        for row in zip(*([" "] * (height - len(word)) + word for word in letters), strict=True):
            yield " " * (margin + 1) + "".join(letter + " " * (2 - cell_len(letter)) for letter in row)
        columns = range(start, start + len(letters))
        for j, name in enumerate(names):
            cells = (_cell(weights[j, i], *marks.get((i, j), (None, False)), colour) for i in columns)
            yield " " * (margin - cell_len(name)) + name + " " + "".join(cells) + ("\x1b[0m" if colour else "")


def _cell(weight: float, sure: bool | None, hard: bool, colour: bool) -> str:
    """Two columns: a hard link and a gold link are marks in the place of the shade, the gold link in the second."""
    level = min(1.0, max(0.0, float(weight)))  # in this order NaN, which an untrusted file may have, is 0
    gold = "" if sure is None else SURE if sure else POSSIBLE
    marks = (HARD if hard else "") + gold
    if colour:
        coloured = "".join(f"\x1b[38;5;{_MARK_COLOURS[mark]}m{mark}" for mark in marks)
        return f"\x1b[48;5;{_GREYS[int(level * (len(_GREYS) - 1) + 0.5)]}m" + " " * (2 - len(marks)) + coloured
    return SHADES[int(level * (len(SHADES) - 1) + 0.5)] * (2 - len(marks)) + marks


def _letters(word: str) -> list[str]:
    """Splits a word into letters of at most two columns; those of joined consonants, as in Hindi, may be wider."""
    parts = ([letter] if cell_len(letter) <= 2 else _SIGN.findall(letter) for letter in letters_of(word))
    return list(chain.from_iterable(parts))


def _plain(word: str) -> str:
    """Returns the word without format characters, to which a terminal may give a column."""
    return "".join(letter for letter in word if unicodedata.category(letter) != "Cf")
