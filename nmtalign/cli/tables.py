"""Tables of text and figures: drawn on a terminal, and never wider than it; aligned columns in a pipe."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace

from nmtalign.cli.common import escaped
from nmtalign.text.width import columns_of

Row = Sequence[str]


@dataclass(frozen=True)
class Table:
    """Rows under a head. A table that is too wide is broken into pieces, each of which repeats the fixed columns."""

    head: Row
    rows: Sequence[Row]
    groups: Sequence[int] = ()  # sizes of the groups of columns that stay together; () = each column by itself
    fixed: int = 1
    left: frozenset[int] = frozenset({0})  # columns of text, aligned left; the others are figures, aligned right

    def columns(self, numbers: Sequence[int]) -> "Table":
        """The table with only the columns of these numbers."""
        rows = [[row[number] for number in numbers] for row in self.rows]
        left = frozenset(place for place, number in enumerate(numbers) if number in self.left)
        return Table([self.head[number] for number in numbers], rows, (), self.fixed, left)

    def widths(self) -> list[int]:
        """The width of each column on the screen."""
        return [max(map(columns_of, column)) for column in zip(self.head, *self.rows, strict=True)]

    def escaped(self) -> "Table":
        """The table without characters that could control the terminal."""
        head, *rows = ([escaped(cell) for cell in row] for row in (self.head, *self.rows))
        return replace(self, head=head, rows=rows)


def print_table(table: Table) -> None:
    """Prints a table: drawn on a terminal, else one line per row, with two spaces between columns."""
    if sys.stdout.isatty():
        _draw(table.escaped())
    else:
        sys.stdout.writelines(f"{line}\n" for line in aligned(table))


def aligned(table: Table) -> list[str]:
    """The lines of a table with aligned columns; control characters are escaped."""
    table = table.escaped()
    widths = table.widths()
    lines = []
    for row in (table.head, *table.rows):
        cells = []
        for number, (text, width) in enumerate(zip(row, widths, strict=True)):
            blanks = " " * (width - columns_of(text))
            cells.append(text + blanks if number in table.left else blanks + text)
        lines.append("  ".join(cells).rstrip())
    return lines


def broken(table: Table, width: int, between: int = 3) -> list[Table]:
    """The table in pieces of at most `width` screen columns, each with at least one group.

    `between` is the space that each column needs beside its text.
    """
    widths = [size + between for size in table.widths()]
    fixed = list(range(table.fixed))
    pieces: list[list[int]] = []
    start = table.fixed
    for size in table.groups or [1] * (len(table.head) - table.fixed):
        group = list(range(start, start + size))
        if pieces and sum(widths[number] for number in pieces[-1] + group) < width:
            pieces[-1] += group
        else:
            pieces.append(fixed + group)
        start += size
    return [table.columns(numbers) for numbers in pieces] or [table]


def _draw(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as Drawing

    console = Console(markup=False, highlight=False, emoji=False)
    for piece in broken(table, console.width):
        drawing = Drawing()
        for number, name in enumerate(piece.head):
            drawing.add_column(_padded(name), justify="left" if number in piece.left else "right", overflow="fold")
        for row in piece.rows:
            drawing.add_row(*map(_padded, row))
        console.print(drawing)


def _padded(cell: str) -> str:
    """Keeps spaces at the end of a cell, which rich would remove: they align figures with and without a mark."""
    bare = cell.rstrip(" ")
    return bare + "\N{NO-BREAK SPACE}" * (len(cell) - len(bare))
