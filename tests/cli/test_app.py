"""The command line as a whole: one line for a mistake, and its documented exit code."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer import rich_utils
from typer.testing import CliRunner

from nmtalign.cli.commands import app
from nmtalign.version import __version__


def test_version(nmtalign):
    assert nmtalign("--version").stdout.decode() == f"nmtalign {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["prepp"], 2, "prepp"),
        (["train", "--hiden", "3"], 2, "--hiden"),
        (["train", "--hidden", "many"], 2, "--hidden"),
        (["train", "--cell", "lstm"], 2, "lstm"),
        (["train", "--config", "absent.toml"], 2, "absent.toml"),
        (["train", "nowhere"], 4, "nowhere: no prepared corpus here"),
        (["info", "nowhere"], 4, "nowhere: no such file or folder"),
        (["translate", "-m", "nowhere"], 4, "nowhere: no nmtalign model here"),
        (["prep", "no.en", "no.fr"], 3, "no.en"),
        (["sample", "/dev/null/x"], 5, "/dev/null/x"),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_an_exit_code(nmtalign, arguments, code, words):
    result = nmtalign(*arguments, check=False)
    assert result.returncode == code, result.stderr
    lines = result.stderr.decode().splitlines()
    assert len(lines) == 1, lines
    assert lines[0].startswith("nmtalign: error: ")
    assert words in lines[0]
    assert result.stdout == b""


@pytest.mark.parametrize("width", ["80", "120"])
def test_help_cuts_no_name_and_says_what_a_heat_map_is_not(monkeypatch, width):
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", int(width))
    monkeypatch.setenv("TERMINAL_WIDTH", width)
    monkeypatch.setenv("COLUMNS", width)
    for command in ("", *(str(one.name) for one in app.registered_commands)):
        text = CliRunner().invoke(app, [*command.split(), "--help"]).output
        assert "Usage: nmtalign" in text, command
        assert "…" not in text, command
        assert max(map(len, text.splitlines())) <= int(width), command
        if command in ("plot", "view"):
            assert "What a heat map is not" in " ".join(text.split())


def test_unknown_settings_in_the_workspace_name_the_nearest(nmtalign, tmp_path):
    (tmp_path / "nmtalign.toml").write_text("[train]\nhiden = 3\n")
    result = nmtalign("train", check=False)
    assert result.returncode == 2
    assert b"'hidden'" in result.stderr


def test_a_reader_that_has_gone_is_no_error(tmp_path, nmtalign):
    nmtalign("sample", "demo", "--pairs", "20")
    nmtalign("prep", cwd=tmp_path / "demo")
    # A pipe whose reader is closed before anything is written.
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-m", "nmtalign", "info", "data"], stdout=write, stderr=subprocess.PIPE, cwd=tmp_path / "demo"
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (0, b"")


def test_a_full_disk_behind_stdout_is_one_line(tmp_path, nmtalign):
    nmtalign("sample", "demo", "--pairs", "20")
    nmtalign("prep", cwd=tmp_path / "demo")
    with Path("/dev/full").open("w") as full:
        result = subprocess.run(
            [sys.executable, "-m", "nmtalign", "info", "data"],
            stdout=full,
            stderr=subprocess.PIPE,
            cwd=tmp_path / "demo",
        )
    assert result.returncode == 5
    assert result.stderr.decode().splitlines() == [
        "nmtalign: error: standard output: cannot write: no space left on the disk"
    ]


def test_streams_that_are_closed_are_as_good_as_devnull():
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    for command, code in (("--version >&- 2>&- <&-", 0), ("info nowhere 2>&-", 4)):
        shell = ["sh", "-c", f'exec "$0" -m nmtalign {command}', sys.executable]
        assert subprocess.run(shell, env=environment).returncode == code
