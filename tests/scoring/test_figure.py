"""The article's Figure 2, and the other figures of a page."""

import dataclasses
import math
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from helpers.pages import PageReader

from nmtalign.errors import UsageError
from nmtalign.figures import DASHES, MARKERS
from nmtalign.report.document import Document, Figure
from nmtalign.report.html_page import to_page
from nmtalign.scoring.figure import breakdown_svg, by_figure, draw_by_length, words_figure, words_svg
from nmtalign.scoring.report import Breakdown, Part, Report, Section, SystemReport
from nmtalign.scoring.resampling import Interval, Resampling
from nmtalign.scoring.words import WordBreakdown, WordCounts, WordRow

SIGNATURES = ("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.5.1", "nrefs:1|case:mixed|nc:6|nw:0")
LABELS = ("1-10", "11-20", "21-30", ">30")


def part(label: str, bleu: float | None, sentences: int = 100, width: float | None = 1.0) -> Part:
    if bleu is None:
        return Part(label, 0, (None, None), None, () if width is None else (None, None))
    values = (bleu, bleu + 20)
    intervals = () if width is None else tuple(Interval(value, value - width, value + width) for value in values)
    return Part(label, sentences, values, 1.0, intervals)


def system(name: str, scores: Sequence[float | None], labels: Sequence[str] = LABELS, width: float | None = 1.0):
    parts = tuple(part(label, score, 10 * (x + 1), width) for x, (label, score) in enumerate(zip(labels, scores)))  # noqa: B905
    places = Breakdown("place", "by place in the text", "lines", parts[:2])
    cuts = (Breakdown("length", "by words of the source", "words", parts), places)
    return SystemReport(name, Section(part("all", 30.0), cuts))


def report(*systems: SystemReport, resampling: Resampling | None = Resampling()) -> Report:  # noqa: B008
    return Report(("BLEU", "chrF2"), SIGNATURES, systems, resampling)


TWO = report(system("search", [30, 29, 28, 27]), system("encoder", [28, 24, 18, 12]))


def points(line) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True) if not math.isnan(y)]


def texts(svg: str) -> list[str]:
    root = ElementTree.fromstring(svg)  # noqa: S314
    return ["".join(element.itertext()) for element in root.iter() if "text" in element.tag]


def test_every_system_is_a_line_over_the_buckets_with_its_interval_as_a_band() -> None:
    axes, strip = by_figure(TWO).axes
    assert [points(line) for line in axes.lines] == [
        [(0, 30), (1, 29), (2, 28), (3, 27)],
        [(0, 28), (1, 24), (2, 18), (3, 12)],
    ]
    bands = [{tuple(point) for point in band.get_paths()[0].vertices} for band in axes.collections]
    assert len(bands) == 2
    assert {(0, 29), (0, 31), (3, 26), (3, 28)} <= bands[0]
    assert {(0, 27), (0, 29), (3, 11), (3, 13)} <= bands[1]
    low, high = axes.get_ylim()
    assert low < 11
    assert high > 31
    assert axes.get_ylabel() == "BLEU"
    assert strip.get_xlabel() == "words of the source"
    assert [tick.get_text() for tick in strip.get_xticklabels()] == list(LABELS)
    assert [bar.get_height() for bars in strip.containers for bar in bars] == [10, 20, 30, 40]


def test_systems_differ_even_without_colour() -> None:
    axes = by_figure(report(*(system(f"s{number}", [30 - number] * 4) for number in range(20)))).axes[0]
    looks = {(line.get_marker(), str(line._unscaled_dash_pattern)) for line in axes.lines}
    assert len(looks) == 20
    assert len({line.get_color() for line in axes.lines}) == 10
    assert len(MARKERS) == 10
    assert len(DASHES) >= 4
    assert len(axes.get_legend().get_texts()) == 20


def test_the_bands_of_many_systems_would_hide_each_other() -> None:
    for count, bands in ((6, 6), (7, 0)):
        figure = by_figure(report(*(system(f"s{number}", [30 - number] * 4) for number in range(count))))
        assert len(figure.axes[0].collections) == bands
        assert len(figure.axes[0].lines) == count
        assert any("bands" in text.get_text() for text in figure.texts) == (bands > 0)


def test_names_signature_and_what_the_intervals_were_drawn_with_are_written() -> None:
    for metric, signature in zip(TWO.metrics, SIGNATURES, strict=True):
        written = texts(breakdown_svg(TWO, metric))
        assert {"search", "encoder", metric, signature, ">30", "words of the source", "sentences"} <= set(written)
        assert "bands: 95% intervals of 1,000 bootstrap samples, seed 12345" in written
    assert not any("bands" in text for text in texts(breakdown_svg(dataclasses.replace(TWO, resampling=None))))


def test_a_bucket_without_sentences_is_a_gap() -> None:
    axes, strip = by_figure(report(system("a", [30, None, 28, 20])), "chrF2").axes
    line, alone = axes.lines[-1], axes.lines[0]
    assert points(line) == [(0, 50), (2, 48), (3, 40)]
    assert math.isnan(line.get_ydata()[1])
    assert points(alone) == [(0, 49), (0, 51)]  # a band without breadth
    assert len(axes.lines) == 2
    assert "0" in [text.get_text() for text in strip.texts]


def test_one_bucket_and_none_with_sentences() -> None:
    both = report(system("a", [30], ["1-10"]), system("b", [29], ["1-10"]))
    axes = by_figure(both).axes[0]
    marked = [line for line in axes.lines if line.get_marker() != "None"]
    (first,), (second,) = (points(line) for line in marked)
    assert first[0] == -second[0] < 0
    empty = by_figure(report(system("a", [None, None, None, None]))).axes[0]
    assert [text.get_text() for text in empty.texts] == ["no sentence to score"]


