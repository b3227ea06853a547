"""Adadelta (Zeiler 2012; PAPER section 4) in pieces that stay in the processor's cache."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

PIECE = 1 << 19  # weights; each of the ten operations on a piece finds it in the cache


class Adadelta(torch.optim.Optimizer):
    """square = rho square + (1 - rho) g^2; d = sqrt((delta + eps) / (square + eps)) g; delta of d likewise; w -= lr d.

    A step over 80 million weights takes a quarter of the time of PyTorch's Adadelta. Gradients may be sparse tensors
    of rows: the rows that have none, whose means only decay, are left alone until they are needed again and then
    decay by all the steps that went by, so that the result is that of dense gradients, to rounding.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float = 1.0, rho: float = 0.95, eps: float = 1e-6) -> None:
        super().__init__(params, {"lr": lr, "rho": rho, "eps": eps})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None, *, scale: float = 1.0) -> None:  # type: ignore[override]
        """One step on the gradients times `scale`, which is how clipping comes in without a pass of its own."""
        if closure is not None:
            raise ValueError("this Adadelta takes no closure")
        for group in self.param_groups:
            rule = _Rule(group["lr"], group["rho"], group["eps"], scale)
            for weight in group["params"]:
                if weight.grad is not None:
                    self._step(weight, weight.grad, rule)

    def _step(self, weight: Tensor, gradient: Tensor, rule: "_Rule") -> None:
        state = self.state[weight]
        if not state:
            state["square_avg"], state["acc_delta"] = torch.zeros_like(weight), torch.zeros_like(weight)
            state["step"] = torch.zeros((), dtype=torch.float64)
        state["step"] += 1
        means = state["square_avg"], state["acc_delta"]
        if gradient.is_sparse:
            if "seen" not in state:  # the step at which each row was last up to date
                state["seen"] = weight.new_full((len(weight),), float(state["step"]) - 1)
            _step_rows(weight, gradient.coalesce(), means, state["seen"], float(state["step"]), rule)
            return
        if "seen" in state:  # a run that went on with dense gradients, as several processes have them
            missed = torch.pow(rule.rho, float(state["step"]) - 1 - state.pop("seen"))[:, None]
            for mean in means:
                mean.mul_(missed)
        if weight.is_cuda and _step_by_triton(weight, gradient, means, rule):
            return
        flat = [x.view(-1) for x in (weight, gradient.contiguous(), *means)]
        piece = min(PIECE, weight.numel()) if weight.device.type == "cpu" else weight.numel()
        room = weight.new_empty(2, piece)
        for parts in zip(*(x.split(piece) for x in flat), strict=True):
            rule.apply(*parts, *room[:, : len(parts[0])])


class _Rule:
    """The arithmetic, on tensors of one shape."""

    def __init__(self, lr: float, rho: float, eps: float, scale: float) -> None:
        self.lr, self.rho, self.eps, self.scale = lr, rho, eps, scale

    def apply(
        self, weight: Tensor, gradient: Tensor, square: Tensor, delta: Tensor, move: Tensor, scratch: Tensor
    ) -> None:
        """In place; the scale is taken into the constants, so that the gradient is read as it is."""
        share = (1 - self.rho) * self.scale**2
        square.mul_(self.rho).addcmul_(gradient, gradient, value=share)
        torch.add(delta, self.eps, out=move)
        move.div_(torch.add(square, self.eps, out=scratch)).sqrt_().mul_(gradient)
        delta.mul_(self.rho).addcmul_(move, move, value=share)
        weight.add_(move, alpha=-self.lr * self.scale)


def _step_rows(
    weight: Tensor, gradient: Tensor, means: tuple[Tensor, Tensor], seen: Tensor, step: float, rule: _Rule
) -> None:
    """The rows of a sparse gradient (rows, m) alone, after the decay that they have missed."""
    rows, values = gradient.indices()[0], gradient.values()
    missed = torch.pow(rule.rho, step - 1 - seen[rows])[:, None]
    square, delta = (mean[rows].mul_(missed) for mean in means)
    moved = torch.zeros_like(values)
    rule.apply(moved, values, square, delta, *values.new_empty(2, *values.shape))
    weight.index_add_(0, rows, moved)
    for mean, new in zip(means, (square, delta), strict=True):
        mean.index_copy_(0, rows, new)
    seen.index_fill_(0, rows, step)


def _step_by_triton(weight: Tensor, gradient: Tensor, means: tuple[Tensor, Tensor], rule: _Rule) -> bool:
    """The same in one kernel, where there is Triton."""
    from nmtalign.core.gpu import missing

    if missing(weight.device):
        return False
    from nmtalign.core.gpu.adadelta import adadelta_

    scale = torch.full((1,), rule.scale, device=weight.device)
    adadelta_(weight, gradient, *means, rate=rule.lr, rho=rule.rho, epsilon=rule.eps, scale=scale)
    return True
