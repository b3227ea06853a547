"""The attention of systems over chosen lines: by their models, or from files; in the terminal and on a page."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.errors import InputError, UsageError
from nmtalign.scoring.system_attention import Attending, attention, attention_panels, drawn, svgs
from nmtalign.settings.command_settings import AlignConfig

SOURCE = ["the fox sees a red boat .", "a boat .", "", "the boat sees the fox ."]
TRANSLATED = ["le renard voit un bateau rouge.", "un bateau.", "", "le bateau voit l'<unk> & le renard."]
SETTINGS = AlignConfig(threads=1)


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory, random_model: Path) -> Path:
    """The alignments of these translations, as `align` writes them."""
    folder = tmp_path_factory.mktemp("kept")
    for name, lines in (("in", SOURCE), ("out", TRANSLATED)):
        (folder / name).write_text("".join(f"{line}\n" for line in lines))
    command = ["align", "in", "out", "-m", str(random_model), "-o", "kept.h5"]
    subprocess.run([sys.executable, "-m", "nmtalign", *command], cwd=folder, check=True, capture_output=True)
    return folder / "kept.h5"


def test_a_model_and_its_file_say_the_same(random_model: Path, kept: Path) -> None:
    lines = [(number, SOURCE[number], TRANSLATED[number]) for number in (3, 0)]
    forced, read = (attention(where, lines, SETTINGS) for where in (random_model, kept))
    for one, other in zip(forced, read, strict=True):
        assert one.sentence_id == other.sentence_id
        assert one.source == other.source
        assert one.target == other.target
        np.testing.assert_allclose(one.weights, other.weights, atol=2e-3)
    assert [record.sentence_id for record in forced] == [3, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ((9, "x", "y"), "kept.h5: holds no alignment of line 10 (sentence 9); give the file that"),
        ((1, "the boat .", None), "kept.h5: sentence 1 has another source than line 2 of what is scored ('a boat .'"),
        ((1, "a boat.", "le bateau"), "kept.h5: sentence 1 has another translation than line 2 of what is scored"),
    ],
)
def test_a_file_of_something_else_is_noticed(kept: Path, line: tuple[int, str, str | None], message: str) -> None:
    number, source, text = line
    with pytest.raises(InputError, match=re.escape(message)):
        attention(kept, [(number, source, TRANSLATED[1] if text is None else text)], SETTINGS)


def test_pictures_of_all_systems_that_attend(random_model: Path, blind_model: Path, kept: Path) -> None:
    where = {"search": random_model, "encdec": blind_model, "file": kept}
    systems = [Attending(name, place, TRANSLATED) for name, place in where.items()]
    warnings: list[str] = []
    found = attention_panels(systems, SOURCE, [0, 2, 3], SETTINGS, warnings.append)
    assert {number: [name for name, _ in panels] for number, panels in found.items()} == {
        0: ["search", "file"],
        2: [],  # no words
        3: ["search", "file"],
    }
    assert warnings == [f"{blind_model}: this model has no attention: there is no picture of it"]
    text = drawn(found[0], 100)
    assert text.splitlines()[0].split() == ["search", "file"]
    assert max(map(len, text.splitlines())) <= 100
    assert drawn(found[2], 100) == ""


def test_svgs_stand_on_one_page(random_model: Path, kept: Path) -> None:
    pytest.importorskip("matplotlib")
    systems = [Attending("a < b", random_model, TRANSLATED), Attending("file", kept, TRANSLATED)]
    made = svgs(attention_panels(systems, SOURCE, [0, 2, 3], SETTINGS, print))
    assert {line: [name for name, _ in drawn] for line, drawn in made.items()} == {
        1: ["a < b", "file"],
        4: ["a < b", "file"],
    }
    page = "".join(svg for drawn in made.values() for _, svg in drawn)
    assert page.count("<svg") == page.count("</svg>") == 4
    assert "attention of a &lt; b, line 1" in page
    with AlignmentFile(kept) as file:
        assert all(f">{word}</text>" in made[1][0][1] for word in file[0].source)


def test_no_attention_at_all_is_one_line(blind_model: Path) -> None:
    with pytest.raises(UsageError, match="--attention: no system has attention; leave it out"):
        attention_panels([Attending("encdec", blind_model, TRANSLATED)], SOURCE, [0], SETTINGS, print)
