"""Heat maps: the paper's Figure 3 in picture files, and blocks or grey in the terminal."""

import re
import time
from dataclasses import replace

import numpy as np
import pytest
from rich.cells import cell_len

from nmtalign.alignment.link_files import GoldLinks
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.errors import UsageError
from nmtalign.viewing import heatmap
from nmtalign.viewing.heatmap import Panel, draw, legend, make_figure, render_text


def panel(source, target, weights, caption="", gold=None, links=()):
    words = tuple(source.split()), tuple(target.split())
    zeros = np.zeros(len(weights), np.float32)
    record = AlignmentRecord(*words, weights.astype(np.float32), -1.0, 0, zeros, tuple(links))
    return Panel(record, caption, gold, bool(links))


WEIGHTS = np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]], np.float32)
SMALL = panel("the cat", "le chat", WEIGHTS)
GOLD = GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
MARKED = panel("the cat", "le chat", WEIGHTS, gold=GOLD, links=[(0, 0), (1, 1)])
EMPTY = panel("", "le", np.zeros((2, 1)))


# --- picture files ---


def test_a_pair_without_words_is_reported(tmp_path):
    with pytest.raises(UsageError, match="sentence 0: nothing to draw"):
        draw([SMALL, EMPTY], tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []
    assert render_text([EMPTY], 80) == "nothing to draw: 0 source words, 1 target word\n"


def test_labels_keep_accents_and_the_end():
    source, target, weights = panel("e\u0301te\u0301 a\u200bb", "\x07", np.eye(2, 3)).labels()
    assert source == ["été", "a·b", "</s>"]
    assert target == ["·", "</s>"]
    assert weights.shape == (2, 3)
    assert replace(SMALL, end=False).labels()[2].shape == (2, 2)


def test_the_figure_is_the_paper_s():
    figure = make_figure([SMALL])
    (axes,) = figure.axes
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), WEIGHTS)
    assert image.get_clim() == (0, 1)
    assert [image.cmap(value)[:3] for value in (0.0, 1.0)] == [(0, 0, 0), (1, 1, 1)]
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["the", "cat", "</s>"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["le", "chat", "</s>"]
    assert axes.get_xticklabels()[0].get_rotation() == 90
    assert axes.xaxis.get_major_ticks()[0].label2.get_visible()
    assert axes.yaxis_inverted()
    box = axes.get_window_extent()
    assert box.width / 3 == pytest.approx(box.height / 3)
    assert figure.texts == []


def test_several_panels_make_a_grid_and_do_not_meet():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    long = panel("W" * 30 + " a", "M" * 30 + " b", np.eye(3), "a caption that is longer than its picture is wide")
    figure = make_figure([long, SMALL, SMALL, long], across=2)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert boxes[0].y1 == pytest.approx(boxes[1].y1)
    assert boxes[0].x0 == pytest.approx(boxes[2].x0)
    assert boxes[0].y0 > boxes[2].y1
    around = [axes.get_tightbbox(renderer) for axes in figure.axes]
    assert not any(box.overlaps(other) for number, box in enumerate(around) for other in around[number + 1 :])


def test_a_large_figure_stays_within_bounds_and_says_when_words_are_too_small(tmp_path, monkeypatch):
    long = panel("w " * 900, "x", np.zeros((2, 901)))
    assert max(make_figure([long]).get_size_inches()) <= 40.001
    assert draw([SMALL], tmp_path / "f.png") == []
    monkeypatch.setattr(heatmap, "_PIXELS", 40)  # of the larger side
    assert "too small" in draw([SMALL], tmp_path / "f.png")[0]


@pytest.mark.parametrize("name", ["f.png", "f.svg", "f.pdf"])
def test_odd_words_are_text_without_formulas_and_warnings(tmp_path, name):
    odd = panel("$x^ $ 日 السلام 👍", "\\frac{ _$ e\u0301 \u200d", np.eye(5, 6))
    notes = draw([odd], tmp_path / name)  # a warning would be an error
    first = (tmp_path / name).read_bytes()
    assert not set(" ".join(notes)) & set("$éالسلام")
    if name == "f.svg":
        assert notes == []
        assert re.findall(r"<text[^>]*>([^<]*)", first.decode())[:3] == ["$x^", "$", "日"]
    if name == "f.pdf":
        assert b"/FontFile2" in first
        assert b"/Type3" not in first


def test_gold_and_hard_links_are_drawn_over():
    figure = make_figure([MARKED])
    patches = figure.axes[0].patches
    assert [type(patch).__name__ for patch in patches] == ["Rectangle", "Circle", "Rectangle", "Circle"]
    sure, possible = patches[1], patches[3]
    assert (sure.center, sure.get_fill()) == ((0, 0), True)
    assert (possible.center, possible.get_fill()) == ((1, 1), False)
    assert possible.get_linestyle() != "-"
    assert [text.get_text() for text in figure.texts] == ["● sure  ○ possible  ▢ link"]


# --- the terminal ---


def columns(line):
    return cell_len(re.sub("\x1b[^m]*m", "", line))


def test_rows_are_target_words():
    # Headings end on the same line: `</s>` has four letters, the words three.
    text = render_text([SMALL], 80)
    assert text.splitlines() == [
        "         <",
        "     t c /",
        "     h a s",
        "     e t >",
        "  le ██",
        "chat   ▒▒░░",
        "</s>     ██",
    ]
    assert text.endswith("██\n")
    assert render_text([replace(SMALL, end=False)], 80).splitlines()[-2:] == ["  le ██", "chat   ▒▒"]
    shades = panel("a b c d", "x", np.array([[0.1, 0.2, 0.4, 0.7, 0.9], [0, 0, 0, 0, 1]]))
    assert render_text([shades], 80).splitlines()[-2] == "   x   ░░▒▒▓▓██"
    forged = panel("a b c", "x", np.array([[np.nan, 2, -1, 0], [0, 0, 0, 1]]))
    assert render_text([forged], 80).splitlines()[-2] == "   x   ██"


@pytest.mark.parametrize("width", [10, 20, 33, 60, 80])
@pytest.mark.parametrize("colour", [False, True])
def test_the_width_is_never_passed(width, colour):
    words = " ".join(["désoxyribonucléique"] * 45)
    gold = GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0), (3, 3)}))
    marked = panel(words, words, np.eye(46), "a long caption", gold, [(1, 1)])
    lines = render_text([marked, marked], width, colour=colour).splitlines()
    assert max(map(columns, lines)) <= width
    # Every mark is shown once a picture, in one of the bands.
    assert [sum(line.count(mark) for line in lines) for mark in "●○+"] == [2, 2, 2]
    folded = render_text([panel("w " * 44, "w " * 44, np.eye(45))], 40).splitlines()
    assert max(map(len, folded)) == 5 + 2 * 15  # three bands of 15 columns


