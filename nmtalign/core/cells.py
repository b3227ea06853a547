"""The gated hidden unit (PAPER section 2), and PyTorch's and cuDNN's GRU, which is another cell.

A cell is used in three parts, so that only what recurs is inside the loop: `inputs` of all steps in one product before
it, `start` to take the weights up, and `update` at each step. Encoder directions are stacked: weights (D, 3n, n).
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.config import Cell
from nmtalign.core.autograd import apply
from nmtalign.core.recurrence import StepWeight


class _PaperReset(torch.autograd.Function):
    """Gates of the paper's cell: pre-activations (..., 2n) of z and r, and the state, to (z, r * state)."""

    @staticmethod
    def forward(ctx: Any, gates: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        update, reset = gates.to(state.dtype).sigmoid_().chunk(2, -1)
        ctx.save_for_backward(update, reset, state)
        ctx.gates_dtype = gates.dtype
        return update, (reset * state).to(gates.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_update: Tensor, d_product: Tensor) -> tuple[Tensor, Tensor]:
        update, reset, state = ctx.saved_tensors
        d_product = d_product.to(state.dtype)
        d_gates = torch.cat([d_update * update * (1 - update), d_product * state * reset * (1 - reset)], -1)
        return d_gates.to(ctx.gates_dtype), d_product * reset


class _PaperUpdate(torch.autograd.Function):
    """s_new = (1 - z) * s + z * tanh(candidate); where mask is 0, z is taken as 0 and the state stays."""

    @staticmethod
    def forward(ctx: Any, candidate: Tensor, update: Tensor, state: Tensor, mask: Tensor | None) -> Tensor:
        new = candidate.to(state.dtype).tanh()
        if mask is not None:
            update = update * mask
        ctx.save_for_backward(new, update, state, mask)
        ctx.candidate_dtype = candidate.dtype
        return torch.lerp(state, new, update)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        new, update, state, mask = ctx.saved_tensors
        taken = gradient * update
        d_update = gradient * (new - state)
        if mask is not None:
            d_update = d_update * mask
        return (taken * (1 - new * new)).to(ctx.candidate_dtype), d_update, gradient - taken, None


class _CudnnUpdate(torch.autograd.Function):
    """r, z = sigmoid(i + h); new = tanh(i_n + r * h_n); s_new = (1 - z) * new + z * s; mask 0 keeps the state."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, recurrent: Tensor, state: Tensor, mask: Tensor | None) -> Tensor:
        size = state.shape[-1]
        wide_inputs, wide_recurrent = inputs.to(state.dtype), recurrent.to(state.dtype)
        reset, keep = (wide_inputs[..., : 2 * size] + wide_recurrent[..., : 2 * size]).sigmoid_().chunk(2, -1)
        hidden = wide_recurrent[..., 2 * size :]
        new = torch.addcmul(wide_inputs[..., 2 * size :], reset, hidden).tanh_()
        if mask is not None:
            keep = 1 - (1 - keep) * mask
        ctx.save_for_backward(reset, keep, hidden, new, state)
        ctx.inputs_dtype = inputs.dtype
        return torch.lerp(new, state, keep)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        reset, keep, hidden, new, state = ctx.saved_tensors
        kept = gradient * keep
        d_new = (gradient - kept) * (1 - new * new)
        # Where the mask was 0, keep is 1, and its derivative keep * (1 - keep) is 0, as it must be.
        d_keep = kept * (state - new) * (1 - keep)
        d_hidden = d_new * reset
        d_reset = d_hidden * hidden * (1 - reset)
        d_inputs = torch.cat([d_reset, d_keep, d_new], -1).to(ctx.inputs_dtype)
        d_recurrent = torch.cat([d_reset, d_keep, d_hidden], -1).to(ctx.inputs_dtype)
        return d_inputs, d_recurrent, kept, None


@dataclass(frozen=True)
class CellWeights:
    """The recurrent weights of a cell, taken up for one pass."""

    gates: StepWeight
    candidate: StepWeight | None
    bias: Tensor | None


class GatedCell(nn.Module):
    """What both cells have: stacked weights (3n, .), one a direction where there are directions, and what uses them."""

    bias_blocks = 3  # of the three blocks, how many have a bias, counted from the last

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__()
        lead = (directions,) if directions else ()
        self.size = size
        self.input_weight = nn.Parameter(torch.empty(*lead, 3 * size, input_size))
        self.recurrent_weight = nn.Parameter(torch.empty(*lead, 3 * size, size))
        self.context_weight = nn.Parameter(torch.empty(3 * size, context_size)) if context_size else None
        self.bias = nn.Parameter(torch.zeros(*lead, self.bias_blocks * size))

    def inputs(self, x: Tensor) -> Tensor:
        """What the cell takes from its inputs at all steps: (..., m) to (..., 3n), or (..., D * 3n) with directions."""
        bias = F.pad(self.bias, ((3 - self.bias_blocks) * self.size, 0)).flatten()
        return F.linear(x, self.input_weight.flatten(0, -2).to(x.dtype), bias.to(x.dtype))

    @abstractmethod
    def start(self, dtype: torch.dtype) -> CellWeights:
        """Takes the recurrent weights up for one pass."""

    @abstractmethod
    def update(self, weights: CellWeights, inputs: Tensor, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """The next state (..., B, n) from inputs (..., B, 3n); mask (..., B, 1), 0 = the state stays, or None."""


class PaperCell(GatedCell):
    """z and r without bias, the reset gate BEFORE the recurrent product (PAPER section 2); blocks z, r, candidate."""

    bias_blocks = 1

    def start(self, dtype: torch.dtype) -> CellWeights:
        """Gates and candidate apart: the candidate's product waits for the reset gate."""
        gates, candidate = self.recurrent_weight.split([2 * self.size, self.size], -2)
        return CellWeights(StepWeight(gates, dtype), StepWeight(candidate, dtype), None)

    def update(self, weights: CellWeights, inputs: Tensor, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gates, candidate = inputs.split([2 * self.size, self.size], -1)
        update, product = apply(_PaperReset, weights.gates(state, gates), state)
        if weights.candidate is None:
            raise ValueError("these weights were taken up by another cell")
        new: Tensor = apply(_PaperUpdate, weights.candidate(product, candidate), update, state, mask)
        return new


class CudnnCell(GatedCell):
    """PyTorch's and cuDNN's GRU: z flipped, reset after the product, biases everywhere; blocks in order r, z, new."""

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__(input_size, size, context_size, directions)
        self.recurrent_bias = nn.Parameter(torch.zeros_like(self.bias))

    def start(self, dtype: torch.dtype) -> CellWeights:
        """All three blocks in one product."""
        return CellWeights(StepWeight(self.recurrent_weight, dtype), None, self.recurrent_bias.to(dtype)[..., None, :])

    def update(self, weights: CellWeights, inputs: Tensor, state: Tensor, mask: Tensor | None = None) -> Tensor:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        new: Tensor = apply(_CudnnUpdate, inputs, weights.gates(state, weights.bias), state, mask)
        return new


def make_cell(kind: Cell, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> GatedCell:
    """The cell named `kind`."""
    cls = PaperCell if kind == "paper" else CudnnCell
    return cls(input_size, size, context_size, directions)
