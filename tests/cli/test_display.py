"""What `nmtalign train` shows: plain lines at fixed times, or a panel on a terminal."""

import io
import os
import re
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from nmtalign.cli.display import TrainingDisplay
from nmtalign.training.events import Damaged, Finished, Noticed, Saved, Skipped, Started, Underway, Validated, Working

AT = (1234567, 12.34, 52.0)
STARTED = Started(*AT, False, 84_349_101, 12_345_678, 12_345, "cuda:0", "bf16", 16, "0.2.0", "2.6", 1234)
SENTENCE = "Der alte Mann mit dem langen weißen Bart sitzt auf einer Bank im Park und liest die Zeitung von gestern."


def underway(**changes):
    values = {"loss": 2.0, "loss_sentence": 40.0, "perplexity": 7.39, "gradient_norm": 1.25, "learning_rate": 0.00034}
    values |= {"source_words_per_second": 123456.7, "target_words_per_second": 134567.8, "padding": 0.1}
    values |= {"done": 0.43, "seconds_left": 68.0, "skipped": 0}
    return Underway(*AT, **values | changes)


def validated(best=True, **changes):
    sample = {"sample_source": SENTENCE, "sample_translation": SENTENCE * 3, "sample_reference": "猫" * 200}
    return Validated(123456, *AT[1:], 1.876, 30.0, 6.53, 37.64, "BLEU|…", best, 7, **sample | changes)


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


@pytest.fixture
def lines(clock, capsys):
    """Time passes, tick by tick, to a number of seconds; then events come. Returns the lines written meanwhile."""
    display = TrainingDisplay(Path("model"))

    def at(seconds, *events):
        while clock[0] < 100 + seconds:
            clock[0] += 0.5
            display.tick()
        for event in events:
            display.take(event)
        return [line.removeprefix("nmtalign: ") for line in capsys.readouterr().err.splitlines()]

    return at


def test_lines_come_after_10_s_30_s_and_every_minute(lines):
    assert lines(0, STARTED)[0].startswith("training: 84,349,101 parameters")
    times = []
    for second in range(1, 301):
        times += [second for line in lines(second, underway()) if "words/s" in line]
    assert times == [10, 30, 60, 120, 180, 240, 300]


def test_a_line_has_the_smoothed_figures_and_the_time_left(lines):
    for second in range(1, 10):
        lines(second, underway(source_words_per_second=1000.0 * second, loss=1.0))
    (line,) = lines(10)
    assert re.search(r"update 1,234,567  epoch 12.34  loss 1.000  ppl 2.72  words/s 5,000 \+ .* 43% .*left 1:07", line)


def test_updates_that_are_left_out_are_work_too():
    display = TrainingDisplay(Path("model"))
    display.take(Skipped(*AT, 1))
    assert display.updates == 1


def test_slow_work_is_named(lines):
    assert lines(0, Working(*AT, "loading PyTorch")) == []
    assert lines(2.5, Working(*AT, "computing the first update")) == []
    assert lines(9.5) == ["computing the first update ..."]
    assert lines(10) == ["computing the first update ..."]
    assert lines(29.5, underway(), Working(*AT, "validating", 0.0)) == []
    assert lines(31, validated())[-1:] == ["update 123,456  dev loss 1.876  dev ppl 6.53  BLEU 37.64  best"]
    lines(32, Working(*AT, "validating", 0.0), Working(*AT, "validating", 0.5))
    assert lines(36) == ["validating ... 50%"]
    assert lines(36, validated(best=False))[0].endswith("BLEU 37.64  patience 7 left")


def test_notices_are_lines_and_the_end_of_a_short_run_has_its_figures(lines):
    assert lines(0, Noticed(*AT, "the warm-up is short"), Saved(*AT, "x")) == ["the warm-up is short"]
    (line,) = lines(1, STARTED, underway(), Finished(*AT, "6 updates", True, None, None))[1:]
    assert line.startswith("update 1,234,567 ")


def test_quiet_shows_only_damage(clock, capsys):
    with TrainingDisplay(Path("model"), quiet=True) as display:
        for event in (STARTED, underway(), Noticed(*AT, "x"), Damaged(*AT, "a: damaged")):
            display.take(event)
    assert capsys.readouterr().err.splitlines() == ["nmtalign: a: damaged"]


def drawn(display, width, height):
    """The rows of the panel on a terminal of this size, without colours."""
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(display)
    return console.file.getvalue().rstrip("\n").split("\n")


def full_panel(**changes):
    display = TrainingDisplay(Path("models/large"))
    for event in (STARTED, underway(**changes), *[validated()] * 12):
        display.take(event)
    return display


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 20)])
def test_the_panel_fits_the_terminal_and_is_complete(clock, capsys, width, height):
    rows = drawn(full_panel(alignment_loss=0.5, skipped=3), width, height)
    assert all(Console(width=width).measure(row).maximum <= min(width, 120) for row in rows)
    assert width < 80 or len(rows) <= height
    text = " ".join(" ".join(row.strip("│").replace("\N{NO-BREAK SPACE}", " ").split()) for row in rows)
    for part in (
        "43%", "0:52 gone", "1:08 left", "update 1,234,567", "epoch 12.34", "words/s 123,457 + 134,568", "loss 2.000",
        "ppl 7.39", "norm 1.25", "rate 0.00034", "alignment 0.500", "left out 3", "123,456 1.876 6.53 37.64 best",
    ):  # fmt: skip
        assert part in text
    assert text.count("37.64") == (8 if height == 50 else 6 if height == 20 else 8)


def test_the_time_passes_between_events(clock):
    display = full_panel()
    clock[0] += 10.0
    display.take(Working(*AT, "validating", 0.4))
    clock[0] += 5.0
    text = "\n".join(drawn(display, 80, 24))
    assert re.search(r"1:07 gone +0:53 left", text)
    assert "validating ... 40%  0:05" in text
    display.take(Saved(*AT, "model"))
    assert "validating" not in "\n".join(drawn(display, 80, 24))
    assert "no limit" in "\n".join(drawn(full_panel(seconds_left=None), 80, 24))


def test_on_a_terminal_notices_stay_above_the_panel_and_texts_cannot_steer_it(monkeypatch):
    number, terminal = os.openpty()
    monkeypatch.setenv("TERM", "xterm")
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with TrainingDisplay(Path("model")) as display:
            for event in (STARTED, underway(), validated(sample_source="red \x1b[31m text"), Skipped(*AT, 2)):
                display.take(event)
        shown = ""
        while not all(part in shown for part in ("not finite", "red \\x1b[31m text")):
            shown += os.read(number, 100_000).decode(errors="replace")
    os.close(number)
