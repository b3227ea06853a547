"""A report as JSON and as rows: always the same shape, nothing rounded, no NaN; and as a document."""

import json
import re
from pathlib import Path

import pytest
from helpers.pages import PageReader

from nmtalign.report.document import to_text
from nmtalign.report.html_page import to_page
from nmtalign.scoring.differences import Difference, SystemText, split_segments
from nmtalign.scoring.report import Estimate, Part, Report, Resampling, Section, SystemReport, UnknownRates
from nmtalign.scoring.score_document import bar, figure, score_document

PLAIN = Part("all", 4, {"BLEU": Estimate(12.345678901), "TER": Estimate(80.0)}, 0.9)
EMPTY = Part(">10", 0, {"BLEU": Estimate(None), "TER": Estimate(None)}, None)
WINNER = Estimate(15.0, 15.1, 14.0, 16.25, {"bs": 0.012, "ar": 0.5}, "winner")
TIE = Estimate(79.0, p_values={"bs": None, "ar": 0.25}, mark="tie")
TESTED = Part("all", 4, {"BLEU": WINNER, "TER": TIE}, 1.0)
HOSTILE = "le \x1b[2J<b>chat</b> \u202edort"


def report_of(*systems: SystemReport, **more: object) -> Report:
    return Report(("BLEU", "TER"), {"BLEU": "BLEU|a", "TER": "TER|b"}, systems, **more)


def full_report() -> Report:
    lengths = (PLAIN, EMPTY)
    texts = (HOSTILE, "le chien dort")
    translations = map(SystemText, ("one", "two"), texts, (20.0, 100.0), split_segments(*texts, ["le chien"]))
    difference = Difference(3, "the", ("le chien",), "chrF2", tuple(translations))
    return report_of(
        SystemReport("one", Section(PLAIN, lengths), Section(EMPTY, lengths)),
        SystemReport("two", Section(TESTED, (TESTED, EMPTY)), Section(EMPTY, lengths)),
        resampling=Resampling(tests=("bs", "ar")),
        lengths="by words of the source",
        unknown=UnknownRates(0.125, 0.25, {"one": 0.5, "two": 0.0}),
        differences=(difference,),
    )


@pytest.mark.parametrize("report", [report_of(SystemReport("one", Section(PLAIN))), full_report()])
def test_the_object_has_always_the_same_keys(report: Report) -> None:
    found = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    keys = "nmtalign sentences metrics signatures resampling titles systems unknown differences"
    assert list(found) == keys.split()
    for system in found["systems"]:
        assert system.keys() == {"name", "sentences", "scores", "length_ratio", "by_length", "no_unk"}
        for score in system["scores"].values():
            assert list(score) == ["value", "mean", "low", "high", "p_values", "mark"]


def test_figures_are_not_rounded_and_what_cannot_be_scored_is_null() -> None:
    first, second = full_report().as_dict()["systems"]
    nothing = {"mean": None, "low": None, "high": None, "p_values": {}, "mark": ""}
    assert first["scores"]["BLEU"] == {"value": 12.345678901} | nothing
    figures = {"value": 15.0, "mean": 15.1, "low": 14.0, "high": 16.25}
    assert second["scores"]["BLEU"] == figures | {"p_values": {"bs": 0.012, "ar": 0.5}, "mark": "winner"}
    found = [(row["label"], row["scores"]["TER"]["value"]) for row in first["by_length"]]
    assert found == [("all", 80.0), (">10", None)]
    assert full_report().as_dict()["unknown"]["systems"] == {"one": 0.5, "two": 0.0}


def keys_of(value: object) -> set[str]:
    """Every key anywhere in an object, but for the names of systems, metrics and tests."""
    if isinstance(value, list):
        return set().union(*map(keys_of, value))
    if not isinstance(value, dict):
        return set()
    named = {"one", "two", "BLEU", "TER", "bs", "ar", "length"}
    return (value.keys() - named).union(*map(keys_of, value.values()))


