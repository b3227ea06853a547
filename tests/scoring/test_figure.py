"""The article's Figure 2."""

import math
import xml.etree.ElementTree as ElementTree

import pytest
from helpers.pages import PageReader

from nmtalign.report.document import Document, Figure
from nmtalign.report.html_page import to_page
from nmtalign.scoring.figure import length_figure, length_svg
from nmtalign.scoring.report import Estimate, Part, Report, Resampling, Section, SystemReport

pytest.importorskip("matplotlib")
SIGNATURES = {
    "BLEU": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1",
    "chrF2": "nrefs:1|case:mixed|nc:6|nw:0",
}
LABELS = ("1-10", "11-20", "21-30", ">30")
WHOLE = Part("all", 100, {"BLEU": Estimate(30.0), "chrF2": Estimate(50.0)}, 1.0)


def system(name, scores):
    parts = []
    for number, (label, score) in enumerate(zip(LABELS, scores, strict=True), 1):
        ends = (score, score - 1, score + 1) if score else ()
        scores = {"BLEU": Estimate(score, *ends), "chrF2": Estimate(score and score + 20)}
        parts.append(Part(label, 10 * number if score else 0, scores, 1.0))
    return SystemReport(name, Section(WHOLE, tuple(parts)))


def report(*systems, lengths="by words of the source"):
    return Report(tuple(SIGNATURES), SIGNATURES, systems, Resampling(), lengths)


TWO = report(system("search", [30, 29, None, 27]), system("$x$ و", [28, 24, 18, 12]))


def points(line):
    return [(x, y) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if not math.isnan(y)]


def test_every_system_is_a_line_over_the_buckets_with_gaps_and_bands():
    axes, strip = length_figure(TWO).axes
    assert [points(line) for line in axes.lines] == [[(0, 30), (1, 29), (3, 27)], [(0, 28), (1, 24), (2, 18), (3, 12)]]
    assert len({(line.get_color(), line.get_linestyle(), line.get_marker()) for line in axes.lines}) == 2
    assert len(axes.collections) == 4  # for each system a band, and bars for intervals without neighbours
    assert axes.get_ylim()[0] == 0
    assert axes.get_ylim()[1] > 31
    assert [bar.get_height() for bar in strip.patches] == [10, 20, 0, 40]
    assert [label.get_text() for label in strip.get_xticklabels()] == [*LABELS]


def test_no_bands_for_many_systems():
    many = report(*(system(str(number), [3, 2, 1, 1]) for number in range(7)))
    assert not length_figure(many).axes[0].collections


def test_the_page_gets_an_svg_with_names_and_signature():
    svg = length_svg(TWO)
    words = "".join(ElementTree.fromstring(svg).itertext())  # noqa: S314
    for text in ("search", "$x$", SIGNATURES["BLEU"], "bands: 95% intervals of 1,000 bootstrap samples, seed 12345"):
        assert text in words
    page = PageReader(to_page(Document("t", [Figure("", "f", svg)])))
    page.check()