def test_wide_letters_marks_and_controls_keep_the_columns():
    text = render_text([panel("e\u0301 日本 \x1b[31m", "日本 x\u200c\u200dy", np.eye(3, 4))], 80)
    assert "\x1b" not in text
    rows = text.splitlines()
    assert rows[-3] == "日本 ██"
    assert rows[-2] == "  xy   ██"
    assert rows[-4].endswith("é 本m >")
    odd = panel("मुझे ไทย السلام q\u0323\u0307 👍", "\u200d \u0301x", np.eye(3, 6))
    assert max(map(columns, render_text([odd], 30).splitlines())) <= 30
    # A letter of three joined consonants, which is three columns wide, does not move the words behind it.
    hindi = render_text([panel("राष्ट्रीय x", "y", np.eye(2, 3))], 80).splitlines()
    assert [(row.split(), columns(row)) for row in hindi[2:4]] == [(["ट्", "/"], 10), (["री", "s"], 10)]
    assert {columns(line) for line in hindi[1:5]} == {10}


def test_marks_in_the_terminal():
    assert render_text([MARKED], 80).splitlines()[-3:-1] == ["  le +●", "chat   +○░░"]
    assert render_text([panel("a", "b", np.eye(2), gold=GOLD)], 80).splitlines()[-2] == "   b █●"
    assert legend([SMALL]) == ""
    assert legend([SMALL, MARKED]) == "● sure  ○ possible  + link"
    row = render_text([MARKED], 80, colour=True).splitlines()[-3]
    assert re.findall(r"\x1b\[48;5;(\d+)m", row) == ["231", "16", "16"]
    assert re.sub(r"\x1b\[[0-9;]*m", "", row) == "  le +●    "


def test_the_time_is_linear_in_the_lines():
    began = time.process_time()
    lines = render_text([panel("a", "b " * 20_000, np.ones((20_001, 2)))], 80).splitlines()
    assert (len(lines), time.process_time() - began < 3) == (20_005, True)


def test_two_models_are_side_by_side_where_they_fit():
    one = panel("the cat", "le chat", WEIGHTS, "one")
    two = panel("the cat", "la chatte ronronne", np.eye(4, 3), "two")
    lines = render_text([one, two], 80).splitlines()
    assert lines[0].split() == ["one", "two"]
    assert [line.split()[0] for line in lines[-3:]] == ["le", "chat", "</s>"]
    stacked = render_text([one, two], 25).splitlines()
    assert stacked.index("two") > stacked.index("one")
    assert "" in stacked
