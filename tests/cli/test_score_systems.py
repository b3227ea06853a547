"""`nmtalign score` of several systems: tables, marks, Table 1, words, differences; figures as sacreBLEU gives them."""

import csv
import functools
import gzip
import io
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from nmtalign.cli.common import name_files
from nmtalign.errors import UsageError
from nmtalign.text.tokenizer import Tokenizers
from nmtalign.text.vocabulary import Vocabulary

LINE = "le chat dort sur la petite colline et un chien court dans une rue avec elle"
WORDS = LINE.split()
Run = Callable[..., tuple[int, str, str]]


def spoiled(lines: list[str], share: float, seed: int) -> list[str]:
    """The lines without some of their words."""
    drawn = random.Random(seed)
    return [" ".join(word for word in line.split() if drawn.random() > share) for line in lines]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    drawn = random.Random(1)
    lines = [" ".join(drawn.choices(WORDS, k=drawn.randint(3, 25))).capitalize() + " ." for _ in range(60)]
    texts = {
        "ref.fr": lines,
        "ref2.fr": spoiled(lines, 0.05, 9),
        "src.en": lines,
        "good.fr": spoiled(lines, 0.1, 2),
        "bad.fr": spoiled(lines, 0.3, 3),
        "near.fr": [*spoiled(lines, 0.1, 2)[:58], "Le", "chat dort"],
    }
    for name, text in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in text), encoding="utf-8")
    return tmp_path


@pytest.fixture
def vocabularies(folder: Path) -> Path:
    """A folder of vocabularies without `elle`."""
    words = [*(word for word in WORDS if word != "elle"), *map(str.capitalize, WORDS), "."]
    for side in ("source", "target"):
        Vocabulary(["</s>", "<unk>", *words]).save(folder / "words" / f"{side}.vocabulary.txt")
    Tokenizers.moses("fr", "fr").save(folder / "words")
    return folder / "words"


def sacrebleu(folder: Path, *arguments: str) -> object:
    command = [
        sys.executable,
        "-m",
        "sacrebleu",
        "-f",
        "json",
        "-w",
        "2",
        "-m",
        "bleu",
        "chrf",
        "ter",
        "-i",
        *arguments,
    ]
    return json.loads(subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout)


def table(text: str, title: str = "") -> list[list[str]]:
    """The cells of the first table, or of the one under a title, to the next empty line."""
    part = text.partition(f"{title}\n")[2] if title else text.partition("\n")[2]
    return [line.split() for line in part.partition("\n\n")[0].splitlines()]


def test_figures_and_signatures_are_those_of_sacrebleu(folder: Path, run: Run) -> None:
    expected = sacrebleu(folder, "good.fr", "--", "ref.fr", "ref2.fr")
    code, out, _ = run("good.fr", "-r", "ref.fr", "-r", "ref2.fr", "--metrics", "bleu,chrf,ter")
    assert code == 0
    rows = [line.split() for line in out.splitlines()[2:]]
    assert [(row[0], float(row[1])) for row in rows] == [(one["name"], one["score"]) for one in expected]  # type: ignore[attr-defined]
    assert [row[2] for row in rows] == [f"{one['name']}|{one['signature']}" for one in expected]  # type: ignore[attr-defined]


def test_intervals_are_those_of_sacrebleu(folder: Path, run: Run) -> None:
    expected = sacrebleu(folder, "good.fr", "--confidence", "--confidence-n", "200", "--", "ref.fr")
    _, out, _ = run("good.fr", "-r", "ref.fr", "--metrics", "bleu,chrf,ter", "--bootstrap", "200")
    rows = [line.split() for line in out.splitlines()[2:]]
    assert [(row[2], row[4]) for row in rows] == [
        (f"{one['confidence_mean']:.2f}", f"{one['confidence_var']:.2f}")
        for one in expected  # type: ignore[attr-defined]
    ]
    assert "|bs:200|seed:12345|" in rows[0][5]


def test_systems_stand_below_each_other_with_marks_and_p_values(run: Run) -> None:
    code, out, err = run("good.fr", "poor=bad.fr", "-r", "ref.fr", "--metrics", "bleu")
    assert (code, err) == (0, "")
    head, good, poor, legend, signature = table(out)
    assert head == ["system", "BLEU", "±", "p"]
    assert (good[0], good[2], good[-1]) == ("good.fr", "*", "-")
    assert (poor[0], len(poor)) == ("poor", 4)
    assert float(poor[-1]) < 0.05
    assert legend[:3] == ["*", "better", "than"]
    assert signature[0].startswith("BLEU|nrefs:1|bs:1000|seed:12345|")


