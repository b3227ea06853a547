"""The printed report: bars, marks and tables."""

import sys

import pytest

from nmtalign.cli.score_output import marked, print_differences, print_text, progress
from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.report import Part, Report, Section, SystemReport
from nmtalign.scoring.text_tables import bar, figure
from nmtalign.scoring.words import UnknownRates
from nmtalign.settings.command_settings import ScoreConfig


@pytest.mark.parametrize(("value", "shown"), [(None, "-"), (0.0, "0.00"), (12.345, "12.35"), (100.0, "100.00")])
def test_a_figure_has_two_decimals(value: float | None, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(
    ("value", "low", "high", "shown"),
    [
        (50.0, None, None, "█████"),
        (51.25, None, None, "█████▏"),
        (50.0, 40.0, 60.0, "████▒▒"),
        (0.0, None, None, ""),
        (None, None, None, ""),
        (100.0, 100.0, 100.0, "██████████"),
    ],
)
def test_a_bar_is_as_long_as_its_figure(value: float | None, low: float | None, high: float | None, shown: str) -> None:
    assert bar(value, low, high, 100.0, width=10) == shown


def test_nothing_is_drawn_where_all_is_nothing() -> None:
    assert bar(0.0, 0.0, 0.0, 0.0) == ""


@pytest.mark.parametrize(
    ("side", "shown"), [(0, "le [-petit chien-] dort [-ici-]"), (1, "le {+petit chien+} dort {+ici+}")]
)
def test_what_only_one_system_has_is_set_apart(side: int, shown: str) -> None:
    segments = [
        Segment("le ", "same", True),
        Segment("petit", "only", True),
        Segment(" chien", "only", False),
        Segment(" dort", "same", True),
        Segment(" ici", "only", False),
    ]
    assert marked(segments, side) == shown


def test_table_1_names_the_bleu_of_the_papers_time(capsys: pytest.CaptureFixture[str]) -> None:
    parts = [Part("all", sentences, (20.0, 50.0, 18.0), 1.0) for sentences in (5, 3)]
    system = SystemReport("one", Section(parts[0]), Section(parts[1]))
    metrics, signatures = ("BLEU", "chrF2", "multi-bleu"), ("BLEU|a", "chrF2|b", "multi-bleu|c")
    rates = UnknownRates(None, 0.25, (0.5,))
    print_text(Report(metrics, signatures, (system,), unknown=rates), ScoreConfig(table1=True), {})
    assert capsys.readouterr().out.splitlines() == [
        "sentences: 5",
        "no unknown word: 3 of 5 sentences",
        "model    All  No UNK  All (multi-bleu)  No UNK (multi-bleu)",
        "one    20.00   20.00             18.00                18.00",
        "BLEU|a",
        "multi-bleu|c",
        "unknown words: reference 25.00%, one 50.00%",
    ]


@pytest.mark.parametrize(("quiet", "terminal"), [(False, False), (True, True), (False, True)])
def test_progress_is_shown_on_a_terminal_alone(
    quiet: bool, terminal: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal, raising=False)
    with progress(quiet)("counting", 10) as advance:
        assert (advance is not None) == (terminal and not quiet)
        if advance:
            advance(10)
    shown = capsys.readouterr()
    assert ("counting" in shown.err) == (terminal and not quiet)
    assert shown.out == ""


@pytest.mark.parametrize("colour", ["", "1"])
def test_control_characters_of_a_text_never_reach_the_terminal(
    colour: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("FORCE_COLOR", colour)
    monkeypatch.delenv("NO_COLOR", raising=False)
    hostile = "\x1b[2Jx"
    segments = ((Segment(hostile, "only", True),), (Segment("y\x9b", "only", False),))
    one = Difference(1, hostile, (hostile,), (hostile, "y\x9b"), (100.0, 0.0), "chrF2", segments)
    whole = Section(Part("all", 1, (1.0,), 1.0), ())
    systems = (SystemReport("a", whole), SystemReport("b", whole))
    print_differences(Report(("BLEU",), ("sig",), systems, differences=(one,)), {})
    shown = capsys.readouterr().out
    assert "\x1b[2J" not in shown
    assert "\x9b" not in shown
    assert shown.count("\\x1b[2Jx") == 3
