"""Runs `bench score` at a tiny size."""

import json
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))

from bench.cli import main  # noqa: E402
from bench.score import RUNS  # noqa: E402
from bench.score_texts import LONGEST, MEAN, NOISE, write_texts  # noqa: E402


def test_it_measures_the_command_and_each_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ("--sentences", "60", "--peer-sentences", "10", "--samples", "20", "--trials", "20")
    first = next(iter(RUNS))
    found = tmp_path / "found.json"
    assert main(["score", *sizes, "--runs", first, "--folder", str(tmp_path), "--json", str(found)]) == 0
    assert first in capsys.readouterr().out
    results = json.loads(found.read_text())
    assert results["runs"][first]["seconds"] > 0
    assert all(spent > 0 for spent in results["metrics"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_the_texts_look_like_translations(tmp_path: Path) -> None:
    texts = write_texts(tmp_path, 2000)
    lines = {name: path.read_text().splitlines() for name, path in texts.systems.items()}
    reference = texts.reference.read_text().splitlines()
    lengths = [len(line.split()) for line in reference]
    assert 0 < min(lengths) < max(lengths) <= LONGEST
    assert abs(sum(lengths) / 2000 - MEAN) < 2
    same = [sum(map(str.__eq__, lines[name], reference)) for name in NOISE]
    assert same == sorted(same, reverse=True)
    assert all(len(system) == 2000 and all(system) for system in lines.values())
