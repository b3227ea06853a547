"""What this machine is, what nmtalign would use of it, and what is missing; it does not need PyTorch."""

import os
import platform
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

from nmtalign.processor import control_group, cpu_facts, usable_cores
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.text.lines import counted
from nmtalign.version import __version__

# Instructions that make products faster, and their names in /proc/cpuinfo.
_INSTRUCTIONS: Mapping[str, set[str]] = {
    "AVX2": {"avx2"},
    "AVX-512": {"avx512f"},
    "VNNI": {"avx512_vnni", "avx_vnni"},
    "bf16": {"avx512_bf16", "bf16"},
    "AMX": {"amx_tile"},
}
_GB = 1e9
_LEAST_FREE = 2.0  # GB of memory and of the disk
_PACKAGES = ("torch", "numpy", "h5py", "sentencepiece", "sacremoses", "sacrebleu", "safetensors")


def describe_machine(root: Path = Path("/")) -> dict[str, Any]:
    """Facts about the machine: processor, memory, disk, devices, precision, versions.

    "problems" is a list with the keys "problem" and "fix"; a problem with which nmtalign cannot run has "unusable". The
    disk is that of the current folder. The system's files are read below `root`.
    """
    cpu = cpu_facts(root)
    flags = {flag for name in ("flags", "Features") for flag in cpu.get(name, "").split()}
    disk, versions = psutil.disk_usage("."), dict.fromkeys(_PACKAGES, "missing")
    versions |= {name: found.version for name in _PACKAGES for found in metadata.distributions(name=name)}
    facts: dict[str, Any] = {
        "processor": {
            "name": cpu.get("model name") or cpu.get("Model") or platform.processor() or platform.machine(),
            "instructions": ", ".join(name for name, names in _INSTRUCTIONS.items() if flags & names),
        },
        "cores": {"usable": usable_cores(root), "present": psutil.cpu_count() or 1},
        "memory": _memory(root),
        "disk": {"folder": str(Path.cwd())}
        | {f"{part}_gb": round(getattr(disk, part) / _GB, 1) for part in ("free", "total")},
        "versions": {"nmtalign": __version__, "Python": platform.python_version()} | versions,
    }
    missing = [name for name, version in versions.items() if version == "missing"]
    problems = [_problem(f"{name} is not installed", f"pip install {name}", unusable=True) for name in missing]
    try:
        import torch
    except Exception as error:  # a damaged installation raises errors of many classes
        reason = " ".join(str(error).split())[:200]
        problems.append(_problem(f"PyTorch cannot be loaded: {reason}", "install it again: pip install torch", True))
    else:
        facts |= _pytorch(torch)
        problems += _pytorch_problems(torch, facts)
    for name, fix in (
        ("memory", "end other programs, or give --set max_memory=1G to translate and a small --batch-size to train"),
        ("disk", "remove files, or work in a folder on another disk"),
    ):
        if (free := facts[name]["free_gb"]) < _LEAST_FREE:
            problems.append(_problem(f"{name}: only {free:.1f} GB are free", fix))
    known = facts["processor"]["instructions"]
    if platform.machine().lower() in ("x86_64", "amd64") and known and "AVX2" not in known:
        problems.append(_problem("the processor has no AVX2", "nothing to do: nmtalign works, several times slower"))
    if (load := psutil.getloadavg()[0]) > facts["cores"]["present"]:
        problems.append(_problem(f"{load:.0f} processes compete for the cores", "wait, or end other programs"))
    return {**facts, "problems": problems}


def _problem(problem: str, fix: str, unusable: bool = False) -> dict[str, Any]:
    return {"problem": problem, "fix": fix, **({"unusable": True} if unusable else {})}


def _pytorch(torch: Any) -> dict[str, Any]:
    """The devices, and the precision that nmtalign chooses, with the fastest one of the device."""
    from nmtalign.core.numerics import BF16_UNITS, has_fast_bf16, inference_precision, pick_device

    devices = {"cpu": counted(torch.get_num_threads(), "thread")}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        about = torch.cuda.get_device_properties(number)
        devices[f"cuda:{number}"] = f"{about.name}, {about.total_memory / _GB:.1f} GB"
    if torch.backends.mps.is_available():
        devices["mps"] = "GPU of Apple"
    device = pick_device("auto")
    from_units = f" from {BF16_UNITS} hidden units on" if device.type == "cpu" else ""
    training = TrainingConfig().precision, f"bf16{from_units}" if has_fast_bf16(device) else "fp32"
    translating = TranslateConfig().precision, inference_precision("auto", device)
    best = f"the fastest on {device.type}"
    precision = {
        use: f"{fastest} ({best})" if setting == "auto" else f"{setting} ({best}: {fastest})"
        for use, (setting, fastest) in (("training", training), ("translating", translating))
    }
    return {"devices": devices, "precision": precision}


def _pytorch_problems(torch: Any, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    threads, usable = torch.get_num_threads(), facts["cores"]["usable"]
    if torch.version.cuda and not torch.cuda.is_available():
        fix = "install NVIDIA's driver, or ignore this if the machine has no GPU: PyTorch without CUDA is smaller"
        yield _problem("PyTorch is built with CUDA, and finds no GPU", fix)
    if threads < usable and (names := {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & set(os.environ)):
        yield _problem(f"{min(names)} limits PyTorch to {threads} of {usable} cores", "unset it, or give --threads")
    elif threads > usable:
        yield _problem(f"PyTorch uses {threads} threads on {usable} usable cores", f"give --threads {usable}")


def _memory(root: Path) -> dict[str, float]:
    """Total and free memory in GB, within the limit of the control group, which psutil does not know."""
    memory = psutil.virtual_memory()
    total, free = memory.total, memory.available
    for limit, used, kept in zip(
        control_group(root, "memory.max", "memory/memory.limit_in_bytes"),
        control_group(root, "memory.current", "memory/memory.usage_in_bytes"),
        control_group(root, "memory.stat", "memory/memory.stat"),
        strict=True,
    ):
        if limit and limit[0].isdigit() and int(limit[0]) < total:
            total = int(limit[0])
            facts = dict(line.split(maxsplit=1) for line in kept if len(line.split()) == 2)
            # What was read from files, which the system can drop; "total_" in the first version of control groups.
            cache = int(facts.get("total_inactive_file", facts.get("inactive_file", 0)))
            free = min(free, max(0, total - int(used[0]) + cache) if used else total)
    return {"free_gb": round(free / _GB, 1), "total_gb": round(total / _GB, 1)}
