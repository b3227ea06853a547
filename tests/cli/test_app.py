"""The command line in general: one line for a mistake, and its documented exit code."""

import importlib.util
import itertools
import json
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from nmtalign.cli.commands import app
from typer import rich_utils
from typer.main import get_command
from typer.testing import CliRunner

from nmtalign.alignment.alignment_writer import AlignmentWriter
from nmtalign.cli import app as start
from nmtalign.cli import commands
from nmtalign.cli.common import escaped, json_text
from nmtalign.errors import NO_MEMORY, FormatError
from nmtalign.tensor_file import FORMAT_VERSION
from nmtalign.version import __version__


def test_version(nmtalign):
    assert nmtalign("--version").stdout.decode() == f"nmtalign {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["prepp"], 2, "prepp"),
        (["train", "--hiden", "3"], 2, "--hiden"),
        (["train", "--hidden", "many"], 2, "--hidden"),
        (["train", "--cell", "rnn"], 2, "lstm"),
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
            assert "A heat map is not an explanation" in " ".join(text.split())


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


def run_in_shell(command, folder, limit="", **environment):
    """The outcome of a command line after `nmtalign`; the environment has only the given locale settings."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("LC_", "LANG", "PYTHON")) and name not in ("NO_COLOR", "FORCE_COLOR")
    }
    return subprocess.run(
        ["sh", "-c", f'{limit} exec "$0" -m nmtalign {command}', sys.executable],
        env={**kept, "PYTHONPATH": str(Path(__file__).parents[2]), **environment},
        cwd=folder,
        capture_output=True,
    )


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams") / "demo"
    for command in (f"sample {folder} --pairs 20", f"prep -q --config {folder / 'nmtalign.toml'} -o {folder / 'data'}"):
        assert run_in_shell(command, folder.parent).returncode == 0
    return folder


NOT_OPEN = "nmtalign: error: standard output: cannot write: it is not open for writing"
FULL = "nmtalign: error: standard output: cannot write: no space left on the disk"


@pytest.mark.parametrize(
    "command",
    [
        "--version",
        "--help",
        "info data",
        "info data --format json",
        "score test.fr -r test.fr -q",
        "score test.fr -r test.fr -q --format csv",
        "aer test.align test.align --format json",
        "symmetrize test.align test.align -q",
        "lexicon train.en train.fr -q",
        "prep -q -o other",
    ],
)
@pytest.mark.parametrize(("stdout", "line"), [(">&-", NOT_OPEN), (">/dev/full", FULL)])
def test_output_that_goes_nowhere_is_one_line(corpus, command, stdout, line):
    result = run_in_shell(f"{command} {stdout}", corpus)
    lines = [one for one in result.stderr.decode().splitlines() if not one.startswith("nmtalign: warning: ")]
    assert (result.returncode, lines) == (5, [line])


def test_no_file_gets_the_number_of_a_stream_that_is_closed(corpus):
    result = run_in_shell("prep -o closed >&- 2>&- <&-", corpus)
    assert result.returncode == 5  # the summary had nowhere to go; the corpus is complete
    assert run_in_shell("prep -q -o open", corpus).returncode == 0
    for path in (corpus / "open").iterdir():
        assert (corpus / "closed" / path.name).read_bytes() == path.read_bytes()


def test_closed_streams_that_are_not_needed_are_no_error(corpus):
    assert run_in_shell("sample elsewhere --pairs 3 >&- 2>&- <&-", corpus).returncode == 0
    assert run_in_shell("info nowhere 2>&-", corpus).returncode == 4
    result = run_in_shell("score - -r test.fr <&-", corpus)
    assert (result.returncode, len(result.stderr.splitlines())) == (3, 1)
    assert b"standard input: cannot read" in result.stderr


LOCALES = [
    {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
    {"LC_ALL": "C", "PYTHONIOENCODING": "iso-8859-1"},
    {"LC_ALL": "C.UTF-8"},
]


@pytest.mark.parametrize("locale", LOCALES)
def test_every_command_writes_utf8_whatever_the_locale(corpus, locale):
    name = b"na\xc3\xafve \xff"  # the last byte is no UTF-8
    folder = os.fsencode(corpus) + b"/" + name
    if not os.path.exists(folder):  # noqa: PTH110 - a name in bytes
        os.mkdir(folder)  # noqa: PTH102
        for end in (b".en", b".fr"):
            os.symlink(os.fsencode(corpus) + b"/test" + end, folder + b"/text" + end)  # noqa: PTH211
    score = run_in_shell("score na*/text.fr -r na*/text.fr -q", corpus, **locale)
    assert (score.returncode, score.stderr) == (0, b"")
    several = run_in_shell('score "$(echo na*)=test.fr" test.en -r test.fr -q', corpus, **locale)
    assert several.returncode == 0, several.stderr
    assert "na\xefve \\xff".encode() in several.stdout
    info = run_in_shell("info na*", corpus, **locale)
    assert (info.returncode, len(info.stderr.splitlines())) == (4, 1)
    assert "na\xefve \\xff: ".encode() in info.stderr


HOSTILE = "\x1b]0;title\x07\x9b2J\r\u202eword\u2028"


def test_a_current_folder_that_was_removed_is_one_line(tmp_path):
    """MKL would end the process with "FATAL ERROR: Cannot load libtorch_cpu.so" at the first product."""
    call = f"mkdir gone && cd gone && rmdir ../gone && exec {sys.executable} -m nmtalign docs"
    environment = {**os.environ, "PYTHONPATH": str(Path(start.__file__).parents[2])}
    result = subprocess.run(["bash", "-c", call], cwd=tmp_path, env=environment, capture_output=True, text=True)
    message = "the current folder cannot be used: No such file or directory; change to another folder"
    assert (result.returncode, result.stderr) == (5, f"nmtalign: error: {message}\n")


def test_what_a_stranger_wrote_cannot_steer_the_terminal(corpus):
    (corpus / "hostile").write_text(f"{HOSTILE} a b c\n" * 20, encoding="utf-8")
    model = corpus / "model of a stranger"
    model.mkdir(exist_ok=True)
    settings = {
        "format": "nmtalign model", "format_version": FORMAT_VERSION, "model": {HOSTILE: 1}, "training": {},
        "files": {}, "source_language": HOSTILE, "target_language": "fr",
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(settings))
    for command in (
        "score hostile test.fr -r test.fr -s hostile --differences 3",
        f"score '{HOSTILE}=hostile' test.fr -r test.fr",
        "score hostile -r test.fr --format json --differences 3",
        "info 'model of a stranger'",
        "info 'model of a stranger' --format json",
        f"info '{HOSTILE}'",
        f"aer '{HOSTILE}=test.align' test.align",
    ):
        for environment in ({}, {"FORCE_COLOR": "1"}):
            result = run_in_shell(command, corpus, LC_ALL="C.UTF-8", **environment)
            shown = (result.stdout + result.stderr).decode()
            assert "Traceback" not in shown
            assert len(shown.splitlines()) >= 1
            assert not {*"\x07\x9b\r\u202e\u2028"} & {*shown}, command
            assert "\x1b]" not in shown, command


def test_escapes_show_what_there_was_and_json_keeps_it():
    assert escaped("a\tb\x9b\udcc3\udcaf\udcff\ud800") == "a\\tb\\x9bï\\xff\\ud800"
    assert escaped("نص \u200d漢") == "نص \u200d漢"
    assert json.loads(json_text({"a": HOSTILE}, indent=1)) == {"a": HOSTILE}
    assert not {*"\x1b\x07\x9b\r\u202e\u2028"} & {*json_text({"a": HOSTILE}, indent=1)}


def no_constant(name):
    raise ValueError(f"{name} is no JSON")


def test_json_has_null_for_nan_and_infinity():
    text = json_text({"a": [math.nan, (1.5, -math.inf)], "b": {"c": math.inf}})
    assert json.loads(text, parse_constant=no_constant) == {"a": [None, [1.5, None]], "b": {"c": None}}


def test_info_prints_json_and_numbers_with_few_digits(nmtalign, tmp_path):
    with AlignmentWriter(tmp_path / "a.h5", {"threshold": math.nan, "mass": math.inf, "seconds": 1234.56789}) as file:
        file.append(["a", "b"], ["c"], np.array([[0.75, 0.25, 0], [0, 0, 1]], dtype=np.float32), math.nan)
    found = json.loads(nmtalign("info", "a.h5", "--format", "json").stdout, parse_constant=no_constant)
    assert [found["attributes"][name] for name in ("threshold", "mass", "seconds")] == [None, None, 1234.56789]
    text = nmtalign("info", "a.h5").stdout.decode()
    assert f"bytes_per_cell: {found['bytes_per_cell']:,.0f}\n" in text
    assert "seconds: 1,235\n" in text
    assert not re.search(r"\.\d{5}", text.split("attributes")[0])


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("[enforce fail at alloc_cpu.cpp:117] DefaultCPUAllocator: can't allocate memory: you tried"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("could not create a primitive"),
        RuntimeError("can't start new thread"),
        OSError(12, "Cannot allocate memory"),
        ImportError("libtorch_cpu.so: failed to map segment from shared object"),
    ],
)
def test_a_lack_of_memory_is_one_line_wherever_it_shows(error, monkeypatch, capsys):
    def fail(**_):
        try:
            raise error
        except Exception as cause:
            raise FormatError("model: damaged") from cause

    monkeypatch.setattr(commands, "app", fail)
    assert (commands.run(), capsys.readouterr().err) == (5, f"nmtalign: error: {NO_MEMORY}\n")


def test_a_name_that_speaks_of_memory_is_no_lack_of_it(corpus):
    assert run_in_shell("info 'out of memory'", corpus).returncode == 4
    assert run_in_shell("'out of memory'", corpus).returncode == 2


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v")
@pytest.mark.parametrize(
    ("command", "megabytes"),
    [
        *itertools.product(["translate -m nowhere test.en"], [20, 50, 60, 80, 250, 600, 1100]),
        *itertools.product(["train data -o model --preset tiny --max-updates 1"], [50, 100, 300, 700, 1100, 1600]),
        *itertools.product(["info data", "score test.fr -r test.fr", "lexicon train.en train.fr"], [50, 100, 250]),
    ],
)
def test_too_little_address_space_is_one_line(corpus, command, megabytes):
    result = run_in_shell(command, corpus, limit=f"ulimit -v {megabytes * 1024};")
    lines = [line for line in result.stderr.splitlines() if not line.endswith(b" ...")]  # progress of a busy machine
    assert (result.returncode, len(lines)) == (5, 1), result.stderr
    if megabytes >= 80:  # less ends Python itself
        reasons = [f"ulimit -v leaves {megabytes:,} MB of address space, and "]
        if megabytes > 1100 and torch.version.cuda:  # this build needs more, but its import succeeds
            reasons.append("out of memory; ")
        assert any(reason in result.stderr.decode() for reason in reasons)
    assert not (corpus / "model").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v")
def test_enough_address_space_is_no_obstacle(corpus):
    assert run_in_shell("info data", corpus, limit="ulimit -v 307200;").returncode == 0


def test_the_limits_of_the_address_space_are_of_modules_that_exist():
    assert all(importlib.util.find_spec(name) for name in start.ADDRESS_SPACE)


def test_reading_a_model_or_alignments_imports_no_torch(tmp_path, random_model):
    for direction, words in (("en-fr", ("a", "b")), ("fr-en", ("u", "v"))):
        with AlignmentWriter(tmp_path / f"{direction}.h5", {"model_hash": "abc", "direction": direction}) as file:
            file.append(
                words, ["u", "v"] if words[0] == "a" else ["a", "b"], np.full((3, 3), 1 / 3), -1.0, links=[(0, 1)]
            )
    (tmp_path / "gold").write_text("1-0\n")
    (tmp_path / "links").write_text("0-1\n")
    (tmp_path / "b.en").write_text("a b\n")
    (tmp_path / "b.fr").write_text("u v\n")
    commands = (
        f"info {random_model}",
        "info en-fr.h5",
        "aer en-fr.h5 gold",
        "aer links gold",
        "export en-fr.h5",
        "export en-fr.h5 --format json",
        "plot en-fr.h5",
        "view en-fr.h5 -o page.html",
        "symmetrize en-fr.h5 fr-en.h5",
        "symmetrize links links",
        "lexicon b.en b.fr --tokenized -o lexicon",
        "score b.fr -r b.fr",
    )
    code = "import sys; sys.modules['torch'] = None; from nmtalign.cli.app import main; main()"
    for command in commands:
        done = subprocess.run(
            [sys.executable, "-c", code, *command.split()], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (command, done.stderr)


def test_without_a_command_the_help_is_printed(nmtalign):
    result = nmtalign()
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.strip() == nmtalign("--help").stdout.strip()


@pytest.mark.parametrize("command", ["", *get_command(app).commands])
def test_h_is_help(monkeypatch, capsys, command):
    printed = []
    for option in ("--help", "-h"):
        monkeypatch.setattr(sys, "argv", ["nmtalign", *command.split(), option])
        with pytest.raises(SystemExit) as ended:
            start.main()
        assert not ended.value.code
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert f"Usage: nmtalign {command}".rstrip() in printed[0]
