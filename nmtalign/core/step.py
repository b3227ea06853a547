"""THE decoder step (section 3.1, appendix A.2.2): attend to the source and update the state, in either order.

Training, search, forced decoding and posteriors all run `DecoderStep`. In the order look-generate-update, that of the
released code and of the presets, a step first updates the state with the previous word and the previous context, then
attends; the word is generated from that state and the new context. At the first step there is nothing to take up. In
the order look-update-generate, that of the article's main text, a step attends with the old state, then updates.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtalign.core.additive_attention import Coverage
from nmtalign.core.attention import Attention, AttentionPass, Memory, select_rows
from nmtalign.core.cells import CellPass, GatedCell
from nmtalign.core.functional import add_product, apply, over_steps, product, take_once


@dataclass(frozen=True)
class DecoderState:
    """What a step leaves for the next one, for N rows such as the hypotheses of a search."""

    hidden: Tensor  # (N, n), float32 even beside bf16 products
    context: Tensor | None = None  # (N, V), of the last step; None at the start and where no update reads it again
    coverage: Tensor | None = None  # (N, Tx), how far each source word is translated; None without coverage

    def select(self, rows: Tensor) -> "DecoderState":
        """The states of some rows (indices), in their order."""
        return select_rows(self, rows)


class DecoderStep:
    """The steps of one pass: T of them in training, one at a time in search. `cells` and `attention` hold the buffers.

    `inputs` (U, N, 3n) are the cell's input products with the previous words; at the first step of a sentence in the
    order look-generate-update there is none, so that U = T - 1. `context_weight` (3n, D) multiplies contexts; None if
    the memory's values are folded, so that the first 3n columns of a context are the product already. Without
    attention, `inputs` contain the share of the fixed context.
    """

    def __init__(
        self,
        cells: CellPass,
        attention: AttentionPass | None,
        inputs: Tensor,
        context_weight: Tensor | None,
        update_first: bool,
        previous_context: Tensor | None,
        steps: int,
    ) -> None:
        """`previous_context` (N, V) is that of the step before the first one; None at the start of a sentence."""
        self.cells, self.attention, self.inputs = cells, attention, inputs
        self.context_weight, self.update_first, self.steps = context_weight, update_first, steps
        self._previous_context = previous_context
        self._offset = steps - cells.count  # 1 where the first step has no update, else 0

    @property
    def hidden(self) -> Tensor:
        """The state (N, n) from which the last step generates its word."""
        return self.cells.states[-1]

    def run(self) -> None:
        """All steps, forward."""
        for step in range(self.steps):
            if self.update_first:
                self._update(step)
                self._attend(step)
            else:
                self._attend(step)
                self._update(step)

    def run_backward(self, d_rows: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None) -> Tensor:
        """All steps, backward, from the gradients of the results; returns the gradient of the first state.

        d_rows (*D, U + 1, B, n) are those of all states, d_contexts (T, B, D) and d_weights (T, B, Tx) those of what
        attention gave; None = zero.
        """
        self.cells.start_backward()
        if self.attention is not None:
            self.attention.start_backward()
            if d_contexts is None:
                self.attention.d_contexts.zero_()
            else:
                self.attention.d_contexts.copy_(d_contexts)
        d_state = torch.zeros_like(self.cells.states.select(-3, 0))
        if d_rows is not None:
            d_state += d_rows.select(-3, self.cells.count)
        for step in reversed(range(self.steps)):
            if self.update_first:
                self._attend_backward(step, d_state, d_weights)
                self._update_backward(step, d_state, d_rows)
            else:
                self._update_backward(step, d_state, d_rows)
                self._attend_backward(step, d_state, d_weights)
        return d_state

    def _attend(self, step: int) -> None:
        """Contexts and weights of a step, from the newest state."""
        if self.attention is not None:
            self.attention.forward(step, self.cells.rows[self._state_at(step)])

    def _update(self, step: int) -> None:
        """The next state, from the previous word and the newest context."""
        update = step - self._offset
        if update < 0:
            return
        inputs = self.inputs.select(-3, update)
        if self.attention is not None:
            context = self._previous_context
            if not self.update_first or step:
                context = self.attention.contexts[step - self.update_first]
            if context is None:
                raise ValueError("an update needs the context of the step before")
            if self.context_weight is None:
                inputs = inputs + context[:, : inputs.shape[-1]]
            else:
                inputs = product(context, self.context_weight, inputs)
        self.cells.forward(update, inputs)

    def _attend_backward(self, step: int, d_state: Tensor, d_weights: Tensor | None) -> None:
        if self.attention is not None:
            d_state += self.attention.backward(step, None if d_weights is None else d_weights[step])

    def _update_backward(self, step: int, d_state: Tensor, d_rows: Tensor | None) -> None:
        update = step - self._offset
        if update < 0:
            return
        self.cells.backward(update, d_state)
        if self.attention is not None and self.context_weight is not None:
            d_context = self.attention.d_contexts[step - self.update_first]
            add_product(d_context, self.cells.d_inputs[update], self.context_weight)
        if d_rows is not None:
            d_state += d_rows.select(-3, update)

    def _state_at(self, step: int) -> int:
        """The index of the state with which a step attends."""
        return step - self._offset + self.update_first


@dataclass(frozen=True)
class Unrolled:
    """All results of a pass."""

    states: Tensor  # (*D, U + 1, B, n), the first state included, in the dtype of the activations
    contexts: Tensor | None = None  # (T, B, D)
    weights: Tensor | None = None  # (T, B, Tx), float32


def unroll(cell: GatedCell, inputs: Tensor, initial: Tensor, skip: Tensor | None = None) -> Unrolled:
    """The states of a cell without attention, along inputs (*D, U, B, 3n), from initial (*D, B, n), with a gradient.

    skip (*D, U, B, 1) is True where a step leaves the state as it was; None = nowhere.
    """
    plan = _Plan(cell, skip, inputs.shape[-3], torch.is_grad_enabled())
    return Unrolled(*apply(_Pass, plan, inputs, initial, *cell.recurrent(inputs.dtype), None, None, None))


def unroll_attending(
    cell: GatedCell,
    attention: Attention,
    coverage: Coverage | None,
    memory: Memory,
    inputs: Tensor,
    steps: int,
    update_first: bool,
) -> Unrolled:
    """T steps of the decoder along given words, with a gradient; inputs (U, B, 3n), where U is T or T - 1."""
    if cell.context_weight is None:
        raise ValueError("the decoder's cell has no context")
    dtype = inputs.dtype
    plan = _Plan(cell, None, steps, torch.is_grad_enabled(), attention, memory, update_first)
    tensors = (memory.initial, *cell.recurrent(dtype), cell.context_weight.to(dtype), memory.keys, memory.values)
    return Unrolled(*apply(_Pass, plan, inputs, *tensors, *attention_parameters(attention, coverage, memory, dtype)))


def attention_parameters(
    attention: Attention, coverage: Coverage | None, memory: Memory, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    """The tensors that `Attention.begin` takes, in a dtype."""
    parameters = attention.parameters_in(dtype)
    if coverage is not None and memory.shares is not None:
        parameters += (coverage.vector(dtype), memory.shares)
    return parameters


@dataclass(frozen=True)
class _Plan:
    """The arguments of a pass that have no gradient."""

    cell: GatedCell
    skip: Tensor | None
    steps: int
    differentiate: bool
    attention: Attention | None = None
    memory: Memory | None = None  # its tensors are given to the pass once more, for autograd to see
    update_first: bool = False


class _Pass(torch.autograd.Function):
    """A whole pass as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any,
        plan: _Plan,
        inputs: Tensor,
        initial: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        context_weight: Tensor | None,
        keys: Tensor | None,
        values: Tensor | None,
        *parameters: Tensor,
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        updates = inputs.shape[-3]
        cells = plan.cell.begin(initial, weight, bias, plan.skip, updates, plan.differentiate)
        attention = None
        if plan.attention is not None and plan.memory is not None:
            rows = initial.shape[-2]
            attention = plan.attention.begin(plan.memory, rows, plan.steps, plan.differentiate, None, parameters)
        ctx.step = step = DecoderStep(cells, attention, inputs, context_weight, plan.update_first, None, plan.steps)
        step.run()
        results = [cells.rows] if attention is None else [cells.rows, attention.contexts, attention.weights]
        return tuple(result.view_as(result) for result in results)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: Tensor | None, *d_attention: Tensor | None) -> tuple[Tensor | None, ...]:
        step: DecoderStep = take_once(ctx, "step")
        cells, attention = step.cells, step.attention
        d_contexts, d_weights = d_attention or (None, None)
        d_initial = step.run_backward(d_rows, d_contexts, d_weights)
        of_cell = (None, cells.d_inputs, d_initial, cells.d_weight(), cells.d_bias())
        if attention is None:
            return *of_cell, None, None, None
        rows = cells.rows[: step.steps]  # the states that attended
        return (
            *of_cell,
            over_steps(cells.d_inputs, attention.contexts[: cells.count]),
            attention.d_keys(rows),
            attention.d_values(),
            *attention.d_parameters(rows),
        )
