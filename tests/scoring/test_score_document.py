"""The report of `score` as a page, read without a browser, and as Markdown: every number of it is there."""

import dataclasses
import re

import pytest
from helpers import score_example as example
from helpers.pages import PageReader

from nmtalign.errors import UsageError
from nmtalign.report.markdown import to_markdown
from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.report import Breakdown, Part, Report, Section, SystemReport
from nmtalign.scoring.score_document import build_page, score_document
from nmtalign.version import __version__

SVG = (
    '<?xml version="1.0"?><!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" '
    '"http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">'
    '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" viewBox="0 0 9 9" '
    'onload="act()">'
    "<metadata>made by</metadata><style>* { stroke: red }</style><script>act()</script>"
    '<defs><clipPath id="cut"><rect width="9" height="9"/></clipPath><path id="mark" d="M0 0h1"/></defs>'
    '<g clip-path="url(#cut)"><use xlink:href="#mark"/><image xlink:href="http://example.org/x.png"/></g>'
    "<text>words &amp; more</text></svg>"
)


def page_of(report: Report, **given) -> str:
    return build_page(report, title="English to French", **given)


@pytest.fixture(scope="module")
def page() -> str:
    return page_of(
        example.report(),
        figures=[("BLEU by length", SVG), ("chrF by length", SVG)],
        pictures={42: [("one", SVG), ("two", SVG)]},
        settings={"reference": "test.fr & more"},
    )


@pytest.fixture(scope="module")
def read(page) -> PageReader:
    return PageReader(page)


def parts_of(report: Report) -> list[Part]:
    parts = []
    for system in report.systems:
        for section in (system.everything, system.no_unk):
            if section:
                parts += [section.whole, *(part for cut in section.breakdowns for part in cut.parts)]
    return parts


def test_every_number_of_the_report_is_in_the_page_and_in_markdown(read):
    report = example.report()
    markdown = to_markdown(score_document(report, title="English to French", settings={"reference": "test.fr"}))
    for words in (read.words(), markdown.replace("\\", "")):
        for part in parts_of(report):
            assert f"{part.sentences:,}" in words
            numbers = [value for value in (*part.values, part.length_ratio) if value is not None]
            numbers += [end for interval in part.intervals if interval for end in (interval.low, interval.high)]
            assert all(f"{number:.2f}" in words for number in numbers)
            for values in part.p_values.values():
                assert all(f"{value:.4f}{'*' if value < 0.05 else ''}" in words for value in values)
        for system in report.systems:
            for interval in system.everything.whole.intervals:
                assert f"± {interval.half_width:.2f}" in words
                assert f"mean {interval.mean:.2f}" in words
        for table in report.words:
            for row in table.rows:
                assert row.label in words
                for counts in row.counts:
                    assert all(f"{value:.2f}" in words for value in (counts.f1, counts.precision, counts.recall))
                    assert f"{counts.matches:,} of {counts.hypothesis:,}" in words
        for rate in (report.unknown.source, report.unknown.reference, *report.unknown.systems):
            assert f"{100 * rate:.2f}%" in words
        for difference in report.differences:
            assert all(f"{difference.metric} {score:.2f}" in words for score in difference.scores)
            assert f"Line {difference.line:,}" in words
        for text in (*example.NAMES, *example.SIGNATURES, *example.LENGTHS, "12345", "1,000", "10,000", __version__):
            assert text in words
        assert "test.fr" in words
        assert "rnnsearch-50 has the best BLEU, 28.45, significantly better than every other system." in words
    assert "a patient **dans un hôpital** ou" in markdown.replace("un patient", "a patient")
    assert "~~d'admettre~~ est" in markdown


def test_texts_are_there_word_for_word_and_harm_nothing(read, page):
    words = read.words()
    for difference in example.report().differences:
        for text in (difference.source, *difference.references, *difference.texts):
            assert text.replace("\x00", "␀") in words
    assert "\x00" not in page
    read.check()