def test_both_tests_and_a_tie(run: Run) -> None:
    _, out, _ = run(
        "good.fr", "near.fr", "-r", "ref.fr", "--metrics", "bleu", "--significance", "both", "--trials", "100"
    )
    rows = table(out)
    assert rows[0] == ["system", "BLEU", "±", "p", "(bs)", "p", "(ar)"]
    assert [row[2] for row in rows[1:3]] == ["=", "="]
    assert "and paired approximate randomisation of 100 trials" in out


def test_without_tests_and_intervals_the_table_has_scores_alone(run: Run) -> None:
    flags = ["--significance", "none", "--no-confidence", "--metrics", "bleu,ter"]
    _, out, _ = run("good.fr", "bad.fr", "-r", "ref.fr", *flags)
    assert [len(row) for row in table(out)[:3]] == [3, 3, 3]
    assert "|bs:" not in out


def test_by_length_compares_the_systems_in_every_bucket(run: Run) -> None:
    _, out, _ = run("good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en", "--buckets", "10,20", "--metrics", "bleu,chrf")
    rows = table(out, "BLEU by words of the source (all, all systems):")
    assert rows[0] == ["words", "sentences", "good.fr", "bad.fr", "p"]
    assert [row[0] for row in rows[1:]] == ["1-10", "11-20", ">20", "all"]
    assert sum(int(row[1]) for row in rows[1:-1]) == int(rows[-1][1]) == 60
    own = table(out, "by words of the source (all, bad.fr):")
    assert own[0] == ["words", "sentences", "BLEU", "[low,", "high]", "chrF2", "ratio", "BLEU"]
    assert set(own[1][-1]) <= {"█", "▒"}


@pytest.mark.parametrize("side", ["reference", "hypothesis"])
def test_lengths_of_another_side_need_no_source(run: Run, side: str) -> None:
    code, out, _ = run("good.fr", "bad.fr", "-r", "ref.fr", "--length-of", side, "--metrics", "bleu")
    assert code == 0
    assert f"by words of the {side} (all, good.fr):" in out
    # The sentences of a bucket are others for each system where its own words count: there is nothing to compare.
    assert ("all systems" in out) == (side == "reference")


def test_cumulative_rows_end_with_all(run: Run) -> None:
    _, out, _ = run(
        "good.fr", "-r", "ref.fr", "-s", "src.en", "--buckets", "10,20", "--cumulative", "--metrics", "bleu"
    )
    rows = table(out, "by words of the source, cumulative (all):")
    assert [row[0] for row in rows[1:]] == ["<=10", "<=20", "all"]
    assert int(rows[1][1]) < int(rows[2][1]) < int(rows[3][1]) == 60


def test_table_1_has_a_row_a_system_and_two_columns(run: Run, vocabularies: Path) -> None:
    flags = ["--table1", "--data", "words", "--no-confidence", "--significance", "none", "--metrics", "bleu"]
    code, out, _ = run("good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en", *flags)
    assert code == 0
    assert out.splitlines()[1].startswith("no unknown word: ")
    rows = [line.split() for line in out.splitlines()[2:5]]
    assert rows[0] == ["model", "All", "No", "UNK"]
    assert [row[0] for row in rows[1:]] == ["good.fr", "bad.fr"]
    whole = json.loads(
        run("good.fr", "-r", "ref.fr", "-s", "src.en", "--known-words", "--data", "words", "--format", "json")[1]
    )
    (system,) = whole["systems"]
    scores = [part["scores"]["BLEU"]["value"] for part in (system, system["no_unk"])]
    assert rows[1][1:] == [f"{score:.2f}" for score in scores]
    assert whole["unknown"]["source"] > 0


