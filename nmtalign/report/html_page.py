"""A document as one HTML page, which contains everything it needs (`nmtalign.viewing.page`).

Every text is escaped. Pictures are images, so nothing in an SVG can run or change the page.
"""

import base64
import re
from collections.abc import Iterator, Sequence
from html import escape
from itertools import groupby

from nmtalign.report import document as doc
from nmtalign.viewing.page import page

_TAGS = {
    "": ("", ""),
    "code": ("<code>", "</code>"),
    "name": ("<bdi>", "</bdi>"),
    "muted": ('<span class="quiet">', "</span>"),
}
_BAR = re.compile("[\u2588-\u258f\u2592]")  # a bar made of blocks


def to_page(document: doc.Document) -> str:
    """The complete page; equal documents give equal bytes."""
    titles = [block.text for block in document.blocks if isinstance(block, doc.Heading) and block.level == 2]
    links = "".join(f'<li><a href="#part-{number}">{_inline(title)}</a></li>' for number, title in enumerate(titles, 1))
    contents = f'<nav aria-label="Contents"><ul>{links}</ul></nav>\n'
    return "".join(page(doc.printable(document.title), contents + "".join(_blocks(document.blocks))))


def _blocks(blocks: Sequence[doc.Block]) -> Iterator[str]:
    sections = 0
    for is_figure, group in groupby(blocks, lambda block: isinstance(block, doc.Figure)):
        if is_figure:
            yield f'<div class="plots">{"".join(map(_block, group))}</div>\n'
            continue
        for block in group:
            if isinstance(block, doc.Heading) and block.level == 2:
                sections += 1
                yield f'<h2 id="part-{sections}">{_inline(block.text)}</h2>\n'
            else:
                yield _block(block)


def _block(block: doc.Block) -> str:
    match block:
        case doc.Heading():
            return f"<h3>{_inline(block.text)}</h3>\n"
        case str() | doc.Span() | tuple():
            return f"<p>{_inline(block)}</p>\n"
        case doc.DataTable():
            return _table(block)
        case doc.Commands():
            return f"<pre><code>{_text(chr(10).join(block.lines))}</code></pre>\n"
        case doc.Definitions():
            items = (
                f'<div><dt>{_inline(term)}</dt><dd dir="auto">{_inline(text)}</dd></div>' for term, text in block.items
            )
            return f'<dl class="facts">{"".join(items)}</dl>\n'
        case doc.SentenceTexts():
            texts = "".join(map(_named, block.texts))
            return f'<article class="card"><h3>{_inline(block.title)}</h3><div class="texts">{texts}</div></article>\n'
        case doc.Figure():
            data, caption = base64.b64encode(block.svg.encode("utf-8", "replace")).decode("ascii"), _text(block.caption)
            kind = "heatmap" if "<image" in block.svg else "plot"  # a heat map contains its cells as an image
            image = f'<div class="scroll"><img alt="{caption}" src="data:image/svg+xml;base64,{data}"></div>'
            return f'<figure class="{kind}">{image}<figcaption dir="auto">{caption}</figcaption></figure>'


def _table(table: doc.DataTable) -> str:
    columns = list(zip(table.head, *table.rows, strict=True))
    bars = [any(_BAR.search(span.text) for cell in column for span in doc.spans(cell)) for column in columns]
    left = [number < table.words or is_bar for number, is_bar in enumerate(bars)]
    kinds = [' class="text"' if is_left else "" for is_left in left]
    heads = "".join(f'<th scope="col"{kind}>{_inline(text)}</th>' for kind, text in zip(kinds, table.head, strict=True))
    rows = ""
    for first, *others in table.rows:
        cells = "".join(f"<td{kind}>{_inline(cell)}</td>" for kind, cell in zip(kinds[1:], others, strict=True))
        rows += f'<tr><th scope="row">{_inline(first)}</th>{cells}</tr>\n'
    return (
        '<div class="scroll" role="region" aria-label="Table" tabindex="0">'
        f"<table data-sortable><caption>{_inline(table.caption)}</caption>"
        f"<thead><tr>{heads}</tr></thead><tbody>\n{rows}</tbody></table></div>\n"
    )


def _named(text: doc.NamedText) -> str:
    note = f' <span class="{"better" if text.better else "quiet"}">{_text(text.note)}</span>' if text.note else ""
    words = _inline(text.text) or '<span class="quiet">(empty)</span>'
    return f'<div><h4><bdi>{_text(text.name)}</bdi>{note}</h4><p dir="auto" lang="" class="words">{words}</p></div>'


def _inline(text: doc.Inline) -> str:
    return "".join(map(_span, doc.spans(text)))


def _span(span: doc.Span) -> str:
    tip = f' title="{_text(span.tip)}"' if span.tip else ""
    before, after = _TAGS.get(span.style) or (f'<mark class="{span.style}"{tip}>', "</mark>")
    return f"{before}{_text(span.text)}{after}"


def _text(text: str) -> str:
    return escape(doc.printable(text))
