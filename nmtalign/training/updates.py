"""One update: the gradient of a group of planned minibatches, clipping, and the optimiser's step."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from nmtalign.config import TrainingConfig
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import Batch, Indices, Pairs
from nmtalign.training.optimizers import set_learning_rate
from nmtalign.training.progress import Meter


@dataclass(frozen=True)
class Group:
    """The minibatches of one update, as indices of pairs, with the counts of their union."""

    plan: Sequence[Indices]
    words: int  # target words, `</s>` counted
    sentences: int

    def denominator(self, normalization: str) -> int:
        """What the summed loss of the group is divided by."""
        return {"sentences": self.sentences, "tokens": self.words, "sum": 1}[normalization]


def cut_groups(pairs: Pairs, plan: Sequence[Indices], size: int) -> Iterator[Group]:
    """Groups of `size` minibatches, the last one of what is left; the counts come from the corpus' lengths alone."""
    for start in range(0, len(plan), size):
        part = plan[start : start + size]
        words = sum(int(pairs.target_lengths[indices].sum()) + len(indices) for indices in part)
        yield Group(part, words, sum(map(len, part)))


class BatchLoss(nn.Module):
    """The model's loss as a module's own forward pass."""

    def __init__(self, model: TranslationModel, label_smoothing: float) -> None:
        super().__init__()
        self.model, self.label_smoothing = model, label_smoothing

    def forward(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor
    ) -> tuple[Tensor, Tensor]:
        """(what is differentiated, negative log-likelihood in nats), both summed over the words."""
        loss = self.model.loss(source, source_mask, target, target_mask, self.label_smoothing)
        return loss.objective, loss.nll.detach()


class Updater:
    """Makes updates of a model; a group of minibatches gives the update that one minibatch of their union would."""

    def __init__(
        self, model: TranslationModel, optimizer: torch.optim.Optimizer, config: TrainingConfig, device: torch.device
    ) -> None:
        self._optimizer, self._config, self._device = optimizer, config, device
        self._parameters = list(model.parameters())
        self._loss = BatchLoss(model, config.label_smoothing)

    def gradient(self, group: Group, batches: Iterator[Batch], meter: Meter) -> None:
        """Takes the group's minibatches from `batches` and leaves their gradient on the parameters."""
        for _ in group.plan:
            batch = next(batches)
            there = batch.to(self._device)
            objective, nll = self._loss(there.source, there.source_mask, there.target, there.target_mask)
            # A loss that is not finite makes the whole gradient so: one look at the norm then tells of both.
            objective.backward(objective.detach() * 0 + 1 / group.denominator(self._config.loss_normalization))
            meter.add(batch, nll)

    def step(self, rate: float) -> tuple[Tensor, bool]:
        """Clips and steps; (gradient norm, whether it was finite): one that is not changes nothing."""
        norm = clip_grad_norm_(self._parameters, self._config.clip_norm or torch.inf, foreach=True)
        finite = bool(norm.isfinite())
        if finite:
            set_learning_rate(self._optimizer, rate)
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        return norm, finite
