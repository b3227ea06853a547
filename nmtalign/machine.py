"""What this machine is, what nmtalign would use of it, and what is missing; it does not need PyTorch."""

import contextlib
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from nmtalign.processor import control_group, cpu_facts, usable_cores
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.version import __version__

if TYPE_CHECKING:
    import torch

# Instructions that make products faster: the test of PyTorch, and the names in /proc/cpuinfo.
_INSTRUCTIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "AVX2": ("_is_avx2_supported", ("avx2",)),
    "AVX-512": ("_is_avx512_supported", ("avx512f",)),
    "VNNI": ("_is_vnni_supported", ("avx512_vnni", "avx_vnni")),
    "bf16": ("_is_avx512_bf16_supported", ("avx512_bf16", "bf16")),
    "AMX": ("_is_amx_tile_supported", ("amx_tile",)),
}
_GB = 1e9
_VOCABULARY, _PAIRS, _WORDS = 4000, 40, 12  # of the text of the measurement
_SECONDS = 0.3  # of a measurement


def describe_machine(folder: Path = Path(), root: Path = Path("/")) -> dict[str, Any]:
    """Facts about the machine, as `nmtalign doctor --format json` prints them, with a measurement of about a second.

    "problems" is a list with the keys "problem" and "fix"; a problem with which nmtalign cannot run has "unusable". The
    disk is that of `folder`. The system's files are read below `root`.
    """
    versions, missing = _requirements()
    facts: dict[str, Any] = {
        "processor": {"name": _processor_name(root), "instructions": instructions(root)},
        "cores": {"usable": usable_cores(root), "present": psutil.cpu_count() or 1},
        "memory": _memory(root),
        "disk": _disk(folder),
        "versions": {"nmtalign": __version__, "Python": platform.python_version(), **versions},
        "extras": {name: _extra_state(name, needed) for name, needed in _requirements_by_extra().items() if name},
    }
    problems = [_problem(f"{name} is not installed", f"pip install {name}", unusable=True) for name in missing]
    try:
        import torch
    except Exception as error:  # a damaged installation raises errors of many classes
        reason = " ".join(str(error).split())[:200]
        problems.append(_problem(f"PyTorch cannot be loaded: {reason}", "install it again: pip install torch", True))
    else:
        facts |= _pytorch(torch)
        problems += _pytorch_problems(torch, facts)
    return {**facts, "problems": [*problems, *_shortages(facts)]}


def _problem(problem: str, fix: str, unusable: bool = False) -> dict[str, Any]:
    return {"problem": problem, "fix": fix, **({"unusable": True} if unusable else {})}


def _pytorch(torch: Any) -> dict[str, Any]:
    """The devices, the precision that nmtalign chooses and why, and the measured speed."""
    from nmtalign.core.devices import has_fast_bf16, inference_precision, pick_device

    devices = {"cpu": f"{torch.get_num_threads()} threads"}
    for number in range(torch.cuda.device_count() if torch.cuda.is_available() else 0):
        about = torch.cuda.get_device_properties(number)
        devices[f"cuda:{number}"] = f"{about.name}, {about.total_memory / _GB:.1f} GB"
    if torch.backends.mps.is_available():
        devices["mps"] = "GPU of Apple"
    device = pick_device("auto")
    trained = "bf16" if has_fast_bf16(device) else "fp32"
    chosen = {
        "training": _precision(TrainingConfig().precision, trained, device.type),
        "translating": _precision(TranslateConfig().precision, inference_precision("auto", device), device.type),
    }
    speed = {"fp32": _words_per_second(None)}
    if has_fast_bf16(pick_device("cpu")):
        speed["bf16"] = _words_per_second(torch.bfloat16)
    note = f"training words/s of the preset tiny on the processor, {_PAIRS} pairs of {_WORDS} words per update"
    return {"devices": devices, "precision": chosen, "speed": {**speed, "measured": note}}


def _precision(setting: str, fastest: str, device: str) -> str:
    """A default precision, and which is the fastest."""
    if setting == "auto":
        return f"{fastest} (the fastest on {device})"
    return f"{setting} (the default; --precision auto: {fastest}, the fastest on {device})"


def _words_per_second(dtype: "torch.dtype | None") -> int:
    """Source and target words per second of updates with random words on the processor."""
    import torch

    from nmtalign.core.model import TranslationModel
    from nmtalign.data.batches import make_batch
    from nmtalign.training.optimizers import descend, make_optimizer
    from nmtalign.training.updates import BatchLoss, add_gradient

    layer = "preset tiny", preset("tiny")
    config = resolve(ModelConfig, layer)
    config = replace(config, source_vocabulary_size=_VOCABULARY, target_vocabulary_size=_VOCABULARY)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        model = TranslationModel(config)
        ids = torch.randint(4, _VOCABULARY, (_PAIRS, 2, _WORDS)).tolist()
    batch = make_batch([(source, target) for source, target in ids])
    loss = BatchLoss(model, 0.0, dtype=dtype)
    optimizer = make_optimizer(model.parameters(), resolve(TrainingConfig, layer))
    updates, began = -1, 0.0  # the first one is not measured
    while updates < 1 or time.perf_counter() - began < _SECONDS:
        add_gradient(loss, torch.device("cpu"), batch, 1 / _PAIRS)
        descend(optimizer, 1e-4, 1.0)
        updates += 1
        began = began or time.perf_counter()
    return round(updates * (batch.source_words + batch.target_words) / (time.perf_counter() - began))


