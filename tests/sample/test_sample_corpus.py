"""The sample workspace and its command: disjoint parts of any size, the same bytes for the same seed."""

import hashlib
import json

import pytest
from helpers.commands import run

from nmtalign.files import folder_lock
from nmtalign.sample import sample_corpus
from nmtalign.sample.sample_corpus import configuration, write_sample
from nmtalign.settings.definition import load_workspace, resolve
from nmtalign.settings.training_settings import TrainingConfig

PARTS = ("train", "dev", "test")
ENDINGS = ("en", "fr", "tok.en", "tok.fr", "align")


def lines(path):
    text = path.read_text(encoding="utf-8")
    assert text.endswith("\n")
    assert "\r" not in text
    return text[:-1].split("\n")


def digest(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


def test_the_text_of_a_seed_never_changes(tmp_path):
    write_sample(tmp_path, 300, seed=3)
    written = digest(tmp_path)
    assert written["train.en"] == "0f89586d2eb52c78bc5fab62299e676a534118ae9af71028ce9690225cb29996"
    assert written["train.fr"] == "186a5608e91748eff2164b0a915e93594141d01c033769adef79cc4ecf6187c0"
    assert written["train.align"] == "40e10007f70ff3e077490796bc72483d639fa5e8aa20115a9c7d8f9591af23f7"
    write_sample(tmp_path / "other", 300, seed=4)
    other = digest(tmp_path / "other")
    assert [name for name, value in written.items() if other[name] == value] == ["nmtalign.toml"]


def test_a_larger_corpus_begins_with_the_smaller_one(tmp_path):
    write_sample(tmp_path / "small", 50)
    write_sample(tmp_path / "large", 300)
    assert lines(tmp_path / "large/train.fr")[:50] == lines(tmp_path / "small/train.fr")
    assert lines(tmp_path / "large/test.fr")[:5] == lines(tmp_path / "small/test.fr")


@pytest.mark.parametrize(("pairs", "held_out"), [(1, 1), (15, 1), (5000, 500)])
def test_parts_have_their_sizes_and_share_nothing(tmp_path, pairs, held_out):
    assert write_sample(tmp_path, pairs) == held_out
    for language in ("en", "fr"):
        train, dev, test = (lines(tmp_path / f"{part}.{language}") for part in PARTS)
        assert (len(train), len(dev), len(test)) == (pairs, held_out, held_out)
        assert not set(train) & set(dev)
        assert not set(train) & set(test)
        assert not set(dev) & set(test)
    assert len(set(lines(tmp_path / "train.en"))) == pairs


def test_the_files_of_a_part_belong_together(tmp_path):
    write_sample(tmp_path, 1000, seed=5)
    texts = (f"{part}.{ending}" for part in PARTS for ending in ENDINGS)
    assert {path.name for path in tmp_path.iterdir()} == {"nmtalign.toml", *texts}
    for part in PARTS:
        texts = [lines(tmp_path / f"{part}.{ending}") for ending in ENDINGS]
        for english, french, source, target, links in zip(*texts, strict=True):
            assert english.replace(" ", "") == source.replace(" ", "")
            assert french.replace(" ", "") == target.replace(" ", "")
            pairs = [tuple(map(int, link.split("-"))) for link in links.split(" ")]
            assert pairs == sorted(pairs)
            assert max(i for i, _ in pairs) == source.count(" ")
            assert max(j for _, j in pairs) == target.count(" ")


@pytest.mark.parametrize(
    ("pairs", "epochs"),
    [(50, 200), (200, 200), (2000, 40), (5000, 16), (13_000, 6.2), (20_000, 4), (100_000, 2), (1_000_000, 2)],
)
def test_a_small_corpus_is_seen_in_more_epochs(tmp_path, pairs, epochs):
    (tmp_path / "nmtalign.toml").write_text(configuration(pairs), encoding="utf-8")
    loaded = load_workspace(tmp_path / "nmtalign.toml")
    budget = resolve(TrainingConfig, loaded.section("train"))
    assert budget.epochs == epochs
    assert bool(budget.max_time) == (pairs < 10_000)
    assert loaded.section("train")[1]["preset"] == "tiny"


def test_an_interruption_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(pairs):
        raise KeyboardInterrupt

    monkeypatch.setattr(sample_corpus, "configuration", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_sample(tmp_path / "new" / "demo", 5)
    assert not (tmp_path / "new").exists()


def test_info_of_a_corpus(tmp_path):
    made = run(tmp_path, "sample", "a folder/demo", "--pairs", "30", "--seed", "2")
    assert (made.stdout, made.stderr) == ("", "nmtalign: a folder/demo: 30 training, 3 dev and 3 test pairs\n")
    folder = tmp_path / "a folder/demo"
    assert run(folder, "prep", "-q").returncode == 0
    facts = json.loads(run(folder, "info", "data", "--format", "json").stdout)
    assert (facts["kind"], facts["languages"], facts["splits"]["dev"]["pairs"]) == ("corpus", "en-fr", 3)
    text = run(folder, "info", "data").stdout
    assert run(folder, "info", "data/corpus.h5").stdout == text
    assert "languages: en-fr" in text


def test_files_of_other_content_stay_unless_forced(tmp_path):
    folder = tmp_path / "demo"
    run(tmp_path, "sample", folder, "--pairs", "30")
    (folder / "notes.txt").write_text("mine")
    (folder / ".sample").mkdir()  # a process that was killed has left it
    (folder / "nmtalign.toml").write_text("# my own\n")
    before = {path.name: path.read_bytes() for path in folder.glob("*.*") if path.is_file()}
    refused = run(tmp_path, "sample", folder, "--pairs", "40")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert all(name in refused.stderr for name in ("train.en", "nmtalign.toml", "--force"))
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert run(tmp_path, "sample", folder, "--pairs", "40", "--force", "-q").stderr == ""
    assert len((folder / "train.en").read_text().splitlines()) == 40
    assert (folder / "notes.txt").read_text() == "mine"
    assert run(tmp_path, "sample", folder, "--pairs", "40").returncode == 0  # the same content again
    with folder_lock(folder):
        messages = "demo: another process is working in this folder; wait for it, or give another\n"
        assert run(tmp_path, "sample", folder, "--force").stderr.endswith(messages)
