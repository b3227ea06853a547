"""PyTorch's and cuDNN's GRU, which is another cell than the paper's."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.cells import GatedCell, Steps, add_product, over_steps, product
from nmtalign.core.elementwise import one_minus_square, sigmoid_


class CudnnSteps(Steps):
    """r and z in the gates, `hidden` = U s + b_U, which the reset gate multiplies."""

    def _make_room(self, weight: Tensor) -> None:
        super()._make_room(weight)
        self.hidden = self._buffer(self.size, self.states.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states.select(-3, step), self.rows.select(-3, step)
        bias = None if self.bias is None else self.bias[..., None, :].expand(row.shape)
        gates = sigmoid_(self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)))
        hidden = self._slot(self.hidden, step).copy_(product(row, self.candidate_weight, bias))
        reset, keep = gates.chunk(2, -1)
        new = self._slot(self.new, step).copy_(candidate_inputs).addcmul_(reset, hidden).tanh_()
        if self.skip is not None:
            keep.masked_fill_(self.skip.select(-3, step), 1)
        self._advance(step, new, state, keep)

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        super().start_backward()
        self.d_hidden = self._empty(self.size, self.dtype)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the state's gradient: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z), d_r likewise."""
        state, new, hidden = (buffer.select(-3, step) for buffer in (self.states, self.new, self.hidden))
        reset, keep = self.gates.select(-3, step).chunk(2, -1)
        d_inputs, d_hidden = self.d_inputs.select(-3, step), self.d_hidden.select(-3, step)
        d_reset, d_keep, d_candidate = d_inputs.chunk(3, -1)
        kept = d_state * keep
        d_new = d_state.sub_(kept).mul_(one_minus_square(new))
        d_candidate.copy_(d_new)
        through = (state - new).mul_(kept)
        torch.addcmul(through, through, keep, value=-1, out=d_keep)
        torch.mul(d_new.mul_(reset), hidden, out=through)
        d_hidden.copy_(d_new)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.copy_(kept)
        add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)
        add_product(d_state, d_hidden, self.candidate_weight)

    def d_weight(self) -> Tensor:
        """Both parts read the state."""
        rows = self._rows_before()
        return torch.cat([over_steps(self.d_inputs[..., : 2 * self.size], rows), over_steps(self.d_hidden, rows)], -2)

    def d_bias(self) -> Tensor | None:
        """b_U of the candidate."""
        return self.d_hidden.flatten(-3, -2).sum(-2, dtype=self.states.dtype)


class CudnnCell(GatedCell):
    """PyTorch's and cuDNN's GRU: z flipped, reset after the product, biases everywhere; blocks in order r, z, new."""

    steps_class = CudnnSteps

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__(input_size, size, context_size, directions)
        self.recurrent_bias = nn.Parameter(torch.zeros(self.bias.shape))

    def inner_bias(self) -> Tensor | None:
        """b_U of the candidate, which the reset gate multiplies; those of the gates are added to the inputs."""
        return self.recurrent_bias.narrow(-1, 2 * self.size, self.size)

    def input_bias(self) -> Tensor:
        """The biases (*D, 3n) of the inputs, and of the recurrent products of the gates."""
        gates = self.recurrent_bias[..., : 2 * self.size]
        return self.bias + F.pad(gates, (0, self.size))
