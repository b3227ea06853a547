"""Whole programs take turns: each trains, then translates the test set with the model that `bench quality` trained.

The time of loading is left out: the rate of training is that of the reports after the first one, and the rate of
translation is that of all lines except the first. Both are given per second of wall-clock time and of processor time.
"""

import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from bench.machine import environment
from bench.peers import PeerError, limits, softly
from bench.quality import EQUAL, OURS, Task, our_settings, our_translation, their_training
from bench.quality_recipes import ENDLESS, QUALITY_RECIPES
from bench.recipes import Recipe
from bench.report import Table, figure, percent, say
from bench.texts import training_options
from bench.timing import spread
from bench.watch import complaint_in, watch
from bench.workload import SIZES

UPDATES = 10  # per report of the training
REPORTS = 6
TIMES = ("wall", "cpu")

Rates = dict[str, dict[str, float]]  # by measurement: {"wall": per second, "cpu": per second of processor time}


@dataclass(frozen=True)
class Program:
    """How a program trains in a new folder, and translates a text with a beam size; None = it is not measured."""

    name: str
    train: Callable[[Path], list[str]]
    rate: str  # finds target words/s in its log
    translate: Callable[[Path, int], list[str]] | None
    output: Path | None = None  # the file that it writes; None = stdout
    toolkit: str = "nmtalign"


def our_programs(task: Task) -> list[Program]:
    """Returns nmtalign in both precisions, and with the settings of its preset."""
    equal = next(name for name in OURS if EQUAL in name)
    options = training_options(task.texts.size, task.sentences, task.threads)
    preset = ["--preset", SIZES[task.texts.size.name][0], "--threads", str(task.threads)]
    model = task.texts.folder / "ours-0"

    def translate(precision: str, text: Path, beam: int) -> list[str]:
        return [*our_translation(task, model, text, beam), "--precision", precision]

    programs = [
        _our_program(f"nmtalign, {name}", our_settings(task, equal), [*options, "--precision", name])
        for name in ("fp32", "bf16")
    ]
    programs = [replace(one, translate=partial(translate, one.name.split()[-1])) for one in programs]
    programs.append(_our_program("nmtalign, its preset's batches, dropout and precision", "[train]\n", preset))
    return [replace(one, train=partial(one.train, task.corpus)) for one in programs]


def _our_program(name: str, settings: str, options: Sequence[str]) -> Program:
    def train(corpus: Path, folder: Path) -> list[str]:
        own = folder / "nmtalign.toml"
        own.write_text(f"{settings}log_every = {UPDATES}\n", encoding="utf-8")
        command = [sys.executable, "-m", "nmtalign", "train", str(corpus), "-o", "model", *options]
        # Lines on stderr are printed too rarely.
        follow = '"$@" & exec tail -n +1 -F --pid=$! model/train.jsonl'
        return ["sh", "-c", follow, "sh", *command, "--max-time", "1h", "--epochs", "0"]

    return Program(name, train, r'"progressed".*"target_words_per_second": ([\d.]+)', None)


def their_program(task: Task, recipe: Recipe, bin_folder: Path) -> Program:
    """Returns another toolkit; `bench quality` has installed it and trained its model."""
    how, endless = QUALITY_RECIPES[recipe.name], replace(task.training, updates=ENDLESS, report_every=UPDATES)
    trained = task.job(recipe.name)

    def train(folder: Path) -> list[str]:
        return their_training(recipe, bin_folder, replace(trained, folder=folder), endless)

    def translate(text: Path, beam: int) -> list[str]:
        return how.translate(bin_folder, trained, replace(task.training, beam=beam), text)

    output = trained.output
    recurrent = task.texts.size.model.architecture == "recurrent"
    name = recipe.note if recurrent else recipe.note.partition(",")[0]  # a Transformer's encoder has the full size
    return Program(name, train, recipe.rate, translate, output if output.exists() else None, recipe.name)


def take_turns(programs: Iterable[Program], task: Task) -> dict[str, dict[str, Any]]:
    """Runs one round: returns the rates of each program, or {"failed": why}."""
    return {program.name: softly(partial(_measure, program, task)) for program in programs}


