"""The content of a report: headings, paragraphs, tables, figures, sentences. It contains no Markdown and no HTML.

Text is of two kinds. A plain `str` is prose of the program, in which `backquotes` mark code. A `Span` is literal text:
names, sentences and everything else that comes from a user must be a `Span`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

NOTHING = "–"  # a value that does not exist
SIGNS = {"winner": "★", "tie": "≈"}
# Characters that no page or Markdown file may contain. A control character is replaced by its picture; half of a
# surrogate pair and code points without a character are replaced by U+FFFD.
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys((0x7F, *range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD),
}

# arrow: the better direction of a metric; sub: an index; tag: a remark; right, wrong, odd: words of a translation.
Style = Literal["", "code", "name", "muted", "arrow", "sub", "tag", "right", "wrong", "odd"]


@dataclass(frozen=True)
class Span:
    """Literal text with a style; `tip` explains it, `target` is the key of a block of the same page."""

    text: str
    style: Style = ""
    tip: str = ""
    target: str = ""  # Markdown has no links, so it leaves out a span with a target


Inline = str | Span | tuple[str | Span, ...]


def spans(text: Inline) -> list[Span]:
    """The text as spans, with code in backquotes as separate spans; a single backquote is a normal character."""
    if isinstance(text, Span):
        return [text]
    if isinstance(text, tuple):
        return [span for part in text for span in spans(part)]
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [Span(text)]
    return [Span(part, "code" if number % 2 else "") for number, part in enumerate(parts) if part]


def printable(text: str) -> str:
    """The text with a visible sign in place of every character that no file may contain."""
    return text.translate(_SHOWN)


def plain(text: Inline) -> str:
    """The text without styles."""
    return "".join(span.text for span in spans(text))


@dataclass(frozen=True)
class Heading:
    """The beginning of a section (level 2) or of a part of one (level 3); `key` identifies the section in the page."""

    text: Inline
    level: int = 2
    key: str = ""


@dataclass(frozen=True)
class Paragraph:
    """Text; `kind` selects the style of the page."""

    text: Inline
    kind: Literal["", "counts", "verdict", "lead", "key"] = ""


@dataclass(frozen=True)
class Bar:
    """A bar from 0 to `value`, and the band of its interval; all numbers are shares of the longest bar (0 to 1)."""

    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True)
class Cell:
    """A number of a table with everything that is known about it."""

    text: str
    half_width: str = ""  # written behind the number
    mark: Literal["winner", "tie", ""] = ""
    notes: Sequence[Inline] = ()  # small print below the number
    bar: Bar | None = None
    value: float | None = None  # the number by which the page sorts the rows


@dataclass(frozen=True)
class Column:
    """The head of a column; columns beside each other with the same `over` share a head above their own."""

    title: Inline
    over: Inline = ""
    size: bool = False  # a narrow column with the size of each row


@dataclass(frozen=True)
class RowGroup:
    """Rows of a table under a title."""

    title: Inline
    rows: Sequence[Sequence[Inline | Cell]]


@dataclass(frozen=True)
class DataTable:
    """A table; the first `words` columns contain text, the others contain numbers."""

    head: Sequence[Inline | Column]
    rows: Sequence[Sequence[Inline | Cell]] = ()
    caption: Inline = ""
    words: int = 1
    groups: Sequence[RowGroup] = ()  # in place of `rows`
    layout: Literal["plain", "scores", "scores paired", "scores narrow", "grid"] = "plain"
    sortable: bool = False
    key: str = ""

    @property
    def columns(self) -> list[Column]:
        """The head, each column as a `Column`."""
        return [column if isinstance(column, Column) else Column(column) for column in self.head]

    @property
    def bodies(self) -> Sequence[RowGroup]:
        """The rows in their groups."""
        return self.groups or (RowGroup("", self.rows),)


@dataclass(frozen=True)
class Figure:
    """A picture: `file` is its path relative to the Markdown file, `svg` is the picture for the page."""

    file: str
    caption: str  # literal text
    svg: str
    kind: Literal["plot", "natural", "attention"] = "plot"  # natural: never wider than it was drawn
    key: str = ""


@dataclass(frozen=True)
class Folded:
    """Figures that the page shows when the reader opens them."""

    summary: Inline
    figures: Sequence[Figure]


@dataclass(frozen=True)
class Commands:
    """Lines for a shell."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Definitions:
    """Terms and what they mean; the page can copy the `signatures`."""

    items: Sequence[tuple[Inline, Inline]]
    kind: Literal["legend", "facts", "signatures"] = "facts"
    key: str = ""


@dataclass(frozen=True)
class NamedText:
    """A source, a reference or a translation of a sentence."""

    name: str
    text: Inline
    note: str = ""  # its score
    better: bool = False  # the note is the better one
    system: bool = False  # a translation


@dataclass(frozen=True)
class SentenceTexts:
    """All texts of one sentence, each with its name, and the attention over it."""

    title: Inline
    texts: Sequence[NamedText]
    attention: Folded | None = None
    key: str = ""


@dataclass(frozen=True)
class ScoreCards:
    """The main number of each system, at the top of the page; tables repeat them, so Markdown leaves them out."""

    metric: str
    scores: Sequence[tuple[str, Cell]]  # (system, number)


Block = (
    Heading | Paragraph | DataTable | Figure | Folded | Commands | Definitions | SentenceTexts | ScoreCards
)  # fmt: skip


@dataclass(frozen=True)
class Document:
    """A report: a title, blocks at its top, and the blocks of its sections."""

    title: str  # literal text
    blocks: Sequence[Block]
    top: Sequence[Block] = ()
