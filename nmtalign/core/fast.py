"""Hand-written passes for the paper's cell and cuDNN's cell, and for additive attention. They only save time.

`cells` and `attention` define what is computed; tests compare both, and both with float64. Here the steps of a pass are
one node of the autograd graph. They run in preallocated buffers, and the gradient of each weight is one product over
all steps. Products are in the dtype of the inputs (for example bf16); states and gates are float32 (float64 for
float64).
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtalign.core.attention import AdditiveAttention, Memory
from nmtalign.core.functional import additive_energies, apply, in_partial_sums, product, take_once, tanh_, wide
from nmtalign.errors import check_wanted
from nmtalign.settings.training_settings import ModelConfig

KEPT_BYTES = 192 << 20  # of tanh, B Tx n' elements per step; the backward pass computes that of the other steps again


def applies(config: ModelConfig) -> bool:
    """Whether `decode` is for the decoder of a model."""
    return (
        config.cell in ("paper", "cudnn")
        and config.order == "look-generate-update"
        and config.attention in ("additive", "concat")
        and (config.attention_span, config.coverage, config.input_feeding) == ("global", "none", "context")
    )


class CellPass(ABC):
    """One pass of a cell over U steps. Shapes are (U, *D, B, .): the encoder has D directions, the decoder has none.

    With two gates, a new state is between the old one and a candidate.
    """

    def __init__(
        self, initial: Tensor, weights: Sequence[Tensor], skip: Tensor | None, steps: int, differentiate: bool
    ) -> None:
        """initial (*D, B, n) is the first state; `weights` are those of `GatedCell.recurrent`.

        skip (U, *D, B, 1) is True where a step leaves the state as it was; None = nowhere. With `differentiate` the
        buffers keep the inputs of `backward`.
        """
        # Contiguous, because a product that is batched over the directions would copy them at every step.
        self.gates_weight, self.candidate_weight = (weight.contiguous() for weight in weights[:2])
        self.size, self.steps, self.skip, self.dtype = initial.shape[-1], steps, skip, weights[0].dtype
        self._kept_steps = steps if differentiate else 1
        self.states = initial.new_empty(steps + 1, *initial.shape)
        self.states[0] = initial
        self.rows = self.states  # in the dtype of the products
        if self.dtype != initial.dtype:
            self.rows = torch.empty_like(self.states, dtype=self.dtype)
            self.rows[0] = initial
        self.gates = self._buffer(2 * self.size, initial.dtype)
        self.candidates = self._buffer(self.size, initial.dtype)
        self.allocate(weights)

    @abstractmethod
    def allocate(self, weights: Sequence[Tensor]) -> None:
        """Allocates the other buffers."""

    @abstractmethod
    def forward(self, step: int, inputs: Tensor) -> None:
        """Computes state `step` + 1 from state `step` and the inputs (*D, B, 3n) of the step."""

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_inputs = self._buffer(3 * self.size, self.dtype)

    @abstractmethod
    def backward(self, step: int, d_state: Tensor) -> None:
        """Turns the gradient of state `step` + 1 into that of state `step`, in place; fills `d_inputs` of the step."""

    @abstractmethod
    def d_weights(self) -> tuple[Tensor, ...]:
        """The gradients of the weights, after all backward steps."""

    def _buffer(self, size: int, dtype: torch.dtype) -> Tensor:
        """Room for every step, or for one step if there is no backward pass."""
        return self.states.new_empty(self._kept_steps, *self.states.shape[1:-1], size, dtype=dtype)

    def _slot(self, buffer: Tensor, step: int) -> Tensor:
        """The part of a buffer that a step fills."""
        return buffer[step % self._kept_steps]

    def _interpolate(self, step: int, start: Tensor, end: Tensor, share: Tensor) -> None:
        """State `step` + 1 = start + share * (end - start)."""
        torch.lerp(start, end, share, out=self.states[step + 1])
        if self.rows is not self.states:
            self.rows[step + 1] = self.states[step + 1]


class PaperCellPass(CellPass):
    """The paper's hidden unit: `gates` contains z and r, `products` contains r * state, the input of the candidate."""

    def allocate(self, weights: Sequence[Tensor]) -> None:
        """See `CellPass`."""
        self.products = self._buffer(self.size, self.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state = self.states[step]
        gates = self._slot(self.gates, step).copy_(product(self.rows[step], self.gates_weight, gate_inputs)).sigmoid_()
        update, reset = gates.chunk(2, -1)
        products = torch.mul(reset, state, out=self._slot(self.products, step))
        sums = product(products, self.candidate_weight, candidate_inputs)
        candidate = self._slot(self.candidates, step).copy_(sums).tanh_()
        if self.skip is not None:
            update.masked_fill_(self.skip[step], 0)
        self._interpolate(step, state, candidate, update)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the gradient of s_new: d_candidate = d z (1 - candidate^2), d_z = d (candidate - s) z (1 - z)."""
        state, candidate = self.states[step], self.candidates[step]
        update, reset = self.gates[step].chunk(2, -1)
        d_inputs = self.d_inputs[step]
        d_update, d_reset, d_candidate = d_inputs.chunk(3, -1)
        taken = d_state * update
        torch.mul(taken, _one_minus_square(candidate), out=d_candidate)
        d_product = (d_candidate @ self.candidate_weight).to(state.dtype).mul_(reset)
        through = (candidate - state).mul_(taken)
        torch.addcmul(through, through, update, value=-1, out=d_update)
        torch.mul(d_product, state, out=through)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.sub_(taken).add_(d_product)
        _add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)

    def d_weights(self) -> tuple[Tensor, ...]:
        """The gates multiply the state, the candidate multiplies r * state."""
        d_gates, d_candidate = self.d_inputs.split([2 * self.size, self.size], -1)
        return _over_steps(d_gates, self.rows[:-1]), _over_steps(d_candidate, self.products)


class CudnnCellPass(CellPass):
    """PyTorch's GRU: `gates` contains r and z, `hidden` is U s + b_U, which the reset gate multiplies."""

    def allocate(self, weights: Sequence[Tensor]) -> None:
        """See `CellPass`."""
        self.hidden = self._buffer(self.size, self.states.dtype)
        self._bias = weights[2][..., None, :].to(self.dtype).expand_as(self.rows[0])

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states[step], self.rows[step]
        gates = self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)).sigmoid_()
        hidden = self._slot(self.hidden, step).copy_(product(row, self.candidate_weight, self._bias))
        reset, keep = gates.chunk(2, -1)
        candidate = self._slot(self.candidates, step).copy_(candidate_inputs).addcmul_(reset, hidden).tanh_()
        if self.skip is not None:
            keep.masked_fill_(self.skip[step], 1)
        self._interpolate(step, candidate, state, keep)

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self.d_hidden = self._buffer(self.size, self.dtype)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the gradient of s_new: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z), d_r likewise."""
        state, candidate, hidden = self.states[step], self.candidates[step], self.hidden[step]
        reset, keep = self.gates[step].chunk(2, -1)
        d_inputs, d_hidden = self.d_inputs[step], self.d_hidden[step]
        d_reset, d_keep, d_candidate = d_inputs.chunk(3, -1)
        kept = d_state * keep
        d_new = d_state.sub_(kept).mul_(_one_minus_square(candidate))
        d_candidate.copy_(d_new)
        through = (state - candidate).mul_(kept)
        torch.addcmul(through, through, keep, value=-1, out=d_keep)
        torch.mul(d_new.mul_(reset), hidden, out=through)
        d_hidden.copy_(d_new)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.copy_(kept)
        _add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)
        _add_product(d_state, d_hidden, self.candidate_weight)

    def d_weights(self) -> tuple[Tensor, ...]:
        """Gates and candidate both multiply the state; b_U is added to the product of the candidate."""
        d_gates, rows = self.d_inputs[..., : 2 * self.size], self.rows[:-1]
        d_bias = self.d_hidden.movedim(0, -3).flatten(-3, -2).sum(-2, dtype=self.states.dtype)
        return _over_steps(d_gates, rows), _over_steps(self.d_hidden, rows), d_bias


class AdditivePass:
    """The attention steps of one pass, which compute v_a . tanh(W_a s + keys) (appendix A.1.2), for B sentences."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        padding: Tensor | None,
        query_weight: Tensor,
        vector: Tensor,
        steps: int,
        differentiate: bool,
    ) -> None:
        self.keys, self.values, self.padding, self.query_weight = keys, values, padding, query_weight
        self.vector, self._differentiate = vector.to(keys.dtype), differentiate
        (batch, length, size), dtype = keys.shape, wide(keys.dtype)
        self.contexts = values.new_empty(steps, batch, values.shape[-1])
        self.weights = keys.new_empty(steps, batch, length, dtype=dtype)
        self.queries = keys.new_empty(steps, batch, size)
        self._partial_vectors = in_partial_sums(self.vector)
        self._first_kept = max(0, steps - KEPT_BYTES // max(1, keys.nbytes)) if differentiate else steps
        self._kept: dict[int, Tensor] = {}

    def forward(self, step: int, row: Tensor) -> None:
        """Fills the weights (equation 6) and the contexts (equation 5) of a step, for the states row (B, n)."""
        query = product(row, self.query_weight, out=self.queries[step])
        if self._differentiate:
            hidden = tanh_(self.keys + query[:, None])
            if step >= self._first_kept:
                self._kept[step] = hidden
            energies = (hidden @ self._partial_vectors).sum(-1, dtype=self.weights.dtype)
        else:
            energies = additive_energies(query[:, None], self.keys, self.vector)[:, 0]
        if self.padding is not None:
            energies = energies.masked_fill_(self.padding, -torch.inf)
        weights = torch.softmax(energies, -1, out=self.weights[step])
        torch.bmm(weights[:, None].to(self.values.dtype), self.values, out=self.contexts[step][:, None])

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_contexts = torch.zeros_like(self.contexts)
        self._d_queries = torch.empty_like(self.queries)
        self._d_energies = torch.zeros_like(self.weights[0])
        self._weighted_squares = torch.zeros_like(self.keys, dtype=self.weights.dtype)
        self._wide_squares = torch.empty_like(self._weighted_squares)
        self._d_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        weights, total = self.weights[step], _dots(self.d_contexts[step], self.values).to(self.weights.dtype)
        total = total if d_weights is None else total + d_weights
        d_energies = weights * (total - (weights * total).sum(-1, keepdim=True))
        narrow = d_energies.to(self.queries.dtype)
        hidden = self._kept.pop(step, None)
        if hidden is None:
            hidden = tanh_(self.keys + self.queries[step][:, None])
        self._d_vector += (narrow.view(1, -1) @ hidden.view(-1, hidden.shape[-1]))[0]
        squares = hidden.square_()
        # The query's gradient sums d_energy * (1 - tanh^2) * v_a over the source. The d_energies of a softmax sum to
        # 0, so the 1 cancels; left in, rounding in bf16 would cost a tenth of the gradient.
        d_query = torch.bmm(narrow[:, None], squares, out=self._d_queries[step][:, None]).squeeze(1)
        d_query.mul_(self.vector).neg_()
        # The keys' gradient is v_a * (sum of d_energy - sum of d_energy * tanh^2), the sums over the steps.
        self._d_energies += d_energies
        wide_squares = squares if squares.dtype == d_energies.dtype else self._wide_squares.copy_(squares)
        self._weighted_squares.addcmul_(wide_squares, d_energies[..., None])
        return d_query @ self.query_weight

    def gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of keys, values, W_a and v_a, from the states (T, B, n), after all backward steps."""
        d_keys = self._weighted_squares.neg_().add_(self._d_energies[..., None]).mul_(self.vector).to(self.keys.dtype)
        d_values = torch.bmm(self.weights.permute(1, 2, 0).to(self.values.dtype), self.d_contexts.transpose(0, 1))
        return d_keys, d_values, _over_steps(self._d_queries, rows), self._d_vector


class _Unroll(torch.autograd.Function):
    """All steps of a cell as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any,
        pass_class: type[CellPass],
        skip: Tensor | None,
        differentiate: bool,
        inputs: Tensor,
        initial: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        cells = ctx.cells = pass_class(initial, weights, skip, len(inputs), differentiate)
        for step, step_inputs in enumerate(inputs):
            check_wanted()
            cells.forward(step, step_inputs)
        return cells.rows[1:], cells.states[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        cells: CellPass = take_once(ctx, "cells")
        cells.start_backward()
        d_state = torch.zeros_like(cells.states[0]) if d_last is None else d_last.clone()
        for step in reversed(range(cells.steps)):
            if d_rows is not None:
                d_state += d_rows[step]
            cells.backward(step, d_state)
        return None, None, None, cells.d_inputs, d_state, *cells.d_weights()


def unroll(
    pass_class: type[CellPass], inputs: Tensor, initial: Tensor, weights: Sequence[Tensor], skip: Tensor | None
) -> tuple[Tensor, Tensor]:
    """See `cells.unroll`."""
    results: tuple[Tensor, Tensor] = apply(
        _Unroll, pass_class, skip, torch.is_grad_enabled(), inputs, initial, *weights
    )
    return results


class _Decode(torch.autograd.Function):
    """All steps of a decoder in the order look-generate-update as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any,
        pass_class: type[CellPass],
        padding: Tensor | None,
        differentiate: bool,
        inputs: Tensor,
        initial: Tensor,
        context_weight: Tensor,
        keys: Tensor,
        values: Tensor,
        query_weight: Tensor,
        vector: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        steps, ctx.context_weight = len(inputs) + 1, context_weight
        cells = ctx.cells = pass_class(initial, weights, None, len(inputs), differentiate)
        attention = ctx.attention = AdditivePass(keys, values, padding, query_weight, vector, steps, differentiate)
        for step in range(steps):
            check_wanted()
            if step:
                cells.forward(step - 1, product(attention.contexts[step - 1], context_weight, inputs[step - 1]))
            attention.forward(step, cells.rows[step])
        return (
            cells.rows.view_as(cells.rows),
            attention.contexts.view_as(attention.contexts),
            attention.weights.view_as(attention.weights),
        )

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_rows: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        cells: CellPass = take_once(ctx, "cells")
        attention: AdditivePass = take_once(ctx, "attention")
        cells.start_backward()
        attention.start_backward()
        if d_contexts is not None:
            attention.d_contexts.copy_(d_contexts)
        d_state = torch.zeros_like(cells.states[0])
        for step in reversed(range(cells.steps + 1)):
            if d_rows is not None:
                d_state += d_rows[step]
            d_state += attention.backward(step, None if d_weights is None else d_weights[step])
            if step:
                cells.backward(step - 1, d_state)
                _add_product(attention.d_contexts[step - 1], cells.d_inputs[step - 1], ctx.context_weight)
        d_context_weight = _over_steps(cells.d_inputs, attention.contexts[:-1])
        of_attention = attention.gradients(cells.rows)
        return None, None, None, cells.d_inputs, d_state, d_context_weight, *of_attention, *cells.d_weights()


def decode(
    pass_class: type[CellPass],
    inputs: Tensor,
    memory: Memory,
    attention: AdditiveAttention,
    context_weight: Tensor,
    weights: Sequence[Tensor],
) -> tuple[Tensor, Tensor, Tensor]:
    """(states (T, B, n), contexts (T, B, D), weights (T, B, Tx)) of a decoder for which `applies` holds.

    `inputs` (T - 1, B, 3n) are those of all steps but the first, which has no update; `weights` are those of
    `GatedCell.recurrent`.
    """
    attended = memory.keys, memory.values, attention.query_weight, attention.vector
    tensors = inputs, memory.initial, context_weight, *attended, *weights
    padding, differentiate = memory.padding, torch.is_grad_enabled()
    results: tuple[Tensor, Tensor, Tensor] = apply(_Decode, pass_class, padding, differentiate, *tensors)
    return results


def _one_minus_square(x: Tensor) -> Tensor:
    """The derivative of tanh at the point where tanh has the value x."""
    return torch.addcmul(x.new_ones(()), x, x, value=-1)


def _dots(vectors: Tensor, rows: Tensor) -> Tensor:
    """The dot products (B, R) of vectors (B, n) with their rows (B, R, n).

    In float32, MKL's product of a row and a matrix takes a ninth of the time of that of a matrix and a column.
    """
    if rows.dtype == torch.bfloat16:
        return torch.bmm(rows, vectors[:, :, None]).squeeze(2)
    return torch.bmm(vectors[:, None], rows.mT).squeeze(1)


def _add_product(total: Tensor, gradient: Tensor, weight: Tensor) -> None:
    """`total += gradient W`, accumulated in the dtype of `total`."""
    if total.dtype == torch.bfloat16 or weight.dim() > 2:  # one bf16 operation would be twice as slow as two
        total.add_(gradient @ weight)
    elif total.dtype == weight.dtype:
        total.addmm_(gradient, weight)
    else:
        total.add_((gradient @ weight).to(total.dtype))


def _over_steps(gradient: Tensor, rows: Tensor) -> Tensor:
    """A weight's gradient (*D, out, in) as one product over all steps: (U, *D, B, out) and (U, *D, B, in)."""
    if gradient.dim() == 3:
        return gradient.flatten(0, 1).t() @ rows.flatten(0, 1)
    return torch.stack([_over_steps(*direction) for direction in zip(gradient.unbind(1), rows.unbind(1), strict=True)])
