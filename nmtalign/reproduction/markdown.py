"""A document as Markdown, for people and for sites that host code: nothing from the corpus is taken for markup."""

import re
from collections.abc import Sequence

from nmtalign.reproduction.document import Block, Commands, Document, Figure, Heading, Paragraph, Sentence, Table

_MARKUP = re.compile(r"([\\*_\[\]<>|#~$&!])")
_START = re.compile(r"^(\s*)([-+]|\d+[.)])(?=\s)")


def to_markdown(document: Document) -> str:
    """The whole document."""
    parts = [f"# {escaped(document.title)}", *(_block(block) for block in document.blocks)]
    return "\n\n".join(parts) + "\n"


def escaped(text: str) -> str:
    """Plain text, with nothing left in it that means something in Markdown; backquotes too are only themselves."""
    text = _MARKUP.sub(r"\\\1", " ".join(text.split())).replace("`", "\\`")
    return _START.sub(r"\1\\\2", text)


def _inline(text: str) -> str:
    """Text with `code`, which stays as it is."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escaped(text)
    return "".join(
        f"`{part}`" if number % 2 else _MARKUP.sub(r"\\\1", part.replace("\n", " "))
        for number, part in enumerate(parts)
    )


def _block(block: Block) -> str:
    match block:
        case Heading():
            return f"{'#' * block.level} {_inline(block.text)}"
        case Paragraph():
            return _inline(block.text)
        case Table():
            return _table(block)
        case Figure():
            caption = _inline(block.caption)
            return f"![{escaped(block.caption.replace('`', ''))}]({block.file})\n\n*{caption}*"
        case Commands():
            return "\n".join(["```sh", *block.lines, "```"])
        case Sentence():
            texts = [f"- **{escaped(name)}**: {escaped(text) or '(nothing)'}" for name, text in block.texts]
            return "\n".join([f"**{_inline(block.title)}**", "", *texts])


def _table(table: Table) -> str:
    rule = ["---" if number < table.words else "---:" for number in range(len(table.head))]
    rows = [_row(table.head), "| " + " | ".join(rule) + " |", *map(_row, table.rows)]
    text = "\n".join(rows)
    return f"{_inline(table.caption)}\n\n{text}" if table.caption else text


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(_cell(cell) for cell in cells) + " |"


def _cell(text: str) -> str:
    """A bar within code would end the cell; everywhere else it has been escaped already."""
    parts = _inline(text).split("`")
    if len(parts) % 2 == 0:
        return "`".join(parts)
    return "`".join(part.replace("|", r"\|") if number % 2 else part for number, part in enumerate(parts))
