"""The steps of both cells on a GPU: between the products, one kernel where PyTorch's operations are 4 to 12.

Buffers, results and gradients are those of `nmtalign.core.cells`. Launches per step: the paper's cell 4 forward and 6
backward, cuDNN's 2 and 4; in plain PyTorch 12 to 20. A program computes BLOCK units of one row; the rows of both
directions follow each other. Not yet run on a card.
"""
# mypy: allow-untyped-defs, allow-untyped-decorators, allow-untyped-calls, allow-incomplete-defs

from typing import Any

import triton
import triton.language as tl
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.cells import CellPass, CudnnCellPass, PaperCellPass, sum_over_rows
from nmtalign.core.functional import over_steps, product
from nmtalign.core.gpu.launching import sigmoid, tanh

BLOCK = 512  # units of a row that a program computes, 4 per thread
WARPS = 4


class _FusedPass(CellPass):
    """What both cells share: launches, and the places where a step writes."""

    def _launch(self, kernel: Any, *tensors: Tensor | None) -> None:
        """Runs a kernel over all rows and units of a step; each tensor is contiguous."""
        rows = self.states[0].numel() // self.size
        kernel[rows, triton.cdiv(self.size, BLOCK)](*tensors, SIZE=self.size, BLOCK=BLOCK, num_warps=WARPS)

    def _skipped(self, step: int) -> Tensor | None:
        return None if self.skip is None else self.skip[step].contiguous()

    def _new_row(self, step: int) -> Tensor | None:
        """The next state in the products' dtype; None where it is the state itself."""
        return None if self.rows is self.outputs else self.rows[step + 1]


class FusedPaperCellPass(_FusedPass, PaperCellPass):
    """The paper's cell: z and r, then the update, with the candidate's product between them."""

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        inputs, state, gates = inputs.contiguous(), self.states[step], self._slot(self.gates, step)
        products, new = self._slot(self.products, step), self._slot(self.candidates, step)
        sums = product(self.rows[step], self.gates_weight)
        self._launch(paper_reset_kernel, sums, inputs, state, gates, products)
        sums = product(products, self.candidate_weight)
        written = self.states[step + 1], self._new_row(step)
        self._launch(paper_update_kernel, sums, inputs, state, self._skipped(step), gates, new, *written)

    def backward(self, step: int, d_state: Tensor) -> None:
        """As in `nmtalign.core.cells`."""
        state, gates, d_inputs = self.states[step], self.gates[step], self.d_inputs[step]
        self._launch(paper_update_backward_kernel, state, gates, self.candidates[step], d_state, d_inputs)
        d_products = d_inputs[..., 2 * self.size :] @ self.candidate_weight
        self._launch(paper_reset_backward_kernel, state, gates, d_products, d_state, d_inputs)
        d_state.add_(d_inputs[..., : 2 * self.size] @ self.gates_weight)