def test_names_and_titles_are_escaped():
    whole = Section(Part("all", 1, (1.0,), None))
    report = Report((example.HOSTILE,), (example.HOSTILE,), (SystemReport(example.HOSTILE, whole),))
    made = build_page(
        report, title=example.HOSTILE, figures=[(example.HOSTILE, SVG)], settings={example.HOSTILE: example.HOSTILE}
    )
    read = PageReader(made)
    read.check()
    assert read.words().count(example.HOSTILE) >= 6


def test_the_same_report_gives_the_same_bytes(page):
    again = page_of(
        example.report(),
        figures=[("BLEU by length", SVG), ("chrF by length", SVG)],
        pictures={42: [("one", SVG), ("two", SVG)]},
        settings={"reference": "test.fr & more"},
    )
    assert again == page
    page.encode()


def test_nothing_leads_out_of_the_page(read, page):
    assert "http://" not in page
    assert "https://" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)
    assert sum((attributes.get("href") or "").startswith("#") for _, attributes in read.elements) > 8


def test_tables_have_captions_and_scopes(read):
    assert len(read.attributes("caption")) == len(read.attributes("table")) == 7
    assert all(
        attributes.get("scope") in {"col", "row", "colgroup", "rowgroup"} for attributes in read.attributes("th")
    )
    frames = [attributes for attributes in read.attributes("div") if attributes.get("class") == "scroll"]
    assert all(attributes["tabindex"] == "0" for attributes in frames)
    texts = [attributes for attributes in read.attributes("p") if attributes.get("class") == "words"]
    assert len(texts) == 16
    assert all(attributes["dir"] == "auto" for attributes in texts)


def test_every_row_of_a_table_has_as_many_cells_as_its_head(page):
    for table in re.findall(r"<table.*?</table>", page, re.S):
        below: dict[int, int] = {}
        widths = set()
        for number, row in enumerate(re.findall(r"<tr.*?</tr>", table, re.S)):
            width = below.get(number, 0)
            for cell in re.findall(r"<t[hd][^>]*>", row):
                across, down = (re.search(rf'{name}="(\d+)"', cell) for name in ("colspan", "rowspan"))
                width += int(across[1]) if across else 1
                if down:
                    below[number + 1] = below.get(number + 1, 0) + 1
            widths.add(width)
        assert len(widths) == 1


def test_segments_have_different_marks(page):
    assert '<mark class="right" title="only in this translation, and in a reference">d&#39;admission</mark>' in page
    assert '<mark class="wrong" title="only in this translation, and in no reference">nul</mark>' in page
    assert '<mark class="odd" title="in both translations, but in no reference">de reconnaître</mark>' in page


def test_a_picture_is_below_its_sentence(page):
    article = page[page.index("Line 42 ") : page.index("Line 2,890 ")]
    assert article.count("<svg") == 2
    assert "<details>" in article


def test_a_picture_brings_its_drawing_and_nothing_else(read, page):
    assert not read.attributes("metadata")
    assert not read.attributes("image") or "href" not in read.attributes("image")[0]
    assert page.count("words &amp; more") == 4
    assert '<g clip-path="url(#figure-0-svg-cut)"><use href="#figure-0-svg-mark" />' in page
    assert "stroke: red" not in page
    assert 'id="figure-1-svg" role="img" aria-label="chrF by length"' in page


@pytest.mark.parametrize("svg", ["", "<p>no picture</p>", "<svg", "words"])
def test_a_text_that_is_no_svg_is_refused(svg):
    with pytest.raises(UsageError, match=r"^Figure 2: the picture is not an SVG"):
        page_of(example.report(), figures=[("Figure 2", svg)])


def bare() -> Report:
    """A report of one system and one metric, without other sections."""
    return Report(("BLEU",), ("BLEU|x",), (SystemReport("one", Section(Part("all", 2, (12.345,), 0.98))),))


