"""Checkpoints: weights, optimiser and position; the newest two are kept. Each update seeds the random generators anew.

A new checkpoint is written under a temporary name. Then the newest one is renamed to the previous one, and the new one
to the newest. Wherever a process is killed, one of the two is complete; the newest complete one is used.
"""

import contextlib
import dataclasses
import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from nmtalign.core.model import TranslationModel
from nmtalign.errors import FormatError, ResourceError, UsageError
from nmtalign.files import disk_errors, free_space, parse_json, sweep
from nmtalign.model_files import AVERAGED, BEST, CALIBRATION, LAST, PREVIOUS_BEST, PREVIOUS_STATE, STATE
from nmtalign.settings.definition import resolve
from nmtalign.tensor_file import check_tensors, load_tensors, read_metadata, save_tensors
from nmtalign.training.optimizers import VALUES_PER_WEIGHT, Optimizer

_VALIDATED = "validated.{}.safetensors"  # by the update
_FILES = (STATE, PREVIOUS_STATE, PREVIOUS_BEST, BEST, LAST)
_ABOVE_GUESSING, _FAR_RISEN = 1.0, 2.0  # nats per word; a good training never shows such losses
_INFINITE = 1e30  # nats; JSON has no infinity
_OVERHEAD = 16_384  # bytes of a file beside its weights, about: header, part of a block


@dataclass
class Position:
    """The progress of a training."""

    update: int = 0
    epoch: int = 0  # completed epochs
    batch: int = 0  # completed batches of the current epoch
    seconds: float = 0.0
    skipped: int = 0
    bad_in_a_row: int = 0
    validated: int = -1  # update of the last validation
    validation_due: bool = False  # the validation of this update has not ended: a resumed run makes it first
    best: float | None = None  # the metric of the best validation, higher is better
    best_loss: float | None = None
    best_bleu: float | None = None
    best_update: int = -1  # of the best validation; -1 = unknown
    since_best: int = 0
    finished: str | None = None
    warmup: int = 0  # length of the warm-up in updates; 0 until it has ended
    tokenizers: str = "13a 13a"  # of dev BLEU, by direction; a training that earlier versions began keeps this one
    excess: float | None = None  # nats per word of the last report above the loss of guessing among all words
    lowest_excess: float | None = None

    def hear(self, excess: float) -> None:
        """Notes the loss of a report."""
        self.excess = excess if math.isfinite(excess) else _INFINITE
        self.lowest_excess = self.excess if self.lowest_excess is None else min(self.excess, self.lowest_excess)

    @property
    def diverged(self) -> bool:
        """Whether the loss is far above that of guessing, or has risen far above its lowest value."""
        if self.excess is None or self.lowest_excess is None:
            return False
        return self.excess > min(_ABOVE_GUESSING, self.lowest_excess + _FAR_RISEN)


@dataclass(frozen=True)
class Checkpoint:
    """A complete checkpoint."""

    path: Path
    position: Position
    fingerprint: str  # of the run that wrote it
    damage: str | None = None  # the defect of a newer one, which cannot be used


def save_state(folder: Path, model: nn.Module, optimizer: Optimizer, position: Position, fingerprint: str) -> Path:
    """Writes a complete checkpoint or none, and keeps the one before it; `fingerprint` identifies the run."""
    tensors: dict[str, Tensor] = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    for number, values in optimizer.state().items():
        tensors |= {f"optimizer.{number}.{name}": value for name, value in values.items()}
    metadata = {
        "position": json.dumps(dataclasses.asdict(position)),
        "fingerprint": fingerprint,
    }
    with _saying_what_is_kept(folder):
        save_tensors(folder / STATE, tensors, metadata, keep=folder / PREVIOUS_STATE)
    return folder / STATE


def save_last(folder: Path, model: TranslationModel, update: int, fingerprint: str) -> None:
    """Writes the current weights."""
    with _saying_what_is_kept(folder):
        save_tensors(folder / LAST, model.state_dict(), {"update": str(update), "fingerprint": fingerprint})


