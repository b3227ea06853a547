"""The content of a report: headings, paragraphs, tables, figures, sentences; and its form as plain text.

`markdown` and `html_page` write the same document in their languages. Text is of two kinds. A plain `str` is prose of
the program, in which `backquotes` mark code. A `Span` is literal text: names, sentences and everything else that comes
from a user must be a `Span`.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from rich.cells import cell_len

from nmtalign.text.text_table import aligned

NOTHING = "–"  # a value that does not exist
# Characters that no page or Markdown file may contain. A control character is replaced by its picture; half of a
# surrogate pair and code points without a character are replaced by U+FFFD.
_SHOWN = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\t\n"},
    **dict.fromkeys((0x7F, *range(0x80, 0xA0), *range(0xD800, 0xE000), 0xFFFE, 0xFFFF), 0xFFFD),
}
# In plain text also characters that break a line or change its direction.
_ON_ONE_LINE = _SHOWN | dict.fromkeys((0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)), 0xFFFD)
_ON_ONE_LINE |= {9: 32, 10: 32}  # tab and line feed

# right, wrong, odd: words of a translation.
Style = Literal["", "code", "name", "muted", "right", "wrong", "odd"]
_MARKS = {"right": ("{+", "+}", "\x1b[1;32m"), "wrong": ("[-", "-]", "\x1b[1;31m")}  # around words; their colour


@dataclass(frozen=True)
class Span:
    """Literal text with a style; `tip` explains it."""

    text: str
    style: Style = ""
    tip: str = ""


Inline = str | Span | tuple[str | Span, ...]


def spans(text: Inline) -> list[Span]:
    """The text as spans, with code in backquotes as separate spans; a single backquote is a normal character."""
    if isinstance(text, Span):
        return [text] if text.text else []
    if isinstance(text, tuple):
        return [span for part in text for span in spans(part)]
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return [Span(text)]
    return [Span(part, "code" if number % 2 else "") for number, part in enumerate(parts) if part]


def printable(text: str) -> str:
    """The text with a visible sign in place of every character that no file may contain."""
    return text.translate(_SHOWN)


@dataclass(frozen=True)
class Heading:
    """The beginning of a section (level 2) or of a part of one (level 3)."""

    text: Inline
    level: int = 2


@dataclass(frozen=True)
class DataTable:
    """A table; the first `words` columns contain text, the others contain numbers."""

    head: Sequence[Inline]
    rows: Sequence[Sequence[Inline]]
    caption: Inline = ""
    words: int = 1


@dataclass(frozen=True)
class Figure:
    """A picture: `file` is its path relative to the Markdown file, `svg` is the picture for the page."""

    file: str
    caption: str  # literal text
    svg: str


@dataclass(frozen=True)
class Commands:
    """Lines for a shell."""

    lines: Sequence[str]


@dataclass(frozen=True)
class Definitions:
    """Terms and what they mean."""

    items: Sequence[tuple[Inline, Inline]]


@dataclass(frozen=True)
class NamedText:
    """A source, a reference or a translation of a sentence."""

    name: str
    text: Inline
    note: str = ""  # its score
    better: bool = False  # the note is the better one


@dataclass(frozen=True)
class SentenceTexts:
    """All texts of one sentence, each with its name."""

    title: Inline
    texts: Sequence[NamedText]


Block = Heading | Inline | DataTable | Figure | Commands | Definitions | SentenceTexts  # a text is a paragraph


@dataclass(frozen=True)
class Document:
    """A report: a title, and the blocks of its sections."""

    title: str  # literal text
    blocks: Sequence[Block]


def to_text(document: Document, width: int = 0, colour: bool = False) -> str:
    """The document as plain text without its title and figures; tables are at most `width` columns wide (0: any width).

    Words of style `right` and `wrong` are coloured, or in marks such as {+right+} and [-wrong-].
    """
    return "".join(f"{line}\n" for block in document.blocks for line in _lines(block, width, colour)).lstrip("\n")


def _lines(block: Block, width: int, colour: bool) -> Iterator[str]:
    match block:
        case Heading():
            yield f"\n{_line(block.text)}:"
        case str() | Span() | tuple():
            yield _line(block)
        case DataTable():
            yield from [_line(block.caption)] if block.caption else []
            yield from table_lines(block, width)
        case Definitions():
            yield from (f"{_line(term)}: {_line(meaning)}" for term, meaning in block.items)
        case SentenceTexts():
            yield f"\n{_line(block.title)}"
            longest = max(cell_len(text.name) for text in block.texts)
            for text in block.texts:
                note = f"  ({text.note})" if text.note else ""
                name = _line(Span(text.name))
                yield f"{name}{' ' * (longest - cell_len(name))}  {_line(text.text, colour)}{note}"


def table_lines(table: DataTable, width: int = 0) -> Iterator[str]:
    """The lines of a table with aligned columns, in pieces of at most `width` columns (`aligned`)."""
    columns = [[_line(cell) for cell in column] for column in zip(table.head, *table.rows, strict=True)]
    return aligned(columns, table.words, width)


def _line(text: Inline, colour: bool = False) -> str:
    """The text on one line that is safe to print."""
    parts = []
    for span in spans(text):
        words = span.text.translate(_ON_ONE_LINE)
        before, after, code = _MARKS.get(span.style, ("", "", ""))
        if code:
            words = f"{code}{words}\x1b[0m" if colour else f"{before}{words}{after}"
        parts.append(words)
    return "".join(parts)
