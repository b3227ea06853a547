"""The optimisers, clipping, and the learning rate's course."""

import math
from collections import deque
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from nmtalign.config import TrainingConfig
from nmtalign.training.adadelta import Adadelta
from nmtalign.training.budget import Budget
from nmtalign.training.state import Position


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """Adadelta as in the paper, Adam, or AdamW (decay on matrices alone)."""
    weights = list(parameters)
    if config.optimizer == "adadelta":
        return Adadelta(weights, lr=config.learning_rate, rho=config.rho, eps=config.epsilon)
    groups = [
        {"params": [weight for weight in weights if weight.dim() > 1], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.dim() <= 1], "weight_decay": 0.0},
    ]
    cls = torch.optim.AdamW if config.optimizer == "adamw" else torch.optim.Adam
    if config.optimizer == "adam":
        groups = [{"params": weights, "weight_decay": 0.0}]
    return cls(groups, lr=config.learning_rate, betas=(config.beta1, config.beta2), eps=config.epsilon, fused=True)


def learning_rate(config: TrainingConfig, update: int, done: float, warmup: int) -> float:
    """The rate of update 1, 2, ...: a linear rise over `warmup` updates, then the schedule.

    `warmup` is the setting as far as the budget allows it (`Schedule`). `done` is the share of
    the budget gone by (0 to 1): "linear" falls with it to 0; "inverse-sqrt" needs no budget.
    """
    rise = min(1.0, update / warmup) if warmup else 1.0
    if config.schedule == "linear":
        return config.learning_rate * rise * max(0.0, 1.0 - done)
    if config.schedule == "inverse-sqrt":
        return config.learning_rate * rise * math.sqrt(max(1, warmup) / max(update, warmup, 1))
    return config.learning_rate * rise


class Schedule:
    """The learning rate of each update of a run; the warm-up takes at most a tenth of the budget.

    Under a limit of updates or epochs the rate depends on these alone, so that a resumed run does what an uninterrupted
    one does. Under a time limit the tenth follows the measured time of an update until the warm-up has ended. The
    position keeps how long the warm-up was: a larger budget does not begin it anew.
    """

    _MEASURED = 50  # the latest update times, of which the lower quartile counts: the first ones can be very slow
    _ENOUGH = 3  # update times without which a time limit says nothing about the number of updates

    def __init__(self, config: TrainingConfig, budget: Budget, notice: Callable[[str], None]) -> None:
        """`notice` is told in one line that the warm-up was shorter than the setting."""
        self._config, self._budget, self._notice = config, budget, notice
        self._times = deque[float](maxlen=self._MEASURED)
        self.last_rate = 0.0

    def measure(self, seconds: float) -> None:
        """Takes in the time of one update."""
        self._times.append(seconds)

    def rate(self, position: Position, done: float, batches_in_epoch: int) -> float:
        """The rate of the position's update; its time and its epoch are those before the update."""
        warmup = self._warmup(position, math.ceil(batches_in_epoch / self._config.accumulate))
        self.last_rate = learning_rate(self._config, position.update, done, warmup)
        return self.last_rate

    def _warmup(self, position: Position, updates_in_epoch: int) -> int:
        """The updates of the warm-up as far as they are known; they are fixed once that many have been made."""
        setting = self._config.warmup
        if position.warmup or not setting:
            return position.warmup
        before = position.update - 1
        if before >= setting:  # a run of an earlier version, which did not write this down
            position.warmup = setting
            return setting
        total = self._budget.total_updates(before, position.seconds, updates_in_epoch, self._update_seconds(position))
        tenth = total / 10
        warmup = setting if tenth >= setting else max(1, math.floor(tenth))
        if position.update >= warmup:
            position.warmup = warmup
            if warmup < setting:
                self._notice(
                    f"the learning rate rose until update {warmup}, a tenth of the budget, not until update {setting} "
                    "(warmup)"
                )
        return warmup

    def _update_seconds(self, position: Position) -> float:
        """The time of an update, or 0 where too few have been made to tell."""
        before = position.update - 1
        if len(self._times) >= self._ENOUGH:
            return sorted(self._times)[len(self._times) // 4]
        return position.seconds / before if before >= self._ENOUGH else 0.0  # all that a resumed run knows at first


class Descent:
    """Steps of an optimiser along clipped gradients; where these are sparse rows, no more than the rows is touched.

    The gradient is read once for its norm and once by the step: the factor that clips it goes into the step.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, clip_norm: float) -> None:
        """`clip_norm` 0 = no clipping."""
        self._optimizer, self._clip_norm = optimizer, clip_norm
        self._parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._dense: dict[nn.Parameter, Tensor] = {}  # zero but for the rows of the present gradient

    def step(self, rate: float) -> tuple[Tensor, bool]:
        """One step at a learning rate; (gradient norm, whether it was finite). One that is not changes nothing.

        The gradients are gone afterwards.
        """
        norm = self._norm()
        length = float(norm)
        if math.isfinite(length):
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            self._step(min(1.0, self._clip_norm / (length + 1e-6)) if self._clip_norm else 1.0)
        self._optimizer.zero_grad(set_to_none=True)
        return norm, math.isfinite(length)

    def _norm(self) -> Tensor:
        gradients = []
        for weight in self._parameters:
            if weight.grad is not None:
                if weight.grad.is_sparse:
                    weight.grad = weight.grad.coalesce()
                gradients.append(weight.grad.values() if weight.grad.is_sparse else weight.grad)
        return get_total_norm(gradients)

    def _step(self, scale: float) -> None:
        if isinstance(self._optimizer, Adadelta):
            self._optimizer.step(scale=scale)
            return
        spread = self._spread_rows()
        # The fused optimisers divide the gradient by this as they read it.
        factor = None if scale == 1 else torch.tensor(1 / scale, device=self._parameters[0].device)
        self._optimizer.grad_scale = factor  # type: ignore[attr-defined]
        self._optimizer.step()
        for weight, rows in spread:
            self._dense[weight].index_fill_(0, rows, 0)

    def _spread_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Puts sparse gradients into dense ones, which are kept and zeroed by row; (weight, rows) of each."""
        spread = []
        for weight in self._parameters:
            if weight.grad is not None and weight.grad.is_sparse:
                rows, values = weight.grad.indices()[0], weight.grad.values()
                dense = self._dense.get(weight)
                if dense is None:
                    dense = self._dense[weight] = torch.zeros_like(weight)
                weight.grad = dense.index_copy_(0, rows, values)
                spread.append((weight, rows))
        return spread
