"""Waiting threads: sleeping on a busy machine, spinning on an idle one, or as set in the environment."""

import os
import sys

import pytest

from nmtalign.cli.common import choose_wait_policy, measure_busy_cores


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
