"""Adadelta on a GPU in one pass: 28 bytes a weight instead of the about 64 of PyTorch's `foreach` operations.

For the 84 M weights of the paper's model: 2.4 GB, 0.7 ms on an H100, against 1.6 ms for 5.4 GB.
"""

from torch import Tensor

from nmtalign.core.triton.layout import options, parts

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
    from nmtalign.core.triton.kernels import adadelta as kernels

    if not (weights.is_contiguous() and squares.is_contiguous() and deltas.is_contiguous()):
        raise ValueError("weights and state must be contiguous to be updated in place")
    kernels.adadelta_kernel[(parts(weights.numel(), BLOCK),)](
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
