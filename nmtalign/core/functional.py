"""Small functions that the layers share: products, dropout, maxout, dtypes."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.int8 import Int8Matrix, Int8Weight


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of states, sums and probabilities beside products in `dtype`: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def product(
    rows: Tensor, weight: Tensor | Int8Matrix, addend: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """`rows W^T (+ addend)`: rows (B, in) with weight (out, in), or (D, B, in) with (D, out, in).

    Fills and returns `out`, if it is given.
    """
    if isinstance(weight, Int8Weight):
        weight = weight.matrix
    if isinstance(weight, Int8Matrix):
        return weight.product(rows, addend, out)
    if addend is None:
        return torch.matmul(rows, weight.mT, out=out)
    if weight.dim() == 2:
        return torch.addmm(addend, rows, weight.t(), out=out)
    return torch.baddbmm(addend, rows, weight.mT, out=out)


def fast_dropout(x: Tensor, share: float) -> Tensor:
    """x with a random share of its numbers set to 0 and the others scaled, in a fifth of the time of PyTorch's dropout.

    On a CPU each number takes 16 random bits, so that the share is exact to 1/65,536.
    """
    if not share or x.device.type != "cpu":
        return F.dropout(x, share)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= round(share * 65_536) - 32_768
    return x * kept.to(x.dtype).mul_(1 / (1 - share))


def maxout(values: Tensor) -> Tensor:
    """The larger of each pair of adjacent values: (..., 2l) to (..., l)."""
    return torch.maximum(*values.unflatten(-1, (-1, 2)).unbind(-1))


def apply(function: type[torch.autograd.Function], *arguments: Any) -> Any:
    """`function.apply(*arguments)`, whose own annotation carries no types."""
    return function.apply(*arguments)


def take_once(ctx: Any, name: str) -> Any:
    """Returns what a forward pass stored under `name` and frees it; PyTorch itself would keep it with the graph.

    Raises RuntimeError if it was taken before.
    """
    kept = getattr(ctx, name)
    setattr(ctx, name, None)
    if kept is None:
        raise RuntimeError("the gradient of this pass has been taken already; compute the loss again")
    return kept
