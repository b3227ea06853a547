"""Waiting threads: sleeping on a busy machine, spinning on an idle one, or as set in the environment; progress."""

import os
import sys

import pytest

from nmtalign.cli.common import advancing, choose_wait_policy, counted, measure_busy_cores


@pytest.fixture
def fresh(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.setenv(name, "restored at the end")
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    return monkeypatch


@pytest.mark.parametrize(("busy", "policy"), [(0.0, None), (1.0, "PASSIVE")])
def test_a_busy_machine_makes_threads_sleep(fresh, busy, policy):
    choose_wait_policy(lambda seconds: busy)
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_the_environment_has_precedence(fresh):
    fresh.setenv("OMP_WAIT_POLICY", "ACTIVE")
    choose_wait_policy(lambda seconds: 2.0)
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_busy_cores_is_a_number_of_cores():
    assert 0 <= measure_busy_cores(0.05) <= os.cpu_count() + 1


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


def test_progress_of_lines_on_a_terminal(monkeypatch):
    number, terminal = os.openpty()
    with os.fdopen(terminal, "w") as stderr:
        monkeypatch.setattr(sys, "stderr", stderr)
        with advancing(False, "translating with light", 1200) as advance:
            advance(900)
            advance(400)  # a long line has several pieces
            shown = b""
            while b"translating with light: 1,200 of 1,200 lines, " not in shown:
                shown += os.read(number, 10_000)
    os.close(number)


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
