"""The kernel of Adadelta: one pass over weights, gradient and state."""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl


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
