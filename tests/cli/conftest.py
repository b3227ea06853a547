"""What tests of the subcommands share: random models, and `nmtalign translate` run inside or as a process."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.command_line import command

from nmtalign.cli.app import main
from nmtalign.errors import ResourceError
from nmtalign.translating.file_translation import ResumableOutput

SOURCE_WORDS = ["the", "fox", "sees", "a", "red", "boat", "."]
TARGET_WORDS = ["le", "renard", "voit", "un", "bateau", "rouge", "."]
Done = subprocess.CompletedProcess[bytes]


def disturb(model):
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 6  # words rather than none


def make_unknown_likely(model):
    """A model that mostly outputs <unk>."""
    disturb(model)
    model.readout.output_bias[1] += 9


@pytest.fixture(scope="session")
def random_model(tmp_path_factory: pytest.TempPathFactory, random_model_directory) -> Path:
    return random_model_directory(tmp_path_factory.mktemp("random"), SOURCE_WORDS, TARGET_WORDS, disturb)


@pytest.fixture(scope="session")
def doubtful_model(tmp_path_factory: pytest.TempPathFactory, random_model_directory) -> Path:
    folder = tmp_path_factory.mktemp("doubtful")
    return random_model_directory(folder, SOURCE_WORDS, TARGET_WORDS, make_unknown_likely)


@pytest.fixture(scope="session")
def blind_model(tmp_path_factory: pytest.TempPathFactory, random_model_directory) -> Path:
    """Without attention."""
    folder = tmp_path_factory.mktemp("blind")
    return random_model_directory(folder, SOURCE_WORDS, TARGET_WORDS, disturb, "none")


@pytest.fixture
def inside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> Callable[..., Done]:
    """Runs `nmtalign translate ARGUMENTS` in tmp_path and this process, which spares the start; `text` is a file."""

    def run_inside(*arguments: object, text: bytes | None = None) -> Done:
        monkeypatch.chdir(tmp_path)
        if text is not None:
            (tmp_path / "text").write_bytes(text)
            arguments = (*arguments, "text")
        monkeypatch.setattr(sys, "argv", ["nmtalign", "translate", "--threads", "1", *map(str, arguments)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        (tmp_path / "text").unlink(missing_ok=True)
        out, err = capfdbinary.readouterr()
        return subprocess.CompletedProcess([], int(ended.value.code or 0), out, err)

    return run_inside


@pytest.fixture
def here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `nmtalign ARGUMENTS` in tmp_path and this process: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def run_here(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["nmtalign", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capfd.readouterr()

    return run_here


@pytest.fixture
def unfinished(inside: Callable[..., Done], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., bytes]:
    """Runs `nmtalign translate ARGUMENTS`, which ends before FILE.partial is renamed; returns the content of this file.

    The file is then cut off in the middle.
    """

    def fail(output: ResumableOutput) -> None:
        raise ResourceError("an interruption")

    def run_unfinished(*arguments: object) -> bytes:
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
def process(tmp_path: Path) -> Callable[..., "subprocess.Popen[bytes]"]:
    """Starts `nmtalign translate ARGUMENTS` in tmp_path, three pipes to it, as a shell starts it in the background."""

    def start(*arguments: object, variables: dict[str, str] | None = None, **more: object) -> "subprocess.Popen[bytes]":
        pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
        ignoring = ["sh", "-c", 'trap "" INT; exec "$@"', "sh"]
        return subprocess.Popen(
            [*ignoring, *command("translate", *arguments)],
            **{**pipes, "env": {**environment, **(variables or {})}, "cwd": tmp_path, **more},
        )

    return start


@pytest.fixture
def run(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Runs `nmtalign score ARGUMENTS` in a test module's own `folder`: (exit code, stdout, stderr)."""

    def run_inside(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.chdir(folder)
        monkeypatch.setattr(sys, "argv", ["nmtalign", "score", *arguments])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capfd.readouterr()

    return run_inside
