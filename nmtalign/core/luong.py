"""Input feeding (Luong et al. 2015, section 3.3).

The first layer gets the attentional vector of the step before beside the word: vector_t = tanh(W_c [context_t;
state_t]). So the recurrence runs through all layers and the attention.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.attention import AttentionPass
from nmtalign.core.cells import GatedCell, sum_over_rows
from nmtalign.core.functional import add_product, one_minus_square, over_steps, product
from nmtalign.core.step import Steps, cell_pass
from nmtalign.errors import check_wanted


class InputFeedingStep(Steps):
    """The steps of all layers of a decoder with input feeding, of which the last one attends."""

    def __init__(
        self,
        cells: Sequence[GatedCell],
        initial: Sequence[Tensor],
        words: Tensor,
        vector_weight: Tensor | None,
        attention: AttentionPass | None,
        previous: Tensor | None,
        skips: bool,
        dropout: float,
    ) -> None:
        """T steps from the first states (N, S) of the layers, with the previous words (T, N, m).

        `vector_weight` (n, D + n) is W_c; `previous` (N, n) is the vector of the step before, None at the start of a
        sentence. With `skips`, a residual connection skips each layer from the third one on. `dropout` is that of the
        inputs of the layers above the first.
        """
        first, dtype = cells[0], words.dtype
        if first.context_weight is None or vector_weight is None or attention is None:
            raise ValueError("input feeding needs attention and the weights of attentional vectors")
        self._inputs, self._vector_weight = first.inputs(words), vector_weight.to(dtype)
        recurrent = [cell.recurrent(dtype) for cell in cells]
        # The weights of what each layer gets at a step: of the vector in the first layer, of the layer below in others.
        self._weights = [first.context_weight.to(dtype), *(cell.input_weight.to(dtype) for cell in cells[1:])]
        self._biases = [cell.input_bias().to(dtype) for cell in cells[1:]]
        self.tensors = [self._inputs, self._vector_weight, *initial, *(each for pair in recurrent for each in pair)]
        self.tensors += [*self._weights, *self._biases]
        self.attention, self._skips = attention, skips
        with torch.no_grad():
            self.layers = [
                cell_pass(cell, words.device)(state, *parameters, None, len(words), attention.differentiate)
                for cell, state, parameters in zip(cells, initial, recurrent, strict=True)
            ]
            shape = *words.shape[:2], first.size
            self._previous = words.new_zeros(shape[1:]) if previous is None else previous
            self._masks = [F.dropout(words.new_ones(shape), dropout) if dropout else None for _ in cells[1:]]
            self._given = [words.new_zeros(shape) for _ in cells]
            self._joined = words.new_empty(*shape[:2], self._vector_weight.shape[1])
            self.vectors = words.new_empty(shape)

    def run(self) -> None:
        """Runs all steps forward."""
        for step in range(len(self.vectors)):
            check_wanted()
            self._forward(step)

    def _forward(self, step: int) -> None:
        """x is what a layer gives to the next one."""
        x = self.vectors[step - 1] if step else self._previous
        for number, cells in enumerate(self.layers):
            inputs = self._biases[number - 1].expand_as(self._inputs[step]) if number else self._inputs[step]
            mask = self._masks[number - 1] if number else None
            given = self._given[number][step].copy_(x if mask is None else x * mask[step])
            cells.forward(step, product(given, self._weights[number], inputs))
            outputs = cells.rows[step + 1]
            x = outputs + x if self._skips and number > 1 else outputs
        self.attention.forward(step, self.layers[-1].rows[step + 1])
        joined = self._joined[step]
        torch.cat([self.attention.contexts[step], x], -1, out=joined)
        product(joined, self._vector_weight, out=self.vectors[step]).tanh_()

    def results(self) -> tuple[Tensor, ...]:
        """The attentional vectors (T, N, n), the contexts (T, N, D) and the weights (T, N, Tx)."""
        return self.vectors, self.attention.contexts, self.attention.weights

    def gradients(self, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        """As in `Steps`, for `tensors`, then keys, values and parameters of the alignment model."""
        d_vectors, d_contexts, d_weights = d_results
        for cells in self.layers:
            cells.start_backward()
        self.attention.start_backward()
        if d_contexts is not None:
            self.attention.d_contexts.copy_(d_contexts)
        self._d_vectors = self.layers[0].states.new_zeros(self.vectors.shape)
        if d_vectors is not None:
            self._d_vectors.copy_(d_vectors)
        self._d_sums = torch.empty_like(self.vectors)
        d_states = [torch.zeros_like(cells.states[0]) for cells in self.layers]
        for step in reversed(range(len(self.vectors))):
            self._backward(step, d_states, None if d_weights is None else d_weights[step])
        d_inputs = [cells.d_inputs for cells in self.layers]
        return (
            d_inputs[0],
            over_steps(self._d_sums, self._joined),
            *d_states,
            *(each for cells in self.layers for each in (cells.d_weight(), cells.d_bias())),
            *(over_steps(d, given) for d, given in zip(d_inputs, self._given, strict=True)),
            *(sum_over_rows(d, bias.dtype) for d, bias in zip(d_inputs[1:], self._biases, strict=True)),
            *self.attention.gradients(self.layers[-1].rows[1:]),
        )

    def _backward(self, step: int, d_states: Sequence[Tensor], d_weights: Tensor | None) -> None:
        """Turns the gradients of the states after a step into those before it, in place."""
        d_sum = self._d_sums[step].copy_(self._d_vectors[step].mul_(one_minus_square(self.vectors[step])))
        context_size, size = self.attention.contexts.shape[-1], self.vectors.shape[-1]
        d_context, d_x = (d_sum @ self._vector_weight).split([context_size, size], -1)
        self.attention.d_contexts[step] += d_context
        d_states[-1][..., :size] += self.attention.backward(step, d_weights)
        for number in reversed(range(len(self.layers))):
            cells, d_state = self.layers[number], d_states[number]
            d_state[..., :size] += d_x
            cells.backward(step, d_state)
            d_inputs = cells.d_inputs[step]
            if number:
                d_given, mask = d_inputs @ self._weights[number], self._masks[number - 1]
                d_given = d_given if mask is None else d_given.mul_(mask[step])
                d_x = d_given + d_x if self._skips and number > 1 else d_given
            elif step:
                add_product(self._d_vectors[step - 1], d_inputs, self._weights[0])
