"""`nmtalign plot` through real pipes."""

import io
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import run_nmtalign

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.cli.app import main
from nmtalign.cli.plot import has_colour


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with AlignmentWriter(tmp_path / "alignments.h5", {}) as writer:
        writer.append(["the", "cat"], ["le", "chat"], np.array([[1, 0, 0], [0.1, 0.6, 0.3], [0, 0, 1]]), -2.5)
        writer.append([], ["été"], np.zeros((2, 1)), 0.0)
        writer.append(["summer"], ["été"], np.eye(2), -1.0)
    return tmp_path


@pytest.fixture
def two(folder: Path) -> Path:
    with AlignmentWriter(folder / "b.h5", {}) as writer:
        writer.append(["the", "cat"], ["la", "chatte"], np.eye(3), -3.5)
        writer.append([], ["été"], np.zeros((2, 1)), 0.0)
        writer.append(["winter"], ["hiver"], np.eye(2), -1.0)
    (folder / "gold").write_text("1-1 2p2\n\n1-1\n")
    return folder


def run(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {"PYTHONWARNINGS": "error", "COLUMNS": "100"} | environment
    done = run_nmtalign("plot", *arguments, cwd=folder, variables=variables)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def test_without_arguments_it_draws_the_first_sentence_in_the_terminal(folder: Path) -> None:
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


def test_two_models_side_by_side(two: Path) -> None:
    done = run(two, "small=alignments.h5", "b.h5", "-s", "0")
    assert done.returncode == 0, done.stderr
    head = "small: sentence 0, log-probability -2.50   b.h5: sentence 0, log-probability -3.50"
    assert done.stdout.splitlines()[0] == head
    assert run(two, "small=alignments.h5", "b.h5", "-s", "0", "-o", "a.svg").returncode == 0
    text = (two / "a.svg").read_text()
    assert ">small<" in text
    assert ">b.h5<" in text
    done = run(two, "alignments.h5", "b.h5", "-s", "2")
    assert done.returncode == 3
    assert "b.h5: sentence 2 has another source than in alignments.h5 ('winter' instead of 'summer')" in done.stderr


def test_gold_links_and_hard_links(two: Path) -> None:
    done = run(two, "--gold", "gold", "--gold-base", "1", "--links")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-4:] == [
        "  le █+●",
        "chat    ▒+○░░░",
        "</s>       ███",
        "● sure  ○ possible  + link",
    ]
    assert run(two, "--gold", "gold", "--gold-base", "1", "-o", "a.svg").returncode == 0
    assert ">possible<" in (two / "a.svg").read_text()
    done = run(two, "--gold", "gold")
    assert done.returncode == 3
    assert "gold: line 1: link 2-2 (counted from 0) points outside the pair" in done.stderr


def test_colour_depends_on_the_environment(folder: Path) -> None:
    assert "\x1b" not in run(folder).stdout
    assert "\x1b[48;5;231m" in run(folder, FORCE_COLOR="1").stdout
    assert "\x1b" not in run(folder, FORCE_COLOR="1", NO_COLOR="1").stdout


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("environment", "colour"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "dumb"}, False),
        ({}, False),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, False),
        ({"TERM": "xterm-256color", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "COLORTERM": "truecolor"}, True),
        ({"TERM": "no-such-terminal"}, False),
    ],
)
def test_which_terminals_have_colour(environment: dict[str, str], colour: bool) -> None:
    assert has_colour(Terminal(), environment) == colour
    assert not has_colour(io.StringIO(), environment)


def test_an_n_best_entry(tmp_path: Path) -> None:
    with AlignmentWriter(tmp_path / "alignments.h5", {}) as writer:
        for rank, word in enumerate(("chat", "chatte")):
            zeros = np.zeros(2, np.float32)
            writer.add(AlignmentRecord(("cat",), (word,), np.eye(2, dtype=np.float32), -1.0, 0, zeros, (), rank))
    assert "chat ██" in run(tmp_path).stdout
    done = run(tmp_path, "--rank", "1")
    assert done.stdout.startswith("sentence 0, rank 1, log-probability")
    assert "chatte ██" in done.stdout
    assert "sentence 0 has 2 entries; give a --rank from 0 to 1" in run(tmp_path, "--rank", "2").stderr


MISTAKES = [
    (("--sentence", "3"), 2, "no sentence 3: choose one from 0 to 2"),
    (("--sentence", "-1"), 2, "no sentence -1"),
    (("--sentence", "x"), 2, "Invalid value for '--sentence'"),
    (("-o", "a.gif"), 2, "ends in .png"),
    (("--sentence", "1", "-o", "a.png"), 2, "sentence 1: nothing to draw"),
    (("missing.h5",), 4, "missing.h5: no such file"),
    (("foreign.h5",), 4, "foreign.h5: not an alignment file"),
    (("-o", "foreign.h5/a.png"), 5, "foreign.h5: cannot make the folder"),
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
