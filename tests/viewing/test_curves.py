"""Learning curves: reading a log, and drawing it to a file and as text."""

import json
import math
import re
import sys
from types import ModuleType

import pytest
from rich.cells import cell_len

from nmtalign.errors import FormatError
from nmtalign.training.events import EventLog, Finished, Progressed, Skipped, Started, Validated
from nmtalign.viewing.curves import curve_figure, panels, read_curves, render_curves

SIGNATURE = "BLEU|nrefs:1|tok:13a"


def event(kind, update, **fields):
    return {"event": kind, "update": update, "epoch": update / 100, "seconds": float(update), **fields}


def started(update=0):
    return event("started", update, resumed=update > 0, pairs=1000)


def progressed(update, loss=3.0):
    speeds = {"source_words_per_second": 400.0, "target_words_per_second": 500.0}
    return event("progressed", update, loss=loss, loss_sentence=loss and 10 * loss, learning_rate=0.5, **speeds)


def validated(update, loss, bleu, best=True):
    return event("validated", update, loss=loss, bleu=bleu, signature=SIGNATURE, best=best)


def write(folder, events, end=""):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events) + end)
    return folder


RUN = [
    started(),
    progressed(10, 5.0),
    progressed(20, 3.0),
    validated(20, 3.1, 10.0),
    progressed(30, 2.0),
    validated(30, 2.9, 20.0),
    progressed(40, 1.0),
    validated(40, 3.5, 25.0, best=False),
    {"event": "finished", "update": 40, "epoch": 0.4, "seconds": 41.0, "reason": "40 updates"},
]


@pytest.fixture
def run(tmp_path):
    return read_curves(write(tmp_path / "model", RUN))


def test_what_a_log_says(run, tmp_path):
    assert [point.update for point in run.progress] == [10, 20, 30, 40]
    assert [point.loss for point in run.progress] == [5, 3, 2, 1]
    assert run.progress[-1].perplexity == pytest.approx(math.e)
    assert [(point.loss, point.bleu) for point in run.validations] == [(3.1, 10), (2.9, 20), (3.5, 25)]
    assert run.best is run.validations[1]
    assert run.validations[0].perplexity == pytest.approx(math.exp(3.1))
    assert (run.ended, run.last.seconds) == ("40 updates", 41)
    assert run.last.hours == pytest.approx(41 / 3600)
    assert repr(read_curves(tmp_path / "model" / "train.jsonl")) == repr(run)  # which has nan


def test_what_training_writes_can_be_read(tmp_path):
    log = EventLog(tmp_path, 0)
    log.write(Started(0, 0.0, 0.0, False, 1, 10, 0, "cpu", "fp32", 1, "1", "2", 3))
    log.write(Skipped(1, 0.1, 1.0, 1))
    log.write(Progressed(2, 0.2, 2.0, 4.0, 20.0, 54.6, 50.0, 60.0, 1.0, 0.1, 0.0, 0.5, 1.0, 1))
    log.write(Validated(2, 0.2, 3.0, math.nan, math.nan, math.nan, None, None, False, 3, "", "", ""))
    log.write(Finished(2, 0.2, 4.0, "2 updates", True, None, None))
    curves = read_curves(tmp_path)
    assert (curves.progress[0].loss, curves.progress[0].words_per_second) == (4, 60)
    assert math.isnan(curves.validations[0].loss)
    assert (curves.best, curves.ended) == (None, "2 updates")


@pytest.mark.parametrize("end", ['{"event": "progr', '{"event": "progressed", "update": 50}'[:-1], "\xe9"[:1]])
def test_a_last_line_that_was_cut_off_is_left_out(tmp_path, run, end):
    folder = write(tmp_path / "cut", RUN)
    with (folder / "train.jsonl").open("ab") as stream:
        stream.write(end.encode()[:-1] or b"\xc3")
    assert repr(read_curves(folder).progress) == repr(run.progress)


def test_a_finished_training_that_continues_has_not_ended(tmp_path):
    assert read_curves(write(tmp_path, [*RUN, started(40)])).ended == ""


def test_losses_that_are_no_numbers_are_gaps(tmp_path):
    events = [started(), progressed(10, 5.0), progressed(20, None), progressed(30, math.nan), progressed(40, 4.0)]
    assert render_curves([read_curves(write(tmp_path, [started(), progressed(10, 1e6)]))], ["m"], 80)
    curves = read_curves(write(tmp_path, [*events, validated(40, None, None, best=False)]))
    assert [math.isnan(point.loss) for point in curves.progress] == [False, True, True, False]
    assert list(panels([curves])) == ["loss (nats/word)", "target words/s"]
    assert render_curves([curves], ["m"], 80)
    curve_figure([curves], ["m"]).draw_without_rendering()


def test_an_old_log_says_less(tmp_path):
    when = {"update": 5, "epoch": 0.5, "seconds": 2.0}
    events = [{"event": "progressed", **when, "loss": 2.0}, {"event": "validated", **when, "loss": 2.5}]
    curves = read_curves(write(tmp_path, events))
    assert curves.validations[0].loss == 2.5
    assert math.isnan(curves.progress[0].words_per_second)
    assert list(panels([curves])) == ["loss (nats/word)"]


