"""A document as Markdown (GitHub's dialect). Text of a corpus or of a user never becomes markup."""

import re
from collections.abc import Iterator, Sequence

from nmtalign.report.document import (
    SIGNS,
    Block,
    Cell,
    Column,
    Commands,
    DataTable,
    Definitions,
    Document,
    Figure,
    Folded,
    Heading,
    Inline,
    NamedText,
    Paragraph,
    ScoreCards,
    SentenceTexts,
    Span,
    printable,
    spans,
)

_MARKUP = re.compile(r"([\\*_\[\]<>|#~$&!`])")
_ITEM = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+](?:\s|$)|-[-\s]*$))")  # the start of a list or of a rule
_AROUND = {"right": "**", "wrong": "~~", "odd": "*"}


def to_markdown(document: Document) -> str:
    """The complete document in Markdown."""
    blocks = (text for block in (*document.top, *document.blocks) for text in _block(block))
    return "\n\n".join([f"# {escaped(document.title)}", *blocks]) + "\n"


def escaped(text: str) -> str:
    """Literal text in one line, with a backslash before everything that could be markup."""
    return _at_start(_MARKUP.sub(r"\\\1", printable(" ".join(text.split()))))


def _at_start(text: str) -> str:
    """Text at the start of a block: no item of a list, no rule, no indented code."""
    return _ITEM.sub(r"\1\\", text.lstrip())


def _inline(text: Inline) -> str:
    return "".join(_span(span) for span in spans(text))


def _span(span: Span) -> str:
    if span.target or not span.text:
        return ""
    line = printable(re.sub(r"[\r\n]+", " ", span.text))
    if span.style == "code":
        return _code(line)
    text = _MARKUP.sub(r"\\\1", line)
    if span.style in ("sub", "tag"):
        return f" ({text})"
    around = _AROUND.get(span.style, "")
    return f"{around}{text}{around}"


def _code(text: str) -> str:
    """Code between backquotes: one more than the longest run of backquotes in the text."""
    runs = [len(run) for run in re.findall("`+", text)]
    fence = "`" * (max(runs, default=0) + 1)
    return f"{fence} {text} {fence}" if runs else f"{fence}{text}{fence}"


def _block(block: Block) -> Iterator[str]:
    match block:
        case Heading():
            yield f"{'#' * block.level} {_inline(block.text)}"
        case Paragraph():
            yield _at_start(_inline(block.text))
        case DataTable():
            yield _table(block)
        case Figure() if block.file:
            yield f"![{escaped(block.caption)}]({block.file})\n\n*{escaped(block.caption)}*"
        case Commands():
            yield "\n".join(["```sh", *block.lines, "```"])
        case Definitions() if block.items:
            yield "\n".join(f"- **{_inline(term)}**: {_inline(meaning)}" for term, meaning in block.items)
        case SentenceTexts():
            yield "\n".join([f"**{_inline(block.title)}**", "", *map(_named, block.texts)])
            yield from _folded(block.attention)
        case Folded():
            yield from _folded(block)
        case Figure() | Definitions() | ScoreCards():
            pass


def _named(text: NamedText) -> str:
    note = f" ({escaped(text.note)})" if text.note else ""
    return f"- **{escaped(text.name)}**{note}: {_at_start(' '.join(_inline(text.text).split())) or '(nothing)'}"


def _folded(folded: Folded | None) -> Iterator[str]:
    for figure in folded.figures if folded else ():
        yield from _block(figure)


def _table(table: DataTable) -> str:
    heads = [_head(column) for column in table.columns]
    rule = ["---" if number < table.words else "---:" for number in range(len(heads))]
    lines = [_row(heads), _row(rule)]
    for group in table.bodies:
        if group.title:
            lines.append(_row([f"**{_inline(group.title)}**", *[""] * (len(heads) - 1)]))
        lines += [_row([_cell(cell) for cell in row]) for row in group.rows]
    text = "\n".join(lines)
    return f"{_at_start(_inline(table.caption))}\n\n{text}" if table.caption else text


def _head(column: Column) -> str:
    return f"{_in_cell(column.over)}, {_in_cell(column.title)}" if column.over else _in_cell(column.title)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(cell: Inline | Cell) -> str:
    if not isinstance(cell, Cell):
        return _in_cell(cell)
    number = " ".join(part for part in (cell.text, cell.half_width, SIGNS.get(cell.mark, "")) if part)
    return ", ".join(map(_in_cell, (number, *cell.notes)))


def _in_cell(text: Inline) -> str:
    """Inline text of a cell: a bar ends a cell even in code, where nothing else is escaped."""
    return "".join(_span(span).replace("|", r"\|") if span.style == "code" else _span(span) for span in spans(text))
