"""`nmtalign train`: from a prepared corpus to a model directory."""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtalign.cli.common import QuietOption, choose_wait_policy, notifier, own_argument, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.cli.stopping import REASONS, stopping
from nmtalign.settings.definition import MACHINE, Device
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig

if TYPE_CHECKING:
    from nmtalign.training.distributed import World
    from nmtalign.training.events import Finished

Settings = Chosen[tuple[ModelConfig, TrainingConfig]]
Data = Annotated[Path | None, own_argument("DATA", "Folder of `nmtalign prep`.")]
Output = Annotated[Path | None, own_option("Model directory, new or to resume.", "DIR", "-o --output")]
Preset = Annotated[str | None, own_option(f"{', '.join(PRESETS)} [dim]\\[default: {DEFAULT_PRESET}][/dim].", "NAME")]
Tensorboard = Annotated[Path | None, own_option("Also write TensorBoard events to this folder.", "DIR", panel=MACHINE)]
Restart = Annotated[bool, own_option("Train anew and replace what the directory contains.", names="--restart")]
_connected = False  # with the other processes of torchrun, which have then agreed on how to report errors


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
    data, folder = data or chosen.workspace.data, output or chosen.workspace.model
    with _world(chosen.settings[1].device) as world, chosen.naming():
        finished = _train(chosen, world, data, folder, tensorboard, restart, quiet or not world.first)
    if not finished.complete:
        raise typer.Exit(next(128 + number for number, reason in REASONS.items() if reason == finished.reason))


def _train(
    chosen: Settings, world: "World", data: Path, folder: Path, tensorboard: Path | None, restart: bool, quiet: bool
) -> "Finished":
    from nmtalign.cli.display import make_listener
    from nmtalign.data.corpus import Corpus
    from nmtalign.training.loop import Trainer

    corpus = Corpus.open(data)
    with make_listener(folder, quiet, tensorboard if world.first else None) as listen:
        trainer = Trainer(corpus, folder, chosen.preset, *chosen.settings, listen, restart, world)
        with stopping(trainer.stop):
            finished = trainer.run()
    tell, reason = notifier(quiet), finished.reason
    if not finished.complete:
        tell(f"{folder}: {reason} at update {finished.update}; the same command resumes")
    elif trainer.resumed and trainer.updates_done == 0:
        tell(f"{folder}: already done ({reason}); to continue give a larger budget, to train anew --restart")
    else:
        tell(f"{folder}: done ({reason}); next: nmtalign translate -m {folder} < in.txt > out.txt")
    return finished


def _several() -> bool:
    """Whether torchrun has started several processes."""
    return os.environ.get("WORLD_SIZE", "1") != "1"


def wait_for_first_rank() -> None:
    """Under torchrun, lets rank 0 report an error of the start, which all processes probably have.

    torchrun ends the waiting processes as soon as rank 0 has ended.
    """
    if not _connected and _several() and os.environ.get("RANK", "0") != "0":
        time.sleep(5)


@contextlib.contextmanager
def _world(device: Device) -> Iterator["World"]:
    """The processes that train together, or the only one; an error in one ends all, and is reported once."""
    global _connected
    if _several():
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # no C++ stack on stderr when a connection breaks
    from nmtalign.training.distributed import FailedElsewhereError, open_world

    try:
        world = open_world(device)
        _connected = world.size > 1
        with world.together():
            yield world
            world.close()
    except FailedElsewhereError as error:
        raise typer.Exit(error.exit_code) from None
    finally:
        if _several():  # torchrun ends the others when one has ended; this process keeps its own exit code
            for number in REASONS:
                signal.signal(number, signal.SIG_IGN)