def save_best(
    folder: Path, model: TranslationModel, update: int, fingerprint: str, calibration: str = "", averaged: str = ""
) -> None:
    """Writes the weights of the best validation and their calibration; keeps the previous ones (see `take_over`).

    `averaged` are the updates of the weights whose mean they are.
    """
    metadata = {"update": str(update), "fingerprint": fingerprint}
    metadata |= {name: text for name, text in ((CALIBRATION, calibration), (AVERAGED, averaged)) if text}
    with _saying_what_is_kept(folder):
        save_tensors(folder / BEST, model.state_dict(), metadata, keep=folder / PREVIOUS_BEST)


def save_validated(folder: Path, model: TranslationModel, update: int, fingerprint: str) -> None:
    """Writes the weights of a validation, which checkpoint averaging needs at the end of the training."""
    path = folder / _VALIDATED.format(update)
    if not path.exists():
        with _saying_what_is_kept(folder):
            save_tensors(path, model.state_dict(), {"update": str(update), "fingerprint": fingerprint})


def validated_weights(folder: Path) -> dict[int, Path]:
    """The files of `save_validated` in a folder by their updates, in rising order."""
    found = {path.name.split(".")[1]: path for path in folder.glob(_VALIDATED.format("*"))}
    return dict(sorted((int(update), path) for update, path in found.items() if update.isdecimal()))


def drop_validated(folder: Path, kept: int) -> None:
    """Removes the files of `save_validated` except the newest `kept`."""
    paths = [*validated_weights(folder).values()]
    with disk_errors(folder):
        for path in paths[: max(0, len(paths) - kept)]:
            path.unlink(missing_ok=True)


@torch.no_grad()
def load_mean(folder: Path, model: TranslationModel, count: int) -> list[int]:
    """Gives a model the mean of the newest `count` weights of `save_validated`; returns their updates.

    Each value is summed in float64 in the order of the updates, and rounded once. A damaged file is left out. With
    fewer than two files the model stays as it is.
    """
    found: dict[int, dict[str, Tensor]] = {}
    for update, path in [*validated_weights(folder).items()][-count:]:
        with contextlib.suppress(FormatError):
            found[update] = load_tensors(path)[0]
    if len(found) > 1:
        for name, weight in model.state_dict().items():
            weight.copy_(sum(tensors[name].double() for tensors in found.values()) / len(found))
    return [*found]


def find_checkpoint(folder: Path, fingerprint: str | None) -> Checkpoint | None:
    """The newest complete checkpoint in a folder, with its checksum verified; None if there has never been one.

    Checkpoints with this `fingerprint` come before those of other runs; None accepts any run. Raises FormatError if all
    checkpoints are damaged.
    """
    wrong: list[str] = []
    others: list[Checkpoint] = []
    for path in (folder / STATE, folder / PREVIOUS_STATE):
        if not path.exists():
            continue
        try:
            metadata, _ = check_tensors(path)
            found = Checkpoint(
                path, _position(path, metadata), metadata.get("fingerprint", ""), "; ".join(wrong) or None
            )
        except FormatError as error:
            wrong.append(str(error))
            continue
        if fingerprint in (found.fingerprint, None):
            return found
        others.append(found)
        wrong.append(f"{path}: belongs to another run")
    if others:
        return others[0]
    if wrong:
        raise FormatError(f"{'; '.join(wrong)}; no checkpoint is complete: train anew with --restart")
    return None


def load_state(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer) -> Position:
    """Restores weights and optimiser; returns the position."""
    path, state = checkpoint.path, defaultdict[int, dict[str, Tensor]](dict)
    weights = model.state_dict()
    try:
        for name, tensor in load_tensors(path)[0].items():
            part, _, key = name.partition(".")
            if part == "model":
                _copy(weights.pop(key), tensor, key)
            elif part == "optimizer":
                number, _, key = key.partition(".")
                state[int(number)][key] = tensor
            else:
                raise KeyError(name)
        if weights:
            raise KeyError(next(iter(weights)))
        optimizer.restore(state)
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise FormatError(f"{path}: does not fit this model: {' '.join(str(error).split())[:200]}") from None
    return dataclasses.replace(checkpoint.position)


