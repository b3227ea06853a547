"""How `score` prints its report: lines and tables, and the most different sentences of two systems."""

import contextlib
import itertools
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from nmtalign.cli.common import escaped, live_line, print_table
from nmtalign.cli.view import has_colour
from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.models import Track, untracked
from nmtalign.scoring.report import Report
from nmtalign.scoring.system_attention import Panels, drawn
from nmtalign.scoring.text_tables import report_blocks
from nmtalign.settings.command_settings import ScoreConfig

SIDE_BY_SIDE = 110  # columns of the terminal from which two texts are printed beside each other
_ADDED = (("[-", "-]"), ("{+", "+}"))  # around the words of only the first, only the second system, without colours


@contextlib.contextmanager
def _tracked(doing: str, total: float) -> Iterator[Callable[[float], None]]:
    with live_line(doing, total) as update:
        yield lambda done: update(advance=done)


def progress(quiet: bool) -> Track:
    """Shows progress on stderr if that is a terminal."""
    return untracked if quiet or not sys.stderr.isatty() else _tracked


def print_text(report: Report, settings: ScoreConfig, panels: Panels) -> None:
    """Prints the report; `panels` are the attention of sentences."""
    report = replace(report, systems=tuple(replace(one, name=escaped(one.name)) for one in report.systems))
    terminal, columns = sys.stdout.isatty(), shutil.get_terminal_size().columns
    for block in report_blocks(report, table1=settings.table1, terminal=terminal, columns=columns):
        if isinstance(block, str):
            blank = "\n" if block.startswith("\n") else ""
            sys.stdout.write(f"{blank}{escaped(block.removeprefix(blank))}\n")
        else:
            print_table(block)
    if settings.differences and len(report.systems) > 1:
        colour = has_colour(sys.stdout, os.environ)
        attention = {line: drawn(found, columns, colour=colour) for line, found in panels.items()}
        print_differences(report, attention)


def print_differences(report: Report, attention: Mapping[int, str]) -> None:
    """Every difference with its line, scores, source and references; below it, its drawn attention, by line.

    Control characters of the texts, which could recolour or clear the terminal, are escaped.
    """
    names = [system.name for system in report.systems[:2]]
    count = len(report.differences)
    if not count:
        sys.stdout.write(f"\nno sentence of {names[0]} and {names[1]} differs\n")
        return
    what = "most different sentence" if count == 1 else f"{count} most different sentences"
    sys.stdout.write(f"\nthe {what} of {names[0]} and {names[1]}:\n")
    if sys.stdout.isatty() or has_colour(sys.stdout, os.environ):  # FORCE_COLOR, for `| less -R`
        _draw(report.differences, names, attention)
        return
    for one in report.differences:
        rows = [*_context(one), *((name, marked(one.segments[side], side)) for side, name in enumerate(names))]
        width = max(len(name) for name, _ in rows)
        sys.stdout.write(f"\n{_title(one, names)}\n")
        sys.stdout.writelines(f"{name.ljust(width)}  {text}\n" for name, text in rows)
        sys.stdout.write(attention.get(one.line, ""))


def marked(segments: Sequence[Segment], side: int) -> str:
    """The text with what only this system has in marks, as in `Le [-chien-] dort` and `Le {+chat+} dort`."""
    before, after = _ADDED[side]
    text = ""
    for kind, run in itertools.groupby(segments, key=lambda one: one.kind):
        joined = "".join(one.text for one in run)
        bare = joined.strip()
        text += joined.replace(bare, f"{before}{bare}{after}", 1) if kind == "only" and bare else joined
    return escaped(text)


def _title(one: Difference, names: Sequence[str]) -> str:
    scores = ", ".join(f"{name} {score:.2f}" for name, score in zip(names, one.scores, strict=True))
    return f"line {one.line}, {one.metric}: {scores}"


def _context(one: Difference) -> list[tuple[str, str]]:
    rows = [("source", escaped(one.source))] if one.source is not None else []
    return [*rows, *(("reference", escaped(text)) for text in one.references)]


def _draw(differences: Sequence[Difference], names: Sequence[str], attention: Mapping[int, str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    sys.stdout.flush()
    console = Console(markup=False, highlight=False, emoji=False)
    coloured = not console.no_color and console.color_system is not None
    beside = console.width >= SIDE_BY_SIDE

    def text(one: Difference, side: int) -> Text:
        if not coloured:
            return Text(marked(one.segments[side], side))
        parts = Text()
        for segment in one.segments[side]:
            style = "" if segment.kind == "same" else "bold green" if segment.in_reference else "bold red"
            parts.append(escaped(segment.text), style)
        return parts

    for one in differences:
        console.print()
        console.print(_title(one, names), style="bold")
        grid = Table.grid(padding=(0, 2))
        grid.add_column(no_wrap=True, overflow="ellipsis", max_width=console.width // 3)
        grid.add_column(overflow="fold")
        for name, line in _context(one):
            grid.add_row(name, Text(line))
        for side, name in enumerate(names) if not beside else ():
            grid.add_row(Text(name), text(one, side))
        console.print(grid)
        if beside:
            pair = Table(expand=True)
            for name in names:
                pair.add_column(name, ratio=1, overflow="fold")
            pair.add_row(text(one, 0), text(one, 1))
            console.print(pair)
        sys.stdout.write(attention.get(one.line, ""))
    if coloured:
        console.print("\ncoloured: only in this system; green: found in a reference, red: not", style="dim")
