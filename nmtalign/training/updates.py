"""One update: the loss of a group of minibatches, with guidance and agreement, its gradient, the optimiser's step."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from nmtalign.core.model import Loss, TranslationModel
from nmtalign.data.batches import Batch, Indices
from nmtalign.data.corpus import Split
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.directions import BothWays
from nmtalign.training.distributed import World
from nmtalign.training.graphs import GraphedLoss, Objective
from nmtalign.training.optimizers import Descent, Optimizer

LEAST = 1e-30  # smaller weights are replaced by it before their logarithm is taken


def guidance(weights: Tensor, guide: Tensor) -> Tensor:
    """Guided alignment (Chen et al. 2016): the cross-entropy of attention weights against given links, in nats.

    It is summed over the target tokens that have links, for weights (Ty, B, Tx) and guide (B, Ty, Tx) bool. A token's
    links are equally probable. No shape depends on the content of the guide.
    """
    linked = guide.transpose(0, 1)
    shares = linked / linked.sum(-1, keepdim=True).clamp_min(1)
    return -(weights.clamp_min(LEAST).log() * shares.to(weights.dtype)).sum()


class BatchLoss:
    """The loss of a model over a batch, and with a guide the loss of its attention weights."""

    def __init__(
        self,
        model: TranslationModel,
        label_smoothing: float,
        guided_weight: float = 0.0,
        dtype: torch.dtype | None = None,
    ) -> None:
        self.model, self.label_smoothing, self.guided_weight, self.dtype = model, label_smoothing, guided_weight, dtype

    def __call__(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """(objective, sums over the target words in nats): negative log-likelihood and, with a guide, its cost.

        `inputs` are those of `Batch.inputs`. The sums are a number without a guide, and a vector of two with it.
        """
        count = 5 if self.model.config.copy else 4  # the rest is the guide
        loss = self.model.loss(*inputs[:count], label_smoothing=self.label_smoothing, dtype=self.dtype)
        objective, nll = loss.objective, loss.nll.detach()
        if len(inputs) == count or loss.weights is None:
            return objective, nll
        cost = guidance(loss.weights, inputs[count])
        return objective + self.guided_weight * cost, torch.stack([nll, cost.detach()])


class BothLoss:
    """The losses of the models of both directions, and the cost of the disagreement of their attention weights."""

    def __init__(self, models: BothWays, config: TrainingConfig, dtype: torch.dtype | None = None) -> None:
        self.models, self.guided_weight, self.dtype = models, config.guided_weight, dtype
        self.label_smoothing, self.agreement_weight = config.label_smoothing, config.agreement_weight

    def __call__(
        self, source: Tensor, source_mask: Tensor, target: Tensor, target_mask: Tensor, guide: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(objective, sums (4,)): nll, guidance of both directions, nll of the other direction, disagreement.

        The sums over the batch are over target words, linked tokens, source words, and sentences.
        """
        there = self.models.there.loss(
            source, source_mask, target, target_mask, label_smoothing=self.label_smoothing, dtype=self.dtype
        )
        # A row of padding has no target word. The other direction reads its first position, and generates nothing.
        real, first = target_mask[:, :1], torch.arange(target.shape[1], device=target.device) == 0
        read = target_mask | (first & ~real)
        back = self.models.back.loss(
            target, read, source, source_mask & real, label_smoothing=self.label_smoothing, dtype=self.dtype
        )
        apart = disagreement(there, back, source_mask, target_mask)
        guided = torch.zeros_like(apart)
        if guide is not None and there.weights is not None and back.weights is not None:
            turned = guide.transpose(1, 2)
            guided = guidance(there.weights, guide) + guidance(back.weights, turned)
        objective = there.objective + back.objective + self.agreement_weight * apart + self.guided_weight * guided
        return objective, torch.stack([there.nll, guided, back.nll, apart]).detach()


def disagreement(there: Loss, back: Loss, source_mask: Tensor, target_mask: Tensor) -> Tensor:
    """-log of the sum over i, j of there[j, i] * back[i, j], summed over the sentences of a batch.

    It is the "multiplication" of Cheng et al. (2015), the best of their functions. `</s>` is left out on both sides,
    because two models that both attend to `</s>` only would agree.
    """
    if there.weights is None or back.weights is None:
        raise ValueError("models without attention cannot agree")
    cells = _words(target_mask)[:, :, None] & _words(source_mask)[:, None]
    together = (there.weights.permute(1, 0, 2) * back.weights.permute(1, 2, 0) * cells).sum((1, 2))
    return -(together.clamp_min(LEAST).log() * cells.any(2).any(1)).sum()


def _words(mask: Tensor) -> Tensor:
    """(B, T) the tokens before `</s>`, which are those that another token follows."""
    return torch.cat([mask[:, 1:], torch.zeros_like(mask[:, :1])], 1)


