"""The directions of a training: one, or both together, so that their attention weights agree (Cheng et al. 2015).

The loss of both is in `updates`.
"""

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from torch import nn

from nmtalign.core.model import TranslationModel
from nmtalign.data.corpus import Corpus, ReversedCorpus
from nmtalign.errors import FormatError, UsageError
from nmtalign.files import check_no_link, disk_errors, make_folder
from nmtalign.model_directory import create_model_directory
from nmtalign.model_files import BACKWARD, CONFIG, check_files, read_settings
from nmtalign.scoring.metrics import has_tokenizer
from nmtalign.settings.definition import SettingError
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.optimizers import Optimizer
from nmtalign.training.state import (
    Checkpoint,
    Position,
    check_space,
    drop_validated,
    forget,
    load_mean,
    load_state,
    save_best,
    save_last,
    save_state,
    save_validated,
    take_over,
)


class BothWays(nn.Module):
    """A model and a model of the other direction, as one module."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.there, self.back = TranslationModel(config), TranslationModel(turned_round(config))


def turned_round(config: ModelConfig) -> ModelConfig:
    """The settings of the other direction: the vocabularies are exchanged."""
    sizes = config.target_vocabulary_size, config.source_vocabulary_size
    return replace(config, source_vocabulary_size=sizes[0], target_vocabulary_size=sizes[1])


@dataclass(frozen=True)
class Direction:
    """One model of a training, with its directory and its corpus."""

    folder: Path
    corpus: Corpus
    model: TranslationModel

    def check(self) -> None:
        """Raises FormatError where a file of the directory is missing or has changed."""
        check_files(self.folder, read_settings(self.folder))

    def create(self, preset: str, config: TrainingConfig, given: Mapping[str, str]) -> None:
        """Creates the directory, without weights; `given` as in `create_model_directory`."""
        if isinstance(self.corpus, ReversedCorpus):
            make_folder(self.folder)
            with disk_errors(self.folder):
                self.corpus.write()
        create_model_directory(self.folder, self.corpus, preset, self.model.config, config, given)


def make_models(config: ModelConfig, training: TrainingConfig) -> TranslationModel | BothWays:
    """The model, or with agreement both; raises UsageError for settings that do not go together."""
    if not training.agreement:
        return TranslationModel(config)
    if config.attention == "none":
        raise SettingError("only models with attention can agree", agreement=True, attention="none")
    if config.copy:
        raise SettingError("models that copy words cannot be trained together", agreement=True, copy=True)
    return BothWays(config)


def directions_of(models: TranslationModel | BothWays, folder: Path, corpus: Corpus) -> list[Direction]:
    """The directions that are trained; the first one is that of the corpus."""
    if isinstance(models, TranslationModel):
        return [Direction(folder, corpus, models)]
    backward = folder / BACKWARD
    check_no_link(backward)
    return [
        Direction(folder, corpus, models.there),
        Direction(backward, ReversedCorpus(corpus, backward), models.back),
    ]


class Checkpoints:
    """The checkpoints and weights of a training, in the folders of its directions; only rank 0 has them.

    With `average` = N the weights of the last N validations are kept until the training ends.
    """

    def __init__(
        self,
        directions: Sequence[Direction],
        models: nn.Module,
        optimizer: Optimizer,
        fingerprint: str,
        average: int,
    ) -> None:
        """Raises ResourceError if the disk is too small."""
        self._directions, self._models, self._optimizer = directions, models, optimizer
        self._fingerprint, self._average = fingerprint, average
        kept = average + 2 if average else 0  # one more for the previous checkpoint, one while another is written
        check_space([direction.folder for direction in directions], models, kept)

    def resume(self, found: Checkpoint) -> Position:
        """Restores the models, the optimiser and the folders as they were when a checkpoint was written.

        Raises UsageError if the tokeniser of its dev BLEU does not work here: other BLEU cannot be compared with it.
        """
        for name in found.position.tokenizers.split():
            if not has_tokenizer(name):
                rule = f"dev BLEU uses the tokeniser {name}, which does not work here; install sacrebleu[{name[:2]}]"
                raise UsageError(f"{self._directions[0].folder}: {rule}")
        for direction in self._directions:
            direction.check()
            take_over(direction.folder, found)
        return load_state(found, self._models, self._optimizer)

    def save(self, position: Position) -> Path:
        """Writes the last weights, then the state. If this is interrupted, the previous state stays."""
        for direction in self._directions:
            weights = direction.folder, direction.model, position.update, self._fingerprint
            save_last(*weights)
            if self._average and position.validation_due:
                save_validated(*weights)
        path = save_state(self._directions[0].folder, self._models, self._optimizer, position, self._fingerprint)
        for direction in self._directions:
            drop_validated(direction.folder, self._average + 1 if self._average and not position.finished else 0)
        return path

    def save_best(self, update: int, calibrations: Sequence[str], averaged: str = "") -> None:
        """Writes the best weights of all directions; `averaged` are the updates of the weights whose mean they are."""
        for direction, calibration in zip(self._directions, calibrations, strict=True):
            save_best(direction.folder, direction.model, update, self._fingerprint, calibration, averaged)

    def load_mean(self) -> str:
        """Gives the models the mean of the last validated weights; returns their updates, "" for fewer than two."""
        found = [load_mean(each.folder, each.model, self._average) for each in self._directions]
        return " ".join(map(str, found[0])) if len(found[0]) > 1 else ""


def lay_down(
    directions: Sequence[Direction], preset: str, config: TrainingConfig, restart: bool, given: Mapping[str, str]
) -> None:
    """Creates the directories of all directions; the first one comes last, because it marks the run as begun.

    With `restart` it first removes the weights in them, and the other direction of an earlier run if this run does not
    train it. Raises UsageError if training should start from weights that would be removed, or if, without `restart`,
    it would replace a model that was trained separately.
    """
    first = Path(config.init_from).resolve() if config.init_from else None
    backward = directions[0].folder / BACKWARD
    of_agreement = _belongs_to_agreement(backward)
    removed = [direction.folder for direction in directions] + [backward] * bool(of_agreement)
    if restart and first in [folder.resolve() for folder in removed]:
        raise SettingError(
            "training anew would remove this folder; give another folder for the new model", init_from=config.init_from
        )
    if config.agreement and not restart and of_agreement is False:
        raise UsageError(
            f"{backward}: contains another model, which a training with agreement would replace; give another folder "
            "with -o, or replace it with --restart"
        )
    if restart and not config.agreement and of_agreement:
        _remove(backward)
    for direction in reversed(directions):
        if restart:
            forget(direction.folder)
        drop_validated(direction.folder, 0)
        direction.create(preset, config, given)


def _belongs_to_agreement(folder: Path) -> bool | None:
    """Whether the model in a folder was trained with agreement; None if there is no model."""
    try:
        return bool(read_settings(folder)["training"].get("agreement"))
    except FormatError:
        return None


def _remove(folder: Path) -> None:
    """Removes a model; other files of its folder stay."""
    files = read_settings(folder)["files"]
    forget(folder)
    with disk_errors(folder):
        for name in (*files, CONFIG):
            (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a folder with other files stays
        folder.rmdir()