def _measure(program: Program, task: Task) -> dict[str, Any]:
    say(program.name)
    threads = limits(program.toolkit, task.threads)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        found["training"] = _training(program, Path(folder), threads)
        if program.translate is None:
            return found
        lines = task.texts.file("test", "src").read_text(encoding="utf-8").splitlines()
        texts = Path(folder, "one"), Path(folder, "all")
        for path, count in zip(texts, (1, len(lines)), strict=True):
            path.write_text("".join(f"{line}\n" for line in lines[:count]), encoding="utf-8")
        one, _ = _translation(program, texts[0], 1, task, threads)
        for name, beam in (("greedy", 1), (f"beam {task.training.beam}", task.training.beam)):
            every, words = _translation(program, texts[1], beam, task, threads)
            found[name] = {kind: (len(lines) - 1) / (every[kind] - one[kind]) for kind in TIMES} | {"words": words}
    return found


def _training(program: Program, folder: Path, extra: Mapping[str, str]) -> dict[str, float]:
    """Returns target words per second, from the reports after the first one, which contains the warm-up."""
    seen = watch(program.train(folder), program.rate, float("inf"), folder, dict(extra), matches=REPORTS)
    if len(seen.matches) < REPORTS:
        raise PeerError(f"{program.name}: too few reports: {seen.complaint}")
    rates = [float(text.replace(",", "")) for _, text in seen.matches[1:]]
    wall, cpu = seen.matches[-1][0] - seen.matches[0][0], seen.cpu_seconds[-1] - seen.cpu_seconds[0]
    rate = statistics.harmonic_mean(rates)
    return {"wall": rate, "cpu": rate * wall / max(cpu, 0.01)}  # the clock of processor time ticks every 10 ms


def _translation(
    program: Program, text: Path, beam: int, task: Task, extra: Mapping[str, str]
) -> tuple[dict[str, float], float]:
    """Returns the seconds of a run of the program, and the words per line that it wrote."""
    if program.translate is None:
        raise ValueError("this program does not translate")
    command = program.translate(text, beam)
    began, used = time.perf_counter(), _cpu_of_children()
    given = {**environment(), **extra}
    done = subprocess.run(command, input=text.read_bytes(), capture_output=True, cwd=task.texts.folder, env=given)
    seconds = {"wall": time.perf_counter() - began, "cpu": _cpu_of_children() - used}
    if done.returncode:
        said = (done.stdout + done.stderr).decode("utf-8", "replace").splitlines()
        raise PeerError(f"{program.name}: ended with {done.returncode}: {complaint_in(said)}")
    lines = (program.output.read_bytes() if program.output else done.stdout).decode("utf-8").splitlines()
    return seconds, sum(len(line.split()) for line in lines) / max(1, len(lines))


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def turns_table(rounds: Sequence[Mapping[str, Mapping[str, Any]]], threads: int) -> Table:
    """Returns medians and spreads of all rounds, one row per program."""
    complete = [name for name in rounds[0] if all("failed" not in one[name] for one in rounds)]
    columns = list(rounds[0][complete[0]]) if complete else []
    heads = [f"{name}{kind}" for name in columns for kind in (", wall", ", processor", " spread")]
    table = Table(
        f"Whole programs, {len(rounds)} rounds of turns, {threads} thread(s): target words/s and sentences/s",
        ["", *heads, "words out"],
    )
    for name in complete:
        cells = []
        for column in columns:
            measured = [one[name].get(column) for one in rounds]
            if None in measured:
                cells += ["-"] * 3
                continue
            values = {kind: [each[kind] for each in measured] for kind in TIMES}
            medians = {kind: statistics.median(values[kind]) for kind in TIMES}
            digits = 0 if column == "training" else 1
            cells += [figure(medians[kind], digits) for kind in TIMES] + [percent(spread(values["cpu"]))]
        table.rows.append([name, *cells, figure(rounds[-1][name].get(columns[-1], {}).get("words"), 1)])
    failures = {each["failed"] for one in rounds for each in one.values() if "failed" in each}
    table.note = "\n".join([*sorted(failures), "spread: half the distance of the quartiles, of processor time"])
    return table
