"""A report as JSON and as rows: always the same shape, nothing rounded, no NaN."""

import json
import math
from pathlib import Path

import pytest

from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, finite, record
from nmtalign.scoring.report import Breakdown, Part, Report, Section, SystemReport
from nmtalign.scoring.resampling import Interval, Resampling
from nmtalign.scoring.words import UnknownRates, WordBreakdown, WordCounts, WordRow

PLAIN = Part("all", 4, (12.345678901, 80.0), 0.9)
EMPTY = Part(">10", 0, (None, None), None)
TESTED = Part(
    "all",
    4,
    (15.0, 79.0),
    1.0,
    (Interval(15.1, 14.0, 16.25), None),
    {"bs": (0.012, None), "ar": (0.5, 0.25)},
    ("winner", "tie"),
)
SECTION_KEYS = {"sentences", "scores", "length_ratio", "by_length", "by_place"}


def report_of(*systems: SystemReport, **more: object) -> Report:
    return Report(("BLEU", "TER"), ("BLEU|a", "TER|b"), systems, **more)  # type: ignore[arg-type]


def full_report() -> Report:
    cut = Breakdown("length", "by words of the source", "words", (PLAIN, EMPTY))
    words = WordBreakdown(
        "frequency", "words", "times seen", (WordRow("1", (WordCounts(4, 5, 2), WordCounts(4, 0, 0))),)
    )
    segments = ((Segment("le", "same", True),), (Segment("la", "only", False),))
    return report_of(
        SystemReport("one", Section(PLAIN, (cut,)), Section(EMPTY)),
        SystemReport("two", Section(TESTED, (cut,)), Section(EMPTY)),
        resampling=Resampling(),
        tests=("bs", "ar"),
        words=(words,),
        unknown=UnknownRates(None, 0.25, (0.5, 0.0)),
        differences=(Difference(3, "the", ("le",), ("le", "la"), (100.0, 0.0), "chrF2", segments),),
    )


@pytest.mark.parametrize("report", [report_of(SystemReport("one", Section(PLAIN))), full_report()])
def test_the_object_has_always_the_same_keys(report: Report) -> None:
    told = json.loads(json.dumps(record(report), allow_nan=False))
    assert list(told) == [
        "nmtalign",
        "sentences",
        "metrics",
        "signatures",
        "resampling",
        "titles",
        "systems",
        "words",
        "unknown",
        "differences",
    ]
    for system in told["systems"]:
        assert system.keys() == SECTION_KEYS | {"name", "no_unk"}
        assert list(system["scores"]) == ["BLEU", "TER"]
        for score in system["scores"].values():
            assert list(score) == ["value", "mean", "low", "high", "p_values", "mark"]


def test_figures_are_not_rounded_and_what_cannot_be_scored_is_null() -> None:
    first, second = record(full_report())["systems"]
    assert first["scores"]["BLEU"] == {
        "value": 12.345678901,
        "mean": None,
        "low": None,
        "high": None,
        "p_values": {},
        "mark": "",
    }
    assert second["scores"]["BLEU"] == {
        "value": 15.0,
        "mean": 15.1,
        "low": 14.0,
        "high": 16.25,
        "p_values": {"bs": 0.012, "ar": 0.5},
        "mark": "winner",
    }
    assert [(row["label"], row["scores"]["TER"]["value"]) for row in first["by_length"]] == [
        ("all", 80.0),
        (">10", None),
    ]
    assert (first["by_place"], first["no_unk"]["sentences"]) == ([], 0)


def test_words_unknown_words_and_differences_are_named_by_system() -> None:
    told = record(full_report())
    (row,) = told["words"][0]["rows"]
    assert row["reference"] == 4
    assert row["systems"]["one"] == {
        "hypothesis": 5,
        "matches": 2,
        "precision": 40.0,
        "recall": 50.0,
        "f1": pytest.approx(400 / 9),
    }
    assert row["systems"]["two"]["precision"] is None
    assert told["unknown"] == {"source": None, "reference": 0.25, "systems": {"one": 0.5, "two": 0.0}}
    (difference,) = told["differences"]
    assert [(one["name"], one["text"], one["score"]) for one in difference["systems"]] == [
        ("one", "le", 100.0),
        ("two", "la", 0.0),
    ]
    assert difference["systems"][1]["segments"] == [{"text": "la", "kind": "only", "in_reference": False}]


def keys_of(value: object) -> set[str]:
    """Every key anywhere in an object, but for the names of systems, metrics and tests."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    named = {"one", "two", "BLEU", "TER", "bs", "ar"}
    return (value.keys() - named).union(*map(keys_of, value.values()))


def test_every_key_and_column_is_described() -> None:
    described = (Path(__file__).parents[2] / "nmtalign" / "docs" / "formats.md").read_text(encoding="utf-8")
    missing = [key for key in keys_of(record(full_report())) if f'"{key}"' not in described]
    missing += [column for column in CSV_COLUMNS if f"`{column}`" not in described]
    assert missing == []


def test_rows_hold_a_figure_each_under_known_names() -> None:
    rows = list(csv_rows(full_report()))
    assert all(row.keys() <= set(CSV_COLUMNS) for row in rows)
    chosen = [row for row in rows if row["system"] == "two" and row["by"] == "" and row["subset"] == "all"]
    assert [(row["metric"], row["value"], row["p_bs"], row["p_ar"], row["mark"]) for row in chosen] == [
        ("BLEU", 15.0, 0.012, 0.5, "winner"),
        ("TER", 79.0, None, 0.25, "tie"),
    ]
    lengths = [row for row in rows if row["system"] == "one" and row["by"] == "length"]
    assert [(row["label"], row["metric"], row["value"]) for row in lengths] == [
        ("all", "BLEU", 12.345678901),
        ("all", "TER", 80.0),
        (">10", "BLEU", None),
        (">10", "TER", None),
    ]
    assert [row["value"] for row in rows if row["by"] == "unknown"] == [None, 0.25, 0.5, 0.0]
    assert {row["metric"] for row in rows if row["by"] == "frequency"} == {"precision", "recall", "f1"}


@pytest.mark.parametrize(("value", "told"), [(None, None), (math.nan, None), (math.inf, None), (1.5, 1.5)])
def test_what_is_no_number_is_none(value: float | None, told: float | None) -> None:
    assert finite(value) == told