def test_words_by_frequency_and_place(run: Run) -> None:
    flags = ["--train-text", "bad.fr", "--by-place", "--metrics", "bleu", "-q"]
    code, out, err = run("good.fr", "bad.fr", "-r", "ref.fr", *flags)
    assert (code, err) == (0, "")
    rows = table(out, "words from unknown and rare to frequent in training:")
    assert rows[0] == ["times", "seen", "words", "F1", "good.fr", "F1", "bad.fr"]
    assert rows[1][0] == "unknown"
    rates = next(line for line in out.splitlines() if line.startswith("unknown words: reference "))
    assert rates.endswith(", bad.fr 0.00%")  # the training text itself
    rows = table(out, "words by place in the sentence:")
    assert [row[0] for row in rows[1:]] == ["first", "second", "third", "fourth", "last"]
    assert "\nby place in the text (all, good.fr):\n" in out


def test_places_need_no_vocabulary_that_happens_to_be_there(vocabularies: Path, run: Run) -> None:
    vocabularies.rename(vocabularies.parent / "model")
    (vocabularies.parent / "model" / "target.vocabulary.txt").unlink()
    assert "words by place in the sentence:" in run("good.fr", "-r", "ref.fr", "--by-place", "--metrics", "bleu")[1]
    assert run("good.fr", "-r", "ref.fr", "-s", "src.en", "--known-words")[0] == 4


def test_the_most_different_sentences_are_marked_without_colour(run: Run) -> None:
    _, out, _ = run("good.fr", "near.fr", "-r", "ref.fr", "-s", "src.en", "--differences", "1", "--metrics", "bleu")
    title, *rows = out.partition("the most different sentence of good.fr and near.fr:\n\n")[2].splitlines()
    assert title.startswith(("line 59, chrF2: good.fr ", "line 60, chrF2: good.fr "))
    assert [row.split()[0] for row in rows] == ["source", "reference", "good.fr", "near.fr"]
    assert "[-" in rows[2]


def test_csv_and_json_hold_the_same_figures(run: Run) -> None:
    given = ["good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en", "--by-length", "--metrics", "bleu,ter"]
    rows = list(csv.DictReader(io.StringIO(run(*given, "--format", "csv")[1])))
    told = json.loads(run(*given, "--format", "json")[1])
    for system in told["systems"]:
        parts = [("", "all", system), *(("length", part["label"], part) for part in system["by_length"])]
        for by, label, part in parts:
            for metric, score in part["scores"].items():
                (row,) = (
                    row
                    for row in rows
                    if (row["system"], row["by"], row["label"], row["metric"]) == (system["name"], by, label, metric)
                )
                same = "" if score["value"] is None else str(score["value"])
                assert (row["value"], row["mark"]) == (same, score["mark"])
                assert row["p_bs"] == str(score["p_values"].get("bs") or "")
                assert row["signature"] == told["signatures"][metric]


def test_gzip_and_other_names_score_alike(folder: Path, run: Run) -> None:
    for name in ("good.fr", "ref.fr"):
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes()))
    packed = run("x=good.fr.gz", "-r", "ref.fr.gz")
    assert packed == run("good.fr", "-r", "ref.fr")
    assert "multi-bleu" in packed[1]


def test_a_file_that_is_there_is_no_name_and_a_file(folder: Path, run: Run) -> None:
    (folder / "a=good.fr").write_text((folder / "good.fr").read_text())
    names = [
        system["name"] for system in json.loads(run("a=good.fr", "-r", "ref.fr", "--format", "json")[1])["systems"]
    ]
    assert names == ["a=good.fr"]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        (["a.fr", "b.fr"], ["a.fr", "b.fr"]),
        (["x/a.fr", "y/a.fr"], ["x/a.fr", "y/a.fr"]),
        (["/r/x/1/a.fr", "/r/y/1/a.fr", "/r/b.fr"], ["x/1/a.fr", "y/1/a.fr", "b.fr"]),
        (["a.fr", "x/a.fr"], ["a.fr", "x/a.fr"]),
        (["a.fr", "a.fr", "a.fr"], ["a.fr", "a.fr (2)", "a.fr (3)"]),
        (["a.fr=b.fr", "a.fr"], ["a.fr", "a.fr (2)"]),
        (["-", "ours=-"], ["stdin", "ours"]),
    ],
)
def test_every_system_has_a_name_of_its_own(files: list[str], names: list[str]) -> None:
    assert [name for name, _ in name_files([Path(file) for file in files])] == names


