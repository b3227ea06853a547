"""Two kernels that read and write large tensors once: the gradient of the softmax, and Adadelta.

Estimates for an H100, not yet run on a card. The softmax of 640 sentences of 31 words over 30,000 words takes 28 bytes
per logit with PyTorch's operations (17 GB, 5 ms), and 4 bytes here (2.4 GB, 0.7 ms), because the second reading of a
row comes from the L2 cache. Adadelta over 84 M weights takes about 64 bytes per weight with PyTorch's operations
(5.4 GB, 1.6 ms), and 28 bytes here (2.4 GB, 0.7 ms).
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl
from torch import Tensor

from nmtalign.core.gpu.launching import power_of_two, triton_type

ROWS = 4  # rows of logits per program: they share the bias that the program reads
BLOCK = 1024
SOFTMAX_WARPS, ADADELTA_WARPS = 8, 4


def softmax_gradient(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    smoothing: float,
    nll: Tensor,
    log_sums: Tensor,
) -> None:
    """Turns logits (R, K), which do not contain the bias (K,) yet, into their gradient in place.

    The gradient is the probability, minus 1 - smoothing at the target. Fills nll (R,) and the logarithms of the sums
    of exponentials (R,), in the dtype of the bias. Raises ValueError if the logits of a row are not adjacent.
    """
    count, words = logits.shape
    if logits.stride(1) != 1 or not (nll.is_contiguous() and log_sums.is_contiguous()):
        raise ValueError("logits, nll and log_sums must lie in order to be written in place")
    softmax_gradient_kernel[(triton.cdiv(count, ROWS),)](
        logits,
        bias.contiguous(),
        targets.contiguous(),
        nll,
        log_sums,
        count,
        HIT=1.0 - smoothing,
        WORDS=words,
        STRIDE=logits.stride(0),
        WIDE=triton_type(bias.dtype),
        ROWS=ROWS,
        BLOCK=power_of_two(words, most=BLOCK),
        num_warps=SOFTMAX_WARPS,
    )


@triton.jit(do_not_specialize=["count"])
def softmax_gradient_kernel(
    logits,  # (count, WORDS), rows STRIDE apart, without the bias; out: their gradient
    bias,  # (WORDS,)
    targets,  # (count,)
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
        added = tl.load(bias + word, word < WORDS, float("-inf")).to(WIDE)  # beyond the last word exp is 0
        x = tl.load(logits + row[:, None] * STRIDE + word[None, :], inside, 0.0).to(WIDE) + added[None, :]
        new_top = tl.maximum(top, tl.max(x, 1))
        total = total * tl.exp(top - new_top) + tl.sum(tl.exp(x - new_top[:, None]), 1)
        top = new_top
    log_sum = top + tl.log(total)
    tl.store(nll + row, log_sum - chosen, there)
    tl.store(log_sums + row, log_sum, there)
    for start in range(0, WORDS, BLOCK):
        word = start + tl.arange(0, BLOCK)
        inside = there[:, None] & (word < WORDS)[None, :]
        added = tl.load(bias + word, word < WORDS, float("-inf")).to(WIDE)  # beyond the last word exp is 0
        where = logits + row[:, None] * STRIDE + word[None, :]
        p = tl.exp(tl.load(where, inside, 0.0).to(WIDE) + added[None, :] - top[:, None]) / total[:, None]
        d = tl.where(word[None, :] == target[:, None], p - HIT, p)
        tl.store(where, d.to(logits.dtype.element_ty), inside)


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
    does. Where it is not finite nothing changes, so that the host need not wait to see it. Raises ValueError for
    weights that are not contiguous.
    """
    if not (weights.is_contiguous() and squares.is_contiguous() and deltas.is_contiguous()):
        raise ValueError("weights and state must be contiguous to be updated in place")
    adadelta_kernel[(triton.cdiv(weights.numel(), BLOCK),)](
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
        num_warps=ADADELTA_WARPS,
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
