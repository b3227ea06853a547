"""What tests of the subcommands share: random models, and `nmtalign translate` run inside or as a process."""

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from helpers.command_line import command
from helpers.random_models import ENGLISH, FRENCH, disturb

from nmtalign.cli.app import main
from nmtalign.errors import ResourceError
from nmtalign.translating.file_translation import ResumableOutput


def make_unknown_likely(model):
    """A model that mostly outputs <unk>."""
    disturb(model)
    model.readout.output_bias[1] += 9


@pytest.fixture(scope="session")
def random_model(tmp_path_factory, random_model_directory):
    return random_model_directory(tmp_path_factory.mktemp("random"))


@pytest.fixture(scope="session")
def doubtful_model(tmp_path_factory, random_model_directory):
    return random_model_directory(tmp_path_factory.mktemp("doubtful"), adjust=make_unknown_likely)


def sharpen(model):
    for parameter in model.parameters():
        parameter.mul_(3)


@pytest.fixture(scope="session")
def models(tmp_path_factory, random_model_directory):
    """Models with sharp attention: English to French, French to English."""
    folder, french = tmp_path_factory.mktemp("both"), [*FRENCH, "l'"]
    forward = random_model_directory(folder / "ahead", ENGLISH, french, sharpen, seed=5)
    return forward, random_model_directory(folder / "back", french, ENGLISH, sharpen, seed=6, languages=("fr", "en"))


def run_main(monkeypatch, captured, *arguments):
    """Runs `nmtalign ARGUMENTS` in this process: (exit code, stdout, stderr)."""
    monkeypatch.setattr(sys, "argv", ["nmtalign", *map(str, arguments)])
    captured.readouterr()
    with pytest.raises(SystemExit) as ended:
        main()
    return int(ended.value.code or 0), *captured.readouterr()


@pytest.fixture
def inside(tmp_path, monkeypatch, capfdbinary):
    """Runs `nmtalign translate ARGUMENTS` in tmp_path and this process, which spares the start; `text` is a file."""

    def run_inside(*arguments, text=None):
        monkeypatch.chdir(tmp_path)
        if text is not None:
            (tmp_path / "text").write_bytes(text)
            arguments = (*arguments, "text")
        found = run_main(monkeypatch, capfdbinary, "translate", "--threads", 1, *arguments)
        (tmp_path / "text").unlink(missing_ok=True)
        return subprocess.CompletedProcess([], *found)

    return run_inside


@pytest.fixture
def folder(tmp_path):
    """The folder in which `here` runs commands; test modules have their own."""
    return tmp_path


@pytest.fixture
def here(folder, monkeypatch, capfd):
    """Runs `nmtalign ARGUMENTS` in `folder` and this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(folder)
    return partial(run_main, monkeypatch, capfd)


@pytest.fixture
def unfinished(inside, tmp_path, monkeypatch):
    """Runs `nmtalign translate ARGUMENTS`, which ends before FILE.partial is renamed; returns the content of this file.

    The file is then cut off in the middle.
    """

    def fail(output):
        raise ResourceError("an interruption")

    def run_unfinished(*arguments):
        with monkeypatch.context() as patch:
            patch.setattr(ResumableOutput, "finish", fail)
            done = inside(*arguments)
        assert done.returncode == 5, done.stderr
        (partial,) = tmp_path.glob("*.partial")
        whole = partial.read_bytes()
        partial.write_bytes(whole[: len(whole) // 2])
        return whole

    return run_unfinished


@pytest.fixture
def process(tmp_path):
    """Starts `nmtalign translate ARGUMENTS` in tmp_path, three pipes to it, as a shell starts it in the background."""

    def start(*arguments, variables=None, **more):
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
        return subprocess.Popen(
            [*ignoring, *command("translate", *arguments)],
            **{**pipes, "env": {**environment, **(variables or {})}, "cwd": tmp_path, **more},
        )

    return start
