"""`nmtalign score-pairs`: pairs and n-best lists, through real pipes."""

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers.command_line import command, run_nmtalign

from nmtalign.cli.app import main

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"}
SOURCE_WORDS = ["the", "fox", "sees", "a", "red", "boat", "."]
TARGET_WORDS = ["le", "renard", "voit", "un", "bateau", "rouge", "."]
SOURCE = "the fox sees a red boat .\n\nthe heron\nthe boat\n"
TARGET = "le renard voit un bateau rouge .\n\nun héron\n\n"


def disturb(model):
    for parameter in model.parameters():
        parameter.mul_(2).add_(torch.randn_like(parameter) * 0.3)
    model.readout.output_bias[0] -= 3  # words rather than none


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory, random_model_directory) -> tuple[Path, Path]:
    one, two = (
        random_model_directory(tmp_path_factory.mktemp("pairs"), SOURCE_WORDS, TARGET_WORDS, disturb, seed=seed)
        for seed in (3, 4)
    )
    return one, two


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    (tmp_path / "in.en").write_text(SOURCE)
    (tmp_path / "out.fr").write_text(TARGET)
    return tmp_path


Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def run(texts: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]) -> Run:
    """Runs `nmtalign COMMAND ...` in this process, which spares the start."""

    def run_inside(*arguments: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        monkeypatch.chdir(texts)
        monkeypatch.setattr(sys, "argv", ["nmtalign", *map(str, arguments)])
        capfdbinary.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = (stream.decode("utf-8") for stream in capfdbinary.readouterr())
        assert ended.value.code == code, err
        return subprocess.CompletedProcess([], code, out, err)

    return run_inside


def piped(folder: Path, *arguments: object, text: bytes = b"") -> "subprocess.CompletedProcess[bytes]":
    return run_nmtalign(*arguments, cwd=folder, stdin=text)


def test_a_number_a_line_through_pipes(texts: Path, models: tuple[Path, Path]) -> None:
    done = piped(texts, "score-pairs", "-m", models[0], "in.en", "-", text=TARGET.encode())
    assert done.returncode == 0, done.stderr
    numbers = [float(line) for line in done.stdout.decode().splitlines()]
    assert len(numbers) == 4
    assert numbers[1] == 0
    assert all(number < 0 for number in (numbers[0], *numbers[2:]))
    told = done.stderr.decode().splitlines()
    assert len(told) == 1
    # 7, 2 and no words, a `</s>` each.
    assert told[0].startswith(f"nmtalign: 4 pairs, 12 target tokens with </s>: log-probability {sum(numbers) / 12:.4f}")
    done = piped(texts, "score-pairs", "-m", models[0], "-", "out.fr", "--quiet", text=SOURCE.encode())
    assert [float(line) for line in done.stdout.splitlines()] == numbers
    assert done.stderr == b""


def test_a_parent_that_waits_for_each_score(texts: Path, models: tuple[Path, Path]) -> None:
    os.mkfifo(texts / "targets")
    targets = os.open(texts / "targets", os.O_RDWR)  # does not wait for the reader
    scoring = command("score-pairs", "-m", models[0], "-", "targets", "-q")
    with subprocess.Popen(
        scoring, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=texts, env=ENVIRONMENT
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for source, target in zip(SOURCE.splitlines(), TARGET.splitlines(), strict=True):
            process.stdin.write(f"{source}\n".encode())
            process.stdin.flush()
            os.write(targets, f"{target}\n".encode())
            assert float(process.stdout.readline()) <= 0  # it would wait here for ever
        process.stdin.close()
        os.close(targets)
        assert process.wait(timeout=60) == 0


def test_scores_words_and_json(run: Run, models: tuple[Path, Path]) -> None:
    arguments = ("score-pairs", "-m", models[0], "in.en", "out.fr", "--quiet")
    plain = [float(line) for line in run(*arguments).stdout.splitlines()]
    scores = [float(line) for line in run(*arguments, "--length-penalty", 0.5).stdout.splitlines()]
    assert scores == pytest.approx([plain[0] / 8**0.5, 0, plain[2] / 3**0.5, plain[3]], abs=1e-5)
    for place, line in enumerate(run(*arguments, "--word-scores").stdout.splitlines()):
        total, each, tokens = line.split("\t")
        assert float(total) == plain[place] == pytest.approx(sum(map(float, each.split())), abs=1e-5)
        assert tokens.split(" ") == [*TARGET.split("\n")[place].split(), "</s>"]
        assert len(each.split()) == len(tokens.split())
    found = [json.loads(line) for line in run(*arguments, "--format", "json").stdout.splitlines()]
    assert [one["log_prob"] for one in found] == plain
    assert found[0]["score"] == pytest.approx(plain[0] / 8, abs=1e-5)  # the score of `translate` with default settings
    assert [one["source"] for one in found] == SOURCE.splitlines()
    assert [one["target"] for one in found] == TARGET.splitlines()
    assert (found[2]["source_unknown"], found[2]["target_unknown"]) == (1, 1)


@pytest.mark.parametrize("options", [(), ("--length-penalty", 0.6, "--word-penalty", 0.2, "--coverage-penalty", 0.1)])
def test_a_translation_has_here_the_score_that_it_had_there(
    run: Run, texts: Path, models: tuple[Path, Path], options: tuple[object, ...]
) -> None:
    settings = (
        "-m",
        models[0],
        "-m",
        models[1],
        "--tokenized",
        "--format",
        "json",
        "--threads",
        1,
        "--quiet",
        *options,
    )
    translated = run("translate", *settings, "--beam", 4, "--n-best", 3, "in.en")
    found = [(json.loads(line), one) for line in translated.stdout.splitlines() for one in json.loads(line)["n_best"]]
    assert len(found) == 10
    (texts / "all.en").write_text("".join(line["source"] + "\n" for line, _ in found))
    (texts / "all.fr").write_text("".join(one["translation"] + "\n" for _, one in found))
    scored = [json.loads(line) for line in run("score-pairs", *settings, "all.en", "all.fr").stdout.splitlines()]
    for (_, beam), forced in zip(found, scored, strict=True):
        assert forced["tokens"] == beam["tokens"]
        assert forced["log_prob"] == pytest.approx(beam["log_prob"], abs=1e-5)
        assert forced["score"] == pytest.approx(beam["score"], abs=1e-5)


def test_a_list_of_translate_is_rescored_to_itself(run: Run, texts: Path, models: tuple[Path, Path]) -> None:
    settings = ("-m", models[0], "--tokenized", "--threads", 1, "--quiet")
    listed = run("translate", *settings, "--beam", 4, "--n-best", 3, "--word-scores", "--alignment", "hard", "in.en")
    (texts / "list").write_text(listed.stdout)
    again = run("score-pairs", *settings, "--n-best-list", "list", "-s", "in.en", "--word-scores", "--rescore")
    assert len(listed.stdout.splitlines()) == 10
    for before, after in zip(listed.stdout.splitlines(), again.stdout.splitlines(), strict=True):
        old, new = before.split(" ||| "), after.split(" ||| ")
        assert (old[:2], old[4:]) == (new[:2], new[4:])
        assert float(old[3]) == pytest.approx(float(new[3]), abs=1e-5)
        values = [[float(value) for value in fields[2].split() if value[-1] != "="] for fields in (old, new)]
        # LogProb, Length and WordScores of the one; those, and nmtalign before WordScores, of the other.
        assert values[1][2] == pytest.approx(values[0][0], abs=1e-5)
        assert values[1][3:] == pytest.approx(values[0][2:], abs=1e-5)


def test_lists_are_written_back_with_a_feature(run: Run, texts: Path, models: tuple[Path, Path]) -> None:
    lines = [
        "0 ||| un bateau ||| lm= -3 ||| -0.5 ||| 0-0",
        "0 ||| le renard voit un bateau rouge . ||| lm= -9 ||| -0.7",
        "2 ||| un | | | héron",
        "3 |||  ||| lm= 0 ||| 0",
    ]
    (texts / "list").write_text("".join(line + "\n" for line in lines))
    arguments = ("score-pairs", "-m", models[0], "--n-best-list", "list", "-s", "in.en", "--quiet")
    found = run(*arguments).stdout.splitlines()
    (texts / "one.en").write_text("the fox sees a red boat .\n" * 2)
    (texts / "one.fr").write_text("un bateau\nle renard voit un bateau rouge .\n")
    first, second = (float(n) for n in run("score-pairs", "-m", models[0], "one.en", "one.fr").stdout.splitlines())
    parts = [line.replace(" ||| ", " nmtalign= ", 3).split(" nmtalign= ") for line in found]
    assert parts[0][:3] == ["0", "un bateau", "lm= -3"]
    assert parts[0][4:] == ["-0.5 ||| 0-0"]
    assert parts[1][1:3] == ["le renard voit un bateau rouge .", "lm= -9"]
    assert parts[1][4:] == ["-0.7"]
    assert [float(part[3]) for part in parts[:2]] == pytest.approx([first, second], abs=1e-5)
    assert found[2].startswith("2 ||| un | | | héron ||| nmtalign= -")
    assert found[3].startswith("3 |||  ||| lm= 0 nmtalign= -")
    best = run(*arguments, "--rescore", "--length-penalty", 0, "--feature", "nmt").stdout.splitlines()
    assert [line.split(" ||| ")[0] for line in best] == ["0", "0", "2", "3"]
    totals = [float(line.split(" ||| ")[3]) for line in best]
    assert totals[:2] == pytest.approx(sorted((first, second), reverse=True), abs=1e-5)
    assert all(f" nmt= {total:.6f}" in line for total, line in zip(totals, best, strict=True))
    done = run(*arguments, "-o", "new.gz")
    assert done.stdout == ""
    assert gzip.decompress((texts / "new.gz").read_bytes()).decode().splitlines() == found


def test_without_arguments_it_aligns_the_test_set_of_the_workspace(
    run: Run, texts: Path, models: tuple[Path, Path]
) -> None:
    (texts / "nmtalign.toml").write_text(
        f'model = "{models[0]}"\n[corpus]\ntest = ["in.en", "out.fr"]\n'
        "[translate]\nlength_penalty = 0.0\nformat = 'json'\nreplace_unk = true\ntokenized = true\n"
    )
    bare = run("score-pairs").stdout
    assert len([float(line) for line in bare.splitlines()]) == 4
    found = [json.loads(line) for line in run("score-pairs", "--format", "json").stdout.splitlines()]
    assert all(one["score"] == one["log_prob"] for one in found)
    (texts / "list").write_text("0 ||| un bateau\n")
    assert run("score-pairs", "--n-best-list", "list", "-q").stdout.startswith("0 ||| un bateau ||| nmtalign= -")


def test_odd_lines_stay_lines(run: Run, texts: Path, models: tuple[Path, Path]) -> None:
    (texts / "odd.en").write_bytes("the fox\r\na\rboat\nred\u2028boat \x00\n".encode() + b"fox " * 300 + b"\nlast")
    (texts / "odd.fr").write_bytes("le\nun\u0085bateau\nrouge\nrenard\nfin".encode())
    done = run("score-pairs", "-m", models[0], "odd.en", "odd.fr", "--batch-size", 20)
    assert len(done.stdout.splitlines()) == 5
    (texts / "none").write_text("")
    done = run("score-pairs", "-m", models[0], "none", "none")
    assert done.stdout == ""
    assert "0 pairs" in done.stderr


MISTAKES = [
    (("in.en", "short.fr"), 3, "short.fr: has no line 2, but in.en has 4 lines"),
    (("short.fr", "in.en"), 3, "short.fr: has no line 2, but in.en has 4 lines"),
    (("in.en", "bad.fr"), 3, "bad.fr: line 3: not UTF-8"),
    (("in.en", "missing.fr"), 3, "missing.fr: cannot read"),
    (("in.en",), 2, "SOURCE TARGET"),
    ((), 2, "no pairs to score"),
    (("-", "-"), 2, "only one of the two texts can be stdin"),
    (("in.en", "out.fr", "-m", "missing"), 4, "missing: no nmtalign model here"),
    (("in.en", "out.fr", "-m", "other/model"), 2, "its target vocabulary is not that of"),
    (("in.en", "out.fr", "-o", "in.en/a"), 5, "in.en: cannot make the folder"),
    (("in.en", "out.fr", "--length-penalty", "-1"), 2, "--length-penalty -1: must be at least 0"),
    (("in.en", "out.fr", "--rescore"), 2, "--rescore and --feature are for n-best lists"),
    (("in.en", "out.fr", "-s", "in.en"), 2, "-s is for n-best lists"),
    (("--n-best-list", "list"), 2, "give -s SOURCE"),
    (("--n-best-list", "list", "in.en"), 2, "--n-best-list goes with -s SOURCE"),
    (("--n-best-list", "list", "-s", "in.en", "--format", "json"), 2, "leave out --format json"),
    (("--n-best-list", "list", "-s", "in.en", "--feature", "a b"), 2, "'a b' cannot name a feature"),
    (("--n-best-list", "out.fr", "-s", "in.en"), 3, "out.fr: line 1: not a line of an n-best list"),
    (("--n-best-list", "far", "-s", "in.en"), 3, "far: line 2: id 4 needs line 5 of in.en, which has 4 lines"),
    (("--n-best-list", "falls", "-s", "in.en"), 3, "falls: line 2: id 0 comes after id 1"),
    (("--n-best-list", "list", "-s", "bad.fr"), 3, "bad.fr: line 3: not UTF-8"),
]


def test_mistakes_are_one_line_and_leave_no_file(
    run: Run, texts: Path, models: tuple[Path, Path], random_model_directory
) -> None:
    (texts / "short.fr").write_text("le\n")
    (texts / "bad.fr").write_bytes(b"le\n\n\xff\n\n")
    (texts / "list").write_text("0 ||| un ||| a= 1 ||| 2\n2 ||| un ||| a= 1 ||| 2\n")
    (texts / "far").write_text("0 ||| un\n4 ||| un\n")
    (texts / "falls").write_text("1 ||| un\n0 ||| un\n")
    random_model_directory(texts / "other", SOURCE_WORDS, [*TARGET_WORDS, "chat"], disturb)
    before = sorted(path.name for path in texts.iterdir())
    for arguments, code, message in MISTAKES:
        output = () if "-o" in arguments else ("-o", "out")
        done = run("score-pairs", "-m", models[0], *output, *arguments, code=code)
        assert message in done.stderr
        assert (done.stdout, done.stderr.count("\n")) == ("", 1)
        assert sorted(path.name for path in texts.iterdir()) == before


def test_a_reader_that_goes_away_ends_it_quietly(texts: Path, models: tuple[Path, Path]) -> None:
    (texts / "many.en").write_text("the fox\n" * 20000)
    (texts / "many.fr").write_text("le renard\n" * 20000)
    command = (
        f"{sys.executable} -m nmtalign score-pairs -m {models[0]} many.en many.fr | head -n 1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(
        ["bash", "-c", command], stdin=subprocess.DEVNULL, capture_output=True, cwd=texts, env=ENVIRONMENT, timeout=120
    )
    assert done.stdout.splitlines()[1:] == [b"0"]
    assert done.stderr == b""


def test_an_output_does_not_replace_a_text(run: Run, models: tuple[Path, Path], texts: Path) -> None:
    done = run("score-pairs", "in.en", "out.fr", "-m", models[0], "-o", "out.fr", code=2)
    assert "out.fr: is also an input; give the output another name" in done.stderr
    assert (texts / "out.fr").read_text() == TARGET
