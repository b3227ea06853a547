"""Both directions trained together, so that their weights agree (Cheng et al. 2015, Agreement-based Joint Training)."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn

from nmtalign.checks import SettingError
from nmtalign.config import ModelConfig, TrainingConfig
from nmtalign.core.model import DEFAULT, Activations, Loss, TranslationModel
from nmtalign.data.corpus import Corpus
from nmtalign.data.reversed import ReversedCorpus
from nmtalign.errors import FormatError
from nmtalign.files import disk_errors, make_folder
from nmtalign.model_directory import create_model_directory
from nmtalign.model_files import CONFIG, check_files, read_settings
from nmtalign.training.guidance import LEAST, Guidance
from nmtalign.training.state import forget

BACKWARD = "backward"  # the folder of the other direction, in that of the first


class BothWays(nn.Module):
    """A model and one of the other direction, for the training to handle as one."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self.there, self.back = TranslationModel(config), TranslationModel(turned_round(config))


def turned_round(config: ModelConfig) -> ModelConfig:
    """The settings of the other direction: the vocabularies change places."""
    sizes = config.target_vocabulary_size, config.source_vocabulary_size
    return replace(config, source_vocabulary_size=sizes[0], target_vocabulary_size=sizes[1])


class BothLoss(nn.Module):
    """The losses of both directions, and what it costs that their weights disagree."""

    def __init__(self, models: BothWays, config: TrainingConfig, how: Activations = DEFAULT) -> None:
        super().__init__()
        self.models, self.guidance, self.how = models, Guidance.of(config), how
        self.label_smoothing, self.agreement_weight = config.label_smoothing, config.agreement_weight

    def forward(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, guide: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(what is differentiated, sums (4,)): nll, guidance of both, the other direction's nll, disagreement.

        Everything is summed over the batch: over target words, linked tokens, source words, and sentences.
        """
        there = self.models.there.loss(source, source_mask, target, target_mask, self.label_smoothing, self.how)
        # A row of padding, which a recorded graph may have, has no target word: it reads one, and nothing is asked.
        real, first = target_mask[:, :1], torch.arange(target.shape[1], device=target.device) == 0
        read = target_mask | (first & ~real)
        back = self.models.back.loss(target, read, source, source_mask & real, self.label_smoothing, self.how)
        apart = disagreement(there, back, source_mask, target_mask)
        guided = torch.zeros_like(apart)
        if guide is not None and there.weights is not None and back.weights is not None:
            turned = guide.transpose(1, 2)
            guided = self.guidance.cost(there.weights, guide) + self.guidance.cost(back.weights, turned)
        objective = there.objective + back.objective + self.agreement_weight * apart + self.guidance.weight * guided
        return objective, torch.stack([there.nll, guided, back.nll, apart]).detach()


def disagreement(there: Loss, back: Loss, source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """-log of the sum over i, j of there[j, i] * back[i, j], summed over the sentences of a batch.

    The paper's "multiplication", which served best there; `</s>` is left out of both sides, since two models that both
    read nothing but `</s>` would agree.
    """
    if there.weights is None or back.weights is None:
        raise ValueError("models without attention cannot agree")
    cells = _words(target_mask)[:, :, None] & _words(source_mask)[:, None]
    together = (there.weights.permute(1, 0, 2) * back.weights.permute(1, 2, 0) * cells).sum((1, 2))
    return -(together.clamp_min(LEAST).log() * cells.any(2).any(1)).sum()


def _words(mask: Tensor) -> Tensor:
    """(B, T) the tokens that are not `</s>`: those with another behind them."""
    return torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)


@dataclass(frozen=True)
class Direction:
    """One model of a training: where it is kept, and what it is trained on."""

    folder: Path
    corpus: Corpus
    model: TranslationModel

    def check(self) -> None:
        """Raises FormatError where the directory is not as it was laid down."""
        check_files(self.folder, read_settings(self.folder))

    def create(self, preset: str, config: TrainingConfig) -> None:
        """Lays down its directory, without the weights."""
        if isinstance(self.corpus, ReversedCorpus):
            make_folder(self.folder)
            with disk_errors(self.folder):
                self.corpus.write()
        create_model_directory(self.folder, self.corpus, preset, self.model.config, config)


def make_models(config: ModelConfig, training: TrainingConfig) -> TranslationModel | BothWays:
    """What is trained: a model or, with agreement, two; raises UsageError where there are no weights to agree."""
    if not training.agreement:
        return TranslationModel(config)
    if config.attention == "none":
        raise SettingError("only models with attention can agree", agreement=True, attention="none")
    return BothWays(config)


def directions_of(models: TranslationModel | BothWays, folder: Path, corpus: Corpus) -> list[Direction]:
    """The directions that are trained, the one that was asked for first."""
    if isinstance(models, TranslationModel):
        return [Direction(folder, corpus, models)]
    backward = folder / BACKWARD
    return [
        Direction(folder, corpus, models.there),
        Direction(backward, ReversedCorpus(corpus, backward), models.back),
    ]


def lay_down(directions: Sequence[Direction], preset: str, config: TrainingConfig, restart: bool) -> None:
    """Makes the directory of every direction, that of the first, which says that there is a run, last.

    With `restart` the weights that they held go first, and a direction that an earlier run trained and this one does
    not. Raises UsageError where those are the weights to start from.
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
        direction.create(preset, config)


def _remove_backward(folder: Path) -> None:
    """Removes the other direction that a run with agreement left; a model trained there by itself stays."""
    try:
        settings = read_settings(folder)
    except FormatError:
        return  # no model, or none that this run is to judge
    if not settings["training"].get("agreement"):
        return
    forget(folder)
    with disk_errors(folder):
        for name in (*settings["files"], CONFIG):
            (folder / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # a folder that holds more stays
        folder.rmdir()
