"""Tables of text and figures, and how they and single texts are cut where they are too wide."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size

Row = Sequence[str]
_BETWEEN = 3  # columns of the screen that each column needs beside its text


def cut(text: str, limit: int) -> str:
    """Returns the text, cut to `limit` columns with "…" at its end if it is longer."""
    return text if cell_len(text) <= limit else f"{set_cell_size(text, limit - 1)}…"


@dataclass(frozen=True)
class TextTable:
    """Rows under a head. A table that is too wide is broken into pieces, each of which repeats the first column."""

    head: Row
    rows: Sequence[Row]
    left: frozenset[int] = frozenset({0})  # columns of text, aligned left; the others are figures, aligned right

    def lines(self) -> list[str]:
        """The lines of the table with aligned columns."""
        widths, lines = self.widths(), []
        for row in (self.head, *self.rows):
            cells = []
            for number, (text, width) in enumerate(zip(row, widths, strict=True)):
                blanks = " " * (width - cell_len(text))
                cells.append(text + blanks if number in self.left else blanks + text)
            lines.append("  ".join(cells).rstrip())
        return lines

    def pieces(self, width: int) -> "list[TextTable]":
        """The table in pieces of at most `width` screen columns, each with at least two columns."""
        widths = [size + _BETWEEN for size in self.widths()]
        pieces: list[list[int]] = []
        for number in range(1, len(widths)):
            if pieces and sum(widths[one] for one in (*pieces[-1], number)) < width:
                pieces[-1].append(number)
            else:
                pieces.append([0, number])
        return [self._columns(numbers) for numbers in pieces] or [self]

    def _columns(self, numbers: Sequence[int]) -> "TextTable":
        rows = [[row[number] for number in numbers] for row in self.rows]
        left = frozenset(place for place, number in enumerate(numbers) if number in self.left)
        return TextTable([self.head[number] for number in numbers], rows, left)

    def widths(self) -> list[int]:
        """The width of each column on the screen."""
        return [max(map(cell_len, column)) for column in zip(self.head, *self.rows, strict=True)]
