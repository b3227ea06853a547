"""`nmtalign translate --save-alignments`: n-best lists, and a file that is continued in step with the text."""

import gzip
import json
import math

import numpy as np
import pytest

from nmtalign.alignment import alignment_file
from nmtalign.alignment.alignment_file import AlignmentFile

TEXT = b"the fox sees\n\na red boat .\n" + b"the fox " * 9 + b"\nhedgehog\n"


def test_every_entry_of_the_n_best_lists(random_model, tmp_path, inside):
    lists = ("--beam", 4, "--n-best", 3, "--format", "json", "--tokenized", "--set", "max_source_length=8")
    saved = ("--save-alignments", "a.h5", "--set", "save_alignments_of=n-best", "--set", "alignment_type=float32")
    done = inside("-m", random_model, *lists, *saved, text=TEXT)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    with AlignmentFile(tmp_path / "a.h5") as file:
        assert (file.dtype, file.attributes["made_by"], file.sentence_count()) == ("float32", "beam search", 5)
        options = json.loads(file.attributes["options"])
        assert (options["n_best"], options["save_alignments_of"]) == (3, "n-best")
        for number, line in enumerate(found):
            records = file.sentence(number)
            assert [record.rank for record in records] == list(range(len(line["n_best"])))
            for record, entry in zip(records, line["n_best"], strict=True):
                assert list(record.target) == entry["tokens"]
                assert " ".join(record.target) == entry["translation"]
                blank = not line["source"]  # no model has read it, and no filter by probability keeps it
                expected = math.nan if blank else entry["log_prob"]
                assert record.log_prob == pytest.approx(expected, abs=1e-5, nan_ok=True)
                assert np.isnan(record.token_log_probs).all() == blank
        assert len(file) == sum(len(line["n_best"]) for line in found) > 10


def test_both_continue_after_the_same_line(random_model, tmp_path, inside, unfinished, monkeypatch):
    monkeypatch.setattr(alignment_file, "COMMIT", 1)
    (tmp_path / "in.en").write_bytes(TEXT * 3)
    more = ("--n-best", 2, "--set", "save_alignments_of=n-best", "--beam", 3, "--set", "batch_size=8")
    arguments = ("-m", random_model, *more, "-o", "out", "--save-alignments", "a.h5", "in.en")
    assert inside(*arguments).returncode == 0
    text = (tmp_path / "out").read_bytes()
    done = inside(*arguments, "--resume")
    assert done.stderr == b"nmtalign: out: already done: it contains 15 translations\n"
    (tmp_path / "a.h5").unlink()
    done = inside(*arguments, "--resume")
    assert (done.returncode, b"a.h5 does not exist; leave out --resume" in done.stderr) == (2, True)
    (tmp_path / "out").unlink()
    for kept in (True, False):  # the complete alignments have more lines than the text, or are gone
        unfinished(*arguments)
        if not kept:
            (tmp_path / "a.h5").unlink()
        done = inside(*arguments, "--resume", "--set", "batch_size=9")
        assert b"lines, and there are alignments of 0: both continue after line 0" in done.stderr
        whole = (tmp_path / "out").read_bytes()
        parts = [[line.split(" ||| ")[:2] for line in each.decode().splitlines()] for each in (whole, text)]
        assert parts[0] == parts[1]
        with AlignmentFile(tmp_path / "a.h5") as file:
            assert file.sentence_count() == 15
            assert len(file) == len(parts[0])
        (tmp_path / "out").unlink()
    monkeypatch.setattr(alignment_file, "COMMIT", 4)
    (tmp_path / "in.en").write_bytes(gzip.compress(TEXT * 3)[:-4])  # the error comes after the last line
    messages = inside(*arguments, "--set", "batch_size=1").stderr.decode()
    assert messages.endswith("; a.h5.partial has 12 pairs, and --resume continues after them\n")
    done = inside(*arguments, "--resume")
    assert b"and there are alignments of 12: both continue after line 12\n" in done.stderr


def test_a_short_last_list_with_alignments_is_complete(random_model, tmp_path, inside, unfinished):
    (tmp_path / "in.en").write_bytes(TEXT + b"\n")
    arguments = ("-m", random_model, "--beam", 2, "--n-best", 2, "-o", "out", "--save-alignments", "a.h5", "in.en")
    text = unfinished(*arguments)  # the alignments are complete
    (tmp_path / "out.partial").write_bytes(text)
    assert inside(*arguments, "--resume").stderr.startswith(b"nmtalign: 0 lines after the 6 of an earlier run, ")
    assert (tmp_path / "out").read_bytes() == text


def test_a_resumed_run_has_the_same_files_by_content(random_model, tmp_path, inside, unfinished):
    contents = {"lexicon": "fox\trenard\n", "glossary": "red\trouge\n"}
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        (tmp_path / f"same.{name}").write_text(content)
    (tmp_path / "in.en").write_bytes(TEXT)
    fixed = ("-m", random_model, "--beam", 1, "--replace-unk", "-o", "out", "--save-alignments", "a.h5", "in.en")
    files = ("--lexicon", "lexicon", "--glossary", "glossary")
    (tmp_path / "lexicon.tsv").write_text("")  # no setting names it
    text = unfinished(*fixed, *files)
    assert json.loads((tmp_path / "out.partial.json").read_text())["files_sha256"].keys() == contents.keys()
    for name, content in contents.items():
        (tmp_path / name).write_text(f"sees\tvoit\n{content}")
        done = inside(*fixed, *files, "--resume")
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), (name, done.stderr)
        assert f"was begun with files_sha256.{name} = ".encode() in done.stderr
        (tmp_path / name).write_text(content)
    assert inside(*fixed, "--lexicon", "same.lexicon", "--glossary", "same.glossary", "--resume").returncode == 0
    assert (tmp_path / "out").read_bytes() == text
