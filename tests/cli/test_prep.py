import functools
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmtalign.data.corpus import Corpus


def write_pairs(folder: Path, name: str, count: int = 30) -> list[str]:
    (folder / f"{name}.en").write_text("".join(f"the house number {i} is red.\n" for i in range(count)))
    (folder / f"{name}.fr").write_text("".join(f"la maison numéro {i} est rouge.\n" for i in range(count)), "utf-8")
    return [f"{name}.en", f"{name}.fr"]


def nmtalign(folder: Path, *arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(  # type: ignore[call-overload, no-any-return]
        [sys.executable, "-m", "nmtalign", *arguments], cwd=folder, capture_output=True, text=True, **options
    )


def one_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    return done.stderr


def test_from_flags_alone(tmp_path: Path) -> None:
    texts, dev = write_pairs(tmp_path, "train"), write_pairs(tmp_path, "dev", 5)
    done = nmtalign(tmp_path, "prep", *texts, "--dev", *dev, "--test", *dev, "--shortlist", "10:8", "-o", "my data")
    assert done.returncode == 0, done.stderr
    assert "vocabularies: 10 source and 8 target ids" in done.stdout
    rows = {tuple(line.split()[:2]): line.split() for line in done.stdout.splitlines()}
    assert rows["train", "30"] == ["train", "30", "30", "0", "0", "0"]
    assert rows["train", "source"][2:5] == ["en", "210", "36"]
    assert rows["test", "target"][2] == "fr"
    assert done.stderr == "nmtalign: the corpus is in my data; next: nmtalign train my data\n"
    assert sorted(Corpus.open(tmp_path / "my data").splits) == ["dev", "test", "train"]


def test_bare_in_a_workspace_and_flags_over_it(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train")
    write_pairs(tmp_path, "dev", 5)
    (tmp_path / "nmtalign.toml").write_text(
        'source_language = "en"\ntarget_language = "fr"\ndata = "prepared"\n'
        '[corpus]\ntrain = ["train.en", "train.fr"]\ndev = ["dev.en", "dev.fr"]\n[prep]\nshortlist = 12\n'
    )
    done = nmtalign(tmp_path, "prep")
    assert done.returncode == 0, done.stderr
    assert done.stderr.endswith("next: nmtalign train\n")
    assert len(Corpus.open(tmp_path / "prepared").source_vocabulary) == 12
    done = nmtalign(tmp_path, "prep", "--shortlist", "9", "--quiet", "--force")
    assert (done.returncode, done.stderr) == (0, "")
    corpus = Corpus.open(tmp_path / "prepared")
    assert (len(corpus.source_vocabulary), sorted(corpus.splits)) == (9, ["dev", "train"])


def test_json_and_standard_input(tmp_path: Path) -> None:
    texts = write_pairs(tmp_path, "train")
    with (tmp_path / texts[0]).open("rb") as stream:
        done = nmtalign(
            tmp_path, "prep", "-", texts[1], "--source-language", "en", "--format", "json", "-o", "d", stdin=stream
        )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary["splits"]["train"]["kept"] == 30
    assert summary["splits"]["train"]["source"]["unknown_rate"] == 0
    assert (summary["source_language"], summary["target_language"]) == ("en", "fr")


def test_a_language_without_rules_is_said_once(tmp_path: Path) -> None:
    write_pairs(tmp_path, "train")
    (tmp_path / "train.fr").rename(tmp_path / "train.tgt")
    done = nmtalign(tmp_path, "prep", "train.en", "train.tgt", "-o", "d")
    assert done.returncode == 0
    assert done.stderr.count("no Moses rules for language 'tgt': those for English are used") == 1
    done = nmtalign(tmp_path, "prep", "train.en", "train.tgt", "-o", "d", "--vocabulary", "none")
    assert "Moses" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ([], 2, "no training text: there is no nmtalign.toml here; give nmtalign prep TRAIN_SRC TRAIN_TGT"),
        (["train.en"], 2, "train.en: give its translation too"),
        (["train.en", "train.fr", "--shortlist", "2"], 2, "--shortlist 2: give N or N:M"),
        (["train.en", "train.fr", "--dev", "train.en"], 2, "argument"),
        (["train.en", "train.fr", "--vocabulary", "wordpiece"], 2, "wordpiece"),
        (
            ["train.en", "train.fr", "--vocabulary", "bpe"],
            2,
            "size = 8000 (the default): too large for train.en: its text gives at most 1",
        ),
        (["-", "-"], 2, "standard input (-) can be only one of the texts"),
        (["train.en", "none.fr"], 3, "none.fr: cannot read: No such file or directory"),
        (["train.en", "short.fr"], 3, "short.fr: has no line 4, but train.en has 30 lines"),
        (["short.fr", "train.en"], 3, "short.fr: has no line 4, but train.en has 30 lines"),
        (["train.en", "bad.fr"], 3, "bad.fr: line 2: not UTF-8 (byte 0xe9 at column 3); convert the file to UTF-8"),
        (["empty.en", "empty.en"], 3, "empty.en and empty.en: no lines"),
        (["train.en", "train.fr", "-o", "train.en"], 5, "train.en: cannot make the folder: a file is in the way"),
    ],
)
def test_mistakes_are_one_line_and_a_code(tmp_path: Path, arguments: list[str], code: int, message: str) -> None:
    write_pairs(tmp_path, "train")
    (tmp_path / "short.fr").write_text("x\ny\nz\n")
    (tmp_path / "bad.fr").write_bytes(b"x\nl'\xe9t\xe9\n")
    (tmp_path / "empty.en").write_bytes(b"")
    before = sorted(path.name for path in tmp_path.iterdir())
    done = nmtalign(tmp_path, "prep", *arguments, "--source-language", "en", "--target-language", "fr")
    assert done.returncode == code
    lines = done.stderr.splitlines()
    assert lines[-1].startswith("nmtalign: error: ")
    assert message in lines[-1]
    assert all(line.startswith("nmtalign: warning: ") for line in lines[:-1])
    assert done.stdout == ""
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_disk_that_is_full(tmp_path: Path) -> None:
    texts = write_pairs(tmp_path, "train", 3000)
    done = nmtalign(
        tmp_path, "prep", *texts, "-o", "d",
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)),
    )  # fmt: skip
    assert done.returncode == 5
    assert "cannot write: " in one_line(done)
    assert not (tmp_path / "d").exists()


def test_an_interrupted_run_leaves_the_corpus_that_was_there(tmp_path: Path) -> None:
    texts = write_pairs(tmp_path, "train")
    assert nmtalign(tmp_path, "prep", *texts, "-o", "d").returncode == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()}
    os.mkfifo(tmp_path / "slow.fr")
    for number in (signal.SIGTERM, signal.SIGINT):
        command = [sys.executable, "-m", "nmtalign", "prep", texts[0], "slow.fr", "-o", "d"]
        # A shell that runs the tests in the background lets its children ignore Ctrl-C.
        heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, preexec_fn=heed)
        with (tmp_path / "slow.fr").open("wb") as stream:  # waits for the reader
            stream.write(b"x\n")
            stream.flush()
            deadline = time.monotonic() + 30
            while not list((tmp_path / "d").glob(".prep-*/train.*")) and time.monotonic() < deadline:
                time.sleep(0.02)
            process.send_signal(number)
            error = process.communicate(timeout=60)[1]
        assert process.returncode == 128 + number
        assert "Traceback" not in error
        assert {path.name: path.read_bytes() for path in (tmp_path / "d").iterdir()} == before
