"""`nmtalign translate --save-alignments`: n-best lists, and a file that is gone on with in step with the text."""

import json
import math
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from nmtalign.alignment import alignment_file
from nmtalign.alignment.alignment_file import AlignmentFile
from nmtalign.translating.file_translation import SavedAlignments

Inside = Callable[..., "subprocess.CompletedProcess[bytes]"]
Start = Callable[..., "subprocess.Popen[bytes]"]
TEXT = b"the fox sees\n\na red boat .\n" + b"the fox " * 9 + b"\nhedgehog\n"


def test_every_entry_of_the_n_best_lists(random_model: Path, tmp_path: Path, inside: Inside) -> None:
    arguments = (
        "-m",
        random_model,
        "--tokenized",
        "--beam",
        4,
        "--n-best",
        3,
        "--max-source-length",
        8,
        "--format",
        "json",
    )
    done = inside(
        *arguments, "--save-alignments", "a.h5", "--save-alignments-of", "n-best", "--weights", "float32", text=TEXT
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    with AlignmentFile(tmp_path / "a.h5") as file:
        assert (file.dtype, file.attributes["made_by"], file.sentence_count()) == ("float32", "beam search", 5)
        options = json.loads(file.attributes["options"])
        assert (options["n_best"], options["alignments_of"]) == (3, "n-best")
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


def test_samples(random_model: Path, tmp_path: Path, inside: Inside) -> None:
    done = inside("-m", random_model, "--tokenized", "--sample", "--seed", 5, "--save-alignments", "a.h5", text=TEXT)
    with AlignmentFile(tmp_path / "a.h5") as file:
        assert [" ".join(record.target) for record in file] == done.stdout.decode().splitlines()
        assert (file.attributes["made_by"], file.attributes["seed"]) == ("sampling", 5)


def test_both_go_on_after_the_same_line(
    random_model: Path, tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alignment_file, "COMMIT", 1)
    (tmp_path / "in.en").write_bytes(TEXT * 12)
    more = ("--n-best", 2, "--save-alignments-of", "n-best", "--beam", 3, "--batch-size", 8)
    arguments = ("-m", random_model, *more, "-o", "out", "--save-alignments", "a.h5", "in.en")
    assert inside(*arguments).returncode == 0
    text, soft = (tmp_path / "out").read_bytes(), (tmp_path / "a.h5").read_bytes()
    done = inside(*arguments, "--resume")
    assert done.stderr == b"nmtalign: out: already done: it contains the translations of all 60 lines\n"
    (tmp_path / "link.h5").symlink_to("a.h5")
    assert SavedAlignments(tmp_path / "link.h5").has_all(60)
    (tmp_path / "a.h5.partial").touch()  # an interrupted run leaves it beside the file, not beside the link
    assert not SavedAlignments(tmp_path / "link.h5").has_all(60)
    for name in ("link.h5", "a.h5.partial", "a.h5", "out"):
        (tmp_path / name).unlink()
    cut = text[: len(text) // 2]
    (tmp_path / "out.partial").write_bytes(cut)  # only text: its work is done again
    done = inside(*arguments, "--resume")
    assert b"lines, and there are alignments of 0: both continue after line 0" in done.stderr
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "a.h5").read_bytes()) == (text, soft)
    (tmp_path / "out").rename(tmp_path / "out.partial")
    (tmp_path / "out.partial").write_bytes(cut)  # alignments are ahead
    done = inside(*arguments, "--resume")
    assert b"both continue" not in done.stderr
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "a.h5").read_bytes()) == (text, soft)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "in.en", "out"]


