"""Tables of text and figures: drawn and never wider than the screen on a terminal, aligned columns in a pipe."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from nmtalign.cli.common import escaped
from nmtalign.text.width import columns_of

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows under a head. `groups` are the numbers of columns that stay together where the table has to be broken."""

    head: Row
    rows: Sequence[Row]
    groups: Sequence[int] = ()  # of the columns after the fixed ones; () = each by itself
    fixed: int = 1  # first columns, which every piece of a broken table repeats
    left: frozenset[int] = field(default=frozenset({0}))  # columns of text; the others are figures

    def columns(self, numbers: Sequence[int]) -> "Table":
        """Only the columns of these numbers."""
        rows = [[row[number] for number in numbers] for row in self.rows]
        left = frozenset(place for place, number in enumerate(numbers) if number in self.left)
        return Table([self.head[number] for number in numbers], rows, (), self.fixed, left)

    def widths(self) -> list[int]:
        """The width of each column, in places on the screen."""
        return [max(map(columns_of, column)) for column in zip(self.head, *self.rows, strict=True)]


def print_table(table: Table) -> None:
    """Draws the table on a terminal, in pieces where it is too wide; in a pipe a line a row, two blanks between."""
    if sys.stdout.isatty():
        _draw(_escaped(table))
    else:
        sys.stdout.writelines(f"{line}\n" for line in aligned(table))


def aligned(table: Table) -> list[str]:
    """The lines of the table: texts to the left, figures to the right; control characters are escaped."""
    table = _escaped(table)
    widths = table.widths()
    lines = []
    for row in (table.head, *table.rows):
        cells = []
        for number, (text, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - columns_of(text))
            cells.append(text + blanks if number in table.left else blanks + text)
        lines.append("  ".join(cells).rstrip())
    return lines


def _escaped(table: Table) -> Table:
    rows = [[escaped(cell) for cell in row] for row in table.rows]
    return replace(table, head=[escaped(cell) for cell in table.head], rows=rows)


def broken(table: Table, width: int, between: int = 3) -> list[Table]:
    """The table in pieces of at most `width` places, each with the fixed columns; one group a piece at least.

    `between` is what a column takes beside its text.
    """
    widths = [size + between for size in table.widths()]
    groups = table.groups or [1] * (len(table.head) - table.fixed)
    fixed = list(range(table.fixed))
    pieces: list[list[int]] = []
    room = 0
    start = table.fixed
    for size in groups:
        group = list(range(start, start + size))
        needed = sum(widths[number] for number in group)
        if not pieces or needed > room:
            pieces.append([*fixed])
            room = width - 1 - sum(widths[number] for number in fixed)
        pieces[-1] += group
        room -= needed
        start += size
    return [table.columns(numbers) for numbers in pieces] or [table]


def _draw(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as Drawing

    console = Console(markup=False, highlight=False, emoji=False)
    for piece in broken(table, console.width):
        drawing = Drawing()
        for number, name in enumerate(piece.head):
            drawing.add_column(_kept(name), justify="left" if number in piece.left else "right", overflow="fold")
        for row in piece.rows:
            drawing.add_row(*map(_kept, row))
        console.print(drawing)


def _kept(cell: str) -> str:
    """The cell with blanks at its end that are not taken away: they keep figures with and without a mark in line."""
    bare = cell.rstrip(" ")
    return bare + "\N{NO-BREAK SPACE}" * (len(cell) - len(bare))
