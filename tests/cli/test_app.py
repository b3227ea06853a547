"""The command line in general: one line for a mistake, and its documented exit code."""

import json
import math
import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import command_line
from helpers.commands import COMMANDS, run
from helpers.parallel_texts import write_pairs
from helpers.records import add
from typer import rich_utils

import nmtalign
from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.cli import app as start
from nmtalign.cli.common import escaped
from nmtalign.errors import NO_MEMORY, FormatError
from nmtalign.model_directory import FORMAT_VERSION
from nmtalign.text.lines import as_json
from nmtalign.version import __version__


def test_version(here):
    assert here("--version") == (0, f"nmtalign {__version__}\n", "")


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_is_that_of_h_and_cuts_no_name(monkeypatch, here, command):
    monkeypatch.setattr(rich_utils, "MAX_WIDTH", 80)
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    monkeypatch.setenv("COLUMNS", "80")
    code, text, err = here(*command.split(), "--help")
    assert (code, err) == (0, "")
    assert here(*command.split(), "-h") == (0, text, "")
    assert f"Usage: nmtalign {command}".rstrip() in text
    assert "…" not in text
    assert "list[" not in text  # a type of Python
    assert max(map(len, text.splitlines())) <= 80
    if command == "view":
        assert "A heat map is not an explanation" in " ".join(text.split())


def test_what_reads_a_file_reports_that_it_cannot(tmp_path, monkeypatch):
    """typer would end the command with the code of a wrong option, and name the argument but not what to do."""
    (tmp_path / "links").write_text("0-0\n")
    monkeypatch.setattr(os, "access", lambda *arguments, **options: False)
    assert run(tmp_path, "aer", "links", "links", "--source", "links", "--target", "links").returncode == 0
    assert run(tmp_path, "translate", "--lexicon", "links", "--show-settings").returncode == 0


def test_without_a_command_the_help_is_printed(here):
    assert here() == here("--help")


def test_the_help_lists_the_commands_with_the_beginning_of_their_own_help():
    assert len(start.COMMANDS) == 14
    for name, line in start.COMMANDS.items():
        assert COMMANDS[name].help.startswith(line.rstrip(".")), name
        assert f"nmtalign {name}" in COMMANDS[name].help.partition("Examples:")[2]


def test_options_are_few():
    options = [one for command in COMMANDS.values() for one in command.params if one.param_type_name == "option"]
    assert len(options) <= 185


def test_completion_knows_commands_and_settings(nmtalign, monkeypatch):
    """Also where bash makes three words of NAME=VALUE; several candidates, so that no space follows `NAME=`."""

    def completed(*words):
        monkeypatch.setenv("COMP_WORDS", "\n".join(("nmtalign", *words)))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        return nmtalign().stdout.decode().split()

    monkeypatch.setenv("_NMTALIGN_COMPLETE", "complete_bash")
    assert {"translate", "train"} <= {*completed("tra")}
    assert completed("train", "--preset", "tin") == ["tiny"]
    for text, expected in (
        ("lay", "layers= layers=1"),
        ("attention_s", "attention_span=global attention_span=local-m attention_span=local-p"),
        ("la", "layers= label_smoothing="),
        ("cell=l", "cell=lstm cell=light"),
        ("cell = l", "lstm light"),
        ("copy =", "true false"),
        ("copy = true --set cell = mi", "minimal"),
        ("nothing =", ""),
    ):
        assert completed("train", "--set", *text.split()) == expected.split(), text


def run_in_shell(command, folder, limit="", **environment):
    """The outcome of a command line after `nmtalign`; the environment has only the given locale settings."""
    ours = ("LC_", "LANG", "PYTHON", "NO_COLOR", "FORCE_COLOR")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
    variables = {**kept, "PYTHONPATH": str(Path(__file__).parents[2]), **environment}
    call = ["sh", "-c", f'{limit} exec "$0" -m nmtalign {command}', sys.executable]
    return subprocess.run(call, env=variables, cwd=folder, capture_output=True)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams") / "demo"
    for command in ("sample demo --pairs 20", "prep -q --config demo/nmtalign.toml -o demo/data"):
        assert run(folder.parent, *command.split()).returncode == 0
    return folder


@pytest.mark.parametrize("words", [("info", "data"), ("translate", "--help")])
def test_a_reader_that_has_gone_is_no_error(corpus, words):
    read, write = os.pipe()
    os.close(read)  # before anything is written
    result = subprocess.run(command_line.command(*words), stdout=write, stderr=subprocess.PIPE, cwd=corpus)
    os.close(write)
    assert (result.returncode, result.stderr) == (0, b"")