def test_a_resumed_run_has_the_same_files_by_content_and_any_batch_size(
    random_model: Path, tmp_path: Path, inside: Inside
) -> None:
    contents = {
        "lexicon": "fox\trenard\n",
        "glossary": "red\trouge\n",
        "phrases": "\n" * 60,
        "in.en": TEXT.decode() * 12,
    }
    for name, content in contents.items():
        (tmp_path / name).write_text(content)
        (tmp_path / f"same.{name}").write_text(content)
    files = {"--lexicon": "lexicon", "--glossary": "glossary", "--phrase-file": "phrases"}

    def run(*more: object, **other: str) -> "subprocess.CompletedProcess[bytes]":
        named = [part for option, name in files.items() for part in (option, other.get(name, name))]
        fixed = ("-m", random_model, "--beam", 1, "--replace-unk", "-o", "out", "--save-alignments", "a.h5")
        return inside(*fixed, *named, *more, "in.en")

    assert run("--batch-size", 8).returncode == 0
    text = (tmp_path / "out").read_bytes()
    for more, other in (
        (("--batch-size", 64), {}),
        ((), {name: f"same.{name}" for name in ("lexicon", "glossary", "phrases")}),
    ):
        (tmp_path / "out").unlink()
        (tmp_path / "out.partial").write_bytes(text[: len(text) // 2])
        done = run("--resume", *more, **other)
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "out").read_bytes() == text
    for name, key in (("lexicon", "lexicon"), ("glossary", "glossary"), ("phrases", "phrase_file")):
        (tmp_path / "out.partial").write_bytes(text[: len(text) // 2])
        (tmp_path / name).write_text("sees\tvoit\n" + contents[name].removesuffix("\n"))
        done = run("--resume")
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), (name, done.stderr)
        assert f"was begun with files_sha256.{key} = ".encode() in done.stderr
        (tmp_path / name).write_text(contents[name])


def test_killed_and_resumed(random_model: Path, tmp_path: Path, inside: Inside, process: Start) -> None:
    (tmp_path / "in.en").write_bytes(TEXT * 150)
    # One thread in every process: several may change the last digit of a score.
    settings = ("--tokenized", "--beam", 2, "--threads", 1)
    arguments = ("-m", random_model, *settings, "-o", "out", "--save-alignments", "a.h5", "in.en")
    partial = tmp_path / "a.h5.partial"
    with process(*arguments) as run:
        for _ in range(60000):
            if (partial.exists() and partial.stat().st_size > 3000) or run.poll() is not None:
                break
            time.sleep(0.01)
        run.kill()
        run.communicate()
    whole = {name: (tmp_path / name).read_bytes() for name in ("out", "a.h5") if (tmp_path / name).exists()}
    assert inside(*arguments, "--resume").returncode == 0
    text, soft = (tmp_path / "out").read_bytes(), (tmp_path / "a.h5").read_bytes()
    assert whole.items() <= {"out": text, "a.h5": soft}.items()  # no file appears before it is complete
    assert inside(*arguments).returncode == 0
    assert ((tmp_path / "out").read_bytes(), (tmp_path / "a.h5").read_bytes()) == (text, soft)
    with AlignmentFile(tmp_path / "a.h5") as file:
        assert [" ".join(record.target) for record in file] == text.decode().splitlines()


def test_what_does_not_fit_is_one_line(
    random_model: Path, tmp_path: Path, inside: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = ("-m", random_model, "--beam", 2, "-o", "out")
    (tmp_path / "in.en").write_bytes(TEXT)
    assert inside(*base, "--save-alignments", "a.h5", "in.en").returncode == 0
    before = (tmp_path / "a.h5").read_bytes()
    for arguments, code, message in (
        (("--save-alignments-of", "n-best", "in.en"), 2, "give --save-alignments FILE.h5 too"),
        (("--save-alignments", "in.en", "in.en"), 2, "in.en: is also an input"),
        (("--save-alignments", ".", "in.en"), 2, "is not a file that can be replaced"),
        (("--save-alignments", "in.en/a.h5", "in.en"), 5, "in.en: cannot make the folder"),
        (("--save-alignments", "a.h5", "--resume", "--beam", "1", "in.en", "in.en"), 2, "a.h5: was begun with"),
    ):
        done = inside(*base, *arguments)
        assert (done.returncode, done.stdout, done.stderr.count(b"\n")) == (code, b"", 1), done.stderr
        assert message in done.stderr.decode()
        assert (tmp_path / "a.h5").read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.h5", "in.en", "out"]
