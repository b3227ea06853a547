"""`nmtalign sample`, and `nmtalign info` of its corpus."""

import json

from helpers.commands import run

from nmtalign.files import folder_lock


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
        told = "demo: another process is working in this folder; wait for it, or give another\n"
        assert run(tmp_path, "sample", folder, "--force").stderr.endswith(told)
