"""The optimisers and the clipping of gradients."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from nmtalign.settings.training_settings import TrainingConfig

VALUES_PER_WEIGHT = 2  # each optimiser keeps two numbers for each weight
_PIECE = 1 << 19  # weights; ten operations on a piece of this size find it in the processor's cache


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> "Optimizer":
    """Adadelta as in the paper, Adam, or AdamW (which decays the matrices only)."""
    weights = list(parameters)
    if config.optimizer == "adadelta":
        return Adadelta(weights, config.rho, config.epsilon)
    decay = 0.0
    if config.optimizer == "adamw":
        weights.sort(key=lambda weight: weight.dim() <= 1)  # matrices first, in which order checkpoints number them
        decay = config.weight_decay
    return Adam(weights, config.beta1, config.beta2, config.epsilon, decay)


class Optimizer(ABC):
    """Steps of weights along their gradients, and the means that they keep for each weight.

    It is not a `torch.optim.Optimizer`: making one of those imports PyTorch's compiler, which takes more than a second
    and 140 MB.
    """

    def __init__(self, weights: Sequence[nn.Parameter]) -> None:
        self.weights = weights
        self._kept: dict[nn.Parameter, dict[str, Tensor]] = {}

    @abstractmethod
    def step(self, rate: float, scale: float | Tensor = 1.0) -> None:
        """Makes one step with a learning rate on the gradients times `scale`.

        A scale that is not finite changes nothing.
        """

    @abstractmethod
    def _begin(self, weight: Tensor) -> dict[str, Tensor]:
        """The values that are kept for a weight before its first step."""

    def _values(self, weight: nn.Parameter) -> dict[str, Tensor]:
        if weight not in self._kept:
            self._kept[weight] = self._begin(weight)
        return self._kept[weight]

    def state(self) -> dict[int, dict[str, Tensor]]:
        """The values that are kept, by the number of the weight and their name."""
        return {number: self._kept[weight] for number, weight in enumerate(self.weights) if weight in self._kept}

    def restore(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Continues from the values of an earlier `state`; raises ValueError if they do not fit the weights."""
        kept = {}
        for number, values in state.items():
            if not 0 <= number < len(self.weights):
                raise ValueError(f"the optimiser has {len(self.weights)} weights, so there is no number {number}")
            weight = self.weights[number]
            kept[weight] = self._begin(weight)
            shapes = [{name: tensor.shape for name, tensor in of.items()} for of in (values, kept[weight])]
            if shapes[0] != shapes[1]:
                raise ValueError(f"the optimiser has {shapes[0]} for weight {number}, not {shapes[1]}")
            for name, value in values.items():
                kept[weight][name].copy_(value)
        self._kept = kept


class Descent:
    """Steps of an optimiser along clipped gradients.

    The gradient is read once for its norm and once by the step: the step multiplies it by the factor that clips it.
    """

    def __init__(self, optimizer: Optimizer, clip_norm: float, on_device: bool | None = None) -> None:
        """`clip_norm` 0 = no clipping. With `on_device`, the default on a GPU, the host does not wait for the norm.

        The step itself then changes nothing if the norm is not finite. PyTorch's fused Adam and the Triton kernel of
        Adadelta can do this; Adadelta without the kernel waits.
        """
        self._optimizer, self._clip_norm = optimizer, clip_norm
        self._on_device = optimizer.weights[0].is_cuda if on_device is None else on_device

    def step(self, rate: float) -> Tensor:
        """Makes one step at a learning rate and removes the gradients; returns the norm that they had.

        A gradient whose norm is not finite changes nothing.
        """
        norm = get_total_norm([weight.grad for weight in self._optimizer.weights if weight.grad is not None])
        if self._on_device:
            scale = (self._clip_norm / (norm + 1e-6)).clamp(max=1.0) if self._clip_norm else torch.ones_like(norm)
            self._optimizer.step(rate, torch.where(norm.isfinite(), scale, torch.nan))
        elif math.isfinite(length := float(norm)):
            self._optimizer.step(rate, min(1.0, self._clip_norm / (length + 1e-6)) if self._clip_norm else 1.0)
        for weight in self._optimizer.weights:
            weight.grad = None
        return norm


