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
from nmtalign.errors import FormatError
from nmtalign.files import disk_errors, make_folder
from nmtalign.model_directory import create_model_directory
from nmtalign.model_files import BACKWARD, CONFIG, check_files, read_settings
from nmtalign.settings.definition import SettingError
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.state import forget


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
    """The model, or with agreement both; raises UsageError for models without attention."""
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
    return [
        Direction(folder, corpus, models.there),
        Direction(backward, ReversedCorpus(corpus, backward), models.back),
    ]


def lay_down(
    directions: Sequence[Direction], preset: str, config: TrainingConfig, restart: bool, given: Mapping[str, str]
) -> None:
    """Creates the directories of all directions; the first one comes last, because it marks the run as begun.

    With `restart` it first removes the weights in them, and the other direction of an earlier run if this run does not
    train it. Raises UsageError if training should start from weights that would be removed.
    """
    first = Path(config.init_from).resolve() if config.init_from else None
    if restart and first in [direction.folder.resolve() for direction in directions]:
        raise SettingError(
            "training anew would remove this folder; give another folder for the new model", init_from=config.init_from
        )
    if restart and not config.agreement:
        _remove_backward(directions[0].folder / BACKWARD)
    for direction in reversed(directions):
        if restart:
            forget(direction.folder)
        direction.create(preset, config, given)


def _remove_backward(folder: Path) -> None:
    """Removes the other direction of an earlier run with agreement; a model that was trained separately stays."""
    try:
        settings = read_settings(folder)
    except FormatError:
        return  # there is no model, or not one that this run may remove
    if not settings["training"].get("agreement"):
        return
    forget(folder)
    with disk_errors(folder):
        for name in (*settings["files"], CONFIG):
            (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a folder with other files stays
        folder.rmdir()