def test_a_name_that_is_given_twice_is_refused() -> None:
    with pytest.raises(UsageError, match="two files are named a; give each NAME=FILE a different name"):
        name_files([Path("a=x"), Path("a=y")])


@pytest.mark.parametrize(
    ("least", "code", "line"),
    [("0", 0, ""), ("99", 1, "nmtalign: BLEU below 99: good.fr "), ("60", 1, "nmtalign: BLEU below 60: bad.fr ")],
)
def test_fail_under_tells_by_exit_code_and_one_line(run: Run, least: str, code: int, line: str) -> None:
    done = run("good.fr", "bad.fr", "-r", "ref.fr", "--metrics", "bleu", "--fail-under", least, "-q")
    assert done[0] == code
    assert done[1].startswith("sentences: 60\n")
    assert done[2].startswith(line)
    assert done[2].count("\n") == code


def test_a_metric_that_is_named_twice_is_one(run: Run) -> None:
    once, twice = (
        run("good.fr", "-r", "ref.fr", "--metrics", names, "-q") for names in ("chrf,bleu", "chrf,bleu,chrf")
    )
    assert once == twice
    done = run("good.fr", "-r", "ref.fr", "--metrics", "ter,ter", "--fail-under", "3")
    assert done[0] == 2
    assert "a lower TER is better" in done[2]


def test_fail_under_shows_as_many_digits_as_tell_the_score_from_the_limit(run: Run) -> None:
    given = ["good.fr", "-r", "ref.fr", "--metrics", "bleu", "-q"]
    score = json.loads(run(*given, "--format", "json")[1])["systems"][0]["scores"]["BLEU"]["value"]
    done = run(*given, "--fail-under", repr(score + 1e-4))
    assert done[0] == 1
    said = re.fullmatch(r"nmtalign: BLEU below (\S+): good.fr (\S+)\n", done[2])
    assert said
    assert float(said[2]) < score + 1e-4
    assert run(*given, "--fail-under", repr(score))[0] == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_ends_it_and_leaves_nothing(folder: Path, number: int, code: int) -> None:
    before = {path.name for path in folder.iterdir()}
    os.mkfifo(folder / "slow.fr")
    command = [sys.executable, "-m", "nmtalign", "score", "slow.fr", "-r", "ref.fr", "--html", "page.html"]
    # A shell that runs the tests in the background lets its children ignore Ctrl-C.
    heed = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    pipe = subprocess.PIPE
    process = subprocess.Popen(command, cwd=folder, stdout=pipe, stderr=pipe, text=True, preexec_fn=heed)
    with (folder / "slow.fr").open("wb"):  # waits for the reader
        time.sleep(0.2)  # until it reads: Python would not see a signal just before the system call that waits
        process.send_signal(number)
        output, error = process.communicate(timeout=60)
    assert process.returncode == code
    assert output == ""
    assert error == f"nmtalign: error: {'interrupted' if number == signal.SIGINT else 'ended by SIGTERM'}\n"
    assert {path.name for path in folder.iterdir()} == before | {"slow.fr"}


def test_the_seed_of_sacrebleu_holds_unless_another_is_given(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "7")
    given = ["good.fr", "-r", "ref.fr", "--metrics", "bleu", "--confidence"]
    assert "|seed:7|" in run(*given)[1]
    assert "|seed:8|" in run(*given, "--seed", "8")[1]
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    assert run(*given)[2].startswith("nmtalign: error: SACREBLEU_SEED = 'none': must be a whole number")
    assert run(*given[:-1])[0] == 0  # nothing is drawn


def test_settings_of_the_workspace_hold_unless_an_option_says_otherwise(folder: Path, run: Run) -> None:
    (folder / "nmtalign.toml").write_text(
        '[corpus]\ntest = ["src.en", "ref.fr"]\n[score]\nmetrics = "chrf"\nlowercase = true\nconfidence = true\n'
        'bootstrap = 60\nseed = 3\nsignificance = "none"\nlength_of = "reference"\n'
    )
    _, out, _ = run("good.fr", "bad.fr")
    assert table(out)[0] == ["system", "chrF2", "±"]
    assert "|bs:60|seed:3|" in out
    assert "by words of the reference" in out
    _, out, _ = run("good.fr", "bad.fr", "--significance", "bs", "--metrics", "bleu", "--by-length", "--cased")
    assert table(out)[0] == ["system", "BLEU", "±", "p"]
    assert "by words of the reference" in out
    assert "|case:mixed|" in out