class Adam(Optimizer):
    """Adam (Kingma & Ba 2015) by PyTorch's fused kernel.

    Each step also multiplies the matrices by 1 - rate * `decay` (AdamW, Loshchilov & Hutter 2019).
    """

    def __init__(
        self, weights: Sequence[nn.Parameter], beta1: float, beta2: float, epsilon: float, decay: float = 0.0
    ) -> None:
        super().__init__(weights)
        self._beta1, self._beta2, self._epsilon = beta1, beta2, epsilon
        self._decay = decay

    def _begin(self, weight: Tensor) -> dict[str, Tensor]:
        means = {name: torch.zeros_like(weight) for name in ("exp_avg", "exp_avg_sq")}
        return {"step": torch.zeros((), device=weight.device), **means}

    @torch.no_grad()
    def step(self, rate: float, scale: float | Tensor = 1.0) -> None:
        if isinstance(scale, float) and not math.isfinite(scale):
            return
        moved = [(weight, weight.grad) for weight in self.weights if weight.grad is not None]
        device = self.weights[0].device
        if isinstance(scale, float) and device.type == "mps":  # whose kernel ignores `grad_scale`
            torch._foreach_mul_([gradient for _, gradient in moved], scale)
            scale = 1.0
        # The kernel divides the gradient by `grad_scale` as it reads it; `found_inf` 1 changes nothing.
        unscaled = isinstance(scale, float) and scale == 1
        inverse = None if unscaled else torch.as_tensor(1 / scale, device=device)
        bad = (~scale.isfinite()).to(torch.float32) if isinstance(scale, Tensor) else None
        self._step([pair for pair in moved if pair[0].dim() > 1], rate, self._decay, inverse, bad)
        self._step([pair for pair in moved if pair[0].dim() <= 1], rate, 0.0, inverse, bad)

    def _step(
        self,
        moved: Sequence[tuple[nn.Parameter, Tensor]],
        rate: float,
        decay: float,
        inverse: Tensor | None,
        bad: Tensor | None,
    ) -> None:
        """One step of pairs of weights and gradients, if there are any, with the same decay."""
        if not moved:
            return
        kept = [self._values(weight) for weight, _ in moved]
        steps = [values["step"] for values in kept]
        torch._foreach_add_(steps, 1)
        torch._fused_adamw_(
            [weight for weight, _ in moved],
            [gradient for _, gradient in moved],
            [values["exp_avg"] for values in kept],
            [values["exp_avg_sq"] for values in kept],
            [],
            steps,
            lr=rate,
            beta1=self._beta1,
            beta2=self._beta2,
            weight_decay=decay,
            eps=self._epsilon,
            amsgrad=False,
            maximize=False,
            grad_scale=inverse,
            found_inf=bad,
        )
        if bad is not None:
            torch._foreach_sub_(steps, [bad] * len(steps))


class Adadelta(Optimizer):
    """square = rho square + (1 - rho) g^2; d = sqrt((delta + eps) / (square + eps)) g; delta of d likewise; w -= lr d.

    The article's optimiser (Zeiler 2012; appendix B.2). It works on pieces that stay in the processor's cache: a step
    over 80 million weights takes a quarter of the time of PyTorch's Adadelta.
    """

    def __init__(self, weights: Sequence[nn.Parameter], rho: float = 0.95, epsilon: float = 1e-6) -> None:
        super().__init__(weights)
        self._rho, self._epsilon = rho, epsilon

    def _begin(self, weight: Tensor) -> dict[str, Tensor]:
        values = {name: torch.zeros_like(weight) for name in ("square_avg", "acc_delta")}
        return {"step": torch.zeros((), dtype=torch.float64), **values}

    def restore(self, state: Mapping[int, Mapping[str, Tensor]]) -> None:
        """As in `Optimizer`; completes the decay of rows that version 0.2 had put off until their next gradient."""
        complete = {}
        for number, values in state.items():
            complete[number] = dict(values)
            if (seen := complete[number].pop("seen", None)) is not None:
                decay = torch.pow(self._rho, float(values["step"]) - seen)[:, None]
                complete[number] |= {name: values[name] * decay for name in ("square_avg", "acc_delta")}
        super().restore(complete)

    @torch.no_grad()
    def step(self, rate: float, scale: float | Tensor = 1.0) -> None:
        scale = float(scale)
        if not math.isfinite(scale):
            return
        for weight in self.weights:
            if weight.grad is not None:
                self._step(weight, weight.grad, rate, scale)

    def _step(self, weight: nn.Parameter, gradient: Tensor, rate: float, scale: float) -> None:
        values = self._values(weight)
        values["step"] += 1
        means = values["square_avg"], values["acc_delta"]
        flat = [x.view(-1) for x in (weight, gradient.contiguous(), *means)]
        piece = min(_PIECE, weight.numel()) if weight.device.type == "cpu" else weight.numel()
        room = weight.new_empty(2, piece)
        for parts in zip(*(x.split(piece) for x in flat), strict=True):
            self._update(*parts, *room[:, : len(parts[0])], rate=rate, scale=scale)

    def _update(
        self,
        weight: Tensor,
        gradient: Tensor,
        square: Tensor,
        delta: Tensor,
        move: Tensor,
        scratch: Tensor,
        *,
        rate: float,
        scale: float,
    ) -> None:
        """The equations of Adadelta, in place.

        The constants contain the scale, so that no operation scales the gradient. `move` and `scratch` are buffers.
        """
        share = (1 - self._rho) * scale**2
        square.mul_(self._rho).addcmul_(gradient, gradient, value=share)
        torch.add(delta, self._epsilon, out=move)
        move.div_(torch.add(square, self._epsilon, out=scratch)).sqrt_().mul_(gradient)
        delta.mul_(self._rho).addcmul_(move, move, value=share)
        weight.add_(move, alpha=-rate * scale)
