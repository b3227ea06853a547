"""Runs `bench align` at a tiny size."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))

from bench.align import synthetic  # noqa: E402
from bench.cli import main  # noqa: E402


def test_it_measures_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ("--size", "tiny", "--pairs", "300", "--length", "5", "--forced", "20", "--reads", "5", "--repeats", "1")
    assert main(["align", *sizes, "--threads", "1", "--folder", str(tmp_path), "--json", "found.json"]) == 0
    out = capsys.readouterr().out
    assert "bytes per cell" in out
    found = json.loads((tmp_path / "found.json").read_text())
    assert set(found["files"]) == {"float16", "float32"}
    for stored in found["files"].values():
        assert stored["pairs"] == 300
        assert 0 < stored["share_of_time"] < 1
    assert {"fp32", "int8"} <= set(found["making"])
    assert all(rate > 0 for made in found["making"].values() for name, rate in made.items() if name != "spread")
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_synthetic_pairs_are_alignments() -> None:
    records = list(synthetic(10, 25))
    assert [record.sentence_id for record in records] == list(range(10))
    for record in records:
        np.testing.assert_allclose(record.weights.sum(1), 1, atol=1e-5)
        assert len(record.source) == len(record.target) == 25
        assert all(record.weights[j, i] == record.weights[j].max() for i, j in record.links())