def test_every_key_and_column_is_described() -> None:
    described = (Path(__file__).parents[2] / "nmtalign" / "docs" / "formats.md").read_text(encoding="utf-8")
    missing = [key for key in keys_of(full_report().as_dict()) if f'"{key}"' not in described]
    missing += [column for column in Report.CSV_COLUMNS if f"`{column}`" not in described]
    assert missing == []


def test_each_row_contains_one_figure_under_known_names() -> None:
    rows = list(full_report().csv_rows())
    assert all(row.keys() <= set(Report.CSV_COLUMNS) for row in rows)
    chosen = [row for row in rows if row["system"] == "two" and row["by"] == "" and row["subset"] == "all"]
    found = [(row["metric"], row["value"], row["p_bs"], row["p_ar"], row["mark"]) for row in chosen]
    assert found == [("BLEU", 15.0, 0.012, 0.5, "winner"), ("TER", 79.0, None, 0.25, "tie")]
    assert [row["value"] for row in rows if row["by"] == "unknown"] == [0.125, 0.25, 0.5, 0.0]
    assert [row["value"] for row in rows if row["by"] == "length"][:3] == [12.345678901, 80.0, None]


def test_text_and_page_have_the_same_figures() -> None:
    document = score_document(full_report(), "A title", figures=[("Figure 2", "<svg/>")], facts={"reference": "x.fr"})
    reader = PageReader(to_page(document))
    reader.check()
    for words in (to_text(document), reader.words()):
        for part in ("12.35", "80.00", "15.00 *", "79.00 =", "1.12", "0.0120", "0.5000", "12.50%", "BLEU|a", "x.fr"):
            assert part in words
        assert "Sentences without an unknown word (0 of 4)" in words
        assert "Line 3 chrF2 80.00 apart" in words
        assert "50.00%" in words  # unknown words of a system
        assert "[14.00, 16.25]" in words
        assert "by p < 0.05 (fewer than 6 sentences cannot show it)" in words
        assert "p: against one, by paired bootstrap of 1,000 samples and paired approximate randomisation" in words
    assert reader.attributes("img")[0]["alt"] == "Figure 2"


def test_text_marks_words_or_colours_them_and_has_no_control_characters() -> None:
    document = score_document(full_report(), "A title")
    assert "{+chien+}" in to_text(document)
    assert "[-" in to_text(document)
    assert "\x1b[1;32mchien\x1b[0m" in to_text(document, colour=True)
    for text in (to_text(document), re.sub("\x1b\\[[0-9;]*m", "", to_text(document, colour=True))):
        assert not {"\x1b", "\u202e"} & {*text}
        assert "␛[" in text


def test_tables_are_broken_between_columns_if_the_terminal_is_narrow() -> None:
    document = score_document(full_report(), "A title")
    lines = to_text(document, 60).splitlines()
    table = lines[lines.index("By words of the source (all sentences, two):") + 1 :]
    assert [line.split()[0] for line in table[:4]] == ["words", "all", ">10", "all"]
    wide = to_text(document).splitlines()
    assert len(lines) > len(wide)


@pytest.mark.parametrize(
    ("value", "signature", "shown"), [(None, "", "–"), (12.345, "", "12.35"), (0.5, "x|scores:given|", "0.5000")]
)
def test_a_figure_has_the_digits_of_sacrebleu(value: float | None, signature: str, shown: str) -> None:
    assert figure(value, signature) == shown


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (50.0, None, None, "█" * 10),
        (50.625, None, None, "█" * 10 + "▏"),
        (50.0, 40.0, 60.0, "█" * 8 + "▒" * 4),
        (0.0, None, None, ""),
        (None, None, None, ""),
    ],
)
def test_a_bar_is_as_long_as_its_figure(value: float | None, low: float | None, high: float | None, shown: str) -> None:
    estimate = Estimate(value, value, low, high)
    assert bar(estimate, 100.0) == shown
    assert bar(estimate, 0.0) == ""
