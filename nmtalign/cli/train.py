"""`nmtalign train`: from a prepared corpus to a model directory."""

import math
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from shlex import quote

import typer

from nmtalign.api import train as train_model
from nmtalign.cli import common
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import AUTO, DEFAULT_PRESET, PRESETS
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.text.lines import counted
from nmtalign.training.events import NO_PROGRESS, Finished


@with_settings(ModelConfig, TrainingConfig)
def train(
    chosen: Chosen[tuple[ModelConfig, TrainingConfig]],
    data: Path | None = common.own_argument("DATA", f"Folder of `nmtalign prep` {common.DATA_DEFAULT}"),
    output: Path | None = common.output_option(
        f"Model directory, new or to resume {common.MODEL_DEFAULT}", "DIR", folder=True
    ),
    preset: str | None = common.own_option(
        f"Architecture, sizes and budget: {', '.join(PRESETS)} [dim]\\[default: {DEFAULT_PRESET}][/dim].",
        "NAME",
        autocompletion=lambda incomplete: [name for name in PRESETS if name.startswith(incomplete)],
    ),
    tensorboard: Path | None = common.own_option(
        "Also write TensorBoard events to this folder.", "DIR", callback=common.writes("a folder")
    ),
    force: bool = common.own_flag("Train anew and replace what the directory contains.", "--force"),
    dry_run: bool = common.own_flag(
        "Print settings, parameters, memory, updates and estimated time, write nothing.", "--dry-run"
    ),
    quiet: bool = common.QUIET,
) -> None:
    """Train a model; rerun an interrupted command and it resumes.

    The default preset chooses sizes, dropout, batches and budget by the corpus, --max-time and the measured speed. With
    --init-from the settings of the model are those of MODEL, and the default preset has the others of small. Every
    event is recorded in train.jsonl in the model directory.

    Under torchrun several processes train one model, and --batch-size counts the batch of all. Each uses a GPU, or
    --threads threads (torchrun's default is one). If a process fails, all end, and the report of torchrun names it; the
    same command, with any number of processes, resumes. TORCH_LOGS=-distributed shortens the report of torchrun.

    Examples:
      nmtalign train
      nmtalign train data/ -o model/ --max-time 15m
      nmtalign train data/ -o paper/ --preset rnnsearch-50 --device cuda
      torchrun --nproc-per-node 2 -m nmtalign train data/ -o model/
      nmtalign train news/ -o adapted/ --init-from model/
      nmtalign train data/ -o guided/ --init-from model/ --guided-alignment links
      nmtalign train --dry-run
    """
    common.sleep_beside_others()
    data, folder = data or chosen.workspace.data, output or chosen.workspace.model
    several = os.environ.get("WORLD_SIZE", "1") != "1"  # torchrun has started other processes, too
    if dry_run and several:
        raise UsageError("--dry-run measures one process; start it without torchrun")
    from nmtalign.processor import keep_memory

    keep_memory()
    if dry_run:
        _rehearse(chosen, data, folder, force)
        return
    if several:
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # no C++ stack on stderr when a connection breaks
    from nmtalign.cli.display import TrainingDisplay

    first = not several or os.environ.get("RANK", "0") == "0"
    display = TrainingDisplay(folder, quiet or not first, tensorboard if first else None)
    try:
        with display:
            finished = train_model(
                data,
                folder,
                preset=chosen.preset,
                force=force,
                listen=display.take,
                stopping=common.signals.stopping,
                setting_layers=chosen.layers,
            )
    finally:
        if several:  # torchrun ends the others when one has ended; this process keeps its own exit code
            for number in common.REASONS:
                signal.signal(number, signal.SIG_IGN)
    well = finished.complete and not finished.diverged  # anything else is reported with --quiet, too
    _report(finished, display.updates, folder, common.notifier((quiet and well) or not first))
    if not finished.complete:
        raise typer.Exit(next(128 + number for number, reason in common.REASONS.items() if reason == finished.reason))


def _report(finished: Finished, updates: int, folder: Path, tell: Callable[[str], None]) -> None:
    """Prints the result of a training that has made this number of updates."""
    reason, done = f"({finished.reason})", f"{folder}: {'done' if updates else 'already done'}"
    if not finished.complete:
        tell(f"{folder}: {finished.reason} at update {finished.update}; the same command resumes")
    elif finished.diverged:
        tell(f"{done} {reason}, diverged; lower learning_rate and train anew with --force")
    elif updates:
        tell(f"{done} {reason}; next: nmtalign translate -m {quote(str(folder))} < in.txt > out.txt")
    else:
        more = "--set patience=0" if finished.reason.startswith(NO_PROGRESS) else "a larger budget"
        tell(f"{done} {reason}; to continue, give {more}; to train anew, give --force")


def _rehearse(chosen: Chosen[tuple[ModelConfig, TrainingConfig]], data: Path, folder: Path, force: bool) -> None:
    import torch

    from nmtalign.core.numerics import pick_device
    from nmtalign.data.corpus import Corpus
    from nmtalign.training.budget import rounded
    from nmtalign.training.distributed import World
    from nmtalign.training.dry_run import DryRun, choose_settings, process_peak
    from nmtalign.training.updates import TrainingSetup

    world, corpus, note = World(pick_device(chosen.settings[1].device)), Corpus.open(data), ""
    before = process_peak()
    if chosen.preset == AUTO:
        layers, note = choose_settings(chosen.layers, corpus, folder, world, force)
        settings = resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers)
        chosen = replace(chosen, settings=settings, layers=layers)
    setup = TrainingSetup(corpus, folder, *chosen.settings, world)
    found = DryRun(setup, chosen.preset, before, force)
    memory, limited = {name: size / 1e6 for name, size in found.memory.items()}, found.updates < math.inf
    parts = ", ".join(f"{name} {count:,}" for name, count in found.parameters.items())
    sizes = ", ".join(f"{name} {size:,.0f}" for name, size in memory.items())
    total = f"{found.updates:,.0f}" if limited else "no limit"
    left = f"; {found.updates - found.done.update:,.0f} remain" if limited else ""
    threads = chosen.settings[1].threads or torch.get_num_threads()
    facts = {
        "corpus": f"{counted(len(setup.chosen), 'pair')} ({len(setup.pairs) - len(setup.chosen):,} too long)",
        "machine": f"{setup.device}, {'bf16' if setup.dtype else 'fp32'}, {counted(threads, 'thread')}",
        "parameters": f"{sum(found.parameters.values()):,} ({parts})",
        "memory": f"about {sum(memory.values()):,.0f} MB ({sizes})",
        "budget": found.budget,
        "updates": f"{total}, {found.updates_in_epoch:,} per pass over the corpus",
        "passes": rounded(found.updates / found.updates_in_epoch, 3) if limited else total,
        "done": f"{counted(found.done.update, 'update')} in {common.clock(found.done.seconds)}{left}",
        "speed": f"{found.update_seconds:.3g} s per update, measured in {counted(found.measured, 'update')}",
        "time": f"about {common.clock(found.seconds)} (an estimate, without validations)" if limited else "no limit",
    }
    facts |= {"choice": note} if note else {}
    lines = [f"# {name}: {text}" for name, text in facts.items()] + [f"# advice: {text}" for text in found.advice]
    sys.stdout.write(chosen.text() + "\n" + "\n".join(lines) + "\n")
