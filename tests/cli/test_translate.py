"""`nmtalign translate` through real pipes: one line out for each line in, whatever comes in."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from nmtalign.alignment.store import AlignmentFile
from nmtalign.cli.app import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
SOURCE_WORDS = ["the", "fox", "sees", "a", "red", "boat", "."]
TARGET_WORDS = ["le", "renard", "voit", "un", "bateau", "rouge", "."]


def disturb(model):
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 6  # words rather than none


def make_unknown_likely(model):
    """It says <unk> more often than not."""
    disturb(model)
    model.readout.output_bias[1] += 9


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory, random_model_directory) -> Path:
    return random_model_directory(tmp_path_factory.mktemp("random"), SOURCE_WORDS, TARGET_WORDS, disturb)


@pytest.fixture(scope="session")
def doubtful(tmp_path_factory: pytest.TempPathFactory, random_model_directory) -> Path:
    folder = tmp_path_factory.mktemp("doubtful")
    return random_model_directory(folder, SOURCE_WORDS, TARGET_WORDS, make_unknown_likely)


def command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "nmtalign", "translate", "--threads", "1", *map(str, arguments)]


def run(folder: Path, *arguments: object, text: bytes = b"", **more: object) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        command(*arguments), input=text, capture_output=True, cwd=folder, env=ENVIRONMENT, timeout=120, **more
    )


Inside = Callable[..., "subprocess.CompletedProcess[bytes]"]


@pytest.fixture
def inside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Inside:
    """As `run`, but in this process, which spares the start; the text comes from a file."""

    def run_inside(*arguments: object, text: bytes | None = None) -> "subprocess.CompletedProcess[bytes]":
        monkeypatch.chdir(tmp_path)
        (tmp_path / "text").write_bytes(text or b"")
        inputs = [] if text is None else ["text"]
        monkeypatch.setattr(sys, "argv", ["nmtalign", "translate", "--threads", "1", *map(str, arguments), *inputs])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        (tmp_path / "text").unlink()
        out, err = capfdbinary.readouterr()
        return subprocess.CompletedProcess([], int(ended.value.code or 0), out, err)

    return run_inside


def lines_of(done: subprocess.CompletedProcess[bytes]) -> list[str]:
    assert done.returncode == 0, done.stderr.decode()
    text = done.stdout.decode("utf-8")
    assert text.endswith("\n") or not text
    assert "\r" not in text
    return text.split("\n")[:-1]


def test_one_line_out_for_each_line_in(model: Path, tmp_path: Path) -> None:
    lines = [
        b"the fox sees a red boat .",
        b"",
        b" \t ",
        b"the fox\r",  # CR LF
        b"the fox\rsees \xe2\x80\xa8 a boat",  # a carriage return and U+2028 inside
        b"\xc2\x85 a\x00b \x0b\x0c",  # next line, NUL, vertical tab, form feed
        b"the \xff\xfe fox",
        "</s> <unk> ||| 猫 e\u0301 \ufeff 🦊".encode(),
        b"the fox sees " * 60,
        b"a boat",  # no newline at the end
    ]
    done = run(tmp_path, "-m", model, "--beam", 3, "--max-source-length", 50, text=b"\n".join(lines))
    out = lines_of(done)
    assert len(out) == len(lines)
    assert [out[1], out[2]] == ["", ""]
    assert all(out[i] for i in (0, 3, 4, 5, 6, 7, 8, 9))
    told = done.stderr.decode().splitlines()
    assert told[0] == "nmtalign: standard input: line 7: not UTF-8; the bytes that are not became U+FFFD"
    assert told[1].startswith("nmtalign: standard input: line 9: 180 tokens, more than max_source_length = 50:")
    assert told[2].startswith("nmtalign: 10 lines, ")
    assert "% of the source words are unknown" in told[2]
    assert len(told) == 3


def test_what_a_line_gives_does_not_depend_on_the_others(model: Path, tmp_path: Path, inside: Inside) -> None:
    lines = ["the fox sees a boat .", "a red boat", "", "sees", "the the the fox .", "a red boat"] * 9
    text = "\n".join(lines).encode()
    together = lines_of(inside("-m", model, "--quiet", "--beam", 4, text=text))
    alone = lines_of(inside("-m", model, "--quiet", "--beam", 4, "--batch-size", 1, text=text + b"\n"))
    assert len(together) == len(lines)
    assert together == alone


def test_empty_input_and_no_input(model: Path, tmp_path: Path) -> None:
    done = run(tmp_path, "-m", model)
    assert lines_of(done) == []
    assert b"nmtalign: 0 lines" in done.stderr
    done = run(tmp_path, "-m", model, "missing.en")
    assert (done.returncode, done.stdout) == (3, b"")
    assert b"nmtalign: error: missing.en: cannot read: No such file" in done.stderr


def test_twenty_thousand_words_in_a_line(model: Path, tmp_path: Path) -> None:
    line = b"the fox sees a red boat . " * 2900
    done = run(
        tmp_path,
        "-m",
        model,
        "--beam",
        1,
        "--max-source-length",
        70,
        "--max-length-ratio",
        0.5,
        text=b"a\n" + line + b"\na\n",
    )
    out = lines_of(done)
    assert len(out) == 3
    assert len(out[1].split()) > 300
    assert b"line 2: 20300 tokens" in done.stderr
    assert b"in 290 pieces" in done.stderr


def test_a_parent_that_waits_for_each_answer(model: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        command("-m", model, "--beam", 2),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        for line in (b"the fox\n", b"\n", b"a boat\n\n", b"\xff\n"):
            process.stdin.write(line)
            process.stdin.flush()
            for _ in range(line.count(b"\n")):
                assert process.stdout.readline().endswith(b"\n")  # it would wait here for ever
        process.stdin.write(b"the end")
        process.stdin.close()
        assert process.stdout.read().count(b"\n") == 1
        process.stderr.read()
        assert process.wait(timeout=60) == 0


def test_a_reader_that_goes_away_ends_it_quietly(model: Path, tmp_path: Path) -> None:
    with subprocess.Popen(
        command("-m", model, "--beam", 1, "--batch-size", 1),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
        env=ENVIRONMENT,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"the fox\n" * 10)
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        # stdin stays open: the thread that reads it must not keep the program from ending.
        process.stdin.write(b"the fox\n" * 2000)
        process.stdin.flush()
        assert process.wait(timeout=60) == 0
        assert process.stderr.read() == b""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_disk_is_told_in_one_line(model: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            command("-m", model), input=b"a\n" * 9, stdout=full, stderr=subprocess.PIPE, cwd=tmp_path, env=ENVIRONMENT
        )
    assert done.returncode == 5
    assert done.stderr == b"nmtalign: error: standard output: cannot write: no space left on the disk\n"


def test_files_in_and_file_out(model: Path, tmp_path: Path, inside: Inside) -> None:
    (tmp_path / "one.en").write_bytes(b"\xef\xbb\xbfthe fox\na boat")
    (tmp_path / "two.en").write_bytes(b"\xff\n\n")
    (tmp_path / "more.en").write_bytes(b"red\n")
    done = inside("-m", model, "one.en", "more.en", "two.en", "-o", "out/all.fr", "--quiet")
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr == b"nmtalign: two.en: line 1: not UTF-8; the bytes that are not became U+FFFD\n"
    out = (tmp_path / "out" / "all.fr").read_text(encoding="utf-8").split("\n")
    assert len(out) == 6
    assert (out[4], out[5]) == ("", "")
    first = lines_of(inside("-m", model, text=b"the fox\n"))
    assert out[0] == first[0]


def test_nothing_is_left_where_it_cannot_end(model: Path, tmp_path: Path, inside: Inside) -> None:
    (tmp_path / "out.fr").write_text("old\n")
    (tmp_path / "one.en").write_text("the fox\n")
    (tmp_path / "cut.gz").write_bytes(gzip.compress(bytes(range(256)) * 99)[:-30])
    done = inside("-m", model, "-o", "out.fr", "--alignments", "soft.h5", "one.en", "cut.gz")
    assert done.returncode == 3
    assert b"cut.gz: cannot read on" in done.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cut.gz", "one.en", "out.fr"]
    assert (tmp_path / "out.fr").read_text() == "old\n"


def test_bare_in_a_workspace(model: Path, tmp_path: Path, inside: Inside) -> None:
    (tmp_path / "nmtalign.toml").write_text(f'model = "{model}"\n[translate]\nbeam = 2\nn_best = 2\n')
    assert len(lines_of(inside(text=b"the fox\n"))) == 2
    assert len(lines_of(inside("--n-best", 1, text=b"the fox\n"))) == 1
    done = inside("--n-best", 3, text=b"the fox\n")
    assert done.returncode == 2
    assert b"n_best = 3: must be from 1 to the beam, which is 2" in done.stderr


def test_n_best_lists(model: Path, tmp_path: Path, inside: Inside) -> None:
    text = b"the fox\n\na ||| boat\n"
    out = lines_of(inside("-m", model, "--beam", 4, "--n-best", 3, text=text))
    fields = [line.split(" ||| ") for line in out]
    assert [field[0] for field in fields] == ["0", "0", "0", "1", "2", "2", "2"]
    assert fields[3] == ["1", "", "LogProb= 0.000000 Length= 1", "0.000000"]
    for _, _, features, score in fields:
        _, log_prob, _, length = features.split()
        assert float(score) == pytest.approx(float(log_prob) / int(length), abs=1e-5)
    done = inside("-m", model, "--beam", 4, "--n-best", 3, "--format", "json", text=text)
    objects = [json.loads(line) for line in lines_of(done)]
    assert [found["id"] for found in objects] == [0, 1, 2]
    assert [found["source"] for found in objects] == ["the fox", "", "a ||| boat"]
    assert [entry["translation"] for found in objects for entry in found["n_best"]] == [field[1] for field in fields]
    assert set(objects[0]) == {"id", "source", "translation", "score", "log_prob", "tokens", "n_best"}
    assert objects[0]["n_best"][0]["score"] == objects[0]["score"] == pytest.approx(float(fields[0][3]))


def test_unknown_words(doubtful: Path, tmp_path: Path, inside: Inside) -> None:
    (tmp_path / "lexicon").write_text("hedgehog hérisson 0.7\nhedgehog porc 0.2\n")
    text = b"hedgehog\n"
    assert "<unk>" not in lines_of(inside("-m", doubtful, text=text))[0]
    assert "<unk>" in lines_of(inside("-m", doubtful, "--allow-unk", text=text))[0]
    assert "hedgehog" in lines_of(inside("-m", doubtful, "--replace-unk", text=text))[0]
    replaced = lines_of(inside("-m", doubtful, "--replace-unk", "--lexicon", "lexicon", text=text))[0]
    assert "hérisson" in replaced
    assert "<unk>" not in replaced
    done = inside("-m", doubtful, "--lexicon", "lexicon", text=text)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"--lexicon is for --replace-unk" in done.stderr


def test_alignments(model: Path, tmp_path: Path, inside: Inside) -> None:
    text = b"the fox sees\n\n" + b"a red boat .\n" * 2 + b"the fox " * 9
    arguments = ("-m", model, "--beam", 3, "--max-source-length", 8, "--alignments", "soft.h5")
    out = lines_of(inside(*arguments, "--format", "json", text=text))
    found = [json.loads(line) for line in out]
    with AlignmentFile(tmp_path / "soft.h5") as file:
        assert len(file) == len(found) == 5
        assert file.attributes["direction"] == "en-fr"
        for number, record in enumerate(file):
            assert record.sentence_id == number
            assert list(record.target) == found[number]["tokens"]
            assert " ".join(record.source) == found[number]["source"].strip()
            if number != 1:
                assert record.weights.sum(1) == pytest.approx(1, abs=2e-3)
                assert record.log_prob == pytest.approx(found[number]["log_prob"], abs=1e-5)
        assert len(file[4].source) == 18


def test_without_attention(tmp_path: Path, inside: Inside, random_model_directory) -> None:
    folder = random_model_directory(tmp_path, SOURCE_WORDS, TARGET_WORDS, disturb, "none")
    assert len(lines_of(inside("-m", folder, "--beam", 2, text=b"the fox\n\n"))) == 2
    for option in (("--replace-unk",), ("--alignments", "soft.h5")):
        done = inside("-m", folder, *option, text=b"the fox\n")
        assert (done.returncode, done.stdout) == (2, b"")
        assert b"this model has no attention" in done.stderr
    assert not (tmp_path / "soft.h5").exists()


def test_tokenized_text_passes_through(model: Path, tmp_path: Path, inside: Inside) -> None:
    found = lines_of(inside("-m", model, "--format", "json", text=b"the fox .\n"))
    tokens = json.loads(found[0])["tokens"]
    assert lines_of(inside("-m", model, "--tokenized", text=b"the fox .\n")) == [" ".join(tokens)]


def test_a_missing_or_foreign_model(model: Path, tmp_path: Path) -> None:
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign" / "config.json").write_text('{"model_type": "marian"}')
    for folder, message in (("nowhere", "no nmtalign model here"), ("foreign", "not a model of nmtalign")):
        done = run(tmp_path, "-m", folder, text=b"the fox\n")
        assert (done.returncode, done.stdout) == (4, b"")
        assert message in done.stderr.decode()
        assert done.stderr.count(b"\n") == 1
    done = run(tmp_path, "-m", model, "--which", "worst")
    assert done.returncode == 2
    assert b"'worst' is not one of 'best', 'last'" in done.stderr


def test_output_is_utf8_in_any_locale(doubtful: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        command("-m", doubtful, "--replace-unk"),
        input="hérisson\n".encode(),
        capture_output=True,
        cwd=tmp_path,
        env={**ENVIRONMENT, "LC_ALL": "C", "PYTHONIOENCODING": "ascii"},
        timeout=120,
    )
    assert "hérisson" in lines_of(done)[0]
