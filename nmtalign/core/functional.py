"""Small functions that the hand-written forward and backward passes share: products, tanh, autograd."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.devices import products_are_reproducible
from nmtalign.core.int8 import Int8Matrix, Int8Weight

_ONEDNN_TYPES = (torch.float32, torch.bfloat16)


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of states, sums and probabilities beside products in `dtype`: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def tanh(x: Tensor) -> Tensor:
    """tanh of a contiguous tensor, which may be overwritten.

    On a CPU, float32 is accurate to 2e-7 (absolute). With AVX-512, oneDNN's tanh takes a fifth of the time of
    PyTorch's. Without it, oneDNN's takes longer than PyTorch's, and `tanh_of_half_` takes 0.4 of the time.
    """
    if x.device.type == "cpu":
        if x.dtype == torch.float32 and not _has_avx512():
            return tanh_of_half_(x.mul_(2))
        if x.dtype in _ONEDNN_TYPES and _has_onednn(x.dtype):
            return torch.tanh_(x.to_mkldnn()).to_dense()
    return x.tanh_()


def sigmoid_(x: Tensor) -> Tensor:
    """The logistic function of a tensor, in place, without a gradient.

    PyTorch's own sigmoid on a CPU rounds the last elements of a tensor differently, so that the result of a row would
    depend on the number of rows. Where products do not depend on it (MKL's strict reproducibility), the exponential
    function replaces it, at 3% of the time of a search step.
    """
    if x.device.type == "cpu" and products_are_reproducible():
        return x.neg_().exp_().add_(1).reciprocal_()
    return x.sigmoid_()


def tanh_of_half_(x: Tensor) -> Tensor:
    """tanh(x / 2) = 2 sigmoid(x) - 1, in place, without a gradient.

    PyTorch's sigmoid on a CPU takes at most a third of the time of its tanh.
    """
    return sigmoid_(x).mul_(2).sub_(1)


def one_minus_square(x: Tensor) -> Tensor:
    """The derivative of tanh at the point where tanh has the value x."""
    return torch.addcmul(x.new_ones(()), x, x, value=-1)


def fast_dropout(x: Tensor, share: float) -> Tensor:
    """x with a random share of its numbers set to 0 and the others scaled, in a fifth of the time of PyTorch's dropout.

    On a CPU each number takes 16 random bits, so that the share is exact to 1/65,536.
    """
    if not share or x.device.type != "cpu":
        return F.dropout(x, share)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= round(share * 65_536) - 32_768
    return x * kept.to(x.dtype).mul_(1 / (1 - share))


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


def dots(vectors: Tensor, rows: Tensor) -> Tensor:
    """The dot products (B, R) of vectors (B, n) with their rows (B, R, n).

    In float32, MKL's product of a row and a matrix takes a ninth of the time of that of a matrix and a column.
    """
    if rows.dtype == torch.bfloat16:
        return torch.bmm(rows, vectors[:, :, None]).squeeze(2)
    return torch.bmm(vectors[:, None], rows.mT).squeeze(1)


def add_product(total: Tensor, gradient: Tensor, weight: Tensor) -> None:
    """`total += gradient W`, accumulated in the dtype of `total`."""
    if total.dtype == torch.bfloat16 or weight.dim() > 2:  # one bf16 operation would be twice as slow as two
        total.add_(gradient @ weight)
    elif total.dtype == weight.dtype:
        total.addmm_(gradient, weight)
    else:
        total.add_((gradient @ weight).to(total.dtype))


def over_steps(gradient: Tensor, rows: Tensor) -> Tensor:
    """A weight's gradient (*D, out, in) as one product over all steps: (U, *D, B, out) and (U, *D, B, in)."""
    if gradient.dim() == 3:
        return gradient.flatten(0, 1).t() @ rows.flatten(0, 1)
    return torch.stack([over_steps(*direction) for direction in zip(gradient.unbind(1), rows.unbind(1), strict=True)])


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


def maxout(values: Tensor) -> Tensor:
    """The larger of each pair of adjacent values, (N, 2l) to (N, l), without a gradient."""
    first, second = values.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.maximum(first, second)


class Maxout(torch.autograd.Function):
    """The larger of each pair of adjacent values, (N, 2l) to (N, l); of two equal ones, the first."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        first, second = values.unflatten(-1, (-1, 2)).unbind(-1)
        ctx.save_for_backward(first >= second)
        return maxout(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (chosen,) = ctx.saved_tensors
        both = gradient.new_empty(*gradient.shape, 2)
        torch.mul(gradient, chosen, out=both[..., 0])
        torch.sub(gradient, both[..., 0], out=both[..., 1])
        return both.flatten(-2)


_found: dict[torch.dtype, bool] = {}


@functools.cache
def _has_avx512() -> bool:
    """Whether PyTorch uses instructions for 512 bits."""
    return torch.backends.cpu.get_cpu_capability() == "AVX512"


def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether this build and this processor support oneDNN tensors of a dtype; checked once."""
    if dtype not in _found:
        try:
            _found[dtype] = torch.backends.mkldnn.is_available()
            if _found[dtype]:
                torch.tanh_(torch.zeros(16, dtype=dtype).to_mkldnn()).to_dense()
        except RuntimeError:
            _found[dtype] = False
    return _found[dtype]
