"""`nmtalign sample` and `nmtalign info` as processes."""

import json


def test_sample_writes_a_workspace_and_says_so_on_stderr(nmtalign, tmp_path):
    result = nmtalign("sample", "a folder/demo", "--pairs", "30", "--seed", "2")
    assert result.stdout == b""
    assert "30 training" in result.stderr.decode()
    names = {path.name for path in (tmp_path / "a folder/demo").iterdir()}
    assert {"train.en", "train.fr", "dev.en", "test.fr", "test.align", "nmtalign.toml"} <= names
    assert nmtalign("sample", "quiet", "--pairs", "3", "--quiet").stderr == b""


def test_info_of_a_corpus(nmtalign, tmp_path):
    nmtalign("sample", tmp_path, "--pairs", "30")
    nmtalign("prep")
    facts = json.loads(nmtalign("info", "data", "--format", "json").stdout)
    assert facts["kind"] == "corpus"
    assert facts["languages"] == "en-fr"
    assert facts["splits"]["dev"]["pairs"] == 3
    assert nmtalign("info", "data/corpus.h5").stdout == nmtalign("info", "data").stdout
    assert b"languages: en-fr" in nmtalign("info", "data").stdout


def test_files_of_other_content_stay_unless_forced(nmtalign, tmp_path):
    folder = tmp_path / "demo"
    nmtalign("sample", folder, "--pairs", "30")
    (folder / "notes.txt").write_text("mine")
    (folder / "nmtalign.toml").write_text("# my own\n")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    refused = nmtalign("sample", folder, "--pairs", "40", check=False)
    assert refused.returncode == 2
    assert refused.stderr.count(b"\n") == 1
    for name in (b"train.en", b"nmtalign.toml", b"--force"):
        assert name in refused.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    nmtalign("sample", folder, "--pairs", "40", "--force")
    assert len((folder / "train.en").read_text().splitlines()) == 40
    assert (folder / "notes.txt").read_text() == "mine"
    nmtalign("sample", folder, "--pairs", "40")  # the same content again
