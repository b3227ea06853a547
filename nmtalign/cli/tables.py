"""Prints tables: drawn on a terminal, and never wider than it; with aligned columns in a pipe."""

import sys
from dataclasses import replace

from nmtalign.cli.common import escaped
from nmtalign.text.text_table import TextTable


def print_table(table: TextTable, drawn: bool = True) -> None:
    """Prints a table without control characters: drawn if stdout is a terminal, else one line per row."""
    head, *rows = ([escaped(cell) for cell in row] for row in (table.head, *table.rows))
    table = replace(table, head=head, rows=rows)
    if drawn and sys.stdout.isatty():
        _draw(table)
    else:
        sys.stdout.writelines(f"{line}\n" for line in table.lines())


def _draw(table: TextTable) -> None:
    from rich.console import Console
    from rich.table import Table

    console = Console(markup=False, highlight=False, emoji=False)
    for piece in table.pieces(console.width):
        drawing = Table()
        for number, name in enumerate(piece.head):
            drawing.add_column(_padded(name), justify="left" if number in piece.left else "right", overflow="fold")
        for row in piece.rows:
            drawing.add_row(*map(_padded, row))
        console.print(drawing)


def _padded(cell: str) -> str:
    """Keeps spaces at the end of a cell, which rich would remove: they align figures with and without a mark."""
    bare = cell.rstrip(" ")
    return bare + "\N{NO-BREAK SPACE}" * (len(cell) - len(bare))
