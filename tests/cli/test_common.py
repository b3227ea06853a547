"""Waiting threads: sleeping on a busy machine, spinning on an idle one, or as set in the environment; progress."""

import io
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nmtalign.cli import common
from nmtalign.cli.common import advancing, busy_cores, choose_wait_policy, counted, lines_of, name_files
from nmtalign.errors import UsageError


@pytest.fixture
def fresh(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "restored at the end")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return monkeypatch


@pytest.mark.parametrize(("busy", "policy"), [(0.0, None), (1.0, "PASSIVE")])
def test_a_busy_machine_makes_threads_sleep(fresh, busy, policy):
    choose_wait_policy(lambda: busy)
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_what_other_processes_use_is_counted(fresh):
    fresh.setattr(common, "_BEGAN", common._clocks())
    own = time.process_time()
    while time.process_time() < own + 0.3:
        pass
    idle = busy_cores()
    fresh.setattr(common, "_BEGAN", common._clocks())
    subprocess.run([sys.executable, "-Sc", "import time\nwhile time.process_time() < 0.3: pass"], check=True)
    assert -0.2 < idle < os.cpu_count()
    assert 0.3 < busy_cores() <= os.cpu_count() + 0.2


def test_what_is_printed_beside_the_progress_stays_on_stdout(monkeypatch, capfd):
    number, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        for one in counted(range(3), "aligning", "pairs", quiet=False):
            sys.stdout.write(f"{one}-{one}\n")
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


def test_the_lines_of_a_text_are_estimated_from_its_beginning(tmp_path, monkeypatch):
    path = tmp_path / "in.en"
    path.write_bytes(b"a line of words\n" * 20_000)
    read, raw = [], io.FileIO.readinto
    monkeypatch.setattr(
        io, "FileIO", type("File", (io.FileIO,), {"readinto": lambda *one: read.append(raw(*one)) or read[-1]})
    )
    assert lines_of(path) == 20_000
    assert sum(read) < 200_000
    path.write_bytes(b"a\nb\nc")
    assert lines_of(path) == 3
    path.write_bytes(b"")
    assert lines_of(path) is None
    assert lines_of(tmp_path / "none") is None


def test_names_of_compared_files_are_short_and_different():
    def names(*files):
        return [name for name, _ in name_files([Path(file) for file in files])]

    assert names("x/a.fr", "b.fr", "ours=c.fr", "-") == ["a.fr", "b.fr", "ours", "stdin"]
    assert names("x/a.fr", "y/a.fr") == ["x/a.fr", "y/a.fr"]
    assert names("models/a/train.jsonl", "b") == ["a", "b"]
    with pytest.raises(UsageError, match="two files are named a; give each a different name: NAME=FILE"):
        names("a=x", "a=y")
