"""Helpers of all kernels: block sizes, types, sigmoid and tanh."""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import torch
import triton
import triton.language as tl


def power_of_two(count: int, least: int = 1, most: int = 1 << 16) -> int:
    """The smallest power of 2 that is at least `count`, limited to `least` and `most`."""
    return min(most, max(least, int(triton.next_power_of_2(count))))


def triton_type(dtype: torch.dtype) -> object:
    """Triton's name of float64 or float32, as a constant of a kernel."""
    return tl.float64 if dtype == torch.float64 else tl.float32


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x)), by an exponential that cannot overflow."""
    small = tl.exp(-tl.abs(x))
    return tl.where(x < 0, small, 1.0) / (1.0 + small)


@triton.jit
def tanh(x):
    """(1 - e) / (1 + e) with e = exp(-2 |x|), which cannot overflow; near 0, where 1 - e cancels, the series.

    The series to x^9 has a relative error of 6e-8 below 0.3; for float64 the quotient by itself has an absolute error
    of 1e-16.
    """
    size = tl.abs(x)
    e = tl.exp(-2.0 * size)
    result = (1.0 - e) / (1.0 + e)
    if x.dtype != tl.float64:
        near = tl.minimum(size, 0.3)
        square = near * near
        series = 0.13333334 + square * (-0.053968254 + square * 0.021869488)
        result = tl.where(size < 0.3, near + near * square * (-0.33333334 + square * series), result)
    return tl.where(x < 0, -result, result)
