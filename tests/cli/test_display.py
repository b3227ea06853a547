"""What `nmtalign train` shows: plain lines at fixed times, a panel that fits every terminal, both without delay."""

import io
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from nmtalign.cli.panel import TrainingPanel
from rich.console import Console

from nmtalign.cli.display import PlainLines
from nmtalign.training.events import Finished, Noticed, Saved, Skipped, Started, Underway, Validated, Working

AT = (1234567, 12.34, 52.0)
STARTED = Started(*AT, False, 84_349_101, 12_345_678, 12_345, "cuda:0", "bf16", 16, "0.2.0", "2.6", 1234)
SENTENCE = "Der alte Mann mit dem langen weißen Bart sitzt auf einer Bank im Park und liest die Zeitung von gestern."


class Clock:
    seconds = 0.0

    def __call__(self):
        return self.seconds


def underway(**changes):
    values = {
        "loss": 2.0,
        "loss_sentence": 40.0,
        "perplexity": 7.39,
        "source_words_per_second": 123456.7,
        "target_words_per_second": 134567.8,
        "gradient_norm": 1.25,
        "learning_rate": 0.00034,
        "padding": 0.1,
        "done": 0.43,
        "seconds_left": 68.0,
        "skipped": 0,
    }
    return Underway(*AT, **values | changes)


def validated(best=True, **changes):
    sample = {"sample_source": SENTENCE, "sample_translation": SENTENCE * 3, "sample_reference": "猫" * 200}
    return Validated(123456, *AT[1:], 1.876, 30.0, 6.53, 37.64, "BLEU|…", best, 7, **sample | changes)


@pytest.fixture
def clock():
    return Clock()


class TestPlainLines:
    @pytest.fixture
    def lines(self, clock):
        written = []
        plain = PlainLines(written.append, clock)

        def at(seconds, *events):
            """Time passes, tick by tick; then events come. Returns what was written meanwhile."""
            written.clear()
            while clock.seconds < seconds:
                clock.seconds += 0.5
                plain.tick()
            for event in events:
                plain.take(event)
            return list(written)

        return at

    def test_lines_come_after_10_s_30_s_and_every_minute(self, lines):
        assert lines(0, STARTED)[0].startswith("training: 84,349,101 parameters")
        times = []
        for second in range(1, 301):
            times += [second for line in lines(second, underway()) if "words/s" in line]
        assert times == [10, 30, 60, 120, 180, 240, 300]

    def test_a_line_has_update_speed_and_time_left(self, lines):
        assert lines(9, underway()) == []
        (line,) = lines(10)
        assert re.search(r"update 1234567  epoch 12.34  43%  .*words/s 123,457 \+ 134,568  .*left 1:07", line)

    def test_slow_work_is_named_once_and_at_each_line(self, lines):
        assert lines(0, Working(*AT, "loading PyTorch")) == []
        assert lines(2.5, Working(*AT, "computing the first update")) == []
        assert lines(9.5) == ["computing the first update ..."]
        assert lines(10) == ["computing the first update ..."]
        assert lines(29.5) == []
        assert lines(30) == ["computing the first update ..."]

    def test_only_a_validation_that_takes_seconds_is_named(self, lines):
        assert lines(1, underway(), Working(*AT, "validating", 0.0)) == []
        assert lines(2, validated()) == ["update 123456  dev loss 1.876  dev ppl 6.53  BLEU 37.64  best"]
        assert lines(3, Working(*AT, "validating", 0.0)) == []
        assert lines(4, Working(*AT, "validating", 0.3)) == []
        assert lines(8, Working(*AT, "validating", 0.5)) == ["validating ... 30%"]
        assert lines(9, validated(best=False))[0].endswith("BLEU 37.64  patience 7 left")

    def test_the_end_of_a_short_run_has_its_figures(self, lines):
        (line,) = lines(1, STARTED, underway(), Finished(*AT, "6 updates", True, None, None))[1:]
        assert line.startswith("update 1234567 ")

    def test_the_figures_are_means_of_about_ten_seconds(self, lines):
        for second in range(1, 10):
            lines(second, underway(source_words_per_second=1000.0 * second, loss=1.0))
        (line,) = lines(10)
        assert "words/s 5,000 +" in line  # the mean of 1,000 to 9,000
        assert "loss 1.000  ppl 2.72" in line


def drawn(panel, width, height):
    """The rows of the panel on a terminal of this size, without colours."""
    console = Console(width=width, height=height, file=io.StringIO(), force_terminal=True, color_system=None)
    console.print(panel)
    return console.file.getvalue().rstrip("\n").split("\n")


