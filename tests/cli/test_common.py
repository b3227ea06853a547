"""Threads that wait: sleeping on a busy machine, spinning on an idle one, as the environment says where it does."""

import os

import pytest

from nmtalign.cli import common


@pytest.fixture
def fresh(monkeypatch):
    for name in ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delitem(common.sys.modules, "torch", raising=False)
    return monkeypatch


@pytest.mark.parametrize(("busy", "policy"), [(0.0, None), (1.0, "PASSIVE")])
def test_a_busy_machine_makes_threads_sleep(fresh, busy, policy):
    fresh.setattr(common, "_busy_cores", lambda seconds: busy)
    fresh.setenv("OMP_WAIT_POLICY", "later undone")
    fresh.delenv("OMP_WAIT_POLICY")
    common.choose_wait_policy()
    assert os.environ.get("OMP_WAIT_POLICY") == policy


def test_the_environment_decides_where_it_says_something(fresh):
    fresh.setattr(common, "_busy_cores", lambda seconds: 2.0)
    fresh.setenv("OMP_WAIT_POLICY", "ACTIVE")
    common.choose_wait_policy()
    assert os.environ["OMP_WAIT_POLICY"] == "ACTIVE"


def test_busy_cores_is_a_number_of_cores():
    assert 0 <= common._busy_cores(0.05) <= os.cpu_count() + 1
