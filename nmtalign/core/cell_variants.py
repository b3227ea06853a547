"""Other cells: the LSTM (Hochreiter & Schmidhuber 1997) and a light one; stacks of layers.

The light cell is the LRN of Zhang & Sennrich (2019): its gates depend on the state element by element. All matrix
products are those of the inputs, which are computed for all steps at once.
"""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.cells import CellPass, CudnnCell, GatedCell, PaperCell
from nmtalign.core.functional import one_minus_square, over_steps, product, sigmoid_, tanh_of_half_
from nmtalign.core.step import unroll
from nmtalign.settings.training_settings import Cell, ModelConfig


class LstmPass(CellPass):
    """The LSTM with a forget gate, as PyTorch's; `gates` contains i, f, o and the candidate g. The state is [h, c]."""

    blocks = 4

    def _allocate(self) -> None:
        self.gates = self._buffer(4 * self.size, self.states.dtype)
        self.squashed = self._buffer(self.size, self.states.dtype)  # tanh(c)

    def forward(self, step: int, inputs: Tensor) -> None:
        """c_new = f * c + i * g; h_new = o * tanh(c_new)."""
        gates = self._slot(self.gates, step).copy_(product(self.rows[step], self.weight, inputs))
        entry, forget, output, candidate = gates.chunk(4, -1)
        candidate.mul_(2)  # tanh(x) = 2 sigmoid(2 x) - 1; one sigmoid computes all four
        sigmoid_(gates)
        candidate.mul_(2).sub_(1)
        new, cell = self.states[step + 1].split(self.size, -1)
        torch.mul(forget, self.states[step, ..., self.size :], out=cell)
        cell.addcmul_(entry, candidate)
        squashed = tanh_of_half_(torch.mul(cell, 2, out=self._slot(self.squashed, step)))
        torch.mul(output, squashed, out=new)
        if self.skip is not None:
            torch.where(self.skip[step], self.states[step], self.states[step + 1], out=self.states[step + 1])
        self._narrow(step)

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_gates, self._slopes = torch.empty_like(self.gates[0]), torch.empty_like(self.gates[0])
        self._one = self.gates.new_ones(())

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d_c complete: d_i = d_c g i (1 - i), d_f = d_c c f (1 - f), d_g = d_c i (1 - g^2)."""
        kept = None
        if self.skip is not None:
            kept = d_state * self.skip[step]
            d_state.sub_(kept)
        d_hidden, d_cell = d_state.split(self.size, -1)
        gates, squashed, d_inputs = self.gates[step], self.squashed[step], self.d_inputs[step]
        entry, forget, output, candidate = gates.chunk(4, -1)
        d_gates, slopes = self._d_gates, self._slopes
        torch.mul(d_hidden, squashed, out=d_gates[..., 2 * self.size : 3 * self.size])
        d_cell.addcmul_(d_hidden.mul_(output), one_minus_square(squashed))
        torch.mul(d_cell, candidate, out=d_gates[..., : self.size])
        torch.mul(d_cell, self.states[step, ..., self.size :], out=d_gates[..., self.size : 2 * self.size])
        torch.mul(d_cell, entry, out=d_gates[..., 3 * self.size :])
        sigmoids = gates[..., : 3 * self.size]
        torch.addcmul(sigmoids, sigmoids, sigmoids, value=-1, out=slopes[..., : 3 * self.size])
        torch.addcmul(self._one, candidate, candidate, value=-1, out=slopes[..., 3 * self.size :])
        torch.mul(d_gates, slopes, out=d_inputs)
        d_cell.mul_(forget)
        d_hidden.copy_(d_inputs @ self.weight)
        if kept is not None:
            d_state.add_(kept)

    def d_weight(self) -> Tensor:
        """All blocks multiply h."""
        return over_steps(self.d_inputs, self.rows[:-1])


class LstmCell(GatedCell):
    """The LSTM: the blocks of the stacked weights are i, f, o, g; one bias. The state (2n) is [h, c]."""

    bias_blocks = 4
    state_parts = 2
    pass_class = LstmPass


class LightPass(CellPass):
    """The LRN: `gates` contains i and f; the blocks of the inputs are the key, the query and the value."""

    def _allocate(self) -> None:
        self.gates = self._buffer(2 * self.size, self.states.dtype)
        self.values = self._buffer(self.size, self.states.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """i = sigmoid(key + s), f = sigmoid(query - s), s_new = tanh(i * value + f * s)."""
        key, query, value = inputs.chunk(3, -1)
        state, new = self.states[step], self.states[step + 1]
        gates, values = self._slot(self.gates, step), self._slot(self.values, step).copy_(value)
        entry, forget = gates.chunk(2, -1)
        torch.add(key, state, out=entry)
        torch.sub(query, state, out=forget)
        sigmoid_(gates)
        torch.mul(forget, state, out=new)
        new.addcmul_(entry, values).tanh_()
        if self.skip is not None:
            torch.where(self.skip[step], state, new, out=new)
        self._narrow(step)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the gradient before tanh: d_s = d f + d_key - d_query, with the gradients of the gates' inputs."""
        kept = None
        if self.skip is not None:
            kept = d_state * self.skip[step]
            d_state.sub_(kept)
        state, new, values = self.states[step], self.states[step + 1], self.values[step]
        entry, forget = self.gates[step].chunk(2, -1)
        d_key, d_query, d_value = self.d_inputs[step].chunk(3, -1)
        d_sum = d_state * one_minus_square(new)
        through_entry = (d_sum * values).mul_(entry - entry * entry)
        through_forget = (d_sum * state).mul_(forget - forget * forget)
        d_key.copy_(through_entry)
        d_query.copy_(through_forget)
        torch.mul(d_sum, entry, out=values)
        d_value.copy_(values)
        torch.mul(d_sum, forget, out=d_state)
        d_state.add_(through_entry).sub_(through_forget)
        if kept is not None:
            d_state.add_(kept)

    def d_weight(self) -> Tensor:
        """The gradient of the empty weight."""
        return torch.zeros_like(self.weight)


