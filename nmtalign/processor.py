"""The processor: its name, its cores, and the precision in which it multiplies fastest. Imports no PyTorch."""

import contextlib
import ctypes
import itertools
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Literal

_ISA = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")  # limit the instructions of oneDNN, PyTorch's library for products
_WITH_BF16 = ("ALL", "DEFAULT", "BF16", "FP16", "AMX", "AVX10")
_WITH_VNNI = (*_WITH_BF16, "VNNI")
_WITH_AMX = ("ALL", "DEFAULT", "AMX", "AVX10")


def bf16_is_fast() -> bool:
    """Whether products of bf16 numbers take less time than those of fp32.

    AMX multiplies bf16 several times as fast as fp32. The bf16 instructions of AVX-512 take half the time of fp32 on
    AMD's processors, and twice its time on Intel's. Many virtual machines hide AMX, so that only the slow ones remain.
    A processor without any of them imitates bf16, several times as slowly as fp32. False if the system lists no flags.
    """
    amd = "AMD" in cpu_facts().get("vendor_id", "")
    return _has({"amx_bf16"}, _WITH_AMX) or (amd and _has({"avx512_bf16"}, _WITH_BF16))


def fastest_precision() -> Literal["fp32", "bf16", "int8"]:
    """The precision in which the processor translates and aligns fastest, with its own instructions.

    VNNI are instructions that multiply numbers of eight bits and add the products, in a quarter of the time of fp32. On
    AMD's processors with both VNNI and bf16, int8 is the faster one. Small models (`tiny`) may be faster in fp32.
    """
    if _has({"avx512_vnni", "avx_vnni"}, _WITH_VNNI) and not _has({"amx_bf16"}, _WITH_AMX):
        return "int8"
    return "bf16" if bf16_is_fast() else "fp32"


def _has(flags: set[str], names: Iterable[str]) -> bool:
    """Whether the processor has one of these flags, and oneDNN may use the instructions of one of these names."""
    isa = next((os.environ[name].upper() for name in _ISA if os.environ.get(name)), "ALL")
    return bool(flags & {*cpu_facts().get("flags", "").split()}) and any(name in isa for name in names)


def cpu_facts(root: Path = Path("/")) -> Mapping[str, str]:
    """Linux's facts about the first processor: "vendor_id", "model name", "flags" and others; {} on other systems."""
    parts = (line.partition(":") for line in itertools.takewhile(str.strip, lines_of(root / "proc/cpuinfo")))
    return {name.strip(): value.strip() for name, _, value in parts}


def usable_cores(root: Path = Path("/")) -> float:
    """The cores that this process may use: its affinity, or the quota of its control group if that is smaller."""
    found = [float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)]
    for lines in control_group(root, "cpu.max", "cpu/cpu.cfs_quota_us"):
        quota, period = [*lines[0].split(), "100000"][:2] if lines else ("max", "")
        if quota.isdigit():
            found.append(int(quota) / int(period))
    least = round(min(found), 2)
    return int(least) if least == int(least) else least


def control_group(root: Path, name: str, old_name: str) -> list[list[str]]:
    """The lines of a file of the control group of this process and of the groups that contain it.

    The last element is the file of a system with the first version of control groups; a missing file has no lines.
    """
    base = root / "sys/fs/cgroup"
    own = next((line[3:] for line in lines_of(root / "proc/self/cgroup") if line.startswith("0::")), "/")
    folder = base / own.strip("/")
    groups = [folder, *(parent for parent in folder.parents if parent == base or base in parent.parents)]
    return [*(lines_of(group / name) for group in groups), lines_of(base / old_name)]


def lines_of(path: Path) -> list[str]:
    """The lines of a file of the system; none where there is no such file."""
    with contextlib.suppress(OSError):
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    return []


def keep_memory() -> None:
    """Lets the C library of this process keep freed memory for the next batch; only commands call it, not the library.

    By default it returns every large array to the system, which fills the next one with zeros page by page: 30,000 page
    faults per batch, a tenth of the time. Only glibc can do this.
    """
    trim_threshold, map_threshold = -1, -3  # from glibc's malloc.h
    with contextlib.suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(map_threshold, 1 << 28)
        mallopt(trim_threshold, 2**31 - 1)


def return_memory() -> None:
    """Returns freed memory to the system; only glibc can do this.

    A search frees arrays of many sizes in several threads. glibc keeps the scattered free memory, and the process grows
    for a long time though it uses no more.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
