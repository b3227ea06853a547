"""How tensors are handed to the kernels: as rows, with block sizes that are powers of 2."""

from typing import Any

import torch
from torch import Tensor


def rows(tensor: Tensor, width: int) -> tuple[Tensor, int]:
    """`tensor` (..., width) as rows of adjacent numbers, and how far apart they are; a copy only where it must be.

    A slice of the last dimension is no copy; a slice of any but the first of the others is.
    """
    flat = tensor.reshape(-1, width)
    if flat.stride(1) != 1 and width > 1:
        flat = flat.contiguous()
    return flat, flat.stride(0) if len(flat) > 1 else width


def power_of_two(count: int, least: int = 1, most: int = 1 << 16) -> int:
    """The smallest power of 2 that is not under `count`, kept between two others."""
    return min(most, max(least, 1 << max(0, count - 1).bit_length()))


def parts(count: int, block: int) -> int:
    """Blocks that cover `count`."""
    return -(-count // block)


def options(warps: int) -> dict[str, Any]:
    """How a kernel is compiled: threads a program in warps of 32, and a * b + c in one rounding."""
    return {"num_warps": warps, "enable_fp_fusion": True}


def triton_type(dtype: torch.dtype) -> object:
    """Triton's name of float64 or float32, as a constant of a kernel."""
    import triton.language as tl

    return tl.float64 if dtype == torch.float64 else tl.float32