class LightCell(GatedCell):
    """The LRN: no recurrent weight; the blocks of the input weights are the key, the query and the value."""

    pass_class = LightPass

    def add_recurrent_weight(self, lead: tuple[int, ...]) -> None:
        """Adds nothing."""

    def recurrent(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """An empty weight (0, n), and no bias."""
        return self.bias.new_empty(0, self.size, dtype=dtype), None


CELLS: Mapping[Cell, type[GatedCell]] = {
    "paper": PaperCell,
    "cudnn": CudnnCell,
    "lstm": LstmCell,
    "light": LightCell,
}


class Stack(nn.Module):
    """A stack of recurrent layers. From the third layer of the model on, a residual connection may skip each layer.

    `input_sizes` has the input size of each layer; `first` is the number of its first layer in the model, from 0.
    """

    def __init__(
        self, config: ModelConfig, input_sizes: Sequence[int], first: int, directions: int = 0, fed: int = 0
    ) -> None:
        """`fed` is the size of a vector that the first layer of the model gets beside its inputs; 0 = none."""
        super().__init__()
        self.cells = nn.ModuleList(
            CELLS[config.cell](size, config.hidden, 0 if place else fed, directions)
            for place, size in enumerate(input_sizes)
        )
        self._first, self._residual, self._dropout = first, config.residual, config.dropout

    def layers(self) -> list[GatedCell]:
        """The cells, with their type."""
        return cast(list[GatedCell], list(self.cells))

    def forward(
        self, x: Tensor, initial: Sequence[Tensor], skip: Tensor | None = None, context: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """(outputs (U, *D, B, n) of the last layer, the last state (*D, B, S) of each) for x (U, *D, B, .).

        With a context (U, *D, B, D), each layer receives it beside the outputs of the layer below.
        """
        lasts = []
        for number, (cell, state) in enumerate(zip(self.layers(), initial, strict=True), self._first):
            received = x if context is None else torch.cat([x, context], -1)
            received = F.dropout(received, self._dropout, self.training) if number else received
            outputs, last = unroll(cell, cell.inputs(received), state, skip)
            x = outputs[1:] + x if self._residual and number > 1 else outputs[1:]
            lasts.append(last)
        return x, lasts
