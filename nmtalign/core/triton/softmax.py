"""The gradient of the softmax cross-entropy on a GPU, written over a block of logits.

Bytes a logit (bf16): with PyTorch's operations about 28 (a float32 copy, its softmax, its largest, the copy back); here
4 from memory, read once and written once: the second reading of a row of 60 KB comes from L2. For 640 sentences of 31
words and 30,000 words: 600 M logits, 17 GB or 5 ms on an H100 before, 2.4 GB or 0.7 ms now; the three products around
it are 2.2 TFLOP or 2.8 ms.
"""

from torch import Tensor

from nmtalign.core.triton.layout import options, parts, power_of_two, triton_type

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
    from nmtalign.core.triton.kernels import softmax as kernels

    count, words = logits.shape
    if logits.stride(1) != 1 or not (nll.is_contiguous() and log_sums.is_contiguous()):
        raise ValueError("logits, nll and log_sums must lie in order to be written in place")
    kernels.softmax_gradient_kernel[(parts(count, ROWS),)](
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
