"""One update: the loss of a group of minibatches, with guidance, its gradient, the optimiser's step."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from nmtalign.core.model import Batch, Indices, TranslationModel
from nmtalign.core.numerics import LEAST
from nmtalign.data.corpus import Split
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.distributed import World
from nmtalign.training.graphs import GraphedLoss, Objective
from nmtalign.training.optimizers import Optimizer, descend


def guidance(weights: Tensor, guide: Tensor) -> Tensor:
    """Guided alignment (Chen et al. 2016): the cross-entropy of attention weights against given links, in nats.

    It is summed over the target tokens that have links, for weights (Ty, B, Tx) and guide (B, Ty, Tx) bool. A token's
    links are equally probable. No shape depends on the content of the guide.
    """
    linked = guide.transpose(0, 1)
    shares = linked / linked.sum(-1, keepdim=True).clamp_min(1)
    return -(weights.clamp_min(LEAST).log() * shares.to(weights.dtype)).sum()


def batch_loss(
    model: TranslationModel, config: TrainingConfig, dtype: torch.dtype | None, *inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """(objective, sums over the target words in nats): negative log-likelihood and, with a guide, its cost.

    `inputs` are those of `Batch.inputs`. The sums are a number without a guide, and a vector of two with it.
    """
    count = 5 if model.config.copy else 4  # the rest is the guide
    loss = model.loss(*inputs[:count], label_smoothing=config.label_smoothing, dtype=dtype)
    objective, nll = loss.objective, loss.nll.detach()
    if len(inputs) == count or loss.weights is None:
        return objective, nll
    cost = guidance(loss.weights, inputs[count])
    return objective + config.guided_weight * cost, torch.stack([nll, cost.detach()])


def add_gradient(loss: Objective, device: torch.device, batch: Batch, weight: float = 1.0) -> Tensor:
    """Adds the gradient of weight * objective to that of the parameters, and returns the sums of the loss.

    If the loss is not finite, no part of the gradient is finite.
    """
    objective, sums = loss(*(tensor.to(device, non_blocking=True) for tensor in batch.inputs()))
    (objective * (objective.detach() * 0 + weight)).backward()  # `backward(gradient)` would import SymPy
    return sums.detach()


class Updater:
    """Makes updates of a model; a group of minibatches gives the update that one minibatch of their union would.

    A group is a part of a plan: each of its minibatches is an array of the indices of `pairs`.
    """

    def __init__(
        self,
        model: TranslationModel,
        optimizer: Optimizer,
        config: TrainingConfig,
        pairs: Split,
        world: World,
        notice: Callable[[str], None],
        dtype: torch.dtype | None = None,
    ) -> None:
        """`notice` is called with one line if training is slower than it could be."""
        self._optimizer, self._config, self._pairs, self._world = optimizer, config, pairs, world
        self._parameters = list(model.parameters())
        loss = partial(batch_loss, model, config, dtype)
        self._compute: Callable[[Batch, float], Tensor] = partial(add_gradient, loss, world.device)
        if world.device.type == "cuda":
            self._compute = GraphedLoss(model, loss, self._compute, notice)

    def update(
        self, group: Sequence[Indices], batches: Iterator[Batch], rate: float
    ) -> tuple[float, Sequence[tuple[Batch, Tensor]]]:
        """Makes an update with the next minibatches, those of the group, unless its gradient is not finite.

        Returns the norm of the gradient before clipping, and the minibatches of this process with their sums.
        """
        minibatches = self.gradient(group, batches)
        norm = descend(self._optimizer, rate, self._config.clip_norm)
        return float(norm), minibatches  # a GPU has the whole update to do when the host waits for the norm

    def gradient(self, group: Sequence[Indices], batches: Iterator[Batch]) -> Sequence[tuple[Batch, Tensor]]:
        """Adds the gradient of the group to that of the parameters; returns the minibatches with their sums."""
        sentences = sum(map(len, group))
        words = sentences + sum(int(self._pairs.target.lengths[indices].sum()) for indices in group)  # with `</s>`
        weight = 1 / {"sentences": sentences, "tokens": words, "sum": 1}[self._config.loss_normalization]
        own = sum(len(indices) > self._world.rank for indices in group)  # minibatches with rows for this process
        minibatches = [(batch, self._compute(batch, weight)) for batch in islice(batches, own)]
        if self._world.size > 1:
            self._world.reduce_gradients(self._parameters)
        return minibatches


def seed_dropout(seed: int, update: int, rank: int, device: torch.device) -> None:
    """Seeds each update of each process differently, so that a resumed run draws the same numbers again."""
    drawn = int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)
    elif device.type == "mps":
        torch.mps.manual_seed(drawn)
