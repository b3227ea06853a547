"""The common parts of picture files: names, settings, writing, SVG for pages."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from nmtalign import figures
from nmtalign.errors import ResourceError, UsageError
from nmtalign.figures import legend_above, need_matplotlib, picture, save, small_print, usual_settings


def figure(word="word"):
    from matplotlib.figure import Figure

    drawn = Figure(figsize=(4, 3))
    axes = drawn.subplots()
    axes.plot([0, 1, 2], [1, 2, 3], marker="o", label=word)
    axes.set_title(word, parse_math=False)
    return drawn


def test_a_home_folder_that_cannot_be_written_is_no_news():
    code = "from nmtalign.figures import need_matplotlib; need_matplotlib(); import matplotlib.font_manager"
    environment = {**os.environ, "MPLCONFIGDIR": "/dev/null/none"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True, text=True)
    assert done.stderr == ""


def test_a_command_in_a_notebook_draws_without_the_backend_of_the_notebook():
    code = """
import sys
from nmtalign.cli.app import main
sys.argv = ["nmtalign", "--version"]
try:
    main()
except SystemExit:
    import matplotlib
"""
    environment = {**os.environ, "MPLBACKEND": "unknown"}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def test_settings_that_matplotlib_cannot_read_are_one_line(tmp_path):
    (tmp_path / "matplotlibrc").write_bytes(b"\xff")
    code = "from nmtalign.figures import need_matplotlib; need_matplotlib()"
    environment = {**os.environ, "PYTHONPATH": str(Path(figures.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, check=False)
    assert b"UsageError: matplotlib cannot read its settings" in done.stderr.splitlines()[-1]


def test_without_matplotlib_one_line_says_what_to_install(monkeypatch):
    need_matplotlib()
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r'^pictures need matplotlib: pip install "nmtalign\[plot\]"$'):
        need_matplotlib()
    with pytest.raises(UsageError, match="pictures need matplotlib"), usual_settings([], "png"):
        pass


@pytest.mark.parametrize("kind", ["png", "svg", "pdf"])
def test_the_user_s_settings_and_the_day_change_nothing(tmp_path, kind, monkeypatch):
    import matplotlib as mpl

    written = []
    for size in (10.0, 23.0):
        monkeypatch.setitem(mpl.rcParams, "font.size", size)
        with usual_settings(["word"], kind) as notes:
            save(figure(), tmp_path / f"f.{kind}")
        written.append((tmp_path / f"f.{kind}").read_bytes())
        assert notes == []
        assert mpl.rcParams["font.size"] == size
    assert written[0] == written[1]
    assert [path.name for path in tmp_path.iterdir()] == [f"f.{kind}"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no disk here that is always full")
@pytest.mark.parametrize("kind", figures.FORMATS)
def test_a_full_disk_is_one_line_in_every_format(tmp_path, kind):
    path = tmp_path / f"figure.{kind}"
    path.symlink_to("/dev/full")
    with usual_settings([], kind), pytest.raises(ResourceError, match=f"figure.{kind}: cannot write: no space left"):
        save(figure(), path)


def test_letters_without_a_font_are_reported_except_for_an_svg(monkeypatch):
    monkeypatch.setattr(figures, "families", lambda text, embedded: (["DejaVu Sans"], "\U00013000" * (text != "")))
    for kind, count in (("png", 1), ("pdf", 1), ("svg", 0)):
        with usual_settings(["\U00013000"], kind) as notes:
            assert [note.split(":")[0] for note in notes] == ["no font on this machine has \U00013000"] * count
        with usual_settings([], kind) as notes:
            assert notes == []


def test_an_svg_for_a_page_has_a_title():
    with usual_settings([], "svg"):
        one, again = (picture(figure("x"), "svg", title="a < b & x") for _ in range(2))
    assert one == again
    root = ElementTree.fromstring(one)  # noqa: S314
    assert "a < b & x" in "".join(root.itertext())


def test_a_legend_contains_names_of_every_kind():
    names = ["_hidden", "$x^2$", "", "a very long name " * 10]
    with usual_settings(names, "svg"):
        drawn = figure()
        (line,) = drawn.axes[0].lines
        legend_above(drawn.axes[0], [line] * 4, names)
        texts = [text.get_text() for text in drawn.axes[0].get_legend().get_texts()]
        drawn.draw_without_rendering()
    assert texts[:3] == ["_hidden", "$x^2$", "·"]
    assert texts[3].split() == names[3].split()
    assert max(map(len, texts[3].split("\n"))) < 40


def test_small_print_is_broken_at_the_bars_of_a_signature_and_drawn_below():
    signature = "|".join(f"part{number}:value" for number in range(20))
    drawn = figure()
    small_print(drawn, [signature, "more"])
    (text,) = drawn.texts
    assert text.get_text().replace("\n", "") == signature + "more"
    assert all(line.endswith("|") for line in text.get_text().split("\n")[:-2])
    assert text.get_window_extent().y1 < drawn.axes[0].get_tightbbox().y0
