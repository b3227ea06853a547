"""Pictures of soft alignments as in the paper's Figure 3: source along x, target along y, grey from 0 black to 1 white.

matplotlib is needed for picture files only, and imported only then.
"""

import math
import unicodedata
import warnings
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from nmtalign.alignment.record import AlignmentRecord, Matrix
from nmtalign.errors import UsageError
from nmtalign.files import atomic_path
from nmtalign.text.vocabulary import EOS

SHADES = " ░▒▓█"  # weight 0, 1/4, 1/2, 3/4, 1
FORMATS = ("png", "svg", "pdf")
_CELL_COLUMNS = 2  # columns of the terminal a cell: about square
_LABEL_COLUMNS = 24  # longer words are cut in the terminal
_HEADING_ROWS = 16

_CELL = 0.22  # inches
_SIDE = 40.0  # inches at most: cells and letters shrink where a picture would be larger
_FONT = 0.62 * 72  # points an inch of cell
_LETTER = 0.6  # mean width of a letter in heights of the font


def labels(record: AlignmentRecord, *, end: bool = True) -> tuple[list[str], list[str], Matrix]:
    """(source words, target words, weights) to draw, with or without the row and the column of `</s>`."""
    source, target = ([_printable(word) for word in side] for side in (record.source, record.target))
    if end:
        return [*source, EOS], [*target, EOS], record.weights
    return source, target, record.weights[:-1, :-1]


def _printable(word: str) -> str:
    """The word with its accents composed, and what would move the cursor or show nothing replaced by a dot."""
    return "".join(letter if letter.isprintable() else "·" for letter in unicodedata.normalize("NFC", word))


def no_words(record: AlignmentRecord) -> str:
    """Why there is nothing to draw; "" where there is something."""
    if not record.empty():
        return ""
    return f"nothing to draw: {len(record.source)} source words, {len(record.target)} target words"


# --- the terminal ---