def _pytorch_problems(torch: Any, facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    threads, usable = torch.get_num_threads(), facts["cores"]["usable"]
    if torch.version.cuda and not torch.cuda.is_available():
        fix = "install NVIDIA's driver, or ignore this if the machine has no GPU: PyTorch without CUDA is smaller"
        yield _problem("PyTorch is built with CUDA, and finds no GPU", fix)
    if "cpu" in facts["precision"]["training"] and "bf16" not in facts["speed"]:
        yield _problem("the processor has no fast bf16 instructions", "nothing to do: fp32 is used, which is slower")
    if threads < usable and (names := {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & set(os.environ)):
        yield _problem(f"{min(names)} limits PyTorch to {threads} of {usable} cores", "unset it, or give --threads")
    elif threads > usable:
        yield _problem(f"PyTorch uses {threads} threads on {usable} usable cores", f"give --threads {usable}")


def _shortages(facts: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Problems of memory, disk and processor time."""
    for name, least, fix in (
        ("memory", 2.0, "end other programs, or give --max-memory to translate and a small --batch-size to train"),
        ("disk", 2.0, "remove files, or work in a folder on another disk"),
    ):
        if (free := facts[name]["free_gb"]) < least:
            yield _problem(f"{name}: only {free:.1f} GB are free", fix)
    instructions = facts["processor"]["instructions"]
    if platform.machine().lower() in ("x86_64", "amd64") and instructions and "AVX2" not in instructions:
        yield _problem("the processor has no AVX2", "nothing to do: nmtalign works, several times slower")
    load = psutil.getloadavg()[0]
    if load > facts["cores"]["present"]:
        yield _problem(f"{load:.0f} processes compete for the cores", "the speed above is too low; repeat it later")


def _processor_name(root: Path) -> str:
    facts = cpu_facts(root)
    if name := facts.get("model name") or facts.get("Model"):
        return name
    if sys.platform == "darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603
    return platform.processor() or platform.machine()


def instructions(root: Path = Path("/")) -> str:
    """The instructions that PyTorch or the system reports."""
    facts = cpu_facts(root)
    flags = {flag for name in ("flags", "Features") for flag in facts.get(name, "").split()}
    with contextlib.suppress(Exception):
        import torch

        flags |= {test for test, _ in _INSTRUCTIONS.values() if getattr(torch.cpu, test, bool)()}
    return ", ".join(name for name, (test, names) in _INSTRUCTIONS.items() if flags & {test, *names})


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


def _disk(folder: Path) -> dict[str, Any]:
    usage = psutil.disk_usage(str(folder))
    free, total = round(usage.free / _GB, 1), round(usage.total / _GB, 1)
    return {"folder": str(folder.resolve()), "free_gb": free, "total_gb": total}


def _requirements_by_extra() -> dict[str, list[str]]:
    """The packages that nmtalign needs (under "") and that each extra needs, from the metadata of its installation."""
    try:
        about = metadata.metadata("nmtalign")
    except metadata.PackageNotFoundError:  # run from a checkout
        return {}
    found: dict[str, list[str]] = {"": [], **{name: [] for name in about.get_all("Provides-Extra") or ()}}
    for text in about.get_all("Requires-Dist") or ():
        package, _, marker = text.partition(";")
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)", marker)
        below = re.search(r"python_version\s*<\s*['\"]3\.(\d+)", marker)
        named = re.match(r"[\w.-]+", package)
        if named and not (below and sys.version_info.minor >= int(below[1])):
            found.setdefault(extra[1] if extra else "", []).append(named[0])
    return found


def _requirements() -> tuple[dict[str, str], list[str]]:
    """The versions of the packages that nmtalign needs, and the packages that are missing."""
    needed = _requirements_by_extra().get("") or ["torch", "sentencepiece", "sacrebleu", "h5py", "numpy"]
    versions = {name: _version(name) for name in needed}
    return {name: version or "missing" for name, version in versions.items()}, [n for n in needed if not versions[n]]


def _extra_state(name: str, needed: Sequence[str]) -> str:
    missing = [package for package in needed if not _version(package)]
    return f"not installed: pip install 'nmtalign[{name}]'" if missing else "installed"


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""
