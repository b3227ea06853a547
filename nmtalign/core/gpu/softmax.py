"""The gradient of the softmax cross-entropy on a GPU, written over a block of logits.

Bytes a logit (bf16): with PyTorch's operations about 28 (a float32 copy, its softmax, its largest, the copy back); here
4 from memory, read once and written once: the second reading of a row of 60 KB comes from L2. For 640 sentences of 31
words and 30,000 words: 600 M logits, 17 GB or 5 ms on an H100 before, 2.4 GB or 0.7 ms now; the three products around
it are 2.2 TFLOP or 2.8 ms.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl
from torch import Tensor

from nmtalign.core.gpu.launching import options, parts, power_of_two, triton_type

ROWS = 4  # of logits a program: they share what it reads of the bias
BLOCK = 1024
WARPS = 8


def softmax_gradient(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    smoothing: float,
    scale: Tensor | None,
    nll: Tensor,
    log_sums: Tensor,
) -> None:
    """Turns logits (R, K), to which the bias (K,) is still to be added, into their gradient in place.

    The gradient is (probability - (1 - smoothing) at the target) * scale (R,), or scale 1; fills nll (R,) and the
    logarithms of the sums of exponentials (R,), in the bias' type. Raises ValueError if the logits of a row are not
    adjacent.
    """
    count, words = logits.shape
    if logits.stride(1) != 1 or not (nll.is_contiguous() and log_sums.is_contiguous()):
        raise ValueError("logits, nll and log_sums must lie in order to be written in place")
    softmax_gradient_kernel[(parts(count, ROWS),)](
        logits,
        bias.contiguous(),
        targets.contiguous(),
        None if scale is None else scale.contiguous(),
        nll,
        log_sums,
        count,
        HIT=1.0 - smoothing,
        WORDS=words,
        STRIDE=logits.stride(0),
        WIDE=triton_type(bias.dtype),
        ROWS=ROWS,
        BLOCK=power_of_two(words, most=BLOCK),
        **options(WARPS),
    )


@triton.jit(do_not_specialize=["count"])
def softmax_gradient_kernel(
    logits,  # (count, WORDS), rows STRIDE apart, without the bias; out: their gradient
    bias,  # (WORDS,)
    targets,  # (count,)
    scale,  # (count,) or None
    nll,  # out: (count,)
    log_sums,  # out: (count,)
    count,
    HIT: tl.constexpr,  # 1 - smoothing, taken from the probability of the target
    WORDS: tl.constexpr,
    STRIDE: tl.constexpr,
    WIDE: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Reads the rows for the largest logit and the sum of exponentials under it, and again for the gradient."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = row < count
    target = tl.load(targets + row, there, 0)
    chosen = tl.load(logits + row * STRIDE + target, there, 0.0).to(WIDE) + tl.load(bias + target).to(WIDE)
    top = tl.full((ROWS,), float("-inf"), WIDE)
    total = tl.zeros((ROWS,), WIDE)
    for start in range(0, WORDS, BLOCK):
        word = start + tl.arange(0, BLOCK)
        inside = there[:, None] & (word < WORDS)[None, :]
        added = tl.load(bias + word, word < WORDS, float("-inf")).to(WIDE)  # so that what is no word has exp 0
        x = tl.load(logits + row[:, None] * STRIDE + word[None, :], inside, 0.0).to(WIDE) + added[None, :]
        new_top = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top[:, None]), 1)
        top = new_top
    log_sum = top + tl.log(total)
    tl.store(nll + row, log_sum - chosen, there)
    tl.store(log_sums + row, log_sum, there)
    weight = tl.full((ROWS,), 1.0, WIDE)
    if scale is not None:
        weight = tl.load(scale + row, there, 0.0).to(WIDE)
    for start in range(0, WORDS, BLOCK):
        word = start + tl.arange(0, BLOCK)
        inside = there[:, None] & (word < WORDS)[None, :]
        added = tl.load(bias + word, word < WORDS, float("-inf")).to(WIDE)  # so that what is no word has exp 0
        where = logits + row[:, None] * STRIDE + word[None, :]
        p = tl.exp(tl.load(where, inside, 0.0).to(WIDE) + added[None, :] - top[:, None]) / total[:, None]
        d = weight[:, None] * tl.where(word[None, :] == target[:, None], p - HIT, p)
        tl.store(where, d.to(logits.dtype.element_ty), inside)
