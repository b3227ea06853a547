"""A document as Markdown (GitHub's dialect). Text of a corpus or of a user never becomes markup.

Texts of sentences have no form in Markdown: only the report of `nmtalign score` contains them.
"""

import re
from collections.abc import Iterator

from nmtalign.report import document as doc

_MARKUP = re.compile(r"([\\*_\[\]<>|#~$&!`])")
_ITEM = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[-+](?:\s|$)|-[-\s]*$))")  # the start of a list or of a rule


def to_markdown(document: doc.Document) -> str:
    """The complete document in Markdown."""
    blocks = (text for block in document.blocks for text in _block(block))
    return "\n\n".join([f"# {escaped(document.title)}", *blocks]) + "\n"


def escaped(text: str) -> str:
    """Literal text in one line, with a backslash before everything that could be markup."""
    return _at_start(_MARKUP.sub(r"\\\1", doc.printable(" ".join(text.split()))))


def _at_start(text: str) -> str:
    """Text at the start of a block: no item of a list, no rule, no indented code."""
    return _ITEM.sub(r"\1\\", text.lstrip())


def _inline(text: doc.Inline) -> str:
    return "".join(_span(span) for span in doc.spans(text))


def _span(span: doc.Span) -> str:
    line = doc.printable(re.sub(r"[\r\n]+", " ", span.text))
    if span.style == "code":
        # Between backquotes: one more than the longest run of backquotes in the text.
        runs = [len(run) for run in re.findall("`+", line)]
        fence = "`" * (max(runs, default=0) + 1)
        return f"{fence} {line} {fence}" if runs else f"{fence}{line}{fence}"
    return _MARKUP.sub(r"\\\1", line)


def _block(block: doc.Block) -> Iterator[str]:
    match block:
        case doc.Heading():
            yield f"{'#' * block.level} {_inline(block.text)}"
        case str() | doc.Span() | tuple():
            yield _at_start(_inline(block))
        case doc.DataTable():
            yield _table(block)
        case doc.Figure():
            yield f"![{escaped(block.caption)}]({block.file})\n\n*{escaped(block.caption)}*"
        case doc.Commands():
            yield "\n".join(["```sh", *block.lines, "```"])
        case doc.Definitions():
            yield "\n".join(f"- **{_inline(term)}**: {_inline(meaning)}" for term, meaning in block.items)


def _table(table: doc.DataTable) -> str:
    rule = ["---" if number < table.words else "---:" for number in range(len(table.head))]
    head, *rows = (list(map(_in_cell, row)) for row in (table.head, *table.rows))
    text = "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
    return f"{_at_start(_inline(table.caption))}\n\n{text}" if table.caption else text


def _in_cell(text: doc.Inline) -> str:
    """Inline text of a cell: a bar ends a cell even in code, where nothing else is escaped."""
    return "".join(_span(span).replace("|", r"\|") if span.style == "code" else _span(span) for span in doc.spans(text))
