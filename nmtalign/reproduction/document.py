"""What a report says, before it is Markdown or HTML: headings, paragraphs, tables, figures, commands, sentences.

In paragraphs, notes and cells `backquotes` set code apart; everything else is plain text.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Heading:
    """The beginning of a section."""

    text: str
    level: int = 2


@dataclass(frozen=True)
class Paragraph:
    """Plain text with `code`."""

    text: str


@dataclass(frozen=True)
class Table:
    """Rows of cells; the first `words` columns are text, the others are numbers."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    caption: str = ""
    words: int = 1


@dataclass(frozen=True)
class Figure:
    """A picture: its file, relative to the report, and the same as SVG for the page."""

    file: str
    caption: str
    svg: str
    natural: bool = False  # no wider than it was drawn


@dataclass(frozen=True)
class Commands:
    """Lines for a shell."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Sentence:
    """Texts of one sentence beneath each other, each with what it is."""

    title: str
    texts: Sequence[tuple[str, str]]


Block = Heading | Paragraph | Table | Figure | Commands | Sentence


@dataclass(frozen=True)
class Document:
    """A report."""

    title: str
    blocks: Sequence[Block]
