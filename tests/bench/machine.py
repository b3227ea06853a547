"""The machine on which a figure was measured."""

import datetime
import os
import platform
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BENCH = Path(__file__).resolve().parent


def environment():
    """The environment of programs started from here: they import nmtalign from this checkout, installed or not."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def describe_machine(device="cpu"):
    """Returns processor or GPU, threads, versions, revision and date: all that is needed to reproduce a figure."""
    import torch

    from nmtalign import machine
    from nmtalign.core.numerics import has_fast_bf16
    from nmtalign.version import __version__

    processor = machine.describe_machine()["processor"]
    described = {
        "device": torch.cuda.get_device_name() if device == "cuda" else processor["name"],
        "instructions": processor["instructions"],
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "bf16_fast": has_fast_bf16(torch.device(device)),
        "wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        "load": round(os.getloadavg()[0], 2),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "nmtalign": __version__,
        "revision": revision(),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    if device == "cuda":
        described["processor"] = processor["name"]
    return described


def in_words(machine):
    """Describes the machine in one line."""
    fast = "fast bf16" if machine["bf16_fast"] else "no fast bf16"
    return (
        f"{machine['device']}, {machine['threads']} of {machine['cores']} threads ({machine['instructions']}; {fast}; "
        f"load {machine['load']}), "
        f"torch {machine['torch']}, nmtalign {machine['nmtalign']} at {machine['revision']}, {machine['date']}"
    )


def revision():
    """The revision of this checkout, `+` where files differ from it, or "unknown"."""

    def git(*arguments):
        done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    try:
        head = git("rev-parse", "--short=12", "HEAD")
        return f"{head}+" if head and git("status", "--porcelain", "--untracked-files=no") else head or "unknown"
    except OSError:
        return "unknown"
