"""Small functions that the layers share: products, tanh and energies, dropout, maxout, dtypes."""

import functools
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.int8 import Int8Matrix, Int8Weight

_CACHED_ELEMENTS = 1 << 19  # whose tanh is computed together, so that they stay in the processor's cache
_PARTIAL_SUMS = 16


def wide(dtype: torch.dtype) -> torch.dtype:
    """The dtype of states, sums and probabilities beside products in `dtype`: float32, or float64 for float64."""
    return torch.promote_types(dtype, torch.float32)


def product(
    rows: Tensor, weight: "Tensor | Int8Matrix | SharedWeight", addend: Tensor | None = None, out: Tensor | None = None
) -> Tensor:
    """`rows W^T (+ addend)`: rows (B, in) with weight (out, in), or (D, B, in) with (D, out, in).

    Fills and returns `out`, if it is given.
    """
    if isinstance(weight, SharedWeight):
        return weight.product(rows, addend)
    if isinstance(weight, Int8Weight):
        weight = weight.matrix
    if isinstance(weight, Int8Matrix):
        return weight.product(rows, addend, out)
    if addend is None:
        return torch.matmul(rows, weight.mT, out=out)
    if weight.dim() == 2:
        return torch.addmm(addend, rows, weight.t(), out=out)
    return torch.baddbmm(addend, rows, weight.mT, out=out)


class SharedWeight:
    """A weight that many steps multiply. Its gradient is one product over all steps, not the sum of one per step.

    Each step has a part in an empty number, the token, so that autograd computes the gradient after the last step.
    """

    def __init__(self, weight: Tensor) -> None:
        self.weight, self._steps = weight.detach(), list[tuple[Tensor, Tensor]]()
        self._token = apply(_SharedGradient, self._steps, weight)

    def product(self, rows: Tensor, addend: Tensor | None) -> Tensor:
        """As `product`; an addend has the shape of the result."""
        total: Tensor = apply(_SharedProduct, self._steps, self.weight, self._token, rows, addend)
        return total


class _SharedGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: list[tuple[Tensor, Tensor]], weight: Tensor) -> Tensor:
        ctx.steps = steps
        return weight.new_zeros(())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, _: Tensor) -> tuple[None, Tensor]:
        gradients, rows = zip(*ctx.steps, strict=True)
        ctx.steps.clear()
        return None, torch.cat(gradients, -2).mT @ torch.cat(rows, -2)


class _SharedProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, steps: Any, weight: Tensor, token: Tensor, rows: Tensor, addend: Tensor | None) -> Tensor:
        ctx.steps, ctx.has_addend = steps, addend is not None
        ctx.save_for_backward(weight, rows)
        return product(rows, weight, addend)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        weight, rows = ctx.saved_tensors
        ctx.steps.append((gradient, rows))
        return None, None, gradient.new_zeros(()), gradient @ weight, gradient if ctx.has_addend else None


def shared(weight: Tensor) -> Tensor | SharedWeight:
    """A weight for the products of many steps: a `SharedWeight` if it gets a gradient."""
    return SharedWeight(weight) if weight.requires_grad and torch.is_grad_enabled() else weight


def fast_dropout(x: Tensor, rate: float) -> Tensor:
    """x with a random share of its numbers set to 0 and the others scaled, in a fifth of the time of PyTorch's dropout.

    On a CPU each number takes 16 random bits, so that the share is exact to 1/65,536.
    """
    if not rate or x.device.type != "cpu":
        return F.dropout(x, rate)
    bits = torch.empty(-(-x.numel() // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    kept = bits[: x.numel()].view(x.shape) >= round(rate * 65_536) - 32_768
    return x * kept.to(x.dtype).mul_(1 / (1 - rate))


def maxout(values: Tensor) -> Tensor:
    """The larger of each pair of adjacent values: (..., 2l) to (..., l)."""
    return torch.maximum(*values.unflatten(-1, (-1, 2)).unbind(-1))


def additive_energies(queries: Tensor, keys: Tensor, vector: Tensor) -> Tensor:
    """v_a . tanh(queries + keys), (B, R, Tx) wide, of queries (B, R, n') and keys (B, Tx, n'); without a gradient.

    On a CPU a few sentences at a time, so that their tanh stays in the cache.
    """
    (batch, rows, _), length = queries.shape, keys.shape[1]
    energies = keys.new_empty(batch, rows, length, dtype=wide(keys.dtype))
    partial_vectors = in_partial_sums(vector.to(keys.dtype))
    most = max(1, _CACHED_ELEMENTS // (length * keys.shape[2])) if keys.device.type == "cpu" else batch * rows
    sentences, each = max(1, most // rows), min(rows, most)  # sentences with all their rows, if they fit
    for start in range(0, batch, sentences):
        for row in range(0, rows, each):
            part = slice(start, start + sentences), slice(row, row + each)
            sums = tanh_(keys[part[0], None] + queries[part][:, :, None]) @ partial_vectors
            torch.sum(sums, -1, dtype=energies.dtype, out=energies[part])
    return energies


def in_partial_sums(vector: Tensor) -> Tensor:
    """v_a (n',) as (n', P), whose product with a row gives P partial sums of an energy; P = 1 in float32.

    An energy that is rounded to bf16 only once, at the end, was the larger half of the error of bf16 in the
    log-probability of a translation.
    """
    if vector.dtype == wide(vector.dtype):
        return vector[:, None]
    units = torch.arange(len(vector), device=vector.device)
    return vector[:, None] * (units[:, None] % _PARTIAL_SUMS == units[:_PARTIAL_SUMS])


def tanh_(x: Tensor) -> Tensor:
    """tanh of a contiguous tensor, which may be overwritten; without a gradient.

    On a CPU, float32 is accurate to 2e-7 (absolute). With AVX-512, oneDNN's tanh takes a fifth of the time of
    PyTorch's. Without it, tanh(x) = 2 sigmoid(2 x) - 1 takes 0.4 of the time.
    """
    if x.device.type == "cpu" and x.dtype in (torch.float32, torch.bfloat16):
        if x.dtype == torch.float32 and torch.backends.cpu.get_cpu_capability() != "AVX512":
            return x.mul_(2).sigmoid_().mul_(2).sub_(1)
        if _has_onednn(x.dtype):
            return torch.tanh_(x.to_mkldnn()).to_dense()
    return x.tanh_()


@functools.cache
def _has_onednn(dtype: torch.dtype) -> bool:
    """Whether this build and this processor support oneDNN tensors of a dtype."""
    try:
        torch.tanh_(torch.zeros(16, dtype=dtype).to_mkldnn()).to_dense()
    except RuntimeError:
        return False
    return bool(torch.backends.mkldnn.is_available())


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
