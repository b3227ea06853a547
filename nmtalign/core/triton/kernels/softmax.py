"""The kernel of the softmax cross-entropy: a program reads some rows of logits and leaves the gradient there."""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

import triton
import triton.language as tl


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