def test_a_small_report_has_only_its_own_sections():
    read = PageReader(page_of(bare()))
    sections = [attributes["id"] for attributes in read.attributes("section")]
    assert sections == ["scores", "about"]
    words = read.words()
    for text in ("±", "[", "p <", "winner", "tie", "Seed", "baseline", "unknown", "best"):
        assert text not in words
    assert "1 system · 2 sentences · BLEU" in words
    assert "12.35" in words or "12.34" in words


def test_a_subset_without_sentences_has_dashes():
    none = Part("all", 0, (None,), None)
    cut = Breakdown("length", "by words of the source", "words", (none,))
    report = Report(("BLEU",), ("x",), (SystemReport("one", Section(none, (cut,)), Section(none)),))
    read = PageReader(page_of(report))
    assert "–" in read.words()
    assert "None" not in read.words()
    assert "nan" not in read.words()


@pytest.mark.parametrize(
    ("marks", "verdict"),
    [
        (("", "winner"), "b has the best TER, 40.00, significantly better than every other system."),
        (("tie", "tie"), "b has the best TER, 40.00, but not significantly better than a."),
        (("", ""), "b has the best TER, 40.00."),
        ((), "b has the best TER, 40.00; no test was made of whether the differences are significant."),
    ],
)
def test_the_verdict(marks, verdict):
    def system(name: str, value: float, mark: tuple) -> SystemReport:
        return SystemReport(name, Section(Part("all", 9, (value,), None, marks=mark)))

    given = [(mark,) for mark in marks] or [(), ()]
    systems = (system("a", 50.0, given[0]), system("b", 40.0, given[1]))
    assert verdict in PageReader(page_of(Report(("TER",), ("x",), systems))).words()


def test_buckets_of_different_sizes_have_rows_of_sizes():
    def system(name: str, sizes: tuple[int, int]) -> SystemReport:
        parts = tuple(Part(label, size, (1.0,), None) for label, size in zip(("1-5", ">5"), sizes, strict=True))
        cut = Breakdown("length", "by words of the translation", "words", parts, common=False)
        return SystemReport(name, Section(Part("all", 99, (1.0,), None), (cut,)))

    words = PageReader(page_of(Report(("BLEU",), ("x",), (system("a", (1234, 2)), system("b", (5678, 3)))))).words()
    assert "Sentences" in words
    assert "1,234" in words
    assert "5,678" in words


def test_a_bucket_without_sentences_is_one_row_with_its_number():
    parts = (Part("1-5", 7, (1.0, 2.0), 0.98), Part(">5", 0, (None, None), None))
    cut = Breakdown("length", "by words of the source", "words", parts)
    report = Report(
        ("BLEU", "TER"), ("x", "y"), (SystemReport("a", Section(Part("all", 7, (1.0, 2.0), 0.98), (cut,))),)
    )
    words = PageReader(page_of(report)).words()
    assert words.count("1-5") == 3
    assert words.count(">50–") == words.count(">5") == 1


def test_the_subset_without_unknown_words_is_cut_as_well():
    report = example.report()
    systems = tuple(
        dataclasses.replace(system, no_unk=dataclasses.replace(system.no_unk, breakdowns=system.everything.breakdowns))
        for system in report.systems
    )
    read = PageReader(page_of(dataclasses.replace(report, systems=systems)))
    assert "By words of the source (sentences without unknown words)" in read.words()
    read.check()


def test_control_characters_and_halves_of_characters_can_be_written():
    text = "a\x00\x1b\ud800\uffff\r\x85z"
    segments = (Segment(text, "only", True),)
    difference = Difference(1, None, (text, text), (text, ""), (1.0, 1.0), "chrF2", (segments, ()))
    report = dataclasses.replace(example.report(), differences=(difference,))
    page = page_of(report)
    page.encode()
    assert "a␀␛���␍" not in page
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", page)
    assert "Reference 2" in page
    assert "(empty)" in page
