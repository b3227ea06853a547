"""Picture files (png, svg, pdf), written atomically and with the same bytes for the same input; SVG for HTML pages.

Only this module needs matplotlib, and it imports it only when a picture is drawn.
"""

import contextlib
import io
import logging
import textwrap
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.files import atomic_path

FORMATS = ("png", "svg", "pdf")
# Colours that colour-blind readers can tell apart too (Okabe & Ito 2008), with different darkness on grey paper; lines
# also differ in their dashes and marks.
COLOURS = ("#0072b2", "#d55e00", "#000000", "#009e73", "#cc79a7", "#56b4e9", "#8b4513", "#e69f00", "#5e3c99", "#7f7f7f")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (6, 2, 1.2, 2)), (0, (8, 2, 2, 2, 2, 2)))
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", "p", ">")
GREY = "#8c8c8c"
SMALL, USUAL = 7, 9  # points
_LETTERS_OF_PRINT = 18  # per inch, at least, of small print
_LETTERS_OF_NAMES, _HANDLE = 11, 8  # per inch; width of the line beside a name
_DPI = 150  # of a PNG
_FIRST = "DejaVu Sans"  # comes with matplotlib
_BOXES = "Last Resort High-Efficiency"  # may be installed as well; its glyphs are boxes
_USUAL = ("400", "normal", "regular", "book")
_TRUETYPE = (b"\x00\x01\x00\x00", b"true")


def check_figure_name(path: Path) -> str:
    """Returns the format of a picture's name; raises UsageError unless it is png, svg or pdf."""
    kind = path.suffix.lower().removeprefix(".")
    if kind not in FORMATS:
        raise UsageError(f"{path}: give a name that ends in .png, .svg or .pdf")
    return kind


def need_matplotlib() -> None:
    """Raises UsageError if matplotlib is missing; it names the package to install."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # not that a home folder cannot be written
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise UsageError('pictures need matplotlib: pip install "nmtalign[plot]"') from None
    except ValueError as error:
        raise UsageError(f"matplotlib cannot read its settings, such as those in matplotlibrc: {error}") from None


@contextlib.contextmanager
def usual_settings(texts: Iterable[str], kind: str) -> Iterator[list[str]]:
    """Sets matplotlib to its defaults, ignoring the user's matplotlibrc, with fonts for the letters of the texts.

    Yields warnings, one sentence each: letters without a font on this machine, which are drawn as boxes. (An SVG
    contains text; the program that shows it chooses the fonts.) Raises the error of `need_matplotlib`.
    """
    need_matplotlib()
    import matplotlib as mpl

    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        fonts, missing = families("".join(texts), embedded=kind == "pdf")
        mpl.rc("font", **{"family": ["sans-serif"], "sans-serif": fonts})
        mpl.rc("svg", hashsalt="nmtalign", fonttype="none")  # text as text
        mpl.rc("pdf", fonttype=42)  # embeds fonts unchanged, so that text can be searched
        warning = f"no font on this machine has {missing[:40]}: install one, or write an .svg, which contains text"
        yield [warning] if missing and kind != "svg" else []


def save(figure: Any, path: Path, dpi: float = _DPI) -> None:
    """Writes a figure atomically."""
    # Drawn in memory, because on a full disk matplotlib's PDF writer hides the error of the disk.
    drawn = picture(figure, check_figure_name(path), dpi)
    with atomic_path(path) as temporary:
        temporary.write_bytes(drawn)


def picture(figure: Any, kind: str, dpi: float = _DPI, title: str = "") -> bytes:
    """Returns the content of a picture file, cut to the figure; it contains no date. An SVG may have a title."""
    date = {"svg": "Date", "pdf": "CreationDate"}.get(kind)
    metadata: dict[str, Any] = ({date: None} if date else {}) | ({"Title": title} if title else {})
    stream = io.BytesIO()
    figure.savefig(stream, format=kind, dpi=dpi, bbox_inches="tight", pad_inches=0.05, metadata=metadata)
    return stream.getvalue()


def line_style(number: int) -> dict[str, Any]:
    """The colour, dashes and marks of a line, different for the first fifty lines."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[(number + number // len(COLOURS)) % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
    }


def plain_axes(axes: Any) -> None:
    """Small ticks, no frame at the top and at the right, and a grid, if there is one, behind the lines."""
    axes.tick_params(labelsize=USUAL - 1, length=2, color=GREY)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def legend_above(axes: Any, handles: Sequence[Any], names: Sequence[str], inches: float | None = None) -> None:
    """Draws the names above the axes, with long names wrapped, in all columns that fit (`inches`, or the axes)."""
    room = int((inches or axes.get_window_extent().width / axes.figure.dpi) * _LETTERS_OF_NAMES)
    texts = ["\n".join(textwrap.wrap(name, room - _HANDLE)) or "·" for name in names]
    longest = max(len(line) for text in texts for line in text.split("\n"))
    columns = max(1, min(len(texts), room // (longest + _HANDLE)))
    drawn = axes.legend(
        handles, [str(number) for number, _ in enumerate(texts)], loc="lower left", bbox_to_anchor=(0, 1.01),
        ncols=columns, frameon=False, fontsize=USUAL - 0.5, handlelength=3.4, borderaxespad=0.2, columnspacing=1.5,
    )  # fmt: skip
    for text, entry in zip(texts, drawn.get_texts(), strict=True):
        entry.set_parse_math(False)  # a `$` in a name does not start a formula
        entry.set_text(text)


def small_print(figure: Any, texts: Sequence[str]) -> None:
    """Draws texts below everything else, one paragraph each, wrapped at the bars of signatures and at spaces."""
    letters = int(figure.get_figwidth() * _LETTERS_OF_PRINT)
    lines = [line for text in texts for line in textwrap.wrap(text.replace("|", "| "), letters)]
    boxes = [axes.get_tightbbox().transformed(figure.transFigure.inverted()) for axes in figure.axes]
    figure.text(
        figure.axes[0].get_position().x0, min(box.y0 for box in boxes) - 0.02, "\n".join(lines).replace("| ", "|"),
        fontsize=SMALL - 1, color="0.35", va="top", parse_math=False,
    )  # fmt: skip


def families(text: str, embedded: bool = False) -> tuple[list[str], str]:
    """Returns (names of fonts in the order of search, letters that none of them has).

    The first font is matplotlib's own. Then come fonts that have letters which are still missing, sorted by name; for a
    file with `embedded` fonts only TrueType fonts, which can be embedded unchanged.
    """
    from matplotlib.font_manager import fontManager, get_font

    chosen: list[str] = []
    missing = {letter for letter in text if letter.isprintable() and not letter.isspace()}
    usual = [entry for entry in fontManager.ttflist if entry.style == "normal" and str(entry.weight) in _USUAL]
    for entry in sorted(usual, key=lambda one: (one.name != _FIRST, "Sans" not in one.name, one.name, one.fname)):
        if (chosen and not missing) or entry.name in (*chosen, _BOXES):
            continue
        with contextlib.suppress(OSError, RuntimeError):  # a font that cannot be read
            letters = set(map(chr, get_font(entry.fname).get_charmap())) & missing
            usable = not (letters and embedded) or Path(entry.fname).read_bytes().startswith(_TRUETYPE)
            if entry.name == _FIRST or (letters and usable):
                chosen.append(entry.name)
                missing -= letters
    return chosen or [_FIRST], "".join(sorted(missing))
