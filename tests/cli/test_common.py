"""Waiting threads: sleeping on a busy machine, spinning on an idle one, or as set in the environment; progress."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest

from nmtalign.cli import common
from nmtalign.cli.common import advancing, live_line, name_files
from nmtalign.errors import UsageError


def test_threads_join_while_others_compute_and_leave_afterwards(monkeypatch):
    looks, joined = iter([(0.0, 0.0), (1.0, 0.0), (2.0, 1.0), (2.0, 1.0), (3.0, 2.0), (4.0, 4.0), (5.0, 4.1)]), []
    monkeypatch.setattr(common, "_clocks", lambda: next(looks))
    monkeypatch.setattr(common, "_join", lambda busy: joined.append(busy) or len(joined) > 1)  # the first time too few
    monkeypatch.setattr(common, "_start_watch", lambda: joined.append("another thread"))
    common._watch_others(0.0)  # PyTorch would tell a thread that has asked before the old number of threads
    common._watch_others(0.0)
    assert joined == [1.0, "another thread", 1.0, "another thread"]


def test_a_system_that_reports_no_load_is_not_watched(monkeypatch):
    """Without /proc, or with too many open files; the thread would print a traceback."""
    monkeypatch.setattr(common.psutil, "cpu_times", lambda: open("/none/stat"))  # noqa: SIM115, PTH123
    common._watch_others(0.0)


def test_an_unfinished_import_of_pytorch_is_left_alone(monkeypatch):
    """If a signal ended it in the main thread while this one continued it, Python would abort."""
    monkeypatch.setitem(sys.modules, "torch", ModuleType("torch"))
    assert not common._join(1000.0)


def test_a_signal_that_an_import_has_lost_ends_the_next_part():
    signals = common.Signals()
    with pytest.raises(common.Stop):
        signals._handle(signal.SIGTERM, None)
    with pytest.raises(common.Stop, match="ended by SIGTERM"), signals.stopping(lambda reason: None):
        raise AssertionError


def test_a_signal_that_a_library_has_lost_is_not_printed(monkeypatch):
    signals, printed = common.Signals(), []
    monkeypatch.setattr(sys, "unraisablehook", printed.append)

    class Library:
        def __del__(self) -> None:
            signals._handle(signal.SIGTERM, None)

    with signals:
        Library()
        with pytest.raises(common.Stop):
            signals.check()
    assert not printed


def test_a_signal_that_comes_while_the_first_is_noted_is_the_second(monkeypatch):
    signals, reasons = common.Signals(), []

    def clock() -> float:
        monkeypatch.undo()
        signals._handle(signal.SIGTERM, None)  # as Python calls it between two steps of the first one
        return 0.0

    monkeypatch.setattr(common.time, "monotonic", clock)
    with pytest.raises(common.Stop, match="ended by SIGTERM"), signals.stopping(reasons.append):
        signals._handle(signal.SIGINT, None)


GUEST = """
import sys, threading, time
import psutil, torch
from nmtalign.cli import common
torch.set_num_threads(1)
assert not common._join(1000.0)
torch.set_num_threads(2)
torch.zeros(1 << 20).add_(1)
count, before = psutil.Process().num_threads, psutil.Process().num_threads()
for busy in (0.0, 1000.0):
    joined, leave = threading.Event(), threading.Event()
    guest = threading.Thread(target=lambda: (common._join(busy), joined.set(), leave.wait()))
    guest.start()
    joined.wait()
    more = count() - before
    leave.set()
    guest.join()
    while count() > before:  # a thread is gone soon after it has been waited for
        time.sleep(0.01)
    print(more)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems have another OpenMP")
def test_a_guest_has_threads_of_its_own_if_cores_are_short():
    call = [sys.executable, "-c", GUEST]
    environment = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    printed = subprocess.run(call, capture_output=True, text=True, check=True, env=environment, timeout=250).stdout
    for busy, joined in zip((0.0, 1000.0), printed.splitlines(), strict=True):
        assert (int(joined) >= 2) == (busy + 2 > len(os.sched_getaffinity(0)) + 0.5)


HASTY = """
import threading, torch
from nmtalign.cli import common
begun, zeros, common._BUSY = threading.Event(), torch.zeros, -1000
torch.zeros = lambda size: begun.set() or zeros(1 << 26)
common.sleep_beside_others()
begun.wait()
"""


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="no thread joins on this system")
def test_a_command_that_ends_while_a_thread_joins_does_not_crash():
    names = os.environ.keys() - {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
    environment = {**{name: os.environ[name] for name in names}, "OMP_NUM_THREADS": "2"}
    ended = subprocess.run([sys.executable, "-c", HASTY], capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")


def test_what_other_processes_use_is_counted():
    def busy(work):
        (began, before), _, (now, used) = common._clocks(), work(), common._clocks()
        return used - before, now - began

    def compute():
        own = time.process_time()
        while time.process_time() < own + 0.3:
            pass

    used, passed = busy(compute)
    assert -0.1 < used <= os.cpu_count() * (passed + 0.1)
    child = [sys.executable, "-Sc", "import time\nwhile time.process_time() < 0.3: pass"]
    assert busy(lambda: subprocess.run(child, check=True))[0] > 0.2


def test_what_is_printed_beside_the_progress_stays_on_stdout(monkeypatch, capfd):
    number, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with advancing(False, "aligning", None, "pairs") as advance:
            for one in range(3):
                sys.stdout.write(f"{one}-{one}\n")
                advance(1)
        shown = b""
        while b"aligning: 3 pairs" not in shown:  # a terminal may deliver what was written in several parts
            shown += os.read(number, 10_000)
    os.close(number)
    assert capfd.readouterr().out == "0-0\n1-1\n2-2\n"


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_of_lines_in_a_log_comes_after_10_s_and_30_s_and_then_every_minute(quiet, monkeypatch, capsys):
    now = [100.0]
    monkeypatch.setattr("nmtalign.cli.common.time.monotonic", lambda: now[0])
    with advancing(quiet, "translating", 160) as advance:
        for _ in range(160):
            now[0] += 1
            advance(1)
    expected = [f"nmtalign: translating: {seconds} of 160 lines, 1/s" for seconds in (10, 30, 60, 120)]
    assert capsys.readouterr().err.splitlines() == ([] if quiet else expected)
    with live_line("opening the texts", quiet) as show:
        for second in range(1, 41):
            now[0] += 1
            show(f"learning: {second}%")
    expected = ["nmtalign: learning: 10%", "nmtalign: learning: 30%"]
    assert capsys.readouterr().err.splitlines() == ([] if quiet else expected)


def test_names_of_compared_files_are_short_and_different():
    def names(*files):
        return [name for name, _ in name_files([Path(file) for file in files])]

    assert names("x/a.fr", "b.fr", "ours=c.fr", "-") == ["a.fr", "b.fr", "ours", "stdin"]
    assert names("x/a.fr", "y/a.fr") == ["x/a.fr", "y/a.fr"]
    assert names("models/a/train.jsonl", "b") == ["a", "b"]
    assert names(".", "/dev/fd/0") == [Path.cwd().name, "0"]  # a pipe of `<(command)` has a name for each run
    with pytest.raises(UsageError, match="two files are named a; give each a different name: NAME=FILE"):
        names("a=x", "a=y")
