"""One update: the gradient of a group of planned minibatches, clipping, and the optimiser's step."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from nmtalign.config import TrainingConfig
from nmtalign.core.model import DEFAULT, Activations, TranslationModel
from nmtalign.data.batches import Batch, Indices, Pairs
from nmtalign.training.both import BothLoss, BothWays
from nmtalign.training.distributed import World
from nmtalign.training.graphs import pick_loss
from nmtalign.training.guidance import Guidance
from nmtalign.training.optimizers import Descent
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
    """The model's loss as a module's own forward pass, with that of its weights where a guide is given."""

    def __init__(
        self,
        model: TranslationModel,
        label_smoothing: float,
        guidance: Guidance | None = None,
        how: Activations = DEFAULT,
    ) -> None:
        super().__init__()
        self.model, self.label_smoothing, self.guidance, self.how = model, label_smoothing, guidance, how

    def forward(
        self,
        source: Tensor,
        source_mask: Tensor,
        target: Tensor,
        target_mask: Tensor,
        guide: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(what is differentiated, sums over the words in nats): the negative log-likelihood and, guided, the cost.

        Without a guide (B, Ty, Tx) the sums are a number, with one a vector of two.
        """
        loss = self.model.loss(source, source_mask, target, target_mask, self.label_smoothing, self.how)
        if guide is None or self.guidance is None or loss.weights is None:
            return loss.objective, loss.nll.detach()
        cost = self.guidance.cost(loss.weights, guide)
        return loss.objective + self.guidance.weight * cost, torch.stack([loss.nll, cost]).detach()


class Updater:
    """Makes updates of a model; a group of minibatches gives the update that one minibatch of their union would."""

    def __init__(
        self,
        model: TranslationModel | BothWays,
        optimizer: torch.optim.Optimizer,
        config: TrainingConfig,
        world: World,
        say: Callable[[str], None],
        how: Activations = DEFAULT,
    ) -> None:
        """`say` receives in one line what makes training slower than it could be."""
        self._descent, self._config, self._world = Descent(optimizer, config.clip_norm), config, world
        self._loss = world.parallel(
            BothLoss(model, config, how)
            if isinstance(model, BothWays)
            else BatchLoss(model, config.label_smoothing, Guidance.of(config), how)
        )
        self._compute = pick_loss(model, self._loss, world.device, 1 if world.alone else max(2, world.size), say)

    def shares(self, plan: Iterable[Indices]) -> Iterator[Indices]:
        """What this process reads of each planned minibatch: its share, or one pair where it has none."""
        for indices in plan:
            mine = self._world.share(indices)
            yield mine if len(mine) else indices[:1]

    def gradient(self, group: Group, batches: Iterator[Batch], meter: Meter) -> None:
        """Takes the group's minibatches from `batches` and leaves their gradient on the parameters.

        Processes reduce their gradients during the last backward pass alone, in which all of them take part.
        """
        for number, indices in enumerate(group.plan, 1):
            batch, last, mine = next(batches), number == len(group.plan), len(self._world.share(indices)) > 0
            if last:
                self._add(batch, group, mine, meter)
            elif mine:
                with self._world.unreduced(self._loss):
                    self._add(batch, group, mine, meter)

    def _add(self, batch: Batch, group: Group, mine: bool, meter: Meter) -> None:
        """Adds a minibatch's gradient, or zeros where the batch is not this process' own."""
        # Times the size, since the mean over the processes follows, and their sum is meant.
        weight = mine * self._world.size / group.denominator(self._config.loss_normalization)
        sums = self._compute(batch, weight)
        if mine:
            meter.add(batch, sums)

    def step(self, rate: float) -> tuple[Tensor, bool]:
        """Clips and steps; (gradient norm, whether it was finite): one that is not changes nothing."""
        return self._descent.step(rate)


def seed_dropout(seed: int, update: int, rank: int, device: torch.device) -> None:
    """Gives every update, on every process, random numbers of its own that a resumed run draws again."""
    drawn = int(np.random.SeedSequence([seed, update, rank]).generate_state(1, np.uint64)[0])
    torch.default_generator.manual_seed(drawn)
    if device.type == "cuda":
        torch.cuda.manual_seed(drawn)
