"""Encoders and decoders as interfaces, RNNsearch's step (section 3.1, appendix A.2.2), and a pass with a gradient.

`DecoderStep` attends to the source and updates the state, in training, search, forced decoding and posteriors. Without
attention it is a plain recurrence (`unroll`), as in a recurrent encoder. Other steps replace it with input feeding
(`luong`) and in a Transformer (`transformer`).

It has one of three orders. Look-generate-update is the order of the released code and of the presets: a step updates
the state with the previous word and the previous context, then attends; the word is generated from that state and the
new context. The first step has no update, because there is no previous word. Look-update-generate is the order of the
article's main text: a step attends with the old state, then updates it with the previous word and the new context.
Update-look-generate (Luong et al. 2015) is the first order with an update at the first step, too: its word and its
context are zero.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from nmtalign.core.attention import AttentionPass, Encoded, Memory, select_rows
from nmtalign.core.cells import CellPass, GatedCell
from nmtalign.core.functional import add_product, apply, over_steps, product, take_once
from nmtalign.core.gpu import missing
from nmtalign.errors import check_wanted


@dataclass(frozen=True)
class DecoderState:
    """The results of a step that the next step needs, for N rows such as the hypotheses of a search."""

    hidden: Tensor  # (N, n) of one layer, (N, L S) of a stack of layers; float32 even beside bf16 products
    context: Tensor | None = None  # (N, V), what the next update gets of the last step; None at the start, or if none
    coverage: Tensor | None = None  # (N, Tx), the share of each source word that is translated; None without coverage
    position: Tensor | None = None  # (N,), the number of steps so far, in local-m attention

    def __len__(self) -> int:
        return len(self.hidden)

    def after(self, hidden: Tensor, context: Tensor | None, attention: AttentionPass | None) -> "DecoderState":
        """The state after one more step, with the results of this step."""
        coverage = None if attention is None else attention.new_coverage(0)
        return DecoderState(hidden, context, coverage, None if self.position is None else self.position + 1)

    def select(self, rows: Tensor) -> "DecoderState":
        """The states of some rows (indices), in their order."""
        return select_rows(self, rows)


@dataclass(frozen=True)
class DecoderPass:
    """The inputs of the readout at all steps along given targets."""

    memory: Memory
    words: Tensor  # (Ty, B, m), the vectors of the previous words; zero at the first step
    states: Tensor  # (Ty, B, n)
    contexts: Tensor  # (Ty, B, D)
    weights: Tensor | None  # (Ty, B, Tx)


@dataclass(frozen=True)
class Advance:
    """The results of one step of search for N rows."""

    state: DecoderState
    hidden: Tensor  # (N, n), from which the readout generates the word
    context: Tensor  # (N, D)
    weights: Tensor | None  # (N, Tx)


class Encoder(nn.Module, ABC):
    """Turns the source into annotations."""

    output_size: int  # D, the width of an annotation

    @abstractmethod
    def forward(self, embedded: Tensor, padding: Tensor | None) -> Encoded:
        """Annotations (B, Tx, D) of embedded words (B, Tx, m); padding (B, Tx), True where no word is."""


class Decoder(nn.Module, ABC):
    """Runs along the target words and attends to the source."""

    @property
    def has_posterior(self) -> bool:
        """Whether there are posteriors of the weights given each target word (`TranslationModel.force_posterior`)."""
        return False

    @abstractmethod
    def remember(self, encoded: Encoded, mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of B encoded sentences; mask (B, Tx) is True at real tokens."""

    @abstractmethod
    def unroll(self, memory: Memory, words: Tensor) -> DecoderPass:
        """All steps along given previous words (Ty, B, m), the first one's vector 0, with a gradient."""

    @abstractmethod
    def start(self, memory: Memory) -> DecoderState:
        """The state of one row per sentence."""

    @abstractmethod
    def advance(self, memory: Memory, state: DecoderState, words: Tensor, first: bool) -> Advance:
        """One step of search from the previous words (N, m), which are 0 at the `first` step; without a gradient.

        The rows of one sentence are adjacent. N is a multiple of the number of sentences.
        """


