"""`nmtalign train`: from a prepared corpus to a model directory."""

import dataclasses
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtalign.cli.common import QuietOption, choose_wait_policy, say
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.cli.ranks import joined
from nmtalign.cli.stopping import REASONS, handle_signals
from nmtalign.settings.presets import PRESETS
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

if TYPE_CHECKING:
    from nmtalign.training.distributed import World
    from nmtalign.training.events import Finished
    from nmtalign.training.loop import Trainer

Settings = Chosen[tuple[ModelConfig, TrainingConfig]]
Data = Annotated[Path | None, typer.Argument(help="Folder of `nmtalign prep`.", show_default=False)]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="DIR", help="Model directory, new or to resume.")
]
Preset = Annotated[
    str | None, typer.Option(metavar="NAME", help=f"{', '.join(PRESETS)} [dim]\\[default: small][/dim].")
]
Tensorboard = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR",
        help="Also write TensorBoard events to this folder.",
        rich_help_panel="Advanced: Machine",
        hidden=True,
    ),
]
Restart = Annotated[bool, typer.Option("--restart", help="Train anew and replace what the directory contains.")]


@with_settings(ModelConfig, TrainingConfig, section="train")
def train(
    chosen: Settings,
    data: Data = None,
    output: Output = None,
    preset: Preset = None,
    tensorboard: Tensorboard = None,
    restart: Restart = False,
    quiet: QuietOption = False,
) -> None:
    """Train a model; rerun an interrupted command and it resumes.

    Precedence of settings: option, then the \\[train] section of nmtalign.toml, then preset. Every event is
    recorded in train.jsonl in the model directory.

    Under torchrun several processes train one model, with the updates that one process would make: --batch-size
    counts the batch of all. Each process uses a GPU, or --threads threads (torchrun's default is one). Only the first
    process writes files and messages. If a process fails, all end, and the report of torchrun names it; the same
    command, with any number of processes, resumes. TORCH_LOGS=-distributed shortens the report of torchrun.

    Examples:

      nmtalign train

      nmtalign train data/ -o model/ --preset small --max-time 15m

      nmtalign train data/ -o paper/ --preset rnnsearch-50 --device cuda

      torchrun --nproc-per-node 2 -m nmtalign train data/ -o model/

      nmtalign train data/ -o guided/ --init-from model/ --guided-alignment links

      nmtalign train data/ -o model/ --agreement

      nmtalign train --preset tiny --show-settings
    """
    choose_wait_policy()
    with joined(chosen.settings[1].device) as world, chosen.naming():
        folder = output or chosen.workspace.model
        finished = _train(
            chosen, world, data or chosen.workspace.data, folder, tensorboard, restart, quiet or not world.first
        )
    if not finished.complete:
        raise typer.Exit(next(128 + number for number, reason in REASONS.items() if reason == finished.reason))


def _train(
    chosen: Settings, world: "World", data: Path, folder: Path, tensorboard: Path | None, restart: bool, quiet: bool
) -> "Finished":
    from nmtalign.cli.display import make_listener
    from nmtalign.data.corpus import Corpus
    from nmtalign.training.loop import Trainer

    corpus = Corpus.open(data)
    model_config, config = chosen.settings
    model_config = dataclasses.replace(
        model_config,
        source_vocabulary_size=len(corpus.source_vocabulary),
        target_vocabulary_size=len(corpus.target_vocabulary),
    )
    with make_listener(folder, quiet, tensorboard if world.first else None) as listen:
        trainer = Trainer(corpus, folder, chosen.preset, model_config, config, listen, restart, world)
        _stop_on_signals(trainer)
        finished = trainer.run()
    if not quiet:
        _say_what_next(folder, finished, already=trainer.resumed and trainer.updates_done == 0)
    return finished


def _stop_on_signals(trainer: "Trainer") -> None:
    """SIGINT, SIGTERM and SIGHUP save and end; a second signal ends at once, even while a checkpoint is written."""
    began: float | None = None

    def handle(number: int, _: object) -> None:
        nonlocal began
        now = time.monotonic()
        if began is None:
            began = now
            trainer.stop(REASONS[number])
        elif "LOCAL_RANK" in os.environ and now - began < 5:
            pass  # torchrun passes on the Ctrl-C that the terminal sends to all processes: still the first one
        elif number == signal.SIGINT:
            raise KeyboardInterrupt
        else:
            raise SystemExit(128 + number)

    handle_signals(handle)


def _say_what_next(folder: Path, finished: "Finished", already: bool) -> None:
    reason = finished.reason
    if not finished.complete:
        say(f"{folder}: {reason} at update {finished.update}; the same command resumes")
    elif already:
        say(f"{folder}: already done ({reason}); to go on give a larger budget, to train anew --restart")
    else:
        say(f"{folder}: done ({reason}); now: nmtalign translate -m {folder} < in.txt > out.txt")
