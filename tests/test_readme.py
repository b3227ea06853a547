"""Every command in README.md is run, with smaller budgets, one after the other as a reader would; so is its Python."""

import csv
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README, FORMATS = ROOT / "README.md", ROOT / "nmtalign" / "docs" / "formats.md"
SMALLER = [
    (r"--max-time \d+[smh]", "--max-updates 4"),
    (r"--pairs \d+", "--pairs 200"),
    (r"--size \d+", "--size 300"),
    (r"--words \S+", "--updates 4"),
    (r"--ablations all", "--models RNNencdec-50,RNNsearch-50"),
]
REPORTS = [("large", "test"), ("large", "news"), ("sample", "test")]  # of the columns of the results


def blocks(language, path=README):
    return re.findall(rf"^```{language}\n(.*?)^```", path.read_text(), re.M | re.S)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    from nmtalign.sample import write_sample

    folder = tmp_path_factory.mktemp("readme")
    write_sample(folder, 200)
    (folder / "nmtalign.toml").unlink()
    return folder


def run(code, folder):
    environment = {**os.environ, "PATH": f"{folder}/bin{os.pathsep}{os.environ['PATH']}"}
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", code], cwd=folder, env=environment, capture_output=True, text=True
    )


def test_commands_and_code(folder):
    (folder / "bin").mkdir()
    command = folder / "bin/nmtalign"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nmtalign "$@"\n')
    command.chmod(0o755)
    found = blocks("sh")
    assert len(found) >= 4
    for code in found:
        for pattern, smaller in SMALLER:
            code = re.sub(pattern, smaller, code)
        result = run(code, folder)
        assert result.returncode == 0, f"{code}\n{result.stderr}"
    for code in [*blocks("python"), *blocks("python", FORMATS)]:
        result = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        assert "(" in result.stdout


@pytest.mark.parametrize("size", [4100, 11569])
def test_python_on_many_words(tmp_path, random_model_directory, monkeypatch, capsys, size):
    """The search goes another way from 4,096 words on, and blocks of 1,000 do not divide these numbers."""
    target = ["le", "Le", "chat", "dort", ".", *(f"mot{number}" for number in range(size - 7))]
    model = random_model_directory(tmp_path, ["The", "cat", "sleeps", "."], target, lambda model: None)
    assert json.loads((model / "config.json").read_text())["model"]["target_vocabulary_size"] == size
    monkeypatch.chdir(tmp_path)
    found = blocks("python")
    assert found
    for code in found:
        exec(code, {})  # noqa: S102
        first, second = capsys.readouterr().out.splitlines()
        assert "(" in first
        assert second.startswith("Le ")
        assert "chat" in second


def test_the_workspace_file_shown_is_valid(tmp_path):
    from nmtalign.workspace import load_workspace

    path = tmp_path / "nmtalign.toml"
    path.write_text(blocks("toml")[0])
    loaded = load_workspace(path)
    assert loaded.resolve_training(None, {})[2].max_time == "2h"


def test_readme_is_short_and_names_every_command():
    from nmtalign.cli.commands import app

    text = README.read_text()
    assert len(text.splitlines()) < 300
    for command in app.registered_commands:
        assert f"`nmtalign {command.name}" in text


def test_results_are_those_of_the_reports():
    """The table of results says what the reports say; so does its column of the paper's numbers."""
    from nmtalign.reproduction.paper import OTHERS, PAPER

    papers = {**PAPER, **OTHERS}
    table = re.search(r"^\| `multi-bleu`[^\n]*\n(?:\|.*\n)+", README.read_text(), re.M)
    assert table is not None
    rows = [[cell.strip().replace("\\", "") for cell in line.split("|")[1:-1]] for line in table[0].splitlines()]
    assert rows[0][1:] == ["statutes", "news", "sample corpus", "the paper"]
    assert [row[0] for row in rows[2:]] == list(papers)
    for name, *ours, paper in rows[2:]:
        assert paper == f"{papers[name].bleu:.2f} / {papers[name].no_unk:.2f}"
        for cell, (report, test) in zip(ours, REPORTS, strict=True):
            found = scores_of(report, test).get(name)
            assert cell == (" / ".join(f"{found[subset]:.2f}" for subset in ("all", "no-unk")) if found else "")


def scores_of(report, test):
    """The tokenised BLEU of each model of a report, of all sentences and of those without an unknown word."""
    found = {}
    with (ROOT / "examples/reproduction" / report / "scores.csv").open(encoding="utf-8", newline="") as stream:
        for row in csv.DictReader(stream):
            if (row["test"], row["metric"], row["by"]) == (test, "multi-bleu", ""):
                found.setdefault(row["system"], {})[row["subset"]] = float(row["value"])
    return found
