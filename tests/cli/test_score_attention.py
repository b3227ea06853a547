"""The attention of systems over chosen lines: by their models, or from files; in the terminal and on a page."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.errors import InputError, UsageError
from nmtalign.scoring.system_attention import Panels, attention_panels, attention_sources, drawn, svgs
from nmtalign.scoring.texts import SystemTexts, Text
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


def panels(lines: list[int], warn=print, **sources: Path) -> Panels:
    """What is drawn of systems that all have the same translations."""
    texts = SystemTexts(dict.fromkeys(sources, Text("out", TRANSLATED)), (), Text("in", SOURCE))
    return attention_panels(texts, lines, sources, SETTINGS, warn)


def test_a_model_and_its_file_say_the_same(random_model: Path, kept: Path) -> None:
    found = panels([4, 1], model=random_model, file=kept)
    assert [*found] == [4, 1]
    for line, ((_, one), (_, other)) in found.items():
        assert one.record.sentence_id == other.record.sentence_id == line - 1
        assert one.record.source == other.record.source
        assert one.record.target == other.record.target
        np.testing.assert_allclose(one.record.weights, other.record.weights, atol=2e-3)


@pytest.mark.parametrize(
    ("line", "source", "translation", "message"),
    [
        (10, "x", "y", "kept.h5: has no alignment of line 10 (sentence 9); give the file that"),
        (2, "the boat .", "un bateau.", "sentence 1 has another source than line 2 of what is scored ('a boat .'"),
        (2, "a boat.", "le bateau", "kept.h5: sentence 1 has another translation than line 2 of what is scored"),
    ],
)
def test_a_file_of_something_else_is_noticed(
    kept: Path, line: int, source: str, translation: str, message: str
) -> None:
    texts = SystemTexts({"file": Text("out", [translation] * 10)}, (), Text("in", [source] * 10))
    with pytest.raises(InputError, match=re.escape(message)):
        attention_panels(texts, [line], {"file": kept}, SETTINGS, print)


def test_pictures_of_all_systems_that_attend(random_model: Path, blind_model: Path, kept: Path) -> None:
    warnings: list[str] = []
    found = panels([1, 3, 4], warnings.append, search=random_model, encdec=blind_model, file=kept)
    assert {line: [name for name, _ in panels] for line, panels in found.items()} == {
        1: ["search", "file"],
        3: [],  # no words
        4: ["search", "file"],
    }
    assert warnings == [f"{blind_model}: this model has no attention: there is no picture of it"]
    text = drawn(found[1], 100)
    assert text.splitlines()[0].split() == ["search", "file"]
    assert max(map(len, text.splitlines())) <= 100
    assert drawn(found[3], 100) == ""


def test_svgs_stand_on_one_page(random_model: Path, kept: Path) -> None:
    pytest.importorskip("matplotlib")
    made = svgs(panels([1, 3, 4], **{"a < b": random_model, "file": kept}))
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
        panels([1], encdec=blind_model)


def test_files_without_a_name_belong_to_the_systems_in_their_order(kept: Path) -> None:
    folder = kept.parent
    assert attention_sources({"a": None, "b": folder}, [("", kept)]) == {"a": kept, "b": folder}
    assert attention_sources({"a": None, "b": None}, [("b", kept), ("", kept)]) == {"a": kept, "b": kept}
    for given, message in (
        ([("c", kept)], "no system has this name; they are a, b"),
        ([("a", Path("gone.h5"))], "--attention-from gone.h5: no such file"),
        ([("a", kept)], "nothing has the attention of b; give --attention-from b=FILE.h5"),
    ):
        with pytest.raises(UsageError, match=message):
            attention_sources({"a": None, "b": None}, given)
