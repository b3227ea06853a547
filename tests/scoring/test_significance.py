"""Intervals, p-values and signatures equal those of sacreBLEU's command; draws in slices are exact."""

import json
import re
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from helpers.score_texts import sacrebleu
from sacrebleu.metrics import BLEU, TER

from nmtalign.scoring import report
from nmtalign.scoring.metrics import MetricOptions, Statistics, measure_systems
from nmtalign.scoring.report import Resampling, bootstrap, by_length, interval, make_report, parse_buckets, swaps

METRICS = MetricOptions(("bleu", "chrf++", "ter"))
ASKED = "-m bleu chrf ter --chrf-word-order 2 -w 4"  # the same; the command has no two chrF in one run
QUICK = Resampling(samples=300, trials=600)


def drawn(test):
    """The flags of a quick test."""
    return [f"--paired-{test}", f"--paired-{test}-n", str(QUICK.samples if test == "bs" else QUICK.trials)]


def paired(printed):
    """The figures of each metric for every system: score, mean and width of the interval, p-value, if they exist."""
    table = [line.rstrip("\\ ").split("&") for line in printed.splitlines() if "&" in line]
    names = [re.sub(r"[^\w+]", " ", cell).split()[0] for cell in table[0][1:]]
    return [dict(zip(names, (re.findall(r"\d+\.\d{4}", cell) for cell in row[1:]), strict=True)) for row in table[1:]]


def ours(part, metric, test):
    one = part.scores[metric]
    figures = [one.value, *(() if one.low is None else (one.mean, 0.5 * (one.high - one.low)))]
    figures += [one.p_values[test]] if one.p_values else []
    return [f"{figure:.4f}" for figure in figures]


def of_wholes(report, name):
    """An attribute of the estimates of all sentences, by system and metric."""
    return [[getattr(one, name) for one in system.everything.whole.scores.values()] for system in report.systems]


def report_of(systems, references, tests=()):
    tables = measure_systems(systems, references, METRICS)
    names = [f"system {number}" for number in range(len(systems))]
    return make_report(names, tables, resampling=replace(QUICK, tests=tuple(tests), intervals="ar" not in tests))


@pytest.mark.parametrize(("sentences", "references"), [(50, 3), (5, 2), (1, 1)])
def test_intervals_and_signatures_equal_sacrebleus_command_line(texts, tmp_path, sentences, references):
    system, known = texts.systems[0][:sentences], [lines[:sentences] for lines in texts.references[:references]]
    report = make_report(["one"], measure_systems([system], known, METRICS), resampling=Resampling())
    printed = json.loads(sacrebleu(tmp_path, [system], known, *ASKED.split(), "--confidence", "--format", "json"))
    assert len(printed) == len(report.metrics)
    for found in printed:
        metric = found["name"]
        assert report.signatures[metric] == f"{metric}|{found['signature']}"
        figures = [found["score"], found["confidence_mean"], found["confidence_var"]]
        assert ours(report.systems[0].everything.whole, metric, "bs") == [f"{figure:.4f}" for figure in figures]


@pytest.mark.parametrize(
    ("test", "sentences", "references"),
    # Thirds of words have last bits that depend on threads in sacreBLEU's own ar; halves have not.
    [("bs", 50, 3), ("bs", 6, 1), ("ar", 50, 2), ("ar", 6, 1)],
)
def test_p_values_and_signatures_equal_sacrebleus_command_line(texts, tmp_path, test, sentences, references):
    known = [lines[:sentences] for lines in texts.references[:references]]
    systems = [lines[:sentences] for lines in texts.systems]
    report = report_of(systems, known, (test,))
    printed = sacrebleu(tmp_path, systems, known, *ASKED.split(), *drawn(test), "--format", "latex")
    for system, figures in zip(report.systems, paired(printed), strict=True):
        for metric in report.metrics:
            assert ours(system.everything.whole, metric, test) == figures[metric], (system.name, metric)
            assert report.signatures[metric].split("|", 1)[1] in printed


@pytest.mark.parametrize("test", ["bs", "ar"])
def test_a_bucket_equals_sacrebleu_on_only_its_lines(texts, tmp_path, test):
    known = np.arange(len(texts.source)) % 3 > 0
    parts = by_length(texts.source, parse_buckets("8,12"))
    tables = measure_systems(texts.systems, texts.references[:1], METRICS)
    bounds = test == "bs"
    draws = replace(QUICK, tests=(test,), intervals=bounds)
    report = make_report("abc", tables, parts=parts, known=known, resampling=draws)
    chosen = np.flatnonzero(parts["9-12"] & known)
    assert len(chosen) > 20
    systems = [[lines[index] for index in chosen] for lines in texts.systems]
    references = [[texts.references[0][index] for index in chosen]]
    found = paired(sacrebleu(tmp_path, systems, references, *ASKED.split(), *drawn(test), "--format", "latex"))
    for system, figures in zip(report.systems, found, strict=True):
        part = next(part for part in system.no_unk.lengths if part.label == "9-12")
        for metric in report.metrics:
            assert ours(part, metric, test) == figures[metric]


