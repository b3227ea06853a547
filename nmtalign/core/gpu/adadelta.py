"""Adadelta on a GPU in one pass: 28 bytes a weight instead of the about 64 of PyTorch's `foreach` operations.

For the 84 M weights of the paper's model: 2.4 GB, 0.7 ms on an H100, against 1.6 ms for 5.4 GB.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl
from torch import Tensor

from nmtalign.core.gpu.launching import options, parts

BLOCK = 1024
WARPS = 4


def adadelta_(
    weights: Tensor,
    gradients: Tensor,
    squares: Tensor,
    deltas: Tensor,
    *,
    rate: float,
    rho: float,
    epsilon: float,
    scale: Tensor | None = None,
) -> None:
    """One update in place of contiguous weights and the running means of squared gradients and of squared updates.

    squares = rho squares + (1 - rho) g^2; step = sqrt(deltas + epsilon) / sqrt(squares + epsilon) g; deltas =
    rho deltas + (1 - rho) step^2; weights -= rate * step. `scale` (1 element) multiplies the gradient, as clipping
    does; where it is not finite nothing changes, so that a bad gradient is passed over without the host waiting to see
    it. Raises ValueError for weights that are not contiguous.
    """
    if not (weights.is_contiguous() and squares.is_contiguous() and deltas.is_contiguous()):
        raise ValueError("weights and state must be contiguous to be updated in place")
    adadelta_kernel[(parts(weights.numel(), BLOCK),)](
        weights,
        gradients.contiguous(),
        squares,
        deltas,
        scale,
        weights.numel(),
        rate,
        rho,
        epsilon,
        BLOCK=BLOCK,
        **options(WARPS),
    )


@triton.jit
def adadelta_kernel(
    weights,  # (count,), in place
    gradients,  # (count,)
    squares,  # (count,), in place: the running mean of squared gradients
    deltas,  # (count,), in place: the running mean of squared updates
    scale,  # (1,), of the gradient, or None
    count,
    rate,
    rho,
    epsilon,
    BLOCK: tl.constexpr,
):
    """One update of BLOCK weights; a scale that is not finite leaves all as it was."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < count
    gradient = tl.load(gradients + at, inside, 0.0)
    if scale is not None:
        factor = tl.load(scale).to(gradient.dtype)
        finite = tl.abs(factor) < float("inf")
        inside = at < tl.where(finite, count, 0)
        gradient *= tl.where(finite, factor, 0.0)
    square = tl.load(squares + at, inside, 0.0)
    delta = tl.load(deltas + at, inside, 0.0)
    square = rho * square + (1.0 - rho) * gradient * gradient
    step = tl.sqrt(delta + epsilon) / tl.sqrt(square + epsilon) * gradient
    tl.store(squares + at, square, inside)
    tl.store(deltas + at, rho * delta + (1.0 - rho) * step * step, inside)
    tl.store(weights + at, tl.load(weights + at, inside, 0.0) - rate * step, inside)