def test_without_intervals_there_is_no_band() -> None:
    figure = by_figure(report(system("a", [30, 29, 28, 20], width=None)))
    assert len(figure.axes[0].collections) == 0
    assert not any("bands" in text.get_text() for text in figure.texts)


def test_counts_that_differ_are_bars_of_each_system() -> None:
    other = system("b", [1, 2, 3, 4])
    cut = other.everything.breakdowns[0]
    fewer = dataclasses.replace(
        cut, parts=tuple(dataclasses.replace(each, sentences=each.sentences - 1) for each in cut.parts)
    )
    other = dataclasses.replace(other, everything=dataclasses.replace(other.everything, breakdowns=(fewer,)))
    strip = by_figure(report(system("a", [1, 2, 3, 4]), other)).axes[1]
    assert sorted(bar.get_height() for bars in strip.containers for bar in bars) == [9, 10, 19, 20, 29, 30, 39, 40]


def test_only_a_last_bucket_without_end_is_shaded() -> None:
    open_end, closed = by_figure(TWO), by_figure(report(system("a", [1, 2, 3], LABELS[:3])))
    assert len(open_end.axes[0].patches) == 1
    assert len(closed.axes[0].patches) == 0
    assert len(by_figure(TWO, by="place").axes[0].patches) == 0


@pytest.mark.parametrize("count", [20, 100])
def test_labels_of_many_buckets_do_not_meet(count: int) -> None:
    labels = [f"{10 * number + 1}-{10 * number + 10}" for number in range(count)]
    figure = by_figure(report(system("a", [20.0] * count, labels)))
    figure.draw_without_rendering()
    shown = figure.axes[1].get_xticklabels()
    boxes = [label.get_window_extent() for label in shown]
    assert 10 < len(shown) <= 40
    turned = shown[0].get_rotation() > 0
    assert all(one.x1 < other.x0 or (turned and one.x1 < other.x1) for one, other in pairwise(boxes))


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_files_are_written_whole_and_the_same_again(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"f.{kind}"
    assert draw_by_length(TWO, path) == []
    first = path.read_bytes()
    assert draw_by_length(TWO, path) == []
    assert path.read_bytes() == first
    assert list(tmp_path.iterdir()) == [path]


def test_odd_names_are_drawn_as_they_are(tmp_path: Path) -> None:
    names = ["$x_1$", "_a", "a & <b>", "/a/very/long/path/" * 8]
    odd = report(*(system(name, [3, 2, 1, 1]) for name in names))
    draw_by_length(odd, tmp_path / "f.png")
    written = "".join(texts(breakdown_svg(odd)))
    assert all(name in written for name in names)


def test_what_cannot_be_drawn_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^no TER to draw: the report has BLEU, chrF2; name one of these$"):
        draw_by_length(TWO, tmp_path / "f.png", "TER")
    bare = report(SystemReport("a", Section(part("all", 30.0))))
    with pytest.raises(UsageError, match="no scores by length; score with --by-length"):
        draw_by_length(bare, tmp_path / "f.png")
    with pytest.raises(UsageError, match=r"ends in \.png"):
        draw_by_length(TWO, tmp_path / "f.gif")
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    for draw in (lambda: draw_by_length(TWO, tmp_path / "f.png"), lambda: breakdown_svg(TWO)):
        with pytest.raises(UsageError, match=r"pip install \"nmtalign\[plot\]\""):
            draw()
    assert list(tmp_path.iterdir()) == []


def test_pictures_of_a_page_share_no_ids() -> None:
    svgs = [breakdown_svg(TWO), breakdown_svg(TWO), breakdown_svg(TWO, by="place"), words_svg(TABLE, ["a", "b"])]
    page = PageReader(to_page(Document("report", [Figure("", "picture", svg) for svg in svgs])))
    page.check()
    assert len([attributes for attributes in page.attributes("svg") if attributes.get("role") == "img"]) == 4
    assert any(attributes.get("href", "").startswith("#") for attributes in page.attributes("use"))
    assert "place in the text" in texts(svgs[2])


TABLE = WordBreakdown(
    "frequency",
    "words by frequency in training",
    "times seen",
    (
        WordRow("unknown", (WordCounts(10, 10, 1), WordCounts(10, 10, 2))),
        WordRow("1", (WordCounts(0, 0, 0), WordCounts(0, 0, 0))),
        WordRow("2-9", (WordCounts(20, 20, 15), WordCounts(20, 20, 10))),
    ),
)


def test_words_are_groups_of_bars_and_no_word_is_no_bar() -> None:
    axes, strip = words_figure(TABLE, ["a", "b"]).axes
    heights = [[bar.get_height() for bar in bars] for bars in axes.containers]
    assert [heights[0][0], heights[1][0], heights[0][2], heights[1][2]] == [10, 20, 75, 50]
    assert math.isnan(heights[0][1])
    assert [text.get_text() for text in axes.texts] == ["10.0", "", "75.0", "20.0", "", "50.0"]
    assert [bar.get_height() for bar in strip.patches] == [10, 0, 20]
    assert {bars[0].get_hatch() for bars in axes.containers} == {"", "////"}
    written = texts(words_svg(TABLE, ["a", "b"]))
    assert {"unknown", "1", "2-9", "times seen", "F1 of words, %", "a", "b"} <= set(written)
