"""The optimisers and the clipping of gradients."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from nmtalign.core.gpu import missing
from nmtalign.settings.training_settings import TrainingConfig

_PIECE = 1 << 19  # weights; ten operations on a piece of this size find it in the processor's cache


def make_optimizer(parameters: Iterable[nn.Parameter], config: TrainingConfig) -> torch.optim.Optimizer:
    """Adadelta as in the paper, Adam, or AdamW (which decays the matrices only)."""
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


class Descent:
    """Steps of an optimiser along clipped gradients, which may be sparse.

    The gradient is read once for its norm and once by the step: the step multiplies it by the factor that clips it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, clip_norm: float, on_device: bool | None = None) -> None:
        """`clip_norm` 0 = no clipping. With `on_device`, the default on a GPU, the host does not wait for the norm.

        The step itself then changes nothing if the norm is not finite. PyTorch's fused Adam and the Triton kernel of
        Adadelta can do this; Adadelta without the kernel waits.
        """
        self._optimizer, self._clip_norm = optimizer, clip_norm
        self._parameters = [weight for group in optimizer.param_groups for weight in group["params"]]
        self._on_device = self._parameters[0].is_cuda if on_device is None else on_device
        self._dense: dict[nn.Parameter, Tensor] = {}  # zero except in the rows of the current gradient

    def step(self, rate: float) -> Tensor:
        """Makes one step at a learning rate and removes the gradients; returns the norm that they had.

        A gradient whose norm is not finite changes nothing.
        """
        norm = self._norm()
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        if self._on_device:
            scale = (self._clip_norm / (norm + 1e-6)).clamp(max=1.0) if self._clip_norm else torch.ones_like(norm)
            self._step(torch.where(norm.isfinite(), scale, torch.nan))
        elif math.isfinite(length := float(norm)):
            self._step(min(1.0, self._clip_norm / (length + 1e-6)) if self._clip_norm else 1.0)
        self._optimizer.zero_grad(set_to_none=True)
        return norm

    def _norm(self) -> Tensor:
        gradients = []
        for weight in self._parameters:
            if weight.grad is not None:
                if weight.grad.is_sparse:
                    weight.grad = weight.grad.coalesce()
                gradients.append(weight.grad.values() if weight.grad.is_sparse else weight.grad)
        return get_total_norm(gradients)

    def _step(self, scale: float | Tensor) -> None:
        """Steps on the gradients times `scale`; a tensor that is not finite changes nothing."""
        if isinstance(self._optimizer, Adadelta):
            self._optimizer.step(scale=scale)
            return
        spread = self._spread_rows()
        # The fused optimisers divide the gradient by `grad_scale` as they read it; `found_inf` 1 changes nothing.
        fused: Any = self._optimizer
        if isinstance(scale, Tensor):
            fused.grad_scale, fused.found_inf = 1 / scale, (~scale.isfinite()).to(torch.float32)
        elif self._parameters[0].device.type == "mps":  # its fused step ignores `grad_scale`
            torch._foreach_mul_([weight.grad for weight in self._parameters if weight.grad is not None], scale)
        else:
            fused.grad_scale = None if scale == 1 else torch.tensor(1 / scale, device=self._parameters[0].device)
        fused.step()
        for weight, rows in spread:
            self._dense[weight].index_fill_(0, rows, 0)

    def _spread_rows(self) -> list[tuple[nn.Parameter, Tensor]]:
        """Copies sparse gradients into dense ones, which are kept and zeroed by row; returns (weight, rows) of each."""
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


