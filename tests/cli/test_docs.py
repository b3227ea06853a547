"""`nmtalign docs` as a process: into a pipe and on a terminal."""

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nmtalign as package

PAGES = sorted((Path(package.__file__).parent / "docs").glob("*.md"))


def on_a_terminal(*arguments: str, **environment: str) -> tuple[int, str]:
    """Runs `nmtalign docs` with a terminal as its standard input and output."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "nmtalign", "docs", *arguments],
        env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "80", **environment},
        stdin=theirs,
        stdout=theirs,
    )
    os.close(theirs)
    shown = b""
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:  # Linux reports the end of a terminal as an error
            break
        if not part:
            break
        shown += part
    os.close(ours)
    return process.wait(), shown.decode()


def test_a_log_in_the_tutorial_has_no_more_time_than_its_limit():
    text = next(page for page in PAGES if page.stem == "tutorial").read_text()
    logs = re.findall(r"--max-time (\d+)m\b(?:(?!--max-time).)*?(^update .*?)```", text, re.DOTALL | re.MULTILINE)
    times = [
        (60 * int(limit), [60 * int(minutes) + int(seconds) for part in line for minutes, seconds in [part.split(":")]])
        for limit, log in logs
        for line in re.findall(r"(\d+:\d\d)  left (\d+:\d\d)", log)
    ]
    assert times
    for limit, (spent, left) in times:
        assert spent + left == pytest.approx(limit, abs=2)


def test_the_readme_names_the_option_that_lists_all_options():
    readme = (Path(package.__file__).parent.parent / "README.md").read_text()
    assert "`nmtalign COMMAND --help` lists the options" not in readme
    assert "--help-all" in readme


def test_there_are_pages():
    assert {"tutorial", "formats", "coming-from"} <= {page.stem for page in PAGES}


def test_without_a_page_all_pages_are_listed_with_their_titles(nmtalign):
    lines = nmtalign("docs").stdout.decode().splitlines()
    assert [line.split(maxsplit=1) for line in lines] == [
        [page.stem, page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")] for page in PAGES
    ]


@pytest.mark.parametrize("name", [page.stem for page in PAGES])
def test_a_pipe_gets_the_markdown_unchanged(nmtalign, name):
    expected = (PAGES[0].parent / f"{name}.md").read_bytes()
    assert nmtalign("docs", name).stdout == expected
    assert nmtalign("docs", f"{name}.md").stdout == expected


@pytest.mark.parametrize("name", ["nothing", "../../README", "formats/", ".", ""])
def test_an_unknown_page_is_one_line(nmtalign, name):
    result = nmtalign("docs", name, check=False)
    assert result.returncode == 2
    assert result.stdout == b""
    assert result.stderr.count(b"\n") == 1
    assert b"formats" in result.stderr


def test_a_terminal_gets_a_formatted_page_through_the_pager(tmp_path):
    code, shown = on_a_terminal("formats", PAGER=f"tee {tmp_path / 'paged'}")
    assert code == 0
    paged = (tmp_path / "paged").read_text(encoding="utf-8")
    assert shown.replace("\r\n", "\n") == paged
    assert "\x1b[" in paged
    assert "## " not in paged
    assert "log_prob" in paged


def test_a_pager_that_ends_early_is_no_error():
    assert on_a_terminal("formats", PAGER="head -n 1")[0] == 0


def test_no_color_is_respected():
    assert "\x1b[3" not in on_a_terminal("formats", PAGER="cat", NO_COLOR="1")[1]


def test_neither_torch_nor_numpy_is_loaded():
    code = (
        "import sys; sys.argv = ['nmtalign', 'docs', 'formats']\n"
        "from nmtalign.cli.app import main\n"
        "try:\n    main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'h5py', 'numpy'} & set(sys.modules)\n"
        "sys.exit(f'imported {heavy}' if heavy else 0)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