class EagerLoss:
    """Computes the loss and the gradient of a batch operation by operation."""

    def __init__(self, loss: Objective, device: torch.device) -> None:
        self._loss, self._device = loss, device

    def __call__(self, batch: Batch, weight: float = 1.0) -> Tensor:
        """Adds the gradient of weight * objective to that of the parameters, and returns the sums of the loss.

        If the loss is not finite, no part of the gradient is finite.
        """
        objective, sums = self._loss(*batch.to(self._device).inputs())
        (objective * (objective.detach() * 0 + weight)).backward()  # `backward(gradient)` would import SymPy
        return sums.detach()


@dataclass(frozen=True)
class MinibatchGroup:
    """The minibatches of one update, as indices of pairs, with the counts of their union."""

    plan: Sequence[Indices]
    words: int  # target words, `</s>` counted
    sentences: int

    def denominator(self, normalization: str) -> int:
        """The number by which the summed loss of the group is divided."""
        return {"sentences": self.sentences, "tokens": self.words, "sum": 1}[normalization]


def cut_groups(pairs: Split, plan: Sequence[Indices], size: int) -> Iterator[MinibatchGroup]:
    """Groups of `size` minibatches; the last group has the rest. The counts need only the lengths of the pairs."""
    for start in range(0, len(plan), size):
        part = plan[start : start + size]
        words = sum(int(pairs.target_lengths[indices].sum()) + len(indices) for indices in part)
        yield MinibatchGroup(part, words, sum(map(len, part)))


class UpdateOutcome:
    """An update, and the norm of its gradient, which a GPU copies to the host later; reading `norm` waits for it."""

    def __init__(self, group: MinibatchGroup, minibatches: Sequence[tuple[Batch, Tensor]], norm: Tensor) -> None:
        self.group, self.minibatches, self._norm, self._copied = group, minibatches, norm, None
        if norm.is_cuda:
            self._norm = torch.empty(norm.shape, dtype=norm.dtype, pin_memory=True).copy_(norm, non_blocking=True)
            self._copied = torch.cuda.Event()
            self._copied.record()

    @property
    def norm(self) -> float:
        """The norm before clipping."""
        if self._copied is not None:
            self._copied.synchronize()
        return float(self._norm)

    @property
    def finite(self) -> bool:
        """Whether the gradient was finite; if not, the update changed nothing."""
        return math.isfinite(self.norm)


class Updater:
    """Makes updates of a model; a group of minibatches gives the update that one minibatch of their union would."""

    def __init__(
        self,
        model: TranslationModel | BothWays,
        optimizer: Optimizer,
        config: TrainingConfig,
        world: World,
        notice: Callable[[str], None],
        dtype: torch.dtype | None = None,
    ) -> None:
        """`notice` is called with one line if training is slower than it could be."""
        self._config, self._world, self._parameters = config, world, list(model.parameters())
        self._descent = Descent(optimizer, config.clip_norm)
        loss: Objective = (
            BothLoss(model, config, dtype)
            if isinstance(model, BothWays)
            else BatchLoss(model, config.label_smoothing, config.guided_weight, dtype)
        )
        eager = EagerLoss(loss, world.device)
        self._compute = GraphedLoss(model, loss, eager, notice) if world.device.type == "cuda" else eager

    def shares(self, plan: Iterable[Indices]) -> Iterator[Indices]:
        """The rows of each planned minibatch that this process computes.

        Minibatches without such rows are left out: a minibatch may have fewer pairs than there are processes.
        """
        return (mine for indices in plan if len(mine := self._world.share(indices)))

    def update(self, group: MinibatchGroup, batches: Iterator[Batch], rate: float) -> UpdateOutcome:
        """Makes an update with the next minibatches, those of the group, unless its gradient is not finite."""
        minibatches = self.gradient(group, batches)
        return UpdateOutcome(group, minibatches, self._descent.step(rate))

    def gradient(self, group: MinibatchGroup, batches: Iterator[Batch]) -> Sequence[tuple[Batch, Tensor]]:
        """Adds the gradient of the group to that of the parameters.

        Returns the minibatches of this process, each with the sums of its loss.
        """
        weight = 1 / group.denominator(self._config.loss_normalization)
        mine = sum(1 for _ in self.shares(group.plan))
        minibatches = [(batch, self._compute(batch, weight)) for batch in islice(batches, mine)]
        self._world.reduce(self._parameters)
        return minibatches


def seed_dropout(seed: int, update: int, rank: int, device: torch.device) -> None:
    """Seeds each update of each process differently, so that a resumed run draws the same numbers again."""
    drawn = int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)
    elif device.type == "mps":
        torch.mps.manual_seed(drawn)