def full_panel(clock, validations=12, **changes):
    panel = TrainingPanel(Path("models/large"), clock)
    panel.take(STARTED)
    panel.take(underway(**changes))
    for _ in range(validations):
        panel.take(validated())
    return panel


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 10), (20, 5), (60, 15), (10, 3)])
@pytest.mark.parametrize("more", [{}, {"alignment_loss": 0.5, "skipped": 3}])
def test_the_panel_fits_the_terminal(clock, width, height, more):
    panel = full_panel(clock, **more)
    panel.take(Skipped(*AT, 2))
    rows = drawn(panel, width, height)
    assert len(rows) <= height
    assert all(Console(width=width).measure(row).maximum <= width for row in rows)
    cut = [row for row in rows if "…" in row and not re.match(r"│ (source|translation|reference|  )", row)]
    assert not cut


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 12)])
def test_the_figures_are_complete(clock, width, height):
    text = " ".join(" ".join(row.strip("│").split()) for row in drawn(full_panel(clock), width, height))
    for part in (
        "43%",
        "0:52 gone",
        "1:08 left",
        "update 1,234,567",
        "epoch 12.34",
        "words/s 123,457 + 134,568",
        "loss 2.000",
        "ppl 7.39",
        "norm 1.25",
        "rate 0.00034",
        "patience 7 left",
        "update dev loss ppl BLEU",
        "123,456 1.876 6.53 37.64 best",
    ):
        assert part in text


def test_a_large_terminal_shows_more(clock):
    small, large = drawn(full_panel(clock), 80, 24), drawn(full_panel(clock), 200, 50)
    assert sum("37.64" in row for row in large) == 8
    assert sum("Bart" in row for row in large) > sum("Bart" in row for row in small)
    assert any("84,349,101 parameters" in row for row in small)
    assert max(map(len, large)) == 120


def test_the_time_passes_between_events(clock):
    panel = full_panel(clock)
    clock.seconds = 10.0
    assert any("1:02 gone  0:58 left" in row for row in drawn(panel, 80, 24))
    panel.take(Working(*AT, "validating", 0.4))
    clock.seconds = 15.0
    assert any("validating ... 40%  0:05" in row for row in drawn(panel, 80, 24))
    panel.take(Saved(*AT, "model"))
    assert not any("validating" in row for row in drawn(panel, 80, 24))


def test_a_run_without_a_limit_says_so(clock):
    assert any("no limit" in row for row in drawn(full_panel(clock, seconds_left=None, done=0.0), 80, 24))


def test_before_the_first_update_the_panel_names_the_work(clock):
    panel = TrainingPanel(Path("model"), clock)
    panel.take(Working(0, 0.0, 0.0, "loading PyTorch"))
    clock.seconds = 4.0
    assert "loading PyTorch ...  0:04" in drawn(panel, 80, 24)[1]


def test_a_resized_terminal_is_cleared_once(clock):
    panel = full_panel(clock)
    clear = "\x1b[H\x1b[2J"
    assert clear not in "\n".join(drawn(panel, 80, 24))
    assert "\n".join(drawn(panel, 60, 24)).startswith(clear)
    assert panel.cleared
    assert clear not in "\n".join(drawn(panel, 60, 24))


def test_control_characters_in_texts_stay_visible(clock):
    panel = full_panel(clock, validations=0)
    panel.take(validated(sample_source="red \x1b[31m text"))
    assert "red \\x1b[31m text" in "\n".join(drawn(panel, 80, 24))


class Terminal:
    """A session of tmux."""

    def __init__(self, folder, width, height):
        self._tmux = ["tmux", "-S", str(folder / "tmux.socket"), "-f", "/dev/null"]
        self._run("new-session", "-d", "-x", str(width), "-y", str(height), "-s", "x", "sh")

    def _run(self, *arguments):
        return subprocess.run([*self._tmux, *arguments], capture_output=True, text=True, check=True).stdout

    def type(self, line):
        self._run("send-keys", "-t", "x", line, "Enter")

    def resize(self, width, height):
        self._run("resize-window", "-t", "x", "-x", str(width), "-y", str(height))

    def rows(self):
        return [row for row in self._run("capture-pane", "-t", "x", "-p").split("\n") if row]

    def until(self, *parts):
        """The rows, as soon as they contain all parts and one complete panel."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            rows = self.rows()
            whole = [row[0] for row in rows].count("╭") == [row[0] for row in rows].count("╰") == 1
            if whole and all(part in "\n".join(rows) for part in parts):
                return rows
            time.sleep(0.5)
        raise AssertionError("\n".join(self.rows()))

    def close(self):
        subprocess.run([*self._tmux, "kill-server"], capture_output=True, check=False)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("tmux"), reason="needs tmux")
@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50)])
def test_in_a_real_terminal(nmtalign, tmp_path, width, height):
    nmtalign("sample", tmp_path, "--pairs", "300")
    nmtalign("prep")
    terminal = Terminal(tmp_path, width, height)
    try:
        options = "--preset tiny --epochs 100000 --patience 0 --validate-every 5s"
        root = Path(__file__).parents[2]
        terminal.type(
            f"cd {tmp_path}; clear; COLUMNS={width} PYTHONPATH={root} {sys.executable} -m nmtalign train -o m {options}"
        )
        terminal.until("left", "update ", "words/s ")
        rows = terminal.until("dev loss", "source", "translation", "reference")
        assert len(rows) <= height
        terminal.resize(50, 14)
        time.sleep(2)
        rows = terminal.until("left", "words/s ")
        assert all(len(row) <= 50 for row in rows)
        terminal.resize(width, height)
        time.sleep(2)
        terminal.until("left", "words/s ", "dev loss")
        terminal._run("send-keys", "-t", "x", "C-c")
        terminal.until("the same command resumes")
    finally:
        terminal.close()


def test_a_notice_is_a_line_of_its_own():
    written = []
    PlainLines(written.append).take(Noticed(*AT, "the warm-up is short"))
    assert written == ["the warm-up is short"]