class Adadelta(torch.optim.Optimizer):
    """square = rho square + (1 - rho) g^2; d = sqrt((delta + eps) / (square + eps)) g; delta of d likewise; w -= lr d.

    The article's optimiser (Zeiler 2012; appendix B.2). It works on pieces that stay in the processor's cache: a step
    over 80 million weights takes a quarter of the time of PyTorch's Adadelta. Gradients may be sparse tensors of rows.
    The means of a row without a gradient only decay; they decay by all the missed steps when the row next has a
    gradient, so that the result is that of dense gradients, to rounding.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1.0, rho: float = 0.95, eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, scale: float | Tensor = 1.0) -> None:  # type: ignore[override]
        """One step on the gradients times `scale`; a scale that is not finite changes nothing."""
        if closure is not None:
            raise ValueError("this Adadelta takes no closure")
        if isinstance(scale, Tensor) and missing(scale.device):
            scale = float(scale)
        if isinstance(scale, float) and not math.isfinite(scale):
            return
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, weight.grad, group, scale)

    def _step(self, weight: Tensor, gradient: Tensor, group: dict[str, Any], scale: float | Tensor) -> None:
        state = self.state[weight]
        if not state:
            state["square_avg"], state["acc_delta"] = torch.zeros_like(weight), torch.zeros_like(weight)
            state["step"] = torch.zeros((), dtype=torch.float64)
        state["step"] += 1
        lr, rho, eps = group["lr"], group["rho"], group["eps"]
        means = state["square_avg"], state["acc_delta"]
        if gradient.is_sparse:
            self._step_rows(weight, gradient.coalesce(), group, float(scale))
            return
        if "seen" in state:  # the run continues with dense gradients, as several processes have them
            missed = torch.pow(rho, float(state["step"]) - 1 - state.pop("seen"))[:, None]
            for mean in means:
                mean.mul_(missed)
        if isinstance(scale, Tensor):
            from nmtalign.core.gpu.one_pass import adadelta_

            adadelta_(weight, gradient, *means, rate=lr, rho=rho, epsilon=eps, scale=scale.reshape(1))
            return
        flat = [x.view(-1) for x in (weight, gradient.contiguous(), *means)]
        piece = min(_PIECE, weight.numel()) if weight.device.type == "cpu" else weight.numel()
        room = weight.new_empty(2, piece)
        for parts in zip(*(x.split(piece) for x in flat), strict=True):
            _update(*parts, *room[:, : len(parts[0])], group=group, scale=scale)

    def _step_rows(self, weight: Tensor, gradient: Tensor, group: dict[str, Any], scale: float) -> None:
        """Steps only the rows of a sparse gradient (rows, m), after the decay that they have missed."""
        state = self.state[weight]
        means, step = (state["square_avg"], state["acc_delta"]), float(state["step"])
        if "seen" not in state:  # the step at which each row was last up to date
            state["seen"] = weight.new_full((len(weight),), step - 1)
        rows, values = gradient.indices()[0], gradient.values()
        missed = torch.pow(group["rho"], step - 1 - state["seen"][rows])[:, None]
        square, delta = (mean[rows].mul_(missed) for mean in means)
        moved = torch.zeros_like(values)
        _update(moved, values, square, delta, *values.new_empty(2, *values.shape), group=group, scale=scale)
        weight.index_add_(0, rows, moved)
        for mean, new in zip(means, (square, delta), strict=True):
            mean.index_copy_(0, rows, new)
        state["seen"].index_fill_(0, rows, step)


def _update(
    weight: Tensor,
    gradient: Tensor,
    square: Tensor,
    delta: Tensor,
    move: Tensor,
    scratch: Tensor,
    *,
    group: dict[str, Any],
    scale: float,
) -> None:
    """The equations of Adadelta, in place; the constants contain the scale, so that no operation scales the gradient.

    `move` and `scratch` are buffers.
    """
    rho, eps = group["rho"], group["eps"]
    share = (1 - rho) * scale**2
    square.mul_(rho).addcmul_(gradient, gradient, value=share)
    torch.add(delta, eps, out=move)
    move.div_(torch.add(square, eps, out=scratch)).sqrt_().mul_(gradient)
    delta.mul_(rho).addcmul_(move, move, value=share)
    weight.add_(move, alpha=-group["lr"] * scale)
