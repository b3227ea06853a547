"""`nmtalign plot` through real pipes."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment.store import AlignmentWriter
from nmtalign.cli.app import main


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with AlignmentWriter(tmp_path / "alignments.h5", {}) as writer:
        writer.append(["the", "cat"], ["le", "chat"], np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]]), -2.5)
        writer.append([], ["été"], np.zeros((2, 1)), 0.0)
        writer.append(["summer"], ["été"], np.eye(2), -1.0)
    return tmp_path


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nmtalign", "plot", *arguments]
    settings = os.environ | {"PYTHONWARNINGS": "error", "COLUMNS": "80"} | environment
    return subprocess.run(command, cwd=folder, capture_output=True, encoding="utf-8", env=settings, check=False)


def test_bare_draws_the_first_sentence_in_the_terminal(folder: Path) -> None:
    done = run(folder)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "sentence 0, log-probability -2.50"
    assert done.stdout.splitlines()[-3:] == ["  le ██", "chat   ▒▒░░", "</s>     ██"]
    assert done.stderr == ""


def test_several_sentences_one_of_them_empty(folder: Path) -> None:
    done = run(folder, "alignments.h5", "--sentence", "2", "--sentence", "1", "--no-end", LC_ALL="C", PYTHONUTF8="0")
    assert done.returncode == 0, done.stderr
    assert "été ██" in done.stdout
    assert "</s>" not in done.stdout
    assert done.stdout.endswith("nothing to draw: 0 source words, 1 target words\n")


def test_the_width_of_the_terminal_is_kept(folder: Path) -> None:
    for done in (run(folder, COLUMNS="11"), run(folder, "--width", "11")):
        assert max(map(len, done.stdout.splitlines()[1:])) <= 11


def test_pictures(folder: Path) -> None:
    for name, magic in (("a.png", b"\x89PNG"), ("b.svg", b"<?xml"), ("c.pdf", b"%PDF")):
        done = run(folder, "--sentence", "0", "--sentence", "2", "-o", name)
        assert (done.returncode, done.stdout) == (0, "")
        assert f"wrote {name}" in done.stderr
        assert (folder / name).read_bytes().startswith(magic)
    assert run(folder, "-o", "d.png", "-q").stderr == ""


MISTAKES = [
    (("--sentence", "3"), 2, "no sentence 3: choose one from 0 to 2"),
    (("--sentence", "-1"), 2, "no sentence -1"),
    (("--sentence", "x"), 2, "Invalid value for '--sentence'"),
    (("-o", "a.gif"), 2, "ends in .png"),
    (("--sentence", "1", "-o", "a.png"), 2, "sentence 1: nothing to draw"),
    (("missing.h5",), 4, "missing.h5: no such file"),
    (("foreign.h5",), 4, "foreign.h5: not an alignment file"),
    (("-o", "foreign.h5/a.png"), 5, "cannot write"),
]


@pytest.mark.parametrize(("arguments", "code", "message"), MISTAKES)
def test_mistakes_are_one_line(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    (folder / "foreign.h5").write_text("text")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "argv", ["nmtalign", "plot", *arguments])
    with pytest.raises(SystemExit) as caught:
        main()
    streams = capsys.readouterr()
    assert message in streams.err
    assert (streams.out, streams.err.count("\n"), caught.value.code) == ("", 1, code)
    assert not list(folder.glob("a.*"))


def test_a_file_without_sentences(tmp_path: Path) -> None:
    with AlignmentWriter(tmp_path / "alignments.h5", {}):
        pass
    done = run(tmp_path)
    assert done.returncode == 2
    assert "no sentence 0: the file has none" in done.stderr
