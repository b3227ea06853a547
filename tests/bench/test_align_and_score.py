"""Runs `bench align` and `bench score` at tiny sizes."""

import gzip
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

BENCH = Path(__file__).parent
sys.path.insert(0, str(BENCH.parent))

from bench.align import synthetic  # noqa: E402
from bench.cli import main  # noqa: E402
from bench.score import NOISE, write_texts  # noqa: E402
from nmtalign.sample.sample_corpus import write_sample  # noqa: E402


def test_align_measures_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    sizes = ("--size", "tiny", "--pairs", "300", "--length", "5", "--forced", "20", "--reads", "5", "--repeats", "1")
    assert main(["align", *sizes, "--threads", "1", "--folder", str(tmp_path), "--json", "found.json"]) == 0
    assert "bytes per cell" in capsys.readouterr().out
    found = json.loads((tmp_path / "found.json").read_text())
    assert all(stored["pairs"] == 300 for stored in found["files"].values())
    assert all(rate > 0 for made in found["making"].values() for name, rate in made.items() if name != "spread")
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]


def test_synthetic_pairs_are_alignments() -> None:
    for number, record in enumerate(synthetic(10, 25)):
        assert record.sentence_id == number
        np.testing.assert_allclose(record.weights.sum(1), 1, atol=1e-5)
        assert len(record.source) == len(record.target) == 25


def test_score_measures_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found, first = tmp_path / "found.json", "counted, by length"
    options = ["--sentences", "60", "--samples", "20", "--runs", first, "--folder", str(tmp_path), "--json", str(found)]
    assert main(["score", *options]) == 0
    assert first in capsys.readouterr().out
    assert all(one["seconds"] > 0 for one in json.loads(found.read_text())["runs"].values())
    assert [path.name for path in tmp_path.iterdir()] == ["found.json"]
    write_texts(tmp_path, 500)
    reference = (tmp_path / "reference").read_text().splitlines()
    same = [sum(map(str.__eq__, (tmp_path / name).read_text().splitlines(), reference)) for name in NOISE]
    assert same == sorted(same, reverse=True)
    assert same[0] > 0


def test_markup_compares_with_both_baselines(tmp_path: Path) -> None:
    for name, ending, text in (
        ("dev", "en", "the fox sees a boat\n"),
        ("dev", "fr", "le renard voit un bateau\n"),
        ("dev", "gold", "0-0 1-1 2-2 3-3 4-4\n"),
    ):
        (tmp_path / f"{name}.{ending}").write_text(text)
    for side in ("en", "fr"):
        with gzip.open(tmp_path / f"train.{side}.gz", "wt") as stream:
            stream.write((tmp_path / f"dev.{side}").read_text() * 5)
    found = tmp_path / "found.json"
    gold = ["--gold", str(tmp_path / "dev"), "en", "fr"]
    assert main(["markup", "--pairs", "300", "--spans", "2", *gold, "--json", str(found)]) == 0
    sets = json.loads(found.read_text())["sets"]
    assert len(sets) == 2
    assert sets["sample"]["nmtalign"] > sets["sample"]["proportional"]
    assert all(counts["spans"] >= max(counts.values()) > 0 for counts in sets.values())


def test_links_compares_aligners_on_gold_links(tmp_path: Path) -> None:
    write_sample(tmp_path, pairs=200)
    (tmp_path / "gold").mkdir()
    for language in ("en", "fr"):
        text = (tmp_path / f"train.{language}").read_bytes()
        (tmp_path / "gold" / f"train.{language}.gz").write_bytes(gzip.compress(text))
        shutil.copy(tmp_path / f"test.tok.{language}", tmp_path / "gold" / f"test.{language}")
    shutil.copy(tmp_path / "test.align", tmp_path / "gold" / "test.gold")
    found = tmp_path / "found.json"
    assert main(["links", "--data", str(tmp_path / "gold"), "--part", "test", "--json", str(found)]) == 0
    figures = json.loads(found.read_text())["corpora"]["gold"]["nmtalign link"]
    assert figures["aer"] < 60
    assert figures["peak_mb"] > 10