NOT_OPEN = "nmtalign: error: standard output: cannot write: it is not open for writing"
FULL = "nmtalign: error: standard output: cannot write: no space left on the disk"


@pytest.mark.parametrize(
    "command",
    ["--version", "info data --format json", "symmetrize test.align test.align -q", "translate test.en -m {model} -q"],
)
@pytest.mark.parametrize(("stdout", "line"), [(">&-", NOT_OPEN), (">/dev/full", FULL)])
def test_output_that_goes_nowhere_is_one_line(corpus, random_model, command, stdout, line):
    result = run_in_shell(f"{command.format(model=random_model)} {stdout}", corpus)
    lines = [one for one in result.stderr.decode().splitlines() if not one.startswith("nmtalign: warning: ")]
    assert (result.returncode, lines) == (5, [line])


def test_no_file_gets_the_number_of_a_stream_that_is_closed(corpus):
    result = run_in_shell("prep -o closed >&- 2>&- <&-", corpus)
    assert result.returncode == 5  # the summary had nowhere to go; the corpus is complete
    assert run(corpus, "prep", "-q", "-o", "open").returncode == 0
    for path in (corpus / "open").iterdir():
        assert (corpus / "closed" / path.name).read_bytes() == path.read_bytes()


def test_closed_streams_that_are_not_needed_are_no_error(corpus):
    assert run_in_shell("sample elsewhere --pairs 3 >&- 2>&- <&-", corpus).returncode == 0
    assert run_in_shell("info nowhere 2>&-", corpus).returncode == 4
    result = run_in_shell("score - -r test.fr <&-", corpus)
    assert (result.returncode, len(result.stderr.splitlines())) == (3, 1)
    assert b"standard input: cannot read" in result.stderr


def test_an_interruption_while_python_ends_prints_nothing():
    late = "import atexit, os, sys; atexit.register(os.kill, os.getpid(), 2); sys.argv = ['nmtalign', '--version']"
    call = [sys.executable, "-c", f"{late}; from nmtalign.cli.app import main; main()"]
    done = subprocess.run(call, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"nmtalign {__version__}\n", "")


def test_output_is_utf8_whatever_the_locale(corpus):
    folder = os.fsencode(corpus) + b"/na\xc3\xafve \xff"  # the last byte is no UTF-8
    os.symlink(os.fsencode(corpus) + b"/test.fr", folder)  # noqa: PTH211
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "iso-8859-1"}
    several = run_in_shell('score "$(echo na*)=test.fr" test.en -r na* -q', corpus, **locale)
    assert several.returncode == 0, several.stderr
    assert "na\xefve \\xff".encode() in several.stdout
    info = run_in_shell("info na*", corpus, **locale)
    assert (info.returncode, len(info.stderr.splitlines())) == (4, 1)
    assert "na\xefve \\xff: ".encode() in info.stderr


HOSTILE = "\x1b]0;title\x07\x9b2J\r\u202eword\u2028"


