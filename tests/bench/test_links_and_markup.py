"""Runs `bench markup` and `bench links` at tiny sizes."""

import gzip
import json
import shutil

from bench.cli import main
from nmtalign.sample.sample_corpus import write_sample


def test_markup_compares_with_both_baselines(tmp_path):
    (tmp_path / "dev.en").write_text("the fox sees a boat\n")
    (tmp_path / "dev.fr").write_text("le renard voit un bateau\n")
    (tmp_path / "dev.gold").write_text("0-0 1-1 2-2 3-3 4-4\n")
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


def test_links_compares_aligners_on_gold_links(tmp_path):
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