WRONG = [
    ("no json\n", "line 1: not an event"),
    ("no json", "line 1: not an event"),
    ("[1]\n", "line 1: not an event"),
    ('{"id": 1}\n', "line 1: not an event"),
    (json.dumps(started()) + "\n\nno json\n{}\n", "line 3: not an event"),
    (json.dumps(started()) + '\n{"event": "progressed", "update": "x", "epoch": 1, "seconds": 2}\n', "line 2: not"),
    (json.dumps(started()) + '\n{"event": "progressed", "update": 1e999, "epoch": 1, "seconds": 2}\n', "line 2: not"),
    ("", "has no event yet"),
]


@pytest.mark.parametrize(("text", "message"), WRONG)
def test_another_file_is_named_with_its_line(tmp_path, text, message):
    (tmp_path / "train.jsonl").write_text(text)
    with pytest.raises(FormatError, match=rf"train\.jsonl: {message}.*; give a model directory"):
        read_curves(tmp_path)


def test_what_is_no_model(tmp_path):
    (tmp_path / "bytes").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(256)))
    for name, message in (("none", "No such file"), ("", "No such file"), ("bytes", "bytes: line 1: not an")):
        with pytest.raises(FormatError, match=message):
            read_curves(tmp_path / name)


def test_panels_contain_training_and_dev_of_every_model(run):
    loss, bleu, _ = panels([run, run], "hours").values()
    assert [(trace.model, trace.dev) for trace in loss] == [(0, False), (1, False), (0, True), (1, True)]
    assert loss[2].best == (pytest.approx(30 / 3600), 2.9)
    assert [trace.y for trace in bleu] == [[10, 20, 25]] * 2


def test_the_figure_has_a_line_per_model_and_rings_what_was_kept(run):
    figure = curve_figure([run, run], ["a", "$b$"], "epochs")
    loss, bleu, speed, names = figure.axes
    titles = ["loss (nats/word)", "dev BLEU", "target words/s"]
    assert [axes.get_title(loc="left") for axes in (loss, bleu, speed)] == titles
    assert list(loss.lines[0].get_ydata()) == [5, 3, 2, 1]
    assert list(loss.lines[0].get_xdata()) == [0.1, 0.2, 0.3, 0.4]
    rings = [(list(line.get_xdata()), list(line.get_ydata())) for line in bleu.lines if line.get_marker() == "o"]
    assert ([0.3], [20.0]) in rings
    assert [line.get_clip_on() for line in bleu.lines if line.get_fillstyle() == "none"] == [False, False]
    assert speed.get_ylim()[0] == 0
    assert [text.get_text() for text in names.get_legend().get_texts()] == ["a", "$b$"]
    assert any(SIGNATURE in text.get_text() for text in figure.texts)


def test_a_log_that_has_only_begun(tmp_path):
    curves = read_curves(write(tmp_path / "m", [started()]))
    assert panels([curves]) == {}
    figure = curve_figure([curves], ["m"])
    assert [text.get_text() for text in figure.axes[0].texts] == ["nothing reported yet"]
    lines = render_curves([curves], ["m"], 80).split("\n")
    assert lines[0] == "nothing reported yet"
    assert ["updates", "0"] in [line.split() for line in lines]


def test_one_model_in_the_terminal(run):
    lines = render_curves([run], ["m"], 70).split("\n")
    chart = lines[:12]
    assert chart[0].split() == ["loss", "(nats/word)", "dev", "BLEU"]
    assert chart[11].split() == ["updates", "updates"]
    marks = [line.count("●") for line in chart], [line.count("◆") for line in chart]
    assert tuple(map(sum, marks)) == (4, 2)  # of three validations, the one that was kept has another mark
    assert any("⠤" in line for line in chart)
    assert "● dev  ◆ kept as best" in lines
    table = dict(line.split("  ", 1) for line in lines if line.startswith(("ended", "training loss", "dev BLEU ")))
    found = {name: value.strip() for name, value in table.items()}
    assert found == {"ended": "40 updates", "training loss": "1.000", "dev BLEU": "25.00"}
    assert f"dev BLEU, greedy: {SIGNATURE}" in lines


@pytest.mark.parametrize("width", [34, 79, 140])
@pytest.mark.parametrize("colour", [False, True])
def test_charts_keep_within_the_width(run, width, colour):
    text = render_curves([run, run, run], ["one", "two", "a name longer than any other"], width, "hours", colour)
    charts = text[: text.index("\nended  ")].split("\n")[:-1]
    assert len(charts) > 15
    assert max(cell_len(re.sub("\x1b[^m]*m", "", line)) for line in charts) <= width
    assert ("\x1b" in text) == colour


def test_models_are_told_apart_with_and_without_colour(run, tmp_path):
    other = read_curves(write(tmp_path / "b", [started(), progressed(10, 9.0), progressed(40, 8.0)]))
    plain = render_curves([run, other], ["one", "two"], 80)
    chart = plain[: plain.index("a one")]
    assert {"a", "b", "A"} <= set(chart)
    assert "⠤" not in chart
    assert "a one\nb two\ncapital letter: dev\n" in plain
    coloured = render_curves([run, other], ["one", "two"], 80, colour=True)
    assert "\x1b[38;5;33m" in coloured
    assert "\x1b[38;5;208m" in coloured


@pytest.mark.parametrize("installed", [None, ModuleType("plotext")])  # none, or one with another interface
def test_without_plotext_the_user_learns_what_to_install(installed, run, monkeypatch):
    monkeypatch.setitem(sys.modules, "plotext", installed)
    lines = render_curves([run], ["m"], 80).splitlines()
    assert lines[0] == "charts in the terminal need plotext: pip install 'nmtalign[plot]'"
    assert any(line.split() == ["dev", "BLEU", "25.00"] for line in lines)
