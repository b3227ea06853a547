"""Picture files: the paper's Figure 3."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment.heatmap import Panel, draw, heatmap_svg, make_figure
from nmtalign.alignment.link_files import GoldLinks
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.errors import UsageError

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def panel(source: str, target: str, weights: np.ndarray, caption: str = "", gold=None, links=()) -> Panel:
    words = tuple(source.split()), tuple(target.split())
    zeros = np.zeros(len(weights), np.float32)
    record = AlignmentRecord(*words, weights.astype(np.float32), -1.0, 0, zeros, tuple(links))
    return Panel(record, caption, gold, bool(links))


WEIGHTS = np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]], np.float32)
SMALL = panel("the cat", "le chat", WEIGHTS)
GOLD = GoldLinks(frozenset({(0, 0)}), frozenset({(0, 0), (1, 1)}))
EMPTY = panel("", "le", np.zeros((2, 1)))


def test_a_pair_without_words_says_so(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="sentence 0: nothing to draw"):
        draw([SMALL, EMPTY], tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_labels_keep_accents_and_the_end() -> None:
    source, target, weights = panel("e\u0301te\u0301 a\u200bb", "\x07", np.eye(2, 3)).labels()
    assert source == ["été", "a·b", "</s>"]
    assert target == ["·", "</s>"]
    assert weights.shape == (2, 3)
    assert SMALL.labels(end=False)[2].shape == (2, 2)


def test_the_figure_is_the_paper_s() -> None:
    figure = make_figure([SMALL])
    (axes,) = figure.axes
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), WEIGHTS)
    assert image.get_clim() == (0, 1)
    assert image.cmap(0.0)[:3] == (0, 0, 0)
    assert image.cmap(1.0)[:3] == (1, 1, 1)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["the", "cat", "</s>"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["le", "chat", "</s>"]
    assert axes.get_xticklabels()[0].get_rotation() == 90
    assert axes.xaxis.get_major_ticks()[0].label2.get_visible()
    assert axes.yaxis_inverted()
    box = axes.get_window_extent()
    assert box.width / 3 == pytest.approx(box.height / 3)


def test_png_pixels_are_the_weights(tmp_path: Path) -> None:
    from matplotlib.image import imread

    draw([SMALL], tmp_path / "figure.png")
    assert (tmp_path / "figure.png").read_bytes().startswith(PNG_MAGIC)
    pixels = imread(tmp_path / "figure.png")[..., :3]
    cell = 0.22 * 150
    right, bottom = pixels.shape[1] - 0.05 * 150, pixels.shape[0] - 0.05 * 150

    def grey(row: int, column: int) -> float:
        return float(pixels[int(bottom - (2.5 - row) * cell), int(right - (2.5 - column) * cell)].mean())

    greys = [[grey(row, column) for column in range(3)] for row in range(3)]
    np.testing.assert_allclose(greys, WEIGHTS, atol=0.01)


@pytest.mark.parametrize(("name", "magic"), [("f.svg", b"<?xml"), ("f.PDF", b"%PDF")])
def test_other_formats_and_the_same_bytes_again(tmp_path: Path, name: str, magic: bytes) -> None:
    draw([SMALL], tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(magic)
    draw([SMALL], tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert len(list(tmp_path.iterdir())) == 1


def test_several_sentences_make_a_grid() -> None:
    figure = make_figure([panel("the cat", "le chat", WEIGHTS, f"sentence {number}") for number in range(3)])
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert [axes.get_xlabel() for axes in figure.axes] == ["sentence 0", "sentence 1", "sentence 2"]
    assert boxes[0].y0 == boxes[1].y0 > boxes[2].y1
    assert boxes[0].x1 < boxes[1].x0
    assert boxes[0].x0 == boxes[2].x0


def test_a_large_figure_stays_within_bounds() -> None:
    words = " ".join(["w"] * 400)
    figure = make_figure([panel(words, words, np.zeros((401, 401)))])
    assert max(figure.get_size_inches()) <= 40.001


@pytest.mark.parametrize("name", ["f.png", "f.svg", "f.pdf"])
def test_no_formulas_and_no_warnings_for_odd_words(tmp_path: Path, name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        notes = draw([panel("$x^ $ 日 السلام 👍", "\\frac{ _$ e\u0301 \u200d", np.eye(5, 6))], tmp_path / name)
    assert (tmp_path / name).stat().st_size > 0
    assert not set(" ".join(notes)) & set("$éالسلام")
    assert name != "f.svg" or notes == []


def test_text_is_text_in_svg_and_pdf(tmp_path: Path) -> None:
    accents = panel("e\u0301te\u0301 naïve", "œuvre 日本", np.eye(3, 3))
    draw([accents], tmp_path / "f.svg")
    words = re.findall(r"<text[^>]*>([^<]*)", (tmp_path / "f.svg").read_text())
    assert words == ["été", "naïve", "&lt;/s&gt;", "œuvre", "日本", "&lt;/s&gt;"]
    draw([SMALL], tmp_path / "f.pdf")
    pdf = (tmp_path / "f.pdf").read_bytes()
    assert b"/FontFile2" in pdf
    assert b"/Type3" not in pdf


def test_gold_and_hard_links_are_drawn_over(tmp_path: Path) -> None:
    marked = panel("the cat", "le chat", WEIGHTS, gold=GOLD, links=[(0, 0), (1, 1)])
    figure = make_figure([marked])
    places = [(type(patch).__name__, patch.get_fill(), patch.get_linestyle()) for patch in figure.axes[0].patches]
    assert [name for name, _, _ in places] == ["Rectangle", "Circle", "Rectangle", "Circle"]
    sure, possible = figure.axes[0].patches[1], figure.axes[0].patches[3]
    assert (sure.center, sure.get_fill()) == ((0, 0), True)
    assert (possible.center, possible.get_fill()) == ((1, 1), False)
    assert possible.get_linestyle() != "-"
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["sure", "possible", "link"]
    assert make_figure([SMALL]).legends == []
    # The colour of a dot is seen on white as on black.
    draw([marked], tmp_path / "f.png")


def test_models_side_by_side_and_a_colour_bar() -> None:
    figure = make_figure([SMALL, SMALL, SMALL, SMALL, SMALL, SMALL], across=2, color_bar=True)
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert len(boxes) == 7
    assert boxes[0].y0 == boxes[1].y0 > boxes[2].y1 > boxes[4].y1
    bar = boxes[6]
    assert bar.x0 > boxes[1].x1
    assert (bar.y0, bar.y1) == pytest.approx((boxes[0].y0, boxes[0].y1))
    assert len(make_figure([SMALL]).axes) == 1


def test_words_and_captions_of_neighbours_do_not_meet() -> None:
    long = panel("W" * 30 + " a", "M" * 30 + " b", np.eye(3), "a caption that is longer than its picture is wide")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = make_figure([long] * 4)
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [axes.get_tightbbox(renderer) for axes in figure.axes]
    for number, box in enumerate(boxes):
        for other in boxes[number + 1 :]:
            assert not box.overlaps(other)


def test_a_name_without_a_format_is_refused(tmp_path: Path) -> None:
    for name in ("figure", "figure.gif", "figure.h5"):
        with pytest.raises(UsageError, match=r"ends in \.png"):
            draw([SMALL], tmp_path / name)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"nmtalign\[plot\]"):
        draw([SMALL], tmp_path / "f.png")


def test_reading_and_drawing_import_no_torch() -> None:
    code = (
        "import sys; from nmtalign.alignment import alignment_file, evaluation, export_formats, symmetrization; "
        "from nmtalign.alignment import alignment_page, terminal, translation_table; "
        "import nmtalign.cli.plot, nmtalign.cli.aer; "
        "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_matrices_of_a_row_start_at_one_height() -> None:
    figure = make_figure([SMALL, panel("a-long-word b", "x y", WEIGHTS)])
    assert figure.axes[0].get_window_extent().y1 == pytest.approx(figure.axes[1].get_window_extent().y1)


def test_a_png_says_when_words_are_too_small(tmp_path: Path) -> None:
    assert draw([SMALL], tmp_path / "f.png") == []
    long = panel("w " * 900, "x", np.zeros((2, 901)))
    assert "too small" in draw([long], tmp_path / "f.png")[0]
    assert draw([long], tmp_path / "f.svg") == []


def test_an_svg_for_a_page_has_both_systems_side_by_side() -> None:
    text = heatmap_svg([panel("the cat", "le chat", WEIGHTS, "small"), SMALL], "line 3")
    assert text.startswith("<svg ")
    assert "<title>line 3</title>" in text
    assert re.findall(r"<text[^>]*>(\w+)<", text).count("chat") == 2
