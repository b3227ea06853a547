"""Two parts of Luong et al. (2015): input feeding, and local attention.

With input feeding (section 3.3) the first layer gets the attentional vector of the step before beside the word:
vector_t = tanh(W_c [context_t; state_t]). So the recurrence runs through all layers and the attention.

Local attention (section 3.2) attends to the positions within D of a position p. In local-m the position is the number
of the target word, p_t = t, and at most that of the last source word. In local-p it is predicted: p_t = S sigmoid(v_p .
tanh(W_p state)) for S source words, and each weight is multiplied by exp(-(j - p_t)^2 / (2 sigma^2)), sigma = D / 2.
Positions are those of the sentence, in whichever direction the encoder reads it.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import AdditiveAttentionPass, AttentionInputs, AttentionPass
from nmtalign.core.attention_variants import DotAttentionPass
from nmtalign.core.cells import GatedCell, sum_over_rows
from nmtalign.core.functional import add_product, one_minus_square, over_steps, product, sigmoid_, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.core.step import Steps, cell_pass
from nmtalign.settings.training_settings import ModelConfig


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
        torch.mm(joined, self._vector_weight.t(), out=self.vectors[step]).tanh_()

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


class LocalPass(AttentionPass):
    """Attention steps within a window; a class of it and of a score's pass has the energies.

    The weights are normalised, so that they are an alignment as in every other model. In local-p the contexts are sums
    with the paper's weights, the `shares`: the softmax over the window times the Gaussian, whose sum is less than 1.
    """

    def __init__(self, inputs: AttentionInputs) -> None:
        super().__init__(inputs)
        self._window, self._before = inputs.window, inputs.position
        places = torch.arange(self.length, device=self.keys.device)
        real = self.keys.new_full((self.batch,), self.length, dtype=torch.long)
        if self.padding is not None:
            real = self.length - self.padding.sum(1)
        self._real = real.repeat_interleave(self.rows_each)[:, None]  # (N, 1), S
        self._places = places.to(self.weights.dtype)
        if self._before is None:
            *_, self._position_weight, self._position_vector = inputs.parameters
            units = len(self._position_weight)
            self.shares, self._softmax, self._offsets = (torch.empty_like(self.weights) for _ in range(3))
            self._hidden = self.weights.new_empty(*self.weights.shape[:2], units)
            self._sigmoids = self.weights.new_empty(*self.weights.shape[:2], 1)

    def _masked(self, step: int, row: Tensor, energies: Tensor) -> Tensor:
        """-inf outside the window, too."""
        if self._before is not None:
            offsets = self._places - torch.minimum(self._before[:, None] + step, self._real - 1)
        else:
            hidden = self._hidden[step].copy_(row @ self._position_weight.t()).tanh_()
            sigmoids = self._sigmoids[step].copy_((hidden * self._position_vector).sum(-1, keepdim=True))
            offsets = torch.sub(self._places, sigmoid_(sigmoids) * self._real, out=self._offsets[step])
        outside = (offsets.abs() > self._window).view(energies.shape)
        return super()._masked(step, row, energies).masked_fill(outside, -torch.inf)

    def _rescaled(self, step: int) -> Tensor:
        """In local-p shares = softmax * exp(-offset^2 / (2 sigma^2)), where 2 sigma^2 = D^2 / 2."""
        weights, shares = self.weights[step], self.shares[step]
        if self._before is None:
            softmax = self._softmax[step].copy_(weights)
            scale = (self._offsets[step] / self._window).square_().mul_(-2).exp_()
            torch.mul(softmax, scale, out=shares)
            torch.div(shares, shares.sum(-1, keepdim=True), out=weights)
        return shares

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        if self._before is None:
            self._d_hidden = torch.empty_like(self._hidden)
            self._d_sums = torch.empty_like(self._sigmoids)

    def _d_energies_of(self, step: int, d_shares: Tensor, d_weights: Tensor | None) -> Tensor:
        """Also the gradient of the predicted position: the derivative of a share is share * offset / sigma^2."""
        if self._before is not None:
            return super()._d_energies_of(step, d_shares, d_weights)
        shares = self.shares[step]
        if d_weights is not None:
            mean = (d_weights * self.weights[step]).sum(-1, keepdim=True)
            d_shares = d_shares + (d_weights - mean) / shares.sum(-1, keepdim=True)
        total = shares * d_shares
        d_position = (total * self._offsets[step]).sum(-1, keepdim=True) * (4 / self._window**2)
        sigmoid, hidden = self._sigmoids[step], self._hidden[step]
        d_sum = torch.mul(d_position * self._real, sigmoid - sigmoid * sigmoid, out=self._d_sums[step])
        torch.mul(d_sum * self._position_vector, one_minus_square(hidden), out=self._d_hidden[step])
        return total - self._softmax[step] * total.sum(-1, keepdim=True)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """As in `AttentionPass`; the predicted position depends on the state, too."""
        d_row = super().backward(step, d_weights)
        if self._before is not None:
            return d_row
        return d_row + self._d_hidden[step].to(self._position_weight.dtype) @ self._position_weight

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_p and v_p, too."""
        if self._before is not None:
            return super().d_parameters(rows)
        d_vector = (self._d_sums * self._hidden).sum((0, 1))
        return *super().d_parameters(rows), over_steps(self._d_hidden.to(rows.dtype), rows), d_vector


class LocalDotPass(LocalPass, DotAttentionPass):
    """Local attention with the scores dot and general."""


class LocalAdditivePass(LocalPass, AdditiveAttentionPass):
    """Local attention with the additive score."""


LOCAL_PASSES: Mapping[type[AttentionPass], type[LocalPass]] = {
    DotAttentionPass: LocalDotPass,
    AdditiveAttentionPass: LocalAdditivePass,
}


class PositionPredictor(Initialised):
    """The parameters of the predicted position of local-p: W_p (n', n) and v_p (n')."""

    roles: ClassVar[Mapping[str, Role]] = {"weight": Role.MATRIX, "vector": Role.ENERGY}

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.attention_hidden, config.hidden))
        self.vector = nn.Parameter(torch.empty(config.attention_hidden))

    def parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """W_p in the dtype of the products; v_p wide, so that a rounded position does not jump by words."""
        return self.weight.to(dtype), self.vector.to(wide(dtype))
