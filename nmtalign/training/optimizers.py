"""The optimisers and the clipping of gradients."""

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from nmtalign.core.numerics import VECTORS, fused
from nmtalign.settings.training_settings import TrainingConfig

_PIECE = 1 << 19  # weights; ten operations on a piece of this size find it in the processor's cache


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> "Optimizer":
    """Adadelta as in the paper, Adam, or AdamW (which decays the matrices only)."""
    weights = list(parameters)
    if config.optimizer == "adadelta":
        return Adadelta(weights, config.rho, config.epsilon)
    return Adam(weights, config.beta1, config.beta2, config.epsilon, config.weight_decay)


class Optimizer(torch.optim.Optimizer):
    """Steps of weights along their gradients, and the values that are kept for each weight.

    `inspect.unwrap` removes decorators of PyTorch that would import its compiler, which takes a second and 146 MB.
    """

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)
    kept: tuple[str, ...]  # names of the values that are kept, each with the shape of its weight; "step" is a number

    def descend(self, rate: float, scale: float | Tensor = 1.0) -> None:
        """Makes a step along the gradients times `scale`; a scale on the device that is not finite changes nothing."""
        raise NotImplementedError

    def weights(self) -> list[nn.Parameter]:
        """All weights, in the order of their numbers."""
        return [weight for group in self.param_groups for weight in group["params"]]

    def values(self) -> dict[int, dict[str, Tensor]]:
        """The values that are kept, by the number of the weight and their name."""
        return {number: self.state[weight] for number, weight in enumerate(self.weights()) if weight in self.state}

    def restore(self, values: Mapping[int, Mapping[str, Tensor]]) -> None:
        """Continues from earlier `values`; raises ValueError if they do not fit the weights."""
        weights, state = self.weights(), dict[Tensor, dict[str, Tensor]]()
        for number, kept in values.items():
            if not 0 <= number < len(weights):
                raise ValueError(f"the optimiser has {len(weights)} weights, so there is no number {number}")
            weight = weights[number]
            expected = {name: torch.Size() if name == "step" else weight.shape for name in self.kept}
            if (shapes := {name: value.shape for name, value in kept.items()}) != expected:
                raise ValueError(f"the optimiser has {expected} for weight {number}, not {shapes}")
            state[weight] = {
                name: value.to(weight.device, torch.float32 if name == "step" else weight.dtype, copy=True)
                for name, value in kept.items()
            }
        self.state.clear()
        self.state.update(state)


def descend(optimizer: Optimizer, rate: float, clip_norm: float, on_device: bool | None = None) -> Tensor:
    """Makes one step along the clipped gradients and removes them; returns the norm that they had.

    The gradient is read once for its norm and once by the step, which multiplies it by the factor that clips it. A
    gradient whose norm is not finite changes nothing. `clip_norm` 0 = no clipping. With `on_device`, the default on a
    GPU, the host does not wait for the norm.
    """
    weights = optimizer.weights()
    norm = get_total_norm([weight.grad for weight in weights if weight.grad is not None])
    if norm.is_cuda if on_device is None else on_device:
        scale = (clip_norm / (norm + 1e-6)).clamp(max=1.0) if clip_norm else torch.ones_like(norm)
        optimizer.descend(rate, torch.where(norm.isfinite(), scale, torch.nan))
    elif math.isfinite(length := float(norm)):
        optimizer.descend(rate, min(1.0, clip_norm / (length + 1e-6)) if clip_norm else 1.0)
    for weight in weights:
        weight.grad = None
    return norm


