"""Fused kernels for a GPU, written in Triton; `missing` tells whether they run on a device. Else PyTorch does the work.

What limits the speed, at paper sizes (both sides 30 words and `</s>`, bf16): the matrix products of a sentence pair
are 8.6 GFLOP, 10.8 us on a card that does 800 TFLOP/s. The recurrences are 62 dependent steps in each direction,
whatever the batch, and each launch takes 2 to 5 us: few launches per step matter more than anything else. The kernels
are tested in Triton's interpreter; they have not yet run on a card.
"""

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_forced: list[bool] = []


def missing(device: torch.device) -> str | None:
    """Why the kernels do not run on a device; None where they do. A small kernel is tried once per device."""
    if _forced:
        return None if _forced[-1] else "switched off"
    if device.type != "cuda":
        return f"no kernels for {device.type}"
    return _try(torch.cuda.current_device() if device.index is None else device.index)


@contextmanager
def forced(on: bool) -> Iterator[None]:
    """Uses the kernels always (in Triton's interpreter on the CPU too) or never: for tests and benchmarks."""
    _forced.append(on)
    try:
        yield
    finally:
        _forced.pop()


@functools.cache
def _try(index: int) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    from nmtalign.core.gpu.one_pass import adadelta_

    weights = torch.zeros(4, 1, device=torch.device("cuda", index))
    try:
        adadelta_(*weights, rate=1.0, rho=0.9, epsilon=1e-6)
        torch.cuda.synchronize(weights.device)
    except Exception as error:  # no C compiler, an old driver or card: PyTorch's operations serve in any case
        first_line = str(error).strip().partition("\n")[0]
        return f"Triton's kernels do not run here ({type(error).__name__}: {first_line})"
    return None
