"""Other toolkits train on the same text for a short time, each in a separate environment; their logs are evaluated."""

import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.machine import ROOT
from bench.recipes import Job, Recipe, recipes
from bench.report import Table, figure, say, times
from bench.texts import Texts, prepare, random_texts, training_options
from bench.watch import Watched, watch
from bench.workload import Size
from nmtalign.errors import NmtalignError, UsageError

OURS = "nmtalign"
INSTALLED = "installed"  # a file that marks an environment as complete


class PeerError(NmtalignError):
    """A toolkit cannot be installed or run; the others continue without it."""


def run_peers(given: dict[str, Any], size: Size, sentences: int) -> dict[str, dict[str, Any]]:
    """Returns figures by name, nmtalign's first, or {"failed": why}. Complete programs are timed, with reading of text
    and with updates."""
    asked = chosen(given["peers"])
    environments = given["peer_env"] or ROOT / ".venv-peers"
    found = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        texts = random_texts(folder, size, given["length"])
        job = Job(texts, folder, sentences, torch.get_num_threads())
        say(f"nmtalign train, {given['peer_seconds']:g} s")
        found[OURS] = softly(partial(_run_ours, texts, sentences, given["peer_seconds"]))
        for recipe in asked:
            found[recipe.name] = softly(partial(_run, recipe, environments, job, given["peer_seconds"]))
    return found


def chosen(text: str) -> list[Recipe]:
    """Parses a list such as "joeynmt,marian", or "all"; raises UsageError for an unknown toolkit."""
    known = recipes(torch.__version__)
    names = list(known) if text == "all" else [name.strip() for name in text.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"--peers: unknown toolkit '{name}'; choose from {', '.join(known)}")
    return [known[name] for name in names]


def softly(run: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Returns the result of `run`, or {"failed": why}."""
    try:
        return run()
    except NmtalignError as error:
        say(str(error))
        return {"failed": str(error)}


def _run_ours(texts: Texts, sentences: int, seconds: float) -> dict[str, Any]:
    """Runs the complete command `nmtalign train`, as the other toolkits are run."""
    data = prepare(texts)
    (texts.folder / "nmtalign.toml").write_text("[train]\nlog_every = 4\n", encoding="utf-8")
    options = [*training_options(texts.size, sentences, torch.get_num_threads()), "-o", str(texts.folder / "ours")]
    command = [sys.executable, "-m", "nmtalign", "train", str(data), *options, "--max-time", "1h", "--set", "epochs=0"]
    follow = '"$@" & exec tail -n +1 -F --pid=$! ours/train.jsonl'  # lines on stderr come too rarely
    following = ["sh", "-c", follow, "sh", *command]
    seen = watch(following, r'"progressed".*"target_words_per_second": ([\d.]+)', seconds, texts.folder)
    return _figures("nmtalign train", seen)


def _run(recipe: Recipe, environments: Path, job: Job, seconds: float) -> dict[str, Any]:
    folder = environments / recipe.name
    install(recipe, folder)
    own = job.folder / recipe.name
    own.mkdir()
    say(f"{recipe.note}, {seconds:g} s")
    command = recipe.train_command(folder / "bin", Job(job.texts, own, job.sentences, job.threads))
    seen = watch(command, recipe.rate, seconds, own, limits(recipe.name, job.threads))
    return {"note": recipe.note, **_figures(recipe.note, seen)}


def limits(name: str, threads: int) -> dict[str, str]:
    """Returns the environment variables of a toolkit, which are added to the others."""
    # Marian's threads are workers; further threads of its matrix library would multiply their number.
    inside = "1" if name == "marian" else str(threads)
    # OpenNMT-py reads its own pickled model, which older versions of PyTorch allowed.
    return {"OMP_NUM_THREADS": inside, "MKL_NUM_THREADS": inside, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1"}


def install(recipe: Recipe, folder: Path) -> None:
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


def _figures(name: str, seen: Watched) -> dict[str, Any]:
    """Returns the median rate without the first report, which contains the warm-up, unless there is no other."""
    rates = [float(text.replace(",", "")) for _, text in seen.matches]
    rates = rates[1:] or rates
    if not rates:
        raise PeerError(f"{name}: no rate in its log: {seen.complaint}")
    return {
        "target_words_per_second": statistics.median(rates),
        "reports": len(rates),
        "peak_mb": seen.peak_mb,
        "first_report_seconds": seen.matches[0][0],
    }


def peers_table(found: dict[str, dict[str, Any]]) -> Table:
    """Returns the table of the toolkits: nmtalign first, ratios first."""
    columns = ["", "ours is", "words/s", "peak MB", "first report"]
    table = Table("Complete programs on the same text, with reading of text and with updates", columns)
    ours = found[OURS].get("target_words_per_second")
    for name, figures in found.items():
        title = figures.get("note", "nmtalign train" if name == OURS else name)
        if "failed" in figures:
            table.rows.append([title, "failed", *["-"] * (len(columns) - 2)])
            continue
        rate = figures["target_words_per_second"]
        ratio = times(ours / rate if ours and name != OURS else None)
        wait = f"{figures['first_report_seconds']:.1f} s"
        table.rows.append([title, ratio, figure(rate), figure(figures["peak_mb"]), wait])
    failures = [figures["failed"] for figures in found.values() if "failed" in figures]
    peak = "peak: resident memory of the program and its children, measured 5 times per second"
    table.note = "\n".join([*failures, peak])
    return table