class Adam(Optimizer, torch.optim.AdamW):
    """Adam (Kingma & Ba 2015) and AdamW (Loshchilov & Hutter 2019), which decays matrices only; PyTorch's kernel."""

    kept = ("step", "exp_avg", "exp_avg_sq")
    step = torch.no_grad()(inspect.unwrap(torch.optim.AdamW.step))

    def __init__(
        self, weights: Sequence[nn.Parameter], beta1: float, beta2: float, epsilon: float, decay: float
    ) -> None:
        numbered = sorted(weights, key=lambda weight: weight.dim() <= 1)  # as in the states of earlier versions
        runs = groupby(numbered, lambda weight: 0.0 if getattr(weight, "role", None) in VECTORS else decay)
        groups = [{"params": [*run], "weight_decay": share} for share, run in runs]
        super().__init__(groups, betas=(beta1, beta2), eps=epsilon, fused=True)

    def descend(self, rate: float, scale: float | Tensor = 1.0) -> None:
        device = self.param_groups[0]["params"][0].device
        if isinstance(scale, float) and device.type == "mps":  # its kernel ignores `grad_scale`
            torch._foreach_mul_([weight.grad for weight in self.weights() if weight.grad is not None], scale)
            scale = 1.0
        # The kernel divides the gradient by `grad_scale` as it reads it; `found_inf` 1 changes nothing.
        self.grad_scale = None if isinstance(scale, float) and scale == 1 else torch.as_tensor(1 / scale, device=device)
        self.found_inf = (~scale.isfinite()).to(torch.float32) if isinstance(scale, Tensor) else None
        for group in self.param_groups:
            group["lr"] = rate
        self.step()


class Adadelta(Optimizer):
    """square = rho square + (1 - rho) g^2; d = sqrt((delta + eps) / (square + eps)) g; delta of d likewise; w -= lr d.

    The article's optimiser (Zeiler 2012; appendix B.2). It works on pieces that stay in the processor's cache: a step
    over 80 million weights takes a quarter of the time of PyTorch's Adadelta.
    """

    kept = ("square_avg", "acc_delta")

    def __init__(self, weights: Iterable[nn.Parameter], rho: float, epsilon: float) -> None:
        super().__init__(weights, {})
        self._rho, self._epsilon = rho, epsilon

    @torch.no_grad()
    def descend(self, rate: float, scale: float | Tensor = 1.0) -> None:
        rate_on_device = torch.full_like(torch.as_tensor(scale), rate)  # one fill for all weights
        for weight in self.weights():
            if weight.grad is None:
                continue
            values = self.state[weight]
            if not values:
                values |= {name: torch.zeros_like(weight) for name in self.kept}
            means = values["square_avg"], values["acc_delta"]
            w, g, square, delta = (x.view(-1) for x in (weight, weight.grad.contiguous(), *means))
            if isinstance(scale, Tensor):
                _adadelta(w, g, square, delta, scale, rate_on_device, self._rho, self._epsilon)
            else:
                self._by_pieces((w, g, square, delta), rate, scale)

    def _by_pieces(self, flat: Sequence[Tensor], rate: float, scale: float) -> None:
        """A step of one weight in pieces that stay in the processor's cache."""
        share = (1 - self._rho) * scale**2
        buffers = flat[0].new_empty(2, min(_PIECE, flat[0].numel()))
        for w, g, square, delta in zip(*(x.split(_PIECE) for x in flat), strict=True):
            # The constants contain the scale, so that no operation scales the gradient.
            move, scratch = buffers[:, : len(w)]
            square.mul_(self._rho).addcmul_(g, g, value=share)
            torch.add(delta, self._epsilon, out=move)
            move.div_(torch.add(square, self._epsilon, out=scratch)).sqrt_().mul_(g)
            delta.mul_(self._rho).addcmul_(move, move, value=share)
            w.add_(move, alpha=-rate * scale)


@fused
def _adadelta(
    weight: Tensor, g: Tensor, square: Tensor, delta: Tensor, scale: Tensor, rate: Tensor, rho: float, epsilon: float
) -> None:
    """A step along the gradient times `scale` (a number on the device), which changes nothing if that is not finite."""
    known = scale.isfinite()
    g, share = torch.where(known, g * scale, 0), torch.where(known, 1 - rho, 0)
    square.add_((g * g - square) * share)
    move = ((delta + epsilon) / (square + epsilon)).sqrt() * g
    delta.add_((move * move - delta) * share)
    weight.sub_(rate * move)