class Steps(ABC):
    """The steps of one pass, which are one node of the autograd graph (`run`)."""

    @abstractmethod
    def run(self) -> None:
        """Runs all steps forward."""

    @abstractmethod
    def results(self) -> tuple[Tensor, ...]:
        """The tensors that the pass returns."""

    @abstractmethod
    def gradients(self, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        """Runs all steps backward, from the gradients of the results (None = 0); returns those of the tensors."""


class DecoderStep(Steps):
    """The steps of one pass: T of them in training, one at a time in search.

    `cells` and `attention` contain the buffers. Without attention it is a plain recurrence, as in the encoder.
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
        folded: bool = False,
    ) -> None:
        """`inputs` (U, N, 3n) are the cell's input products with the previous words, one for each update.

        At the first step of a sentence in the order look-generate-update there is no update, so that U = T - 1.
        Without attention the inputs contain the product of the fixed context. `context_weight` (3n, D) multiplies
        contexts; None if no update depends on a context. If the memory's values are `folded`, the first 3n columns of a
        context are the product already. `previous_context` (N, V) is that of the step before the first one; None at the
        start of a sentence.
        """
        self.cells, self.attention, self.inputs, self.steps = cells, attention, inputs, steps
        self._context_weight, self._previous_context, self._folded = context_weight, previous_context, folded
        self._update_first = update_first
        self._offset = steps - cells.steps  # 1 where the first step has no update, else 0
        # 1 if the first update has no context, because it comes before the first attention.
        self._without = int(update_first and not self._offset)

    @property
    def hidden(self) -> Tensor:
        """The state (N, S) from which the last step generates its word."""
        return self.cells.states[-1]

    @property
    def attending_rows(self) -> Tensor:
        """The states (T, N, n), in the dtype of the products, with which the steps attend."""
        return self.cells.rows[self._without :][: self.steps]

    def run(self) -> None:
        """Runs all steps forward."""
        for step in range(self.steps):
            check_wanted()
            if self._update_first:
                self._update(step)
                self._attend(step)
            else:
                self._attend(step)
                self._update(step)

    def results(self) -> tuple[Tensor, ...]:
        """The outputs (U + 1, *D, B, n), those of the first state included, and the last state (*D, B, S).

        With attention also the contexts (T, B, D) and the weights (T, B, Tx), which are float32.
        """
        results = self.cells.rows, self.hidden
        return results if self.attention is None else (*results, self.attention.contexts, self.attention.weights)

    def gradients(self, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        """As in `Steps`: of inputs, first state, recurrent weight and bias; with attention also of the others."""
        cells, attention = self.cells, self.attention
        d_rows, d_last, d_contexts, d_weights = d_results if attention is not None else (*d_results, None, None)
        d_initial = self._run_backward(d_rows, d_last, d_contexts, d_weights)
        of_cell = (cells.d_inputs, d_initial, cells.d_weight(), cells.d_bias())
        if attention is None:
            return of_cell
        d_keys, d_values, *others = attention.gradients(self.attending_rows)
        return *of_cell, self.d_context_weight(), d_keys, d_values, *others

    def _run_backward(
        self, d_rows: Tensor | None, d_last: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None
    ) -> Tensor:
        """Runs all steps backward; returns the gradient of the first state."""
        self.cells.start_backward()
        if self.attention is not None:
            self.attention.start_backward()
            if d_contexts is not None:
                self.attention.d_contexts.copy_(d_contexts)
        d_state = torch.zeros_like(self.cells.states[0])
        if d_last is not None:
            d_state += d_last
        if d_rows is not None:
            self._outputs(d_state).add_(d_rows[-1])
        for step in reversed(range(self.steps)):
            if self._update_first:
                self._attend_backward(step, d_state, d_weights)
                self._update_backward(step, d_state, d_rows)
            else:
                self._update_backward(step, d_state, d_rows)
                self._attend_backward(step, d_state, d_weights)
        return d_state

    def _attend(self, step: int) -> None:
        """Computes contexts and weights of a step, from the newest state."""
        if self.attention is not None:
            newest = step - self._offset + self._update_first
            self.attention.forward(step, self.cells.rows[newest])

    def _update(self, step: int) -> None:
        """Computes the next state, from the previous word and the newest context."""
        update = step - self._offset
        if update < 0:
            return
        inputs = self.inputs[update]
        newest = step - self._update_first
        if self.attention is not None and (self._folded or self._context_weight is not None):
            context = self._previous_context if newest < 0 else self.attention.contexts[newest]
            if context is not None and self._context_weight is not None:
                inputs = product(context, self._context_weight, inputs)
            elif context is not None:
                inputs = inputs + context[:, : inputs.shape[-1]]
        self.cells.forward(update, inputs)

    def _attend_backward(self, step: int, d_state: Tensor, d_weights: Tensor | None) -> None:
        if self.attention is None:
            return
        d_given = None if d_weights is None else d_weights[step]
        self._outputs(d_state).add_(self.attention.backward(step, d_given))

    def _update_backward(self, step: int, d_state: Tensor, d_rows: Tensor | None) -> None:
        update = step - self._offset
        if update < 0:
            return
        self.cells.backward(update, d_state)
        newest = step - self._update_first
        if self.attention is not None and self._context_weight is not None and newest >= 0:
            add_product(self.attention.d_contexts[newest], self.cells.d_inputs[update], self._context_weight)
        if d_rows is not None:
            self._outputs(d_state).add_(d_rows[update])

    def _outputs(self, state: Tensor) -> Tensor:
        """The part of a state (*D, B, S) that is the output (*D, B, n)."""
        return state[..., : self.cells.size]

    def d_context_weight(self) -> Tensor | None:
        """The gradient (3n, D) of `context_weight`, after all backward steps."""
        if self.attention is None or self._context_weight is None:
            return None
        d_inputs = self.cells.d_inputs[self._without :]
        return over_steps(d_inputs, self.attention.contexts[: len(d_inputs)])


class _Pass(torch.autograd.Function):
    """A complete pass as one node of the autograd graph; the tensors are those of `step`, passed again for autograd."""

    @staticmethod
    def forward(ctx: Any, step: Steps, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.step = step
        step.run()
        return tuple(result.view_as(result) for result in step.results())

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *d_results: Tensor | None) -> tuple[Tensor | None, ...]:
        step: Steps = take_once(ctx, "step")
        return None, *step.gradients(*d_results)


def unroll(cell: GatedCell, inputs: Tensor, initial: Tensor, skip: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(outputs (U + 1, *D, B, n), last state (*D, B, S)) of a cell without attention, with a gradient.

    inputs (U, *D, B, 3n), initial (*D, B, S); skip (U, *D, B, 1) is True where a step leaves the state as it was, None
    = nowhere. The first outputs are those of the initial state.
    """
    recurrent, differentiate = cell.recurrent(inputs.dtype), torch.is_grad_enabled()
    with torch.no_grad():
        cells = cell_pass(cell, initial.device)(initial, *recurrent, skip, len(inputs), differentiate)
    step = DecoderStep(cells, None, inputs, None, False, None, len(inputs))
    outputs, last = run(step, inputs, initial, *recurrent)
    return outputs, last


def run(step: Steps, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """The results of a pass, with a gradient for the `tensors`.

    Those of a `DecoderStep` are the inputs, initial state, recurrent weight and bias; with attention also the context
    weight, keys, values, and parameters of the alignment model.
    """
    results: tuple[Tensor, ...] = apply(_Pass, step, *tensors)
    return results


def cell_pass(cell: GatedCell, device: torch.device) -> type[CellPass]:
    """The class of a pass of a cell: fused kernels on a GPU that runs them, else PyTorch's operations."""
    if missing(device):
        return cell.pass_class
    from nmtalign.core.gpu.fused_cells import FUSED_PASSES

    return FUSED_PASSES.get(cell.pass_class, cell.pass_class)