def test_the_source_of_the_test_set_belongs_to_its_reference(folder: Path, run: Run) -> None:
    (folder / "nmtalign.toml").write_text('[corpus]\ntest = ["src.en", "ref.fr"]\n')
    assert "by words of the source" in run("good.fr", "-r", "ref.fr", "--by-length", "--metrics", "bleu")[1]
    assert run("good.fr", "-r", "ref2.fr", "--by-length")[2] == (
        "nmtalign: error: scores by length: give the source with -s, or --length-of reference\n"
    )


def test_a_page_holds_more_than_was_asked_for_and_the_terminal_does_not(folder: Path, run: Run) -> None:
    given = ["good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en", "--metrics", "bleu,chrf"]
    done = run(*given, "--html", "report.html")
    assert done[:2] == run(*given)[:2]
    assert done[2] == "nmtalign: wrote report.html\n"
    page = (folder / "report.html").read_text()
    for part in (
        "nmtalign score good.fr bad.fr -r ref.fr",
        "scores of 60 sentences",
        "<svg",
        "by words of the source",
        "by place in the text",
        "good.fr",
    ):
        assert part in page


def test_given_scores_of_segments_are_a_metric_like_any_other(folder: Path, run: Run) -> None:
    drawn = random.Random(5)
    good = [round(drawn.gauss(0.8, 0.1), 4) for _ in range(60)]
    bad = [round(score - 0.1 + drawn.gauss(0, 0.02), 4) for score in good]
    for name, scores in (("good", good), ("bad", bad)):
        (folder / f"{name}.comet").write_text("".join(f"{score}\n" for score in scores))
    given = ["good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en", "--metrics", "bleu", "--buckets", "10,20"]
    given += ["--segment-scores", "COMET=good.comet", "--segment-scores", "COMET=bad.comet"]
    code, out, err = run(*given, "--html", "page.html", "-q")
    assert (code, err) == (0, "")
    head, first, second, *_ = table(out)
    assert head == ["system", "BLEU", "±", "p", "COMET", "±", "p"]
    assert first[5:7] == [f"{sum(good) / 60:.4f}", "*"]
    assert float(second[-1]) < 0.05
    assert "COMET|scores:given|bs:1000|seed:12345|mean:sentences|nmtalign:" in out
    assert "COMET" in (folder / "page.html").read_text()
    system = json.loads(run(*given, "--format", "json")[1])["systems"][1]
    score = system["scores"]["COMET"]
    assert score["value"] == pytest.approx(sum(bad) / 60)
    assert score["low"] < score["mean"] < score["high"]
    lengths = [len(line.split()) for line in (folder / "src.en").read_text().splitlines()]
    inside = [score for score, length in zip(bad, lengths, strict=True) if 10 < length <= 20]
    row = next(row for row in system["by_length"] if row["label"] == "11-20")
    assert row["scores"]["COMET"]["value"] == pytest.approx(sum(inside) / len(inside))


def test_all_metrics_are_computed_only_if_asked_for(run: Run) -> None:
    assert "TER" not in run("good.fr", "-r", "ref.fr")[1]
    names = [line.split()[0] for line in run("good.fr", "-r", "ref.fr", "--metrics", "all")[1].splitlines()[2:]]
    assert names == ["BLEU", "chrF2", "chrF2++", "TER", "multi-bleu"]


