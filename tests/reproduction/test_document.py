"""A document as Markdown and as HTML: what comes from a corpus is never markup."""

import pytest

from nmtalign.reproduction.document import Commands, Document, Figure, Heading, Paragraph, Sentence, Table
from nmtalign.reproduction.markdown import escaped, to_markdown
from nmtalign.reproduction.page import to_page

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>'
NASTY = "a|b *c* _d_ <script>alert(1)</script> [x](y) `e & $f$ 1 \\ #g"


def document(*blocks):
    return Document("A report", blocks)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain words, with marks.", "plain words, with marks."),
        ("a*b_c", "a\\*b\\_c"),
        ("1. first", "1\\. first"),
        ("- dash", "\\- dash"),
        ("2,5 - 3", "2,5 - 3"),
        ("<b>", "\\<b\\>"),
        ("a  b\nc", "a b c"),
    ],
)
def test_escaping(text, expected):
    assert escaped(text).replace("\\1.", "1\\.") == expected or escaped(text) == expected.replace("1\\.", "\\1.")


def test_markdown():
    text = to_markdown(
        document(
            Heading("Part"),
            Paragraph("see `a_b|c` and a_b"),
            Table(("name", "`x|y`", "n"), [("a|b", "`p|q`", "1")], "caption", words=2),
            Figure("figures/a.png", "a picture", SVG),
            Commands(["nmtalign train"]),
            Sentence("Line 1", [("source", NASTY)]),
        )
    )
    assert "see `a_b|c` and a\\_b" in text
    assert "| name | `x\\|y` | n |\n| --- | --- | ---: |\n| a\\|b | `p\\|q` | 1 |" in text
    assert "![a picture](figures/a.png)" in text
    assert "```sh\nnmtalign train\n```" in text
    assert "<script" not in text.replace("\\<script", "")


def test_page():
    page = to_page(
        document(
            Heading("Part"),
            Paragraph("`code` & more"),
            Table(("name", "n"), [(NASTY.replace("`", ""), "1")]),
            Figure("figures/a.png", "a picture", SVG),
            Sentence("Line 1", [("source", NASTY)]),
        )
    )
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 2
    assert "<code>code</code> &amp; more" in page
    assert 'href="#part-0"' in page
    assert "default-src 'none'" in page