def test_a_current_folder_that_was_removed_is_one_line(here, tmp_path, monkeypatch):
    """MKL would end the process with "FATAL ERROR: Cannot load libtorch_cpu.so" at the first product."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gone").mkdir()
    monkeypatch.setattr(Path, "cwd", lambda: (tmp_path / "absent").stat())
    message = "the current folder cannot be used: No such file or directory; change to another"
    assert here("info", "x") == (5, "", f"nmtalign: error: {message}\n")


@pytest.mark.skipif(sys.platform != "linux", reason="ulimit -v")
@pytest.mark.parametrize(
    ("command", "megabytes", "name"),
    [("info data", 250, "numpy"), ("translate -m nowhere test.en", 1100, "torch"), ("info data", 310, "")],
)
def test_too_little_address_space_is_one_line(corpus, command, megabytes, name):
    result = run_in_shell(command, corpus, limit=f"ulimit -v {megabytes * 1024};")
    assert (result.returncode, result.stderr.count(b"\n")) == ((5, 1) if name else (0, 0)), result.stderr
    assert not name or f"leaves {megabytes:,} MB of address space, and {name} needs about" in result.stderr.decode()


def test_what_a_stranger_wrote_cannot_steer_the_terminal(corpus, here, monkeypatch):
    (corpus / "hostile").write_text(f"{HOSTILE} a b c\n" * 20, encoding="utf-8")
    model = corpus / "model of a stranger"
    model.mkdir(exist_ok=True)
    settings = {
        "format": "nmtalign model", "format_version": FORMAT_VERSION, "nmtalign_version": HOSTILE, "preset": HOSTILE,
        "source_language": HOSTILE, "target_language": "fr", "corpus": HOSTILE, "model": {HOSTILE: 1}, "training": {},
        "prep": {HOSTILE: 1}, "files": {HOSTILE: HOSTILE},
    }  # fmt: skip
    (model / "config.json").write_text(json.dumps(settings))
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.chdir(corpus)
    for command in (
        "score hostile test.fr -r test.fr -s hostile --differences 3",
        f"score '{HOSTILE}=hostile' test.fr -r test.fr",
        "score hostile -r test.fr --format json --differences 3",
        "info 'model of a stranger'",
        f"info '{HOSTILE}'",
        f"aer '{HOSTILE}=test.align' test.align",
    ):
        _, out, err = here(*shlex.split(command))
        shown = out + err
        assert shown.strip()
        assert not {*"\x07\x9b\r\u202e\u2028"} & {*shown}, command
        assert "\x1b]" not in shown, command


def test_escapes_show_what_there_was_and_json_keeps_it():
    assert escaped("a\tb\x9b\udcc3\udcaf\udcff\ud800") == "a\\tb\\x9bï\\xff\\ud800"
    assert escaped("نص \u200d漢") == "نص \u200d漢"
    assert json.loads(as_json({"a": HOSTILE}, indent=1)) == {"a": HOSTILE}
    assert not {*"\x1b\x07\x9b\r\u202e\u2028"} & {*as_json({"a": HOSTILE}, indent=1)}


def test_json_has_null_for_nan_and_infinity(tmp_path):
    attributes = {"threshold": math.nan, "mass": math.inf, "p": 0.25, "seconds": 1234.56789}
    with AlignmentWriter(tmp_path / "a.h5", attributes) as file:
        add(file, ["a", "b"], ["c"], np.array([[0.75, 0.25, 0], [0, 0, 1]], dtype=np.float32), math.nan)
    found = json.loads(run(tmp_path, "info", "a.h5", "--format", "json").stdout, parse_constant=pytest.fail)
    assert [found["attributes"][name] for name in ("threshold", "mass", "seconds")] == [None, None, 1234.56789]
    text = run(tmp_path, "info", "a.h5").stdout  # numbers with few digits
    assert f"bytes_per_cell: {found['bytes_per_cell']:,.0f}\n" in text
    assert {"  p: 0.25", "  seconds: 1,235"} <= {*text.splitlines()}


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
    def fail(_):
        try:
            raise error
        except Exception as cause:
            raise FormatError("model: damaged") from cause

    monkeypatch.setattr(start, "_dispatch", fail)
    assert (start.run(["info"]), capsys.readouterr().err) == (5, f"nmtalign: error: {NO_MEMORY}\n")


def test_nothing_but_models_needs_torch_and_only_pictures_matplotlib(tmp_path, random_model):
    for direction, words in (("en-fr", ("a", "b")), ("fr-en", ("u", "v"))):
        with AlignmentWriter(tmp_path / f"{direction}.h5", {"model_hash": "abc", "direction": direction}) as file:
            others = ["u", "v"] if words[0] == "a" else ["a", "b"]
            add(file, words, others, np.full((3, 3), 1 / 3), -1.0, links=[(0, 1)])
    (tmp_path / "gold").write_text("1-0\n")
    (tmp_path / "links").write_text("0-1\n")
    nmtalign.link(*write_pairs(tmp_path, "b", [("a b", "u v")]), tmp_path / "aligner", threads=1)
    commands = [f"info {random_model}", "info en-fr.h5", "aer en-fr.h5 gold", "aer links gold", "export en-fr.h5"]
    commands += ["export en-fr.h5 --format json", "view en-fr.h5", "view en-fr.h5 -o page.html"]
    commands += [f"score b.fr -r b.fr -s b.en --known-words -m {random_model} --by-length", "symmetrize links links"]
    commands += ["align b.en b.fr -m aligner --pharaoh", "link b.en b.fr -o new"]
    code = (
        "import shlex, sys; sys.modules |= {'torch': None, 'matplotlib': None}; sys.stderr.isatty = lambda: True; "
        "import nmtalign; from nmtalign.cli.app import run; next(nmtalign.align('aligner', [('a b', 'u v')])); "
        "sys.exit(sum(run(shlex.split(one)) for one in sys.argv[1:]))"
    )
    done = subprocess.run([sys.executable, "-c", code, *commands], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_start_of_a_command_hardly_collects_garbage(random_model):
    code = (
        "import atexit, gc; from nmtalign.cli.app import main; "
        "atexit.register(lambda: print(gc.get_stats()[2]['collections'])); main()"
    )
    words = sys.executable, "-c", code, "translate", "-m", random_model, "-q"
    done = subprocess.run(words, input="a\n", capture_output=True, text=True)
    assert int(done.stdout.splitlines()[-1]) < 2, done
