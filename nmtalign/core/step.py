"""The decoder: its step (section 3.1, appendix A.2.2), a complete pass with a gradient, and its parameters.

Training, search, forced decoding and posteriors all run `DecoderStep`: attend to the source and update the state, in
one of two orders. Look-generate-update is the order of the released code and of the presets: a step updates the state
with the previous word and the previous context, then attends; the word is generated from that state and the new
context. The first step has no update, because there is no previous word. Look-update-generate is the order of the
article's main text: a step attends with the old state, then updates it with the previous word and the new context.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.attention import (
    KEPT_BYTES,
    AdditiveAttention,
    AdditiveAttentionPass,
    Attention,
    AttentionInputs,
    AttentionPass,
    Memory,
    select_rows,
)
from nmtalign.core.attention_variants import Coverage, CoverageAttentionPass, DotAttention, GeneralAttention
from nmtalign.core.cells import CELLS, CellPass, GatedCell
from nmtalign.core.functional import add_product, apply, over_steps, product, take_once, wide
from nmtalign.core.gpu import missing
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig

SCORES: Mapping[str, type[AdditiveAttention | DotAttention]] = {
    "additive": AdditiveAttention,
    "dot": DotAttention,
    "general": GeneralAttention,
}


@dataclass(frozen=True)
class DecoderState:
    """The results of a step that the next step needs, for N rows such as the hypotheses of a search."""

    hidden: Tensor  # (N, n), float32 even beside bf16 products
    context: Tensor | None = None  # (N, V), of the last step; None at the start, and if no update reads it again
    coverage: Tensor | None = None  # (N, Tx), the share of each source word that is translated; None without coverage

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


class DecoderStep:
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
    ) -> None:
        """`inputs` (U, N, 3n) are the cell's input products with the previous words, one for each update.

        At the first step of a sentence in the order look-generate-update there is no update, so that U = T - 1.
        Without attention the inputs contain the product of the fixed context. `context_weight` (3n, D) multiplies
        contexts; None if the memory's values are folded, so that the first 3n columns of a context are the product
        already. `previous_context` (N, V) is that of the step before the first one; None at the start of a sentence.
        """
        self.cells, self.attention, self.inputs, self.steps = cells, attention, inputs, steps
        self._context_weight, self._previous_context = context_weight, previous_context
        self._update_first = update_first
        self._offset = steps - cells.steps  # 1 where the first step has no update, else 0

    @property
    def hidden(self) -> Tensor:
        """The state (N, n) from which the last step generates its word."""
        return self.cells.states[-1]

    def run(self) -> None:
        """Runs all steps forward."""
        for step in range(self.steps):
            if self._update_first:
                self._update(step)
                self._attend(step)
            else:
                self._attend(step)
                self._update(step)

    def run_backward(self, d_rows: Tensor | None, d_contexts: Tensor | None, d_weights: Tensor | None) -> Tensor:
        """Runs all steps backward, from the gradients of the results (None = 0); returns that of the first state.

        d_rows (U + 1, *D, B, n) are the gradients of all states, d_contexts (T, B, D) and d_weights (T, B, Tx) those
        of contexts and weights.
        """
        self.cells.start_backward()
        if self.attention is not None:
            self.attention.start_backward()
            if d_contexts is None:
                self.attention.d_contexts.zero_()
            else:
                self.attention.d_contexts.copy_(d_contexts)
        d_state = torch.zeros_like(self.cells.states[0])
        if d_rows is not None:
            d_state += d_rows[-1]
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
        if self.attention is not None:
            newest = step - self._update_first
            context = self._previous_context if newest < 0 else self.attention.contexts[newest]
            if context is None:
                raise ValueError("an update needs the context of the step before")
            if self._context_weight is None:
                inputs = inputs + context[:, : inputs.shape[-1]]
            else:
                inputs = product(context, self._context_weight, inputs)
        self.cells.forward(update, inputs)

    def _attend_backward(self, step: int, d_state: Tensor, d_weights: Tensor | None) -> None:
        if self.attention is not None:
            d_state += self.attention.backward(step, None if d_weights is None else d_weights[step])

    def _update_backward(self, step: int, d_state: Tensor, d_rows: Tensor | None) -> None:
        update = step - self._offset
        if update < 0:
            return
        self.cells.backward(update, d_state)
        if self.attention is not None and self._context_weight is not None:
            d_context = self.attention.d_contexts[step - self._update_first]
            add_product(d_context, self.cells.d_inputs[update], self._context_weight)
        if d_rows is not None:
            d_state += d_rows[update]


class _Pass(torch.autograd.Function):
    """A complete pass as one node of the autograd graph; the tensors are those of `step`, passed again for autograd.

    Forward gives the states (U + 1, *D, B, n), the first one included, in the dtype of the products; with attention
    also the contexts (T, B, D) and the weights (T, B, Tx), which are float32.
    """

    @staticmethod
    def forward(ctx: Any, step: DecoderStep, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        ctx.step = step
        step.run()
        attention = step.attention
        results = [step.cells.rows] + ([] if attention is None else [attention.contexts, attention.weights])
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
            return of_cell
        rows = cells.rows[: step.steps]  # the states that attended
        d_context_weight = over_steps(cells.d_inputs, attention.contexts[: cells.steps])
        return *of_cell, d_context_weight, attention.d_keys(rows), attention.d_values(), *attention.d_parameters(rows)


def unroll(cell: GatedCell, inputs: Tensor, initial: Tensor, skip: Tensor | None = None) -> Tensor:
    """The states (U + 1, *D, B, n) of a cell without attention, with a gradient.

    inputs (U, *D, B, 3n), initial (*D, B, n); skip (U, *D, B, 1) is True where a step leaves the state as it was, None
    = nowhere.
    """
    recurrent, differentiate = cell.recurrent(inputs.dtype), torch.is_grad_enabled()
    with torch.no_grad():
        cells = _cell_pass(cell, initial.device)(initial, *recurrent, skip, len(inputs), differentiate)
    step = DecoderStep(cells, None, inputs, None, False, None, len(inputs))
    (states,) = apply(_Pass, step, inputs, initial, *recurrent)
    return states  # type: ignore[no-any-return]


class Decoder(Initialised):
    """The decoder's parameters: its cell, its alignment model, and its first state (appendix A.2.2)."""

    roles: ClassVar[Mapping[str, Role]] = {"initial_weight": Role.MATRIX, "initial_bias": Role.BIAS}

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        self.update_first = config.order == "look-generate-update"
        self._reversed = config.reverse_source
        attends = config.attention != "none"
        self.initial_weight = nn.Parameter(torch.empty(config.hidden, config.hidden if attends else annotation_size))
        self.initial_bias = nn.Parameter(torch.zeros(config.hidden))
        self.cell = CELLS[config.cell](config.embedding, config.hidden, context_size=annotation_size)
        self.attention: Attention | None = SCORES[config.attention](config, annotation_size) if attends else None
        covers = config.coverage == "linguistic"
        self.coverage = Coverage(annotation_size, config.attention_hidden) if covers else None

    def remember(self, annotations: Tensor, mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, D): keys and the first state, or the fixed context.

        The last state of each direction has read the complete sentence. It is at `</s>` for the forward net and at the
        first word for the backward net, and for a single direction that reads the source reversed.
        """
        size = len(self.initial_bias)
        last = mask.sum(1) - 1
        ends = [annotations[:, 0, -size:]]
        if not self._reversed:
            ends.insert(0, annotations[torch.arange(len(last), device=last.device), last, :size])
        if annotations.shape[-1] == size:
            ends = ends[:1]
        if self.attention is None:
            context = torch.cat(ends, -1) if len(ends) > 1 else ends[0]
            return Memory(context, None, padding, self._initial_state(context))
        shares = None if self.coverage is None else self.coverage.shares(annotations)
        return Memory(annotations, self.attention.keys(annotations), padding, self._initial_state(ends[-1]), shares)

    def _initial_state(self, summary: Tensor) -> Tensor:
        """s_0 = tanh(W_s backward_1 + b_s), (B, n), in float32 even beside bf16."""
        weight, bias = self.initial_weight.to(summary.dtype), self.initial_bias.to(summary.dtype)
        return F.linear(summary, weight, bias).to(wide(summary.dtype)).tanh()

    def unroll(self, memory: Memory, words: Tensor, kept_bytes: int = KEPT_BYTES) -> DecoderPass:
        """All steps along given previous words (Ty, B, m), the first one's vector 0, with a gradient."""
        length, dtype = len(words), words.dtype
        inputs = self.cell.inputs(words[1:] if self.update_first else words)
        if self.attention is None or self.cell.context_weight is None:
            states = unroll(self.cell, inputs + self.cell.context_inputs(memory.values), memory.initial)
            contexts, weights = memory.values.expand(length, -1, -1), None
        else:
            recurrent, context_weight = self.cell.recurrent(dtype), self.cell.context_weight.to(dtype)
            parameters = self._attention_parameters(memory, dtype)
            rows, differentiate = len(memory.initial), torch.is_grad_enabled()
            with torch.no_grad():
                pass_class = _cell_pass(self.cell, words.device)
                cells = pass_class(memory.initial, *recurrent, None, len(inputs), differentiate)
                arguments = AttentionInputs(memory, parameters, rows, length, differentiate, None, kept_bytes)
                attention = self._begin_attention(arguments)
            step = DecoderStep(cells, attention, inputs, context_weight, self.update_first, None, length)
            tensors = (inputs, memory.initial, *recurrent, context_weight, memory.keys, memory.values, *parameters)
            states, contexts, weights = apply(_Pass, step, *tensors)
        states = states[:length] if self.update_first else states[1:]
        return DecoderPass(memory, words, states, contexts, weights)

    def step(self, memory: Memory, state: DecoderState, word_inputs: Tensor, first: bool) -> DecoderStep:
        """One step of search for N rows over a folded memory, without a gradient; word_inputs (N, 3n).

        The rows of one sentence are adjacent. At the `first` step of a sentence the order look-generate-update has no
        update, and does not use the word.
        """
        rows, dtype = len(state.hidden), word_inputs.dtype
        attention = None
        if self.attention is None:
            fixed = memory.values[:, : word_inputs.shape[-1]]
            word_inputs = word_inputs + fixed.repeat_interleave(rows // len(fixed), 0)
        else:
            parameters = self._attention_parameters(memory, dtype)
            attention = self._begin_attention(AttentionInputs(memory, parameters, rows, coverage=state.coverage))
        updates = 0 if first and self.update_first else 1
        cells = _cell_pass(self.cell, word_inputs.device)(
            state.hidden, *self.cell.recurrent(dtype), None, updates, differentiate=False
        )
        step = DecoderStep(cells, attention, word_inputs[None], None, self.update_first, state.context, 1)
        step.run()
        return step

    def states_given(self, run: DecoderPass, contexts: Tensor) -> Tensor:
        """The states (Ty, B, n) from which words are generated, as a function of the contexts (Ty, B, D) of the steps.

        In the order look-generate-update they do not depend on them. In the other order the update comes between: one
        step of the cell, for all steps of the pass at once.
        """
        if self.update_first:
            return run.states
        initial = run.memory.initial
        before = torch.cat([initial[None], run.states[:-1].to(initial.dtype)])
        inputs = self.cell.inputs(run.words) + self.cell.context_inputs(contexts)
        return unroll(self.cell, inputs.flatten(0, 1)[None], before.flatten(0, 1))[1].view_as(run.states)

    @torch.no_grad()
    def energies(self, run: DecoderPass) -> Tensor:
        """The energies (Ty, B, Tx) whose softmax are the weights of a pass, padding included, without a gradient."""
        initial, dtype = run.memory.initial, run.words.dtype
        states = run.states if self.update_first else torch.cat([initial[None].to(dtype), run.states[:-1]])
        inputs = AttentionInputs(run.memory, self._attention_parameters(run.memory, dtype), len(initial), len(states))
        attention = self._begin_attention(inputs)
        if attention is None:
            raise ValueError("a model without attention has no energies")
        energies = []
        for step, state in enumerate(states):
            energies.append(attention.energies(step, state)[:, 0])
            attention.forward(step, state)  # the coverage that the next energies need
        return torch.stack(energies)

    def _attention_parameters(self, memory: Memory, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The parameters of attention steps over a memory, in a dtype."""
        parameters = () if self.attention is None else self.attention.parameters_in(dtype)
        if self.coverage is None or memory.shares is None:
            return parameters
        return *parameters, self.coverage.vector(dtype), memory.shares

    def _begin_attention(self, inputs: AttentionInputs) -> AttentionPass | None:
        if self.coverage is not None:
            return CoverageAttentionPass(inputs)
        if self.attention is None:
            return None
        pass_class = self.attention.pass_class
        one_row = inputs.rows == len(inputs.memory.values)  # the kernels compute one row per sentence
        if pass_class is AdditiveAttentionPass and one_row and not missing(inputs.memory.values.device):
            from nmtalign.core.gpu.fused_attention import FusedAttentionPass

            pass_class = FusedAttentionPass
        return pass_class(inputs)


def _cell_pass(cell: GatedCell, device: torch.device) -> type[CellPass]:
    """The class of a pass of a cell: fused kernels on a GPU that runs them, else PyTorch's operations."""
    if missing(device):
        return cell.pass_class
    from nmtalign.core.gpu.fused_cells import FUSED_PASSES

    return FUSED_PASSES.get(cell.pass_class, cell.pass_class)
