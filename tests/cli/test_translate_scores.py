"""`nmtalign translate --target` and `--n-best-list`: scores of given translations."""

import gzip
import json
import math

import pytest
from helpers.command_line import run_nmtalign

SOURCE = "the fox sees a red boat .\n\nthe heron\nthe boat\n"
TARGET = "le renard voit un bateau rouge .\n\nun héron\n\n"


@pytest.fixture
def scores(inside, tmp_path, random_model):
    """The lines that `nmtalign translate in.en ARGUMENTS` prints."""
    (tmp_path / "in.en").write_text(SOURCE)
    (tmp_path / "out.fr").write_text(TARGET)

    def run(*arguments):
        done = inside("-m", random_model, "-q", "in.en", *arguments)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode().splitlines()

    return run


def test_a_number_per_line_and_a_summary(scores, inside, tmp_path, random_model):
    numbers = [float(line) for line in scores("--target", "out.fr")]
    assert len(numbers) == 4
    assert numbers[1] == 0
    assert all(number < 0 for number in (numbers[0], *numbers[2:]))
    done = inside("-m", random_model, "in.en", "--target", "out.fr", "-o", "scores.gz")
    messages = f"nmtalign: 4 pairs, 12 target tokens with </s>: log-probability {sum(numbers) / 12:.4f} per token, "
    messages += f"perplexity {math.exp(-sum(numbers) / 12):.2f}; "
    assert (done.stdout, done.stderr.decode()[: len(messages)]) == (b"", messages)  # 7, 2 and no words, a `</s>` each
    assert [float(line) for line in gzip.decompress((tmp_path / "scores.gz").read_bytes()).split()] == numbers
    given = ("-m", random_model, "--target", "out.fr", "-q")
    piped = run_nmtalign("translate", *given, cwd=tmp_path, stdin=SOURCE.encode())
    assert [float(line) for line in piped.stdout.splitlines()] == pytest.approx(numbers, abs=1e-5)


def test_scores_words_and_json(scores):
    plain = [float(line) for line in scores("--target", "out.fr")]
    found = [float(line) for line in scores("--target", "out.fr", "--set", "length_penalty=0.5")]
    assert found == pytest.approx([plain[0] / 8**0.5, 0, plain[2] / 3**0.5, plain[3]], abs=1e-5)
    for place, line in enumerate(scores("--target", "out.fr", "--set", "word_scores=true")):
        total, each, tokens = line.split("\t")
        assert float(total) == plain[place] == pytest.approx(sum(map(float, each.split())), abs=1e-5)
        assert tokens.split(" ") == [*TARGET.split("\n")[place].split(), "</s>"]
        assert len(each.split()) == len(tokens.split())
    objects = [json.loads(line) for line in scores("--target", "out.fr", "--format", "json")]
    assert [one["log_prob"] for one in objects] == plain
    assert objects[0]["score"] == pytest.approx(plain[0] / 8, abs=1e-5)  # that of a search with default settings
    assert [one["source"] for one in objects] == SOURCE.splitlines()
    assert [one["target"] for one in objects] == TARGET.splitlines()
    assert (objects[2]["source_unknown"], objects[2]["target_unknown"]) == (1, 1)


def test_a_list_of_translate_is_rescored_to_itself(scores, tmp_path):
    settings = ("--tokenized", "--set", "word_scores=true", "--set", "word_penalty=0.2")
    listed = scores(*settings, "--beam", 4, "--n-best", 3, "--alignment", "hard")
    (tmp_path / "list").write_text("".join(f"{line}\n" for line in listed))
    again = scores(*settings, "--n-best-list", "list", "--rescore")
    assert len(listed) == 10
    for before, after in zip(listed, again, strict=True):
        old, new = before.split(" ||| "), after.split(" ||| ")
        assert (old[:2], old[4:]) == (new[:2], new[4:])
        assert float(old[3]) == pytest.approx(float(new[3]), abs=1e-5)
        values = [[float(value) for value in fields[2].split() if value[-1] != "="] for fields in (old, new)]
        # LogProb, Length and WordScores of the one; those, and nmtalign before WordScores, of the other.
        assert values[1][2] == pytest.approx(values[0][0], abs=1e-5)
        assert values[1][3:] == pytest.approx(values[0][2:], abs=1e-5)


def test_lists_are_written_back_with_a_feature(scores, tmp_path):
    lines = [
        "0 ||| un bateau ||| lm= -3 ||| -0.5 ||| 0-0",
        "0 ||| le renard voit un bateau rouge . ||| lm= -9 ||| -0.7",
        "2 ||| un | | | héron",
        "3 |||  ||| lm= 0 ||| 0",
    ]
    (tmp_path / "list").write_text("".join(line + "\n" for line in lines))
    found = scores("--n-best-list", "list")
    features = [float(line.split("nmtalign= ")[1].split(" ")[0]) for line in found]
    assert found[0] == f"0 ||| un bateau ||| lm= -3 nmtalign= {features[0]:.6f} ||| -0.5 ||| 0-0"
    assert found[2] == f"2 ||| un | | | héron ||| nmtalign= {features[2]:.6f}"
    best = scores("--n-best-list", "list", "--rescore", "--set", "length_penalty=0")
    assert [line.split(" ||| ")[0] for line in best] == ["0", "0", "2", "3"]
    totals = [float(line.split(" ||| ")[3]) for line in best]
    assert totals[:2] == pytest.approx(sorted(features[:2], reverse=True), abs=1e-5)