@pytest.mark.parametrize(("sentences", "mark"), [(5, "tie"), (6, "winner")])
def test_five_sentences_are_too_few_for_a_winner_whatever_the_draws_say(texts, sentences, mark):
    right = texts.references[0][:sentences]
    wrong = [f"x{number} y z v w" for number in range(sentences)]
    report = report_of([right, wrong], [right], ("bs", "ar"))
    assert of_wholes(report, "mark") == [[mark] * 3, ["tie" if mark == "tie" else ""] * 3]
    assert all(p_values["bs"] < 0.05 for p_values in of_wholes(report, "p_values")[1])


def test_equal_texts_are_ties(texts):
    systems = [texts.systems[0], list(texts.systems[0]), texts.systems[0][::-1]]
    report = report_of(systems, texts.references[:1], ("bs", "ar"))
    assert of_wholes(report, "mark") == [["tie"] * 3, ["tie"] * 3, [""] * 3]
    # sacreBLEU's p-value is the smallest possible if two systems are equal, so ties are also recognised by the scores.
    assert of_wholes(report, "p_values")[1] == [{"bs": 1 / 301, "ar": 1 / 601}] * 3


def test_what_is_not_significantly_worse_by_some_test_is_a_tie():
    rng = np.random.default_rng(1)
    edits = rng.integers(0, 10, size=400)
    nearly = np.where(np.arange(400) % 40 == 0, edits + rng.integers(-3, 5, size=400), edits)
    worse = edits + rng.integers(0, 3, size=400)
    counts = (np.stack([each, np.full(400, 20)], axis=1).astype(float) for each in (nearly, worse, edits))
    tables = [[Statistics("TER", "TER|nrefs:1", each, TER())] for each in counts]
    report = make_report("abc", tables, resampling=replace(QUICK, tests=("bs",)))
    first, second, third = (system.everything.whole.scores["TER"] for system in report.systems)
    assert third.value < first.value < second.value
    assert third.p_values["bs"] >= 0.05 > second.p_values["bs"]
    assert (first.mark, second.mark, third.mark) == ("tie", "", "tie")


def test_fewer_than_two_sentences_are_not_tested():
    rows = np.array([[2, 3, 2, 1, 0, 0, 2, 1, 0, 0]], dtype=float)
    tables = [[Statistics("BLEU", "BLEU|nrefs:1", rows, BLEU())]] * 2
    report = make_report("ab", tables, known=np.array([False]), resampling=replace(QUICK, tests=("bs", "ar")))
    whole, none = (part.whole.scores["BLEU"] for part in (report.systems[1].everything, report.systems[1].no_unk))
    assert whole.p_values == none.p_values == {"bs": None, "ar": None}
    assert whole.mark == none.mark == ""
    assert whole.low == whole.high
    assert none.low is none.value is None


def made_up(size, width=10, seed=3):
    return np.random.default_rng(seed).integers(0, 40, size=(size, width)).astype(np.float64)


@pytest.mark.parametrize("size", [1, 2, 31, 100])
@pytest.mark.parametrize("at_once", [1, 2**8, 2**22])
def test_slices_draw_what_is_drawn_at_once(monkeypatch, size, at_once):
    monkeypatch.setattr(report, "_DRAWS", at_once)
    monkeypatch.setattr(report, "_COINS", at_once)
    rows = [made_up(size), made_up(size, 3, 4)]
    drawn = np.random.default_rng(12345).choice(size, size=(70, size), replace=True)
    coins = np.random.default_rng(12345).integers(2, size=(150, size), dtype=bool)
    for one, sums, (picked, left) in zip(rows, bootstrap(rows, 70, 12345), swaps(rows, 150, 12345), strict=True):
        assert (sums == one[drawn].sum(axis=1)).all()
        assert (picked == coins @ one).all()
        assert (left == ~coins @ one).all()


def test_other_than_whole_numbers_are_added_in_the_order_drawn():
    rows = made_up(500, 2) + 1 / 3
    drawn = np.random.default_rng(5).choice(500, size=(40, 500))
    assert (bootstrap([rows], 40, 5)[0] == [sample.sum(0) for sample in rows.astype(np.float32)[drawn]]).all()


def test_sums_beyond_those_of_float32_are_rounded_once():
    rows = made_up(300, 3) * 100_000 + 1
    drawn = np.random.default_rng(5).choice(300, size=(20, 300))
    expected = rows[drawn].sum(axis=1)
    assert expected.max() > 2**24
    assert (bootstrap([rows], 20, 5)[0] == expected.astype(np.float32)).all()


def test_memory_is_that_of_a_slice(monkeypatch):
    monkeypatch.setattr(report, "_DRAWS", 2**18)
    monkeypatch.setattr(report, "_COINS", 2**19)
    rows = [made_up(10_000, 4)]
    tracemalloc.start()
    bootstrap(rows, 190, 1)  # 15 MB of indices
    swaps(rows, 1_900, 1)  # 19 MB of coins, 152 MB as floats
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15e6


def test_the_bounds_leave_out_a_fortieth_on_either_side():
    assert interval(np.arange(1000)[::-1].astype(np.float64)) == (499.5, 25.0, 974.0)
    assert interval(np.array([3.0])) == (3.0, 3.0, 3.0)
