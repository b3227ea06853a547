"""Tables of text and figures, and how they and single texts are cut where they are too wide."""

from collections.abc import Iterator, Sequence

from rich.cells import cell_len, set_cell_size


def cut(text: str, limit: int) -> str:
    """Returns the text, cut to `limit` columns with "…" at its end if it is longer."""
    return text if cell_len(text) <= limit else f"{set_cell_size(text, limit - 1)}…"


def aligned(columns: Sequence[Sequence[str]], words: int = 1, width: int = 0) -> Iterator[str]:
    """Yields the lines of a table; its first `words` columns are texts, aligned left, the others figures.

    A table that is wider than `width` (0: any width) is broken into several. Each begins with the columns of texts.
    """
    sizes = [max(map(cell_len, column)) for column in columns]
    fixed = list(range(words))
    pieces: list[list[int]] = [fixed]
    for number in range(words, len(columns)):
        if width and len(pieces[-1]) > len(fixed) and sum(sizes[i] + 2 for i in [*pieces[-1], number]) - 2 > width:
            pieces.append(fixed)
        pieces[-1] = [*pieces[-1], number]
    for piece in pieces:
        for row in zip(*(columns[number] for number in piece), strict=True):
            cells = []
            for number, text in zip(piece, row, strict=True):
                blanks = " " * (sizes[number] - cell_len(text))
                cells.append(text + blanks if number < words else blanks + text)
            yield "  ".join(cells).rstrip()