def test_figure_2_is_drawn(folder: Path, run: Run) -> None:
    code, _, err = run("good.fr", "bad.fr", "-r", "ref.fr", "-s", "src.en", "--metrics", "bleu", "--plot", "figure.svg")
    assert (code, err) == (0, "nmtalign: wrote figure.svg\n")
    assert (folder / "figure.svg").read_text().startswith("<?xml")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["a=good.fr", "a=bad.fr"], 2, "two files are named a"),
        (["-", "x=-"], 2, "only one of HYP, -r and -s can be stdin"),
        (["good.fr", "short.fr"], 3, "short.fr: has no line 2: it has 1 line, but ref.fr has 60 lines"),
        (["good.fr", "-s", "src.en", "--plot", "figure.gif"], 2, "figure.gif"),
        (["good.fr", "--plot", "figure.png"], 2, "scores by length: give the source with -s, or --length-of reference"),
        (["good.fr", "--html", "page.txt"], 2, "page.txt: a page's name ends in .html"),
        (["good.fr", "--html", "gone/page.html"], 2, "gone/page.html: there is no folder gone; make it first"),
        (["page.html", "--html", "page.html"], 2, "page.html: is also an input"),
        (["good.fr", "--differences", "3"], 2, "--differences: compares systems; give two or more"),
        (["good.fr", "--significance", "ar"], 2, "--significance: compares systems; give two or more"),
        (["good.fr", "--metrics", "bleu,comet"], 2, "unknown 'comet'"),
        (
            ["good.fr", "--metrics", "multi-bleu", "-r", "plain"],
            2,
            "--metrics multi-bleu: multi-bleu needs",
        ),
        (["good.fr", "--metrics", "ter", "--fail-under", "30"], 2, "--fail-under: a lower TER is better"),
        (["good.fr", "--bootstrap", "1"], 2, "--bootstrap 1: must be at least 2"),
        (["good.fr", "--seed", "-1"], 2, "--seed -1: must be at least 0"),
        (["good.fr", "--by-frequency"], 2, "--by-frequency: nothing here says how often training saw a word"),
        (["good.fr", "--train-text", "gone"], 3, "gone: cannot read"),
        (["good.fr", "bad.fr", "--attention-from", "a.h5"], 2, "--attention-from is for --attention"),
        (["good.fr", "bad.fr", "--attention", "-s", "src.en"], 2, "--attention is drawn with --differences N"),
        (["good.fr", "bad.fr", "--attention", "--differences", "1"], 2, "--attention: give the source with -s"),
        (
            ["good.fr", "bad.fr", "--attention", "--differences", "1", "-s", "src.en"],
            2,
            "--attention: nothing has the attention of good.fr; give --attention-from good.fr=FILE.h5",
        ),
        (["good.fr", "--comet", "gone"], 2, "no such option: --comet; compute COMET with its own command"),
        (["good.fr", "-o", "kept.fr"], 2, "no such option: -o; nmtalign calls it --save-translation"),
        (["good.fr", "--beam", "3"], 2, "--beam and --device are for a translation made here"),
        (["good.fr", "--segment-scores", "ref.fr"], 2, "--segment-scores ref.fr: give METRIC=FILE"),
        (["good.fr", "--segment-scores", "BLEU=ones"], 2, "nmtalign computes BLEU; give another name"),
        (
            ["good.fr", "bad.fr", "--segment-scores", "x=ones"],
            2,
            "--segment-scores x: 1 file for 2 systems",
        ),
        (["good.fr", "--segment-scores", "x=gone"], 3, "gone: cannot read: No such file"),
        (["good.fr", "--segment-scores", "x=short.fr"], 3, "short.fr: has no line 2: it has 1 line, but ref.fr has 60"),
        (["good.fr", "--segment-scores", "x=ref.fr"], 3, "ref.fr: line 1: "),
        (["good.fr", "--segment-scores", "x=nan"], 3, "nan: line 3: 'nan' is not a number; give one number per line"),
        (["good.fr", "--fail-under", "nan"], 2, "--fail-under nan: must be at least"),
        (
            ["good.fr", "bad.fr", "-s", "src.en", "--attention", "--differences", "1", "--format", "json"],
            2,
            "--attention is drawn with --differences N, as text or on the page of --html",
        ),
        (["good.fr", "--all"], 2, "--all scores the models under models/; leave out HYP"),
    ],
)
def test_every_mistake_is_one_line(folder: Path, run: Run, arguments: list[str], code: int, message: str) -> None:
    (folder / "short.fr").write_text("Le chat dort .\n")
    (folder / "ones").write_text("1\n" * 60)
    (folder / "nan").write_text("1\n-0.5\nnan\n" * 20)
    for name in ("page.html", "plain"):
        (folder / name).write_text((folder / "ref.fr").read_text())
    references = [] if "-r" in arguments else ["-r", "ref.fr"]
    done = run(*arguments, *references)
    assert done[:2] == (code, "")
    assert done[2].startswith("nmtalign: error: ")
    assert message in done[2]
    assert done[2].count("\n") == 1
