"""Fused kernels for a GPU, written in Triton; `missing` says whether they run on a device, else plain PyTorch does it.

What is to be gained, at paper sizes (n = n' = 1000, m = 620, l = 500, rank 620, K = 30,000, both sides 30 words and
`</s>`, bf16). Multiplications and additions of the matrix products, forward; the backward pass has twice as many:

| a position of | products                                                                      | MFLOP |
|---------------|-------------------------------------------------------------------------------|-------|
| the source    | cell inputs 7.4, recurrent 12, keys 4                                         | 23.4  |
| the target    | query 2, recurrent 6, context 12, inputs 3.7, maxout 7.2, factor 0.6, logits 37.2 | 68.7 |

31 * (23.4 + 68.7) * 3 = 8.6 GFLOP a pair of sentences. An H100 multiplies bf16 at about 800 TFLOP/s: the floor is 10.8
us a pair, 93,000 pairs a second; 12,000 pairs a second are 103 TFLOP/s, 13% of the card's matrix rate. What takes the
rest:

- The recurrences: 62 dependent steps forward and 62 backward, whatever the batch. For 80 sentences the floor of the
  products is 0.86 ms a batch, but a decoder step's products read 20 MB of weights (from L2, about 4 us) and each launch
  takes 2 to 5 us on the card, and more on the host where it is not in a graph; 12,000 pairs a second would be 6.7 ms a
  batch, 54 us a step: only fewer launches help. For 640 sentences it is 53 ms a batch, 430 us a step, where a decoder
  step's products take 16 us at the full rate and attention's 120 MB from memory 36 us.
- Attention: 0.19 MB a step, sentence and direction with these kernels, 11.6 MB a pair: 139 GB/s at 12,000 pairs a
  second, 4% of 3.35 TB/s. PyTorch's operations move five times that and do tanh and sums in a dozen launches.
- Softmax: 31 * 30,000 logits a pair, 5.6 MB with the kernel here, 26 MB with PyTorch's operations.
- Adadelta: 2.4 GB an update, 0.7 ms: a tenth of the time of a batch of 80, a hundredth of one of 640.

Numbers are floors from counting; measured ones are the benchmark's.
"""

import functools
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_forced: list[bool] = []


def missing(device: torch.device) -> str | None:
    """Why the kernels do not run on a device, or None where they do. They are tried once a device, with a small one."""
    if _forced:
        return None if _forced[-1] else "switched off"
    if device.type != "cuda":
        return f"no kernels for {device.type}"
    return _try(torch.cuda.current_device() if device.index is None else device.index)


@contextmanager
def forced(on: bool) -> Iterator[None]:
    """The kernels always (in Triton's interpreter on the CPU too) or never: for tests and benchmarks."""
    _forced.append(on)
    try:
        yield
    finally:
        _forced.pop()


@functools.cache
def _try(index: int) -> str | None:
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    from nmtalign.core.triton.adadelta import adadelta_

    weights = torch.zeros(4, 1, device=torch.device("cuda", index))
    try:
        adadelta_(*weights, rate=1.0, rho=0.9, epsilon=1e-6)
        torch.cuda.synchronize(weights.device)
    except Exception as error:  # no C compiler, an old driver or card: whatever it is, PyTorch's operations go on
        first_line = str(error).strip().partition("\n")[0]
        return f"Triton's kernels do not run here ({type(error).__name__}: {first_line})"
    return None
