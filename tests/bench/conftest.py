"""Runs subcommands of the benchmark."""

from types import SimpleNamespace

import pytest

from bench.cli import main


@pytest.fixture
def bench(tmp_path, monkeypatch, capsys):
    """Runs a subcommand in this process, in tmp_path; the processes that it starts are real."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        said = capsys.readouterr()
        return SimpleNamespace(returncode=code, stdout=said.out, stderr=said.err)

    return run
