"""Pictures: Figure 3 in a file, and block characters in the terminal."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment.heatmap import draw, labels, make_figure, render_text
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.errors import UsageError

PNG_MAGIC = b"\x89PNG\r\n\x1a\n"


def record(source: str, target: str, weights: np.ndarray) -> AlignmentRecord:
    words = tuple(source.split()), tuple(target.split())
    return AlignmentRecord(*words, weights.astype(np.float32), -1.0, 0, np.zeros(len(weights), np.float32), ())


SMALL = record("the cat", "le chat", np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]]))
EMPTY = record("", "le", np.zeros((2, 1)))


def test_the_terminal_shows_rows_of_target_words() -> None:
    # Headings stand on one line: `</s>` has four letters, the words three.
    text = render_text(SMALL, 80)
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
    assert render_text(SMALL, 80, end=False).splitlines()[-2:] == ["  le ██", "chat   ▒▒"]


@pytest.mark.parametrize("width", [10, 20, 33, 80])
def test_the_terminal_s_width_is_never_passed(width: int) -> None:
    words = " ".join(["désoxyribonucléique"] * 45)
    weights = np.eye(46)
    text = render_text(record(words, words, weights), width)
    assert max(map(len, text.splitlines())) <= width
    # Every column is shown once, in one of the bands.
    assert text.count("██") == 46


def test_the_shades() -> None:
    shades = record("a b c d", "x", np.array([[0.1, 0.2, 0.4, 0.7, 0.9], [0, 0, 0, 0, 1]]))
    assert render_text(shades, 80).splitlines()[-2] == "   x   ░░▒▒▓▓██"


def test_wide_letters_marks_and_controls_keep_the_columns() -> None:
    text = render_text(record("e\u0301 日本 \x1b[31m", "日本 x", np.eye(3, 4)), 80)
    assert "\x1b" not in text
    rows = text.splitlines()
    assert rows[-3] == "日本 ██"
    assert rows[-2] == "   x   ██"
    assert rows[-4].endswith("é 本m >")


def test_a_pair_without_words_says_so(tmp_path: Path) -> None:
    assert render_text(EMPTY, 80) == "nothing to draw: 0 source words, 1 target words\n"
    with pytest.raises(UsageError, match="sentence 0: nothing to draw"):
        draw([SMALL, EMPTY], tmp_path / "x.png")
    assert list(tmp_path.iterdir()) == []


def test_labels_keep_accents_and_the_end() -> None:
    source, target, weights = labels(record("e\u0301te\u0301 a\u200bb", "\x07", np.eye(2, 3)))
    assert source == ["été", "a·b", "</s>"]
    assert target == ["·", "</s>"]
    assert weights.shape == (2, 3)
    assert labels(SMALL, end=False)[2].shape == (2, 2)


def test_the_figure_is_the_paper_s() -> None:
    figure = make_figure([SMALL])
    (axes,) = figure.axes
    (image,) = axes.images
    np.testing.assert_array_equal(image.get_array(), SMALL.weights)
    assert image.get_clim() == (0, 1)
    assert image.cmap(0.0)[:3] == (0, 0, 0)
    assert image.cmap(1.0)[:3] == (1, 1, 1)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["the", "cat", "</s>"]
    assert [tick.get_text() for tick in axes.get_yticklabels()] == ["le", "chat", "</s>"]
    assert axes.get_xticklabels()[0].get_rotation() == 90
    assert axes.xaxis.get_tick_params()["labeltop"]
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
    np.testing.assert_allclose(greys, SMALL.weights, atol=0.01)


@pytest.mark.parametrize(("name", "magic"), [("f.svg", b"<?xml"), ("f.PDF", b"%PDF")])
def test_other_formats_and_the_same_bytes_again(tmp_path: Path, name: str, magic: bytes) -> None:
    draw([SMALL], tmp_path / name)
    first = (tmp_path / name).read_bytes()
    assert first.startswith(magic)
    draw([SMALL], tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert len(list(tmp_path.iterdir())) == 1


def test_several_sentences_make_a_grid() -> None:
    figure = make_figure([SMALL, SMALL, SMALL], captions=["sentence 0", "sentence 1", "sentence 2"])
    boxes = [axes.get_window_extent() for axes in figure.axes]
    assert [axes.get_xlabel() for axes in figure.axes] == ["sentence 0", "sentence 1", "sentence 2"]
    assert boxes[0].y0 == boxes[1].y0 > boxes[2].y1
    assert boxes[0].x1 < boxes[1].x0
    assert boxes[0].x0 == boxes[2].x0


def test_a_large_figure_stays_within_bounds() -> None:
    words = " ".join(["w"] * 400)
    figure = make_figure([record(words, words, np.zeros((401, 401)))])
    assert max(figure.get_size_inches()) <= 40.001


def test_no_formulas_and_no_warnings_for_odd_words(tmp_path: Path) -> None:
    draw([record("$x^ $ 日", "\\frac{ _$", np.eye(3, 4))], tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 0


def test_a_name_without_a_format_is_refused(tmp_path: Path) -> None:
    for name in ("figure", "figure.gif", "figure.h5"):
        with pytest.raises(UsageError, match=r"ends in \.png"):
            draw([SMALL], tmp_path / name)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"nmtalign\[plot\]"):
        draw([SMALL], tmp_path / "f.png")
    assert "██" in render_text(SMALL, 80)


def test_reading_and_drawing_import_no_torch() -> None:
    code = (
        "import sys; from nmtalign.alignment import store, links, gold, heatmap, record; import nmtalign.cli.plot; "
        "sys.exit('torch' in sys.modules or 'matplotlib' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