class FusedCudnnCellPass(_FusedPass, CudnnCellPass):
    """cuDNN's cell: all three recurrent products in one, and the gradients of all three beside each other."""

    def start_backward(self) -> None:
        """Allocates the gradients."""
        CellPass.start_backward(self)
        self._d_sums = self._buffer(3 * self.size, self.weight.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        row, bias = self.rows[step], None
        if self.bias is not None:  # of the last of the three blocks
            bias = F.pad(self.bias, (2 * self.size, 0))[..., None, :].expand(*row.shape[:-1], -1)
        sums = product(row, self.weight, bias)
        kept = [self._slot(buffer, step) for buffer in (self.gates, self.hidden, self.candidates)]
        written = *kept, self.states[step + 1], self._new_row(step)
        self._launch(cudnn_update_kernel, sums, inputs.contiguous(), self.states[step], self._skipped(step), *written)

    def backward(self, step: int, d_state: Tensor) -> None:
        """As in `nmtalign.core.cells`."""
        kept = [buffer[step] for buffer in (self.states, self.gates, self.hidden, self.candidates)]
        self._launch(cudnn_update_backward_kernel, *kept, d_state, self.d_inputs[step], self._d_sums[step])
        d_state.add_(self._d_sums[step] @ self.weight)

    def d_weight(self) -> Tensor:
        """All three blocks multiply the state."""
        return over_steps(self._d_sums, self.rows[:-1])

    def d_bias(self) -> Tensor | None:
        """The gradient of the candidate's b_U."""
        return sum_over_rows(self._d_sums[..., 2 * self.size :], self.states.dtype)


FUSED_PASSES: dict[type[CellPass], type[CellPass]] = {
    PaperCellPass: FusedPaperCellPass,
    CudnnCellPass: FusedCudnnCellPass,
}


# The arguments of a kernel are rows of a step: of SIZE elements, of 2 SIZE (gates), or of 3 SIZE (inputs, sums).


@triton.jit
def paper_reset_kernel(
    sums,  # (rows, 2 SIZE), the recurrent products of z and r
    inputs,  # (rows, 3 SIZE)
    states,
    gates,  # out: z and r
    products,  # out: r * state
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """z, r, and r * state in the products' type."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = unit < SIZE
    old = tl.load(states + row * SIZE + unit, inside, 0.0)
    given, summed = inputs + row * (3 * SIZE) + unit, sums + row * (2 * SIZE) + unit
    z = tl.load(given, inside, 0.0).to(old.dtype) + tl.load(summed, inside, 0.0).to(old.dtype)
    r = tl.load(given + SIZE, inside, 0.0).to(old.dtype) + tl.load(summed + SIZE, inside, 0.0).to(old.dtype)
    r = sigmoid(r)
    tl.store(gates + row * (2 * SIZE) + unit, sigmoid(z), inside)
    tl.store(gates + row * (2 * SIZE) + SIZE + unit, r, inside)
    tl.store(products + row * SIZE + unit, (r * old).to(products.dtype.element_ty), inside)


@triton.jit
def paper_update_kernel(
    sums,  # (rows, SIZE), the recurrent product of the candidate
    inputs,  # (rows, 3 SIZE)
    states,
    skip,  # (rows,), True where a state stays; or None
    gates,  # z and r; out: z is set to 0 where a state stays
    candidates,  # out
    new_states,  # out
    new_rows,  # out: the new states in the products' type; or None
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """state + z (tanh(candidate) - state)."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = unit < SIZE, row * SIZE + unit
    old = tl.load(states + at, inside, 0.0)
    x = tl.load(inputs + row * (3 * SIZE) + 2 * SIZE + unit, inside, 0.0).to(old.dtype)
    x += tl.load(sums + at, inside, 0.0).to(old.dtype)
    z = tl.load(gates + row * (2 * SIZE) + unit, inside, 0.0)
    if skip is not None:
        z = tl.where(tl.load(skip + row) != 0, 0.0, z)
        tl.store(gates + row * (2 * SIZE) + unit, z, inside)
    new = tanh(x)
    state = old + z * (new - old)
    tl.store(candidates + at, new, inside)
    tl.store(new_states + at, state, inside)
    if new_rows is not None:
        tl.store(new_rows + at, state.to(new_rows.dtype.element_ty), inside)


@triton.jit
def paper_update_backward_kernel(
    states,
    gates,
    candidates,
    d_states,  # of the next state; out: the part of it that does not pass the candidate
    d_inputs,  # out: the parts of z and of the candidate
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With d the gradient of the next state: d_candidate = d z (1 - new^2), d_z = d (new - s) z (1 - z)."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = unit < SIZE, row * SIZE + unit
    d, old = tl.load(d_states + at, inside, 0.0), tl.load(states + at, inside, 0.0)
    new = tl.load(candidates + at, inside, 0.0)
    z = tl.load(gates + row * (2 * SIZE) + unit, inside, 0.0)
    passed = d * z
    into = d_inputs + row * (3 * SIZE) + unit
    tl.store(into, (passed * (new - old) * (1.0 - z)).to(d_inputs.dtype.element_ty), inside)
    tl.store(into + 2 * SIZE, (passed * (1.0 - new * new)).to(d_inputs.dtype.element_ty), inside)
    tl.store(d_states + at, d - passed, inside)


@triton.jit
def paper_reset_backward_kernel(
    states,
    gates,
    d_products,  # of r * state
    d_states,  # in place: the part that comes through r * state is added
    d_inputs,  # out: the part of r
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With d the gradient of r * state: d_r = d s r (1 - r), and d r is the state's."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = unit < SIZE, row * SIZE + unit
    d, old = tl.load(d_states + at, inside, 0.0), tl.load(states + at, inside, 0.0)
    r = tl.load(gates + row * (2 * SIZE) + SIZE + unit, inside, 0.0)
    through = tl.load(d_products + at, inside, 0.0).to(d.dtype) * r
    d_r = (through * old * (1.0 - r)).to(d_inputs.dtype.element_ty)
    tl.store(d_inputs + row * (3 * SIZE) + SIZE + unit, d_r, inside)
    tl.store(d_states + at, d + through, inside)


@triton.jit
def cudnn_update_kernel(
    sums,  # (rows, 3 SIZE), the recurrent products of r, z and the candidate, with the candidate's bias
    inputs,  # (rows, 3 SIZE)
    states,
    skip,  # (rows,), True where a state stays; or None
    gates,  # out: r and z; z is 1 where a state stays
    hidden,  # out: the candidate's product
    candidates,  # out
    new_states,  # out
    new_rows,  # out: the new states in the products' type; or None
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """new + z (state - new), new = tanh(inputs + r * hidden)."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = unit < SIZE, row * SIZE + unit
    old = tl.load(states + at, inside, 0.0)
    given, summed = inputs + row * (3 * SIZE) + unit, sums + row * (3 * SIZE) + unit
    r = sigmoid(tl.load(given, inside, 0.0).to(old.dtype) + tl.load(summed, inside, 0.0).to(old.dtype))
    z = sigmoid(tl.load(given + SIZE, inside, 0.0).to(old.dtype) + tl.load(summed + SIZE, inside, 0.0).to(old.dtype))
    inner = tl.load(summed + 2 * SIZE, inside, 0.0).to(old.dtype)
    new = tanh(tl.load(given + 2 * SIZE, inside, 0.0).to(old.dtype) + r * inner)
    state = new + z * (old - new)
    if skip is not None:
        stays = tl.load(skip + row) != 0
        z = tl.where(stays, 1.0, z)
        state = tl.where(stays, old, state)  # to the last bit
    tl.store(gates + row * (2 * SIZE) + unit, r, inside)
    tl.store(gates + row * (2 * SIZE) + SIZE + unit, z, inside)
    tl.store(hidden + at, inner, inside)
    tl.store(candidates + at, new, inside)
    tl.store(new_states + at, state, inside)
    if new_rows is not None:
        tl.store(new_rows + at, state.to(new_rows.dtype.element_ty), inside)


@triton.jit
def cudnn_update_backward_kernel(
    states,
    gates,
    hidden,
    candidates,
    d_states,  # of the next state; out: the part of it that does not pass the candidate
    d_inputs,  # out
    d_sums,  # out: (rows, 3 SIZE), of the recurrent products
    SIZE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """With d the gradient of the next state: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z)."""
    row, unit = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside, at = unit < SIZE, row * SIZE + unit
    d, old = tl.load(d_states + at, inside, 0.0), tl.load(states + at, inside, 0.0)
    new, inner = tl.load(candidates + at, inside, 0.0), tl.load(hidden + at, inside, 0.0)
    r = tl.load(gates + row * (2 * SIZE) + unit, inside, 0.0)
    z = tl.load(gates + row * (2 * SIZE) + SIZE + unit, inside, 0.0)
    kept = d * z
    d_new = (d - kept) * (1.0 - new * new)
    d_inner = d_new * r
    d_r = (d_inner * inner * (1.0 - r)).to(d_inputs.dtype.element_ty)
    d_z = (kept * (old - new) * (1.0 - z)).to(d_inputs.dtype.element_ty)
    into, sums = d_inputs + row * (3 * SIZE) + unit, d_sums + row * (3 * SIZE) + unit
    tl.store(into, d_r, inside)
    tl.store(into + SIZE, d_z, inside)
    tl.store(into + 2 * SIZE, d_new.to(d_inputs.dtype.element_ty), inside)
    tl.store(sums, d_r, inside)
    tl.store(sums + SIZE, d_z, inside)
    tl.store(sums + 2 * SIZE, d_inner.to(d_inputs.dtype.element_ty), inside)
    tl.store(d_states + at, kept, inside)
