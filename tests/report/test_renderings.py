"""A document as Markdown and as HTML. No text of a user or of a corpus becomes markup in either of them."""

import re
from dataclasses import replace

import pytest
from helpers.pages import PageReader
from markdown_it import MarkdownIt

from nmtalign.report.document import (
    Commands,
    DataTable,
    Definitions,
    Document,
    Figure,
    Heading,
    NamedText,
    SentenceTexts,
    Span,
    to_text,
)
from nmtalign.report.html_page import to_page
from nmtalign.report.markdown import to_markdown

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>'
HOSTILE = [
    '</script></style></title><script>alert(1)</script><img src=x onerror="alert(1)" alt=\'',
    '"> <a href="javascript:alert(1)">x</a> {{ 7 * 7 }} {% for %} $title &amp; &#60;b>',
    "a|b *c* _d_ **e** [x](http://y) ![x](y) `f` ~~g~~ # h <http://z> \\| \\",
    "a\x00b\x1b\ud800\uffff\x85c \u202e right to left",
]
HOSTILE += ["- item", "1. item", "# heading", "> quote", "``` code", "one ` two `` three ``` end`", "||| --- |||"]
HOSTILE += ["- - -", "1)", "    code", "[x]: http://y"]


def everything(text: str) -> Document:
    """A document with the text at every place that can contain one."""
    span = Span(text)
    figure = Figure("a.png", text, SVG)
    rows = [(span, span), (text, text), (Span(text, "name"), "–")]
    blocks = [
        span,
        Heading(span),
        (span, " and ", Span(text, "muted"), Span(text, "odd"), Span(text, "code")),
        DataTable((text, span), rows, span),
        DataTable((span, text), rows, text, words=2),
        figure,
        figure,
        Heading(text, 3),
        Definitions([(span, span), (text, text)]),
        Definitions([(span, Span(text, "code"))]),
    ]
    return Document(text, blocks)


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_never_markup_in_the_page(text):
    document = everything(text)
    sentence = [NamedText(text, (Span(text), Span(text, "wrong", text))), NamedText(text, text, text, True)]
    page = to_page(replace(document, blocks=[*document.blocks, SentenceTexts(Span(text), sentence)]))
    page.encode()
    read = PageReader(page)
    read.check()
    visible = text.replace("\x00", "␀").replace("\x1b", "␛").translate(dict.fromkeys((0xD800, 0xFFFF, 0x85), "\ufffd"))
    assert read.words().count(visible) >= 15
    assert page.startswith("<!doctype html>")


@pytest.mark.parametrize("text", HOSTILE)
def test_text_is_never_markup_in_markdown(text):
    """Another program reads the Markdown: it finds the text, and no element that the document does not have."""
    markdown = to_markdown(everything(text))
    markdown.encode()
    reader = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
    kinds = [token for block in reader.parse(markdown) for token in (block, *(block.children or ()))]
    found = {token.type for token in kinds}
    assert not found & {"html_block", "html_inline", "link_open", "fence", "code_block", "hr", "ordered_list_open"}
    assert sum(token.type == "heading_open" for token in kinds) == 3
    assert sum(token.type == "table_open" for token in kinds) == 2
    assert sum(token.type == "image" for token in kinds) == 2
    assert {len(re.findall(r"<t[hd]\b", row)) for row in reader.render(markdown).split("</tr>")[:4]} == {2}
    words = re.escape(" ".join(text.split())).replace(r"\ ", "[\\s\ufffd]+")
    for code in (0x00, 0x1B, 0xD800, 0xFFFF):
        words = words.replace(re.escape(chr(code)), ".")
    assert len(re.findall(words, PageReader(reader.render(markdown)).words())) >= 12


BLOCKS = [
    Heading("Part"),
    "see `a_b|c` and a_b, 2,5 - 3.",
    DataTable(("name", "`x|y`", "n"), [("a|b", "`p|q`", "1")], "caption", words=2),
    Figure("figures/a.png", "a picture", SVG),
    Commands(["nmtalign train"]),
    Definitions([("term", Span("meaning *"))]),
]


def test_markdown_of_each_block():
    assert to_markdown(Document("A report", BLOCKS)).split("\n\n") == [
        "# A report",
        "## Part",
        "see `a_b|c` and a\\_b, 2,5 - 3.",
        "caption",
        "| name | `x\\|y` | n |\n| --- | --- | ---: |\n| a\\|b | `p\\|q` | 1 |",
        "![a picture](figures/a.png)",
        "*a picture*",
        "```sh\nnmtalign train\n```",
        "- **term**: meaning \\*\n",
    ]


def test_plain_text_of_each_block():
    sentence = SentenceTexts("Line 1", [NamedText("source", Span("a *b*")), NamedText("x", Span(""), "BLEU 2")])
    assert to_text(Document("A report", [*BLOCKS, sentence])).splitlines() == [
        "Part:",
        "see a_b|c and a_b, 2,5 - 3.",
        "caption",
        "name  x|y  n",
        "a|b   p|q  1",
        "term: meaning *",
        "",
        "Line 1",
        "source  a *b*",
        "x         (BLEU 2)",
    ]


def test_code_in_prose_and_a_single_backquote():
    page = to_page(Document("A report", [Heading("Part"), "`code` & more", "one ` only"]))
    assert "<code>code</code> &amp; more" in page
    assert "<p>one ` only</p>" in page
    assert 'href="#part-1"' in page
    assert "default-src 'none'" in page
