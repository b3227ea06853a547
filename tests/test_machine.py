"""Facts about the machine: with and without /proc, control groups, PyTorch, and optional packages."""

import json
import os
import sys
from types import SimpleNamespace

import psutil
import pytest
from helpers.commands import call

from nmtalign import machine
from nmtalign.data import pipeline
from nmtalign.data.pipeline import worker_count
from nmtalign.errors import ResourceError
from nmtalign.machine import describe_machine
from nmtalign.processor import usable_cores


@pytest.fixture
def root(tmp_path, monkeypatch):
    """The files of a Linux system whose control group has 1.5 cores and 4 GB."""
    group = tmp_path / "sys/fs/cgroup/pod/job"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/pod/job\n")
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Fast 9000\nflags\t\t: fpu avx2 amx_tile\n")
    memory = SimpleNamespace(total=16_000_000_000, available=12_000_000_000)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)
    (group / "cpu.max").write_text("max 100000\n")
    (group.parent / "cpu.max").write_text("50000 100000\n")
    (group / "memory.max").write_text("max\n")
    (group.parent / "memory.max").write_text("4000000000\n")
    (group / "memory.current").write_text("900000000\n")
    (group.parent / "memory.current").write_text("1000000000\n")
    return tmp_path


def test_the_limits_of_control_groups_count(root):
    facts = describe_machine(root=root)
    assert facts["processor"]["name"] == "Fast 9000"
    assert {"AVX2", "AMX"} <= set(facts["processor"]["instructions"].split(", "))
    assert facts["cores"]["usable"] == 0.5
    assert facts["memory"] == {"free_gb": 3.0, "total_gb": 4.0}


def test_what_was_read_from_files_counts_as_free_memory(root):
    stat = root / "sys/fs/cgroup/pod/memory.stat"
    stat.write_text("anon 100000000\ninactive_file 600000000\n")
    assert describe_machine(root=root)["memory"]["free_gb"] == 3.6
    (stat.parent / "memory.current").write_text("4700000000\n")
    facts = describe_machine(root=root)
    assert facts["memory"]["free_gb"] == 0
    assert any("memory" in one["problem"] or "free" in one["problem"] for one in facts["problems"])


def test_there_are_no_more_processes_than_cores(monkeypatch, root):
    monkeypatch.setattr(pipeline, "usable_cores", lambda: usable_cores(root))
    assert worker_count(0) == 1
    (root / "sys/fs/cgroup/pod/cpu.max").write_text("max 100000\n")
    (root / "sys/fs/cgroup/cpu").mkdir()
    (root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").write_text("70000\n")  # the first version of control groups
    assert usable_cores(root) == 0.7
    assert (worker_count(0), worker_count(3)) == (1, 3)


def test_a_system_without_these_files(tmp_path):
    facts = describe_machine(root=tmp_path)
    assert facts["cores"]["usable"] >= 1
    assert "fastest on" in facts["precision"]["training"]
    assert facts["versions"]["torch"]


def test_a_machine_without_pytorch_is_described(monkeypatch, root):
    monkeypatch.setitem(sys.modules, "torch", None)
    facts = describe_machine(root=root)
    (problem,) = (one for one in facts["problems"] if one.get("unusable"))
    assert problem["problem"].startswith("PyTorch cannot be loaded")
    assert facts["processor"]["name"] == "Fast 9000"
    assert "devices" not in facts


def test_a_package_that_is_missing_is_a_problem(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "_PACKAGES", ("torch", "absent-package"))
    facts = describe_machine(root=tmp_path)
    assert facts["versions"]["absent-package"] == "missing"
    problem = {"problem": "absent-package is not installed", "fix": "pip install absent-package", "unusable": True}
    assert problem in facts["problems"]


def test_a_limit_of_threads_and_a_full_disk_are_problems(monkeypatch, tmp_path):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setattr(machine, "usable_cores", lambda root: 8)
    monkeypatch.setattr(machine.psutil, "disk_usage", lambda folder: SimpleNamespace(free=5e8, total=1e9))
    described = describe_machine(root=tmp_path)
    found = {one["problem"]: one["fix"] for one in described["problems"]}
    assert described["devices"]["cpu"] == "1 thread"
    assert found["OMP_NUM_THREADS limits PyTorch to 1 of 8 cores"] == "unset it, or give --threads"
    assert "disk: only 0.5 GB are free" in found


def test_info_without_a_path_describes_the_machine_and_its_problems():
    text = call("info")
    for part in ["processor", "cores", "memory", "disk", "devices", "precision", "versions"]:
        assert f"{part}:\n" in text
    assert text.splitlines()[-1].startswith(("  ", "problems:"))
    facts = json.loads(call("info", "--format", "json"))
    assert facts["cores"]["present"] == os.cpu_count()
    assert 0 < facts["memory"]["free_gb"] <= facts["memory"]["total_gb"]
    assert isinstance(facts["problems"], list)


@pytest.mark.parametrize("written", ["text", "json"])
def test_what_makes_nmtalign_unusable_is_an_error_of_info(monkeypatch, written):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ResourceError, match="cannot run here: PyTorch cannot be loaded"):
        call("info", "--format", written)