def _copy(weight: Tensor, value: Tensor, name: str) -> None:
    if weight.shape != value.shape:
        raise ValueError(f"{name} is {tuple(value.shape)}, not {tuple(weight.shape)}")
    weight.copy_(value)


def run_of_weights(folder: Path) -> str | None:
    """The fingerprint of the run whose weights a folder contains; "" if unknown, None if there are no weights."""
    for name in (BEST, PREVIOUS_BEST, LAST):
        with contextlib.suppress(FormatError):
            return read_metadata(folder / name).get("fingerprint", "")
    return None


def take_over(folder: Path, checkpoint: Checkpoint) -> None:
    """Restores a folder to its state when the checkpoint was written; rank 0 calls it once when it resumes.

    Removes incomplete files of killed processes, and a newer checkpoint that is damaged, because the next save would
    otherwise keep it instead of the complete one. If the best weights are of an update after the checkpoint, the
    previous best weights replace them. Removes the weights of later validations.
    """
    sweep(folder)
    with disk_errors(folder):
        if checkpoint.path.name != STATE:
            (folder / STATE).unlink(missing_ok=True)
        best, before, update = folder / BEST, folder / PREVIOUS_BEST, checkpoint.position.update
        last = update - checkpoint.position.validation_due  # a validation that is made again writes its weights again
        if not 0 <= _update_of(best) <= last:
            if 0 <= _update_of(before) <= last:
                before.replace(best)
            elif checkpoint.position.best is None:
                best.unlink(missing_ok=True)
        for later, path in validated_weights(folder).items():
            if later > update or checkpoint.position.finished:
                path.unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Removes all checkpoints and weights from a folder for a new training."""
    sweep(folder)
    drop_validated(folder, 0)
    with disk_errors(folder):
        for name in _FILES:
            (folder / name).unlink(missing_ok=True)


def check_space(folders: Sequence[Path], model: nn.Module, validated: int = 0) -> None:
    """Raises ResourceError if the disk has no room for all checkpoints and weights that exist at the same time.

    `folders` are those of the directions of `model`; the first one contains the checkpoints. Weights of `validated`
    validations are kept, too. Quotas are not considered.
    """
    weights = sum(tensor.numel() * tensor.element_size() for tensor in model.state_dict().values())
    slots = VALUES_PER_WEIGHT * sum(weight.numel() * weight.element_size() for weight in model.parameters())
    # The last weights, the best and the previous best ones, and three checkpoints while one is written.
    needed = (3 + validated) * weights + 3 * (weights + slots) + 6 * _OVERHEAD
    files = [folder / name for folder in folders for name in _FILES]
    files += [path for folder in folders for path in validated_weights(folder).values()]
    there = sum(path.stat().st_size for path in files if path.is_file())
    free = free_space(folders[0])
    if free is not None and free < needed - there:
        raise ResourceError(
            f"{folders[0]}: the checkpoints of this training need {(needed - there) / 1e6:,.1f} MB more on the disk, "
            f"and {free / 1e6:,.1f} MB are free; make room, or give another folder with -o"
        )


@contextlib.contextmanager
def _saying_what_is_kept(folder: Path) -> Iterator[None]:
    """Adds to a disk error that the last checkpoint is kept."""
    try:
        yield
    except ResourceError as error:
        if not any((folder / name).exists() for name in (STATE, PREVIOUS_STATE)):
            raise
        raise ResourceError(f"{error}; the last checkpoint is kept, and the same command resumes from it") from error


def _update_of(path: Path) -> int:
    """The update of the weights in a file; -1 if it cannot be read."""
    try:
        return int(read_metadata(path)["update"])
    except (FormatError, KeyError, ValueError):
        return -1


def _position(path: Path, metadata: dict[str, str]) -> Position:
    try:
        return resolve(Position, (str(path), parse_json(metadata["position"])))
    except (AttributeError, KeyError, UsageError, ValueError):
        raise FormatError(f"{path}: not a checkpoint of a training") from None