def render_text(record: AlignmentRecord, width: int, *, end: bool = True) -> str:
    """The alignment in block characters, a row a target word, lines of at most `width` columns, ending in `\\n`.

    █ stands for 1 (white on a dark terminal), a space for 0. Source words are written downwards over their columns;
    where they do not all fit side by side, the rest follows in further bands. Long words are cut with "…".
    """
    if reason := no_words(record):
        return reason + "\n"
    source, target, weights = labels(record, end=end)
    limit = max(1, min(_LABEL_COLUMNS, width - _CELL_COLUMNS - 1))
    names = [_cut(word, limit) for word in target]
    margin = max(map(_columns, names))
    per_band = max(1, (width - margin - 1) // _CELL_COLUMNS)
    bands = []
    for start in range(0, len(source), per_band):
        stop = start + per_band
        lines = [" " * (margin + 1) + line for line in _heading(source[start:stop])]
        for name, row in zip(names, weights[:, start:stop], strict=True):
            lines.append(" " * (margin - _columns(name)) + name + " " + "".join(map(_shade, row)))
        bands.append("".join(line.rstrip() + "\n" for line in lines))
    return "\n".join(bands)


def _shade(weight: float) -> str:
    level = min(max(weight, 0.0), 1.0) * (len(SHADES) - 1)
    return SHADES[int(level + 0.5)] * _CELL_COLUMNS


def _heading(words: Sequence[str]) -> list[str]:
    """The words written downwards, their ends on one line."""
    letters = [_letters(_cut(word, _HEADING_ROWS)) for word in words]
    height = max(map(len, letters))
    rows = zip(*([" "] * (height - len(word)) + word for word in letters), strict=True)
    return ["".join(letter + " " * (_CELL_COLUMNS - _columns(letter)) for letter in row) for row in rows]


def _letters(word: str) -> list[str]:
    """What stands in a place of its own: a letter with the marks that combine with it."""
    letters: list[str] = []
    for character in word:
        if letters and _columns(character) == 0:
            letters[-1] += character
        else:
            letters.append(character)
    return letters


def _columns(text: str) -> int:
    """Columns of a terminal that a text takes: wide letters two, combining marks none."""
    return sum(_letter_columns(letter) for letter in text)


def _letter_columns(letter: str) -> int:
    if unicodedata.category(letter) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1


def _cut(word: str, limit: int) -> str:
    if _columns(word) <= limit:
        return word
    letters = _letters(word)
    fitting = sum(1 for used in accumulate(map(_columns, letters)) if used <= limit - 1)
    return "".join(letters[:fitting]) + "…"


# --- picture files ---


def check_figure_name(path: Path) -> str:
    """The format that the name asks for; raises UsageError for a name that asks for none of png, svg, pdf."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"{path}: give a name that ends in .png, .svg or .pdf")
    return kind


def draw(records: Sequence[AlignmentRecord], path: Path, *, captions: Sequence[str] = (), end: bool = True) -> None:
    """Writes a picture of one or several alignments (a grid), whole or not at all.

    Raises UsageError for a name without a known ending, for a pair without words, and where matplotlib is missing.
    """
    kind = check_figure_name(path)
    try:
        import matplotlib as mpl
    except ImportError:
        raise UsageError(
            'pictures need matplotlib: pip install "nmtalign[plot]"; without -o the picture is drawn in the terminal'
        ) from None
    # Neither the user's matplotlibrc nor the date of the day changes the file.
    dates = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind)
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        mpl.rcParams["svg.hashsalt"] = "nmtalign"
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = make_figure(records, captions=captions, end=end)
        with atomic_path(path) as temporary:
            figure.savefig(temporary, format=kind, dpi=150, bbox_inches="tight", pad_inches=0.05, metadata=dates)


def make_figure(records: Sequence[AlignmentRecord], *, captions: Sequence[str] = (), end: bool = True) -> Any:
    """The matplotlib figure of `draw`: each alignment has axes of its own, with cells of the same size."""
    from matplotlib.figure import Figure

    for record in records:
        if reason := no_words(record):
            raise UsageError(f"sentence {record.sentence_id}: {reason}; choose another one")
    panels = [labels(record, end=end) for record in records]
    across = math.ceil(math.sqrt(len(panels)))
    widths, heights = _grid(panels, across, bool(captions))
    cell = min(_CELL, _SIDE / max(sum(widths), sum(heights)))
    figure = Figure(figsize=(sum(widths) * cell, sum(heights) * cell))
    lefts, tops = [0.0, *accumulate(widths)], [0.0, *accumulate(heights)]
    for number, panel in enumerate(panels):
        row, column = divmod(number, across)
        source, target, _ = panel
        left = lefts[column] + widths[column] - len(source) - 1
        bottom = sum(heights) - tops[row] - _letters_high(source) - len(target)
        box = (left / sum(widths), bottom / sum(heights), len(source) / sum(widths), len(target) / sum(heights))
        _panel(figure.add_axes(box), panel, cell * _FONT)
        if captions:
            figure.axes[-1].set_xlabel(captions[number], fontsize=cell * _FONT, parse_math=False)
    return figure


def _grid(
    panels: Sequence[tuple[list[str], list[str], Matrix]], across: int, captioned: bool
) -> tuple[list[float], list[float]]:
    """The widths of the columns and the heights of the rows of a grid of panels, in cells, words included."""
    widths = [0.0] * across
    heights = [0.0] * math.ceil(len(panels) / across)
    for number, (source, target, _) in enumerate(panels):
        row, column = divmod(number, across)
        widths[column] = max(widths[column], _letters_high(target) + len(source) + 1)
        heights[row] = max(heights[row], _letters_high(source) + len(target) + (3 if captioned else 1))
    return widths, heights


def _letters_high(words: Sequence[str]) -> float:
    """The length of the longest word in cells."""
    return max(map(_columns, words)) * _LETTER * _FONT / 72 + 1


def _panel(axes: Any, panel: tuple[list[str], list[str], Matrix], size: float) -> None:
    source, target, weights = panel
    axes.imshow(weights, cmap="gray", vmin=0, vmax=1, interpolation="nearest", aspect="auto")
    # A `$` in a text is not the start of a formula.
    axes.set_xticks(range(len(source)), source, rotation=90, fontsize=size, parse_math=False)
    axes.set_yticks(range(len(target)), target, fontsize=size, parse_math=False)
    axes.tick_params(length=0, top=True, labeltop=True, bottom=False, labelbottom=False)
