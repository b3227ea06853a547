"""The steps of both cells on a GPU: between the products, one kernel where PyTorch's operations are 4 to 12.

Buffers, results and gradients are those of `nmtalign.core.cells`. Launches per step: the paper's cell 4 forward and 6
backward, cuDNN's 2 and 4; in plain PyTorch 12 to 20. Not yet run on a card.
"""

from typing import Any

from torch import Tensor

from nmtalign.core.cells import CellPass, CudnnCellPass, PaperCellPass
from nmtalign.core.functional import over_steps, product
from nmtalign.core.gpu import cell_kernels as kernels
from nmtalign.core.gpu.launching import options, parts

BLOCK = 512  # units of a row that a program computes, 4 a thread
WARPS = 4


class _FusedPass(CellPass):
    """What both cells share: how the kernels find a step in the buffers."""

    def _launch(self, kernel: Any, *tensors: Tensor | None, **numbers: int) -> None:
        """Runs a kernel over all rows, units and directions."""
        *lead, _, batch = self._shape
        grid = (batch, parts(self.size, BLOCK), lead[0] if lead else 1)
        numbers["step_lead"] = self.gates.shape[-3] * batch
        numbers["state_lead"] = (self.count + 1) * batch
        kernel[grid](*tensors, **numbers, SIZE=self.size, BLOCK=BLOCK, **options(WARPS))

    def _backward_on_a_copy(self, step: int, d_state: Tensor) -> None:
        whole = d_state.contiguous()
        self.backward(step, whole)
        d_state.copy_(whole)

    def _row_slot(self, step: int) -> Tensor | None:
        return None if self.rows is self.states else self.rows.select(-3, step)

    def _skipped(self, step: int) -> tuple[Tensor | None, dict[str, int]]:
        if self.skip is None:
            return None, {"skip_lead": 0, "skip_stride": 0}
        skip = self.skip.select(-3, step)
        return skip, {"skip_lead": skip.stride(0) if skip.dim() > 2 else 0, "skip_stride": skip.stride(-2)}


class FusedPaperCellPass(_FusedPass, PaperCellPass):
    """The paper's cell: z and r, then the update, with the candidate's product between them."""

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        inputs, where = _rows(inputs)
        state, gates = self.states.select(-3, step), self._slot(self.gates, step)
        products = self._slot(self.products, step)
        sums = product(self.rows.select(-3, step), self.gates_weight)
        self._launch(kernels.paper_reset_kernel, sums, inputs, state, gates, products, **where)
        sums = product(products, self.candidate_weight)
        skip, skipped = self._skipped(step)
        new, row = self._slot(self.candidates, step), self._row_slot(step)
        self._launch(kernels.paper_update_kernel, sums, inputs, gates, skip, new, state, row, **where, **skipped)

    def backward(self, step: int, d_state: Tensor) -> None:
        """As in `nmtalign.core.cells`."""
        if not d_state.is_contiguous():
            return self._backward_on_a_copy(step, d_state)
        state, gates, new = (buffer.select(-3, step) for buffer in (self.states, self.gates, self.candidates))
        d_inputs = self.d_inputs.select(-3, step)
        self._launch(kernels.paper_update_backward_kernel, d_state, gates, new, state, d_inputs)
        d_products = d_inputs[..., 2 * self.size :] @ self.candidate_weight
        self._launch(kernels.paper_reset_backward_kernel, d_state, d_products, gates, state, d_inputs)
        d_state.add_(d_inputs[..., : 2 * self.size] @ self.gates_weight)
        return None


class FusedCudnnCellPass(_FusedPass):
    """cuDNN's cell: all three recurrent products in one, and the gradients of all three beside each other."""

    def _allocate(self, weight: Tensor) -> None:
        super()._allocate(weight)
        self._weight = weight
        self.hidden = self._buffer(self.size, self.states.dtype)

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_sums = self._empty(3 * self.size, self.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        inputs, where = _rows(inputs)
        bias = None if self.bias is None else self.bias.contiguous()
        sums = product(self.rows.select(-3, step), self._weight)
        kept = [self._slot(buffer, step) for buffer in (self.gates, self.hidden, self.candidates)]
        skip, skipped = self._skipped(step)
        state, row = self.states.select(-3, step), self._row_slot(step)
        kernel = kernels.cudnn_update_kernel
        self._launch(kernel, sums, inputs, bias, skip, *kept, state, row, **where, **skipped)

    def backward(self, step: int, d_state: Tensor) -> None:
        """As in `nmtalign.core.cells`."""
        if not d_state.is_contiguous():
            return self._backward_on_a_copy(step, d_state)
        kept = [buffer.select(-3, step) for buffer in (self.gates, self.hidden, self.candidates, self.states)]
        d_inputs, d_sums = self.d_inputs.select(-3, step), self._d_sums.select(-3, step)
        self._launch(kernels.cudnn_update_backward_kernel, d_state, *kept, d_inputs, d_sums)
        d_state.add_(d_sums @ self._weight)
        return None

    def d_weight(self) -> Tensor:
        """All three blocks multiply the state."""
        return over_steps(self._d_sums, self._rows_before())

    def d_bias(self) -> Tensor | None:
        """The gradient of the candidate's b_U."""
        return self._d_sums[..., 2 * self.size :].flatten(-3, -2).sum(-2, dtype=self.states.dtype)


FUSED: dict[type[CellPass], type[CellPass]] = {PaperCellPass: FusedPaperCellPass, CudnnCellPass: FusedCudnnCellPass}


def _rows(inputs: Tensor) -> tuple[Tensor, dict[str, int]]:
    """Inputs (*D, B, 3n) with adjacent elements, and the strides of their rows; copied only if necessary."""
    stride = inputs.stride(-2)
    if inputs.stride(-1) != 1 or stride == 0 or (inputs.dim() > 2 and inputs.stride(0) % stride):
        inputs = inputs.contiguous()
        stride = inputs.stride(-2)
    return inputs, {"inputs_lead": inputs.stride(0) // stride if inputs.dim() > 2 else 0, "INPUTS_STRIDE": stride}
