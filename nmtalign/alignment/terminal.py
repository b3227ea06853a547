"""Heat maps of soft alignments in the terminal: source along x, target along y, as block characters or in grey.

Without colour, ` ░▒▓█` are weights of 0, 1/4, 1/2, 3/4 and 1. With colour, the background of a cell is its weight, from
0 black to 1 white, as in the paper's Figure 3. Gold links are ● (sure) and ○ (possible), hard links +.
"""

import math
import re
import unicodedata
from collections.abc import Sequence
from typing import Any

from rich.cells import cell_len

from nmtalign.alignment.heatmap import Panel, printable
from nmtalign.text.text_table import cut
from nmtalign.text.tokenizer import letters_of

SHADES = " ░▒▓█"
SURE, POSSIBLE, HARD = "●", "○", "+"
_LABEL_COLUMNS = 24  # longer words are cut
_HEADING_ROWS = 16
_GAP = "   "  # between two pictures
_GREYS = (16, *range(232, 256), 231)  # of a terminal's 256 colours, from black to white
_GOLD_COLOUR, _LINK_COLOUR = 208, 33
_RESET = "\x1b[0m"
_COLOUR = re.compile("\x1b\\[[0-9;]*m")  # a change of colour


def render_text(panels: Sequence[Panel], width: int, *, end: bool = True, colour: bool = False) -> str:
    """Draws alignments in lines of at most `width` columns, ending in `\\n`; side by side if they fit.

    A row is a target word. Source words are written downwards above their columns; if they do not all fit side by side,
    the rest follows in further bands. Long words are cut with "…".
    """
    blocks = [_block(panel, width, end, colour) for panel in panels]
    if sum(cell_len(block[0]) for block in blocks) + len(_GAP) * (len(blocks) - 1) <= width:
        blocks = [_beside(blocks)]
    return "\n".join("".join(line.rstrip(" ") + "\n" for line in block) for block in blocks)


def legend(panels: Sequence[Panel]) -> str:
    """Returns a line that explains the marks, "" if there are none."""
    marks = {SURE: "sure", POSSIBLE: "possible"} if any(panel.gold is not None for panel in panels) else {}
    marks |= {HARD: "link"} if any(panel.links for panel in panels) else {}
    return "  ".join(f"{mark} {name}" for mark, name in marks.items())


def _beside(blocks: Sequence[Sequence[str]]) -> list[str]:
    """Returns blocks side by side, aligned at their first lines (captions) and at their last lines."""
    height = max(map(len, blocks))
    padded = [[head, *[" " * cell_len(head)] * (height - 1 - len(rest)), *rest] for head, *rest in blocks]
    return [_GAP.join(parts) for parts in zip(*padded, strict=True)]


def _block(panel: Panel, width: int, end: bool, colour: bool) -> list[str]:
    """Returns the lines of a picture, which all have the same number of columns."""
    lines = [cut(printable(panel.caption), width)] if panel.caption else []
    if reason := panel.no_words():
        return _padded([*lines, reason])
    source, target, weights = panel.labels(end=end)
    marks = {link: (sure, hard) for link, sure, hard in panel.marks()}
    limit = max(1, min(_LABEL_COLUMNS, width - 4))
    names = [cut(_plain(word), limit) for word in target]
    margin = max(map(cell_len, names))
    cell = _cell_columns(panel, source, width - margin - 1, colour)
    bands = math.ceil(len(source) / max(1, (width - margin - 1) // cell))
    per_band = math.ceil(len(source) / bands)  # bands of about equal length
    for start in range(0, len(source), per_band):
        if start:
            lines.append("")
        stop = min(start + per_band, len(source))
        lines += [" " * (margin + 1) + line for line in _heading(source[start:stop], cell)]
        for j, (name, row) in enumerate(zip(names, weights[:, start:stop], strict=True)):
            cells = _row(row, [marks.get((i, j), (None, False)) for i in range(start, stop)], cell, colour)
            lines.append(" " * (margin - cell_len(name)) + name + " " + cells)
    return _padded(lines)


def _padded(lines: Sequence[str]) -> list[str]:
    widths = [cell_len(_COLOUR.sub("", line)) for line in lines]
    return [line + " " * (max(widths) - width) for line, width in zip(lines, widths, strict=True)]


def _cell_columns(panel: Panel, source: Sequence[str], room: int, colour: bool) -> int:
    """Returns the columns of a cell: 2, about square, or 1 if all source words fit side by side only then.

    Without colour a mark needs its own column beside the shade.
    """
    marks = (panel.gold is not None) + panel.links
    cell, least = (2, max(1, marks)) if colour else (max(2, 1 + marks), 1 + marks)
    narrow = all(cell_len(letter) < 2 for word in source for letter in letters_of(word))
    return 1 if least == 1 and narrow and len(source) <= room < cell * len(source) else cell


def _row(weights: Any, marks: Sequence[tuple[bool | None, bool]], cell: int, colour: bool) -> str:
    draw = _grey if colour else _shaded
    cells = "".join(draw(weight, *mark, cell) for weight, mark in zip(weights, marks, strict=True))
    return cells + _RESET if colour else cells


def _level(weight: float, levels: int) -> int:
    return int(min(max(weight, 0.0), 1.0) * (levels - 1) + 0.5)


def _shaded(weight: float, sure: bool | None, hard: bool, cell: int) -> str:
    shade = SHADES[_level(weight, len(SHADES))]
    gold = shade if sure is None else SURE if sure else POSSIBLE
    if cell == 1:
        return shade
    if cell == 3:
        return shade + (HARD if hard else shade) + gold
    return shade + (HARD if hard else gold)


def _grey(weight: float, sure: bool | None, hard: bool, cell: int) -> str:
    """Draws a cell on grey: with two columns the first shows the hard link, the second the gold link."""
    marks = [f"\x1b[38;5;{_LINK_COLOUR}m{HARD}"] if hard else []
    marks += [] if sure is None else [f"\x1b[38;5;{_GOLD_COLOUR}m{SURE if sure else POSSIBLE}"]
    return f"\x1b[48;5;{_GREYS[_level(weight, len(_GREYS))]}m" + " " * (cell - len(marks)) + "".join(marks)


def _heading(words: Sequence[str], cell: int) -> list[str]:
    """Returns the words written downwards, with their ends on one line."""
    letters = [letters_of(cut(_plain(word), _HEADING_ROWS)) for word in words]
    height = max(map(len, letters))
    rows = zip(*([" "] * (height - len(word)) + word for word in letters), strict=True)
    return ["".join(letter + " " * (cell - cell_len(letter)) for letter in row) for row in rows]


def _plain(word: str) -> str:
    """Returns the word without format characters, to which a terminal may give a column."""
    return "".join(letter for letter in word if unicodedata.category(letter) != "Cf")
