"""Other toolkits, each in a separate environment."""

import shutil
import subprocess
import sys
from pathlib import Path

import torch

from bench.recipes import recipes
from bench.report import say
from nmtalign.errors import NmtalignError, UsageError

INSTALLED = "installed"  # a file that marks an environment as complete


class PeerError(NmtalignError):
    """A toolkit cannot be installed or run; the others continue without it."""


def chosen(text):
    """Parses a list such as "joeynmt,marian", or "all"; raises UsageError for an unknown toolkit."""
    known = recipes(torch.__version__)
    names = list(known) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"--peers: unknown toolkit '{name}'; choose from {', '.join(known)}")
    return [known[name] for name in names]


def softly(run):
    """Returns the result of `run`, or {"failed": why}."""
    try:
        return run()
    except NmtalignError as error:
        say(str(error))
        return {"failed": str(error)}


def limits(name, threads):
    """Returns the environment variables of a toolkit, which are added to the others."""
    # Marian's threads are workers; further threads of its matrix library would multiply their number.
    inside = "1" if name == "marian" else str(threads)
    # OpenNMT-py reads its own pickled model, which older versions of PyTorch allowed.
    return {"OMP_NUM_THREADS": inside, "MKL_NUM_THREADS": inside, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


def install(recipe, folder):
    """Makes the toolkit's environment, once; the remains of an interrupted attempt are replaced."""
    if (folder / INSTALLED).exists():
        return
    say(f"installing {recipe.note} into {folder} (once)")
    shutil.rmtree(folder, ignore_errors=True)
    commands = [[sys.executable, "-m", "venv", str(folder)]]
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    commands += [[*pip, *packages] for packages in recipe.installs]
    for command in commands:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            complaints = [line for line in done.stderr.splitlines() if "error" in line.lower()]
            why = complaints[0] if complaints else f"{Path(command[0]).name} ended with {done.returncode}"
            raise PeerError(f"{recipe.name}: cannot be installed: {why.strip()[:200]}")
    (folder / INSTALLED).write_text(recipe.note + "\n", encoding="utf-8")
