"""The decoder runs along the target words and attends to the source (section 3.1, appendix A.2.2).

One step is one of three functions, after the order of its operations: look-generate-update, look-update-generate and
update-look-generate. RNNsearch has one layer. In the stacks of Luong et al. (2015) the last layer attends; in that of
Wu et al. (2016) the first one does, and the layers above it receive the context beside the output of the layer below.
Layers that do not attend are plain recurrences (`Stack`). With input feeding all layers run together, step by step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.attention import (
    AdditiveAttention,
    AdditivePass,
    Attention,
    FusedAdditivePass,
    Look,
    Memory,
    make_attention,
    select_rows,
)
from nmtalign.core.cells import CELLS, FAST_PASSES, CellPass, GatedCell, Weight, unroll
from nmtalign.core.numerics import (
    Initialised,
    Role,
    add_product,
    check_wanted,
    over_steps,
    product,
    shared,
    take_once,
    wide,
)
from nmtalign.settings.training_settings import ModelConfig, Order


@dataclass(frozen=True)
class DecoderState:
    """The results of a step that the next step needs, for N rows such as the hypotheses of a search."""

    hidden: Tensor  # (N, S) of one layer, (N, L S) of a stack of layers; float32 even beside bf16 products
    context: Tensor | None = None  # (N, V), what the next update gets of the last step; None at the start, or if none
    coverage: Tensor | None = None  # (N, Tx), how far each source word is translated; None at the start, or without it
    steps: int = 0  # the number of steps so far

    def __len__(self) -> int:
        return len(self.hidden)

    def select(self, rows: Tensor) -> "DecoderState":
        """The states of some rows (indices), in their order."""
        return select_rows(self, rows)


class StepOutput(NamedTuple):
    """The inputs of the readout after one step for N rows, or after T steps along given targets (T, N, .)."""

    states: Tensor  # (N, n)
    contexts: Tensor  # (N, D)
    weights: Tensor | None  # (N, Tx)


@dataclass(frozen=True)
class DecoderOutput:
    """The inputs of the readout at all steps along given targets, and the inputs of the decoder."""

    memory: Memory
    words: Tensor  # (Ty, B, m), the vectors of the previous words; zero at the first step
    states: Tensor  # (Ty, B, n)
    contexts: Tensor  # (Ty, B, D)
    weights: Tensor | None  # (Ty, B, Tx)


class Decoder(Initialised, ABC):
    """Runs along the target words and attends to the source."""

    has_posterior = False  # whether there are posteriors of the weights (`TranslationModel.force_posterior`)

    @abstractmethod
    def remember(self, annotations: Tensor, finals: Sequence[Tensor], mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of the results of an encoder for B sentences; mask (B, Tx) is True at real tokens."""

    @abstractmethod
    def unroll(self, memory: Memory, words: Tensor) -> StepOutput:
        """All steps along given previous words (Ty, B, m), the first one's vector 0, with a gradient."""

    @abstractmethod
    def start(self, memory: Memory) -> DecoderState:
        """The state of one row per sentence."""

    @abstractmethod
    def step(self, memory: Memory, state: DecoderState, words: Tensor) -> tuple[DecoderState, StepOutput]:
        """One step of search from the previous words (N, m), which are 0 at the first step; without a gradient.

        The rows of one sentence are adjacent. N is a multiple of the number of sentences.
        """


# Adds the product of the last context (N, V) to the inputs (N, blocks * n) of the cell: `GatedCell.add_context`, or
# for search a sum with a product that was computed beforehand.
AddContext = Callable[[Tensor, Tensor], Tensor]


class AttendingLayer(NamedTuple):
    """The parts of a step of the layer that attends."""

    cell: GatedCell
    recurrent: tuple[Weight, ...]  # the weights of `GatedCell.recurrent`
    attention: Callable[[Memory, Tensor, Tensor | None, int], Look]
    add_context: AddContext
    dtype: torch.dtype  # of the products

    def update(self, inputs: Tensor, context: Tensor | None, hidden: Tensor) -> Tensor:
        """The next state (N, S) from the inputs of the word, the context and the state before."""
        inputs = inputs if context is None else self.add_context(inputs, context)
        return self.cell.step(inputs, hidden, *self.recurrent)

    def output(self, hidden: Tensor) -> Tensor:
        """The output (N, n) of a state (N, S), in the dtype of the products."""
        return hidden[..., : self.cell.size].to(self.dtype)

    def look(self, memory: Memory, hidden: Tensor, before: DecoderState) -> Look:
        """The attention step from a state (N, S)."""
        return self.attention(memory, self.output(hidden), before.coverage, before.steps)


def look_generate_update(
    layer: AttendingLayer, memory: Memory, before: DecoderState, inputs: Tensor
) -> tuple[DecoderState, StepOutput]:
    """The order of the released code: y_i depends on s_{i-1}, y_{i-1} and c_i; then s_i = f(s_{i-1}, y_i, c_i).

    The update comes first in the next step: a step updates the state with the previous word and the previous context,
    then attends. The first step has no update, because there is no previous word.
    """
    hidden = layer.update(inputs, before.context, before.hidden) if before.steps else before.hidden
    context, weights, coverage = layer.look(memory, hidden, before)
    after = DecoderState(hidden, context, coverage, before.steps + 1)
    return after, StepOutput(layer.output(hidden), context, weights)


def look_update_generate(
    layer: AttendingLayer, memory: Memory, before: DecoderState, inputs: Tensor
) -> tuple[DecoderState, StepOutput]:
    """The order of the main text (equation 4): s_i = f(s_{i-1}, y_{i-1}, c_i), where c_i depends on s_{i-1}.

    A step attends with the old state, then updates it with the previous word and the new context.
    """
    context, weights, coverage = layer.look(memory, before.hidden, before)
    hidden = layer.update(inputs, context, before.hidden)
    after = DecoderState(hidden, None, coverage, before.steps + 1)
    return after, StepOutput(layer.output(hidden), context, weights)


def update_look_generate(
    layer: AttendingLayer, memory: Memory, before: DecoderState, inputs: Tensor
) -> tuple[DecoderState, StepOutput]:
    """The order of Luong et al. (2015): as the first order, with an update at the first step, too.

    The first step gets the word 0, and no context unless the context is fixed.
    """
    hidden = layer.update(inputs, before.context, before.hidden)
    context, weights, coverage = layer.look(memory, hidden, before)
    after = DecoderState(hidden, context, coverage, before.steps + 1)
    return after, StepOutput(layer.output(hidden), context, weights)


ORDERS: Mapping[Order, Callable[[AttendingLayer, Memory, DecoderState, Tensor], tuple[DecoderState, StepOutput]]] = {
    "look-generate-update": look_generate_update,
    "look-update-generate": look_update_generate,
    "update-look-generate": update_look_generate,
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

    def forward(
        self, x: Tensor, initial: Sequence[Tensor], skip: Tensor | None = None, context: Tensor | None = None
    ) -> tuple[Tensor, list[Tensor]]:
        """(outputs (U, *D, B, n) of the last layer, the last state (*D, B, S) of each) for x (U, *D, B, .).

        With a context (U, *D, B, D), each layer receives it beside the outputs of the layer below.
        """
        lasts = []
        for number, (cell, state) in enumerate(zip(self.cells, initial, strict=True), self._first):
            received = x if context is None else torch.cat([x, context], -1)
            received = F.dropout(received, self._dropout, self.training) if number else received
            outputs, last = unroll(cast(GatedCell, cell), cast(GatedCell, cell).inputs(received), state, skip)
            x = outputs + x if self._residual and number > 1 else outputs
            lasts.append(last)
        return x, lasts


class RecurrentDecoder(Decoder):
    """The decoder's parameters: its cells, its alignment model, and its first state (appendix A.2.2).

    `cell` belongs to the layer that attends, or that receives the fixed context. The first state of RNNsearch is made
    from the annotations; in the order update-look-generate each layer begins with the encoder's last state.
    """

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        # The function of one step of the attending layer.
        self.order, self._reversed = ORDERS[config.order], config.reverse_source
        self._fast = (  # whether `_Decode` computes what this decoder does
            (config.cell in ("paper", "cudnn") and config.order == "look-generate-update")
            and config.attention in ("additive", "concat")
            and (config.attention_span, config.coverage, config.input_feeding) == ("global", "none", "context")
            and config.readout != "attentional"
        )
        size, attends, own_start = config.hidden, config.attention != "none", config.order != "update-look-generate"
        below = 0 if config.attention_layer == "first" else config.layers - 1
        input_sizes = [config.embedding, *[size] * below]  # of the layers up to the one that attends
        fed = {"context": annotation_size, "attentional": size, "none": 0}[config.input_feeding]
        feeds_below = below > 0 and config.input_feeding == "attentional"
        self.lower = Stack(config, input_sizes[:-1], 0, fed=fed if feeds_below else 0)
        self.cell = CELLS[config.cell](input_sizes[-1], size, 0 if feeds_below else fed)
        self.upper = Stack(config, [size + annotation_size] * (config.layers - 1 - below), below + 1)
        self.attention = make_attention(config, annotation_size)
        summary_size = size if attends else annotation_size  # of what `remember` makes the first state from
        self.initial_weight = Role.MATRIX.parameter(self.cell.state_size, summary_size) if own_start else None
        self.initial_bias = Role.BIAS.parameter(self.cell.state_size) if own_start else None
        # W_c of Luong et al.'s equation 5: tanh(W_c [context; state])
        luong = config.readout == "attentional"
        self.attentional_weight = Role.MATRIX.parameter(size, annotation_size + size) if luong else None
        self._dropout, self._residual = config.dropout if below else 0.0, config.residual
        self._skips = config.residual and below > 1  # whether a residual connection skips the attending layer
        # Whether it is a decoder of the paper: one layer, a first state that it computes, contexts fed to the cell.
        # The products of its contexts can be computed once per sentence (`Inference`).
        self.is_papers = own_start and self.cell.context_weight is not None
        # Words must depend on the context in the way in which `states_given` and the readout compute it.
        by_state = config.readout == "direct" and config.order == "look-update-generate"
        reads_context = config.readout == "maxout" or by_state
        self.has_posterior = attends and self.is_papers and self.cell.state_parts == 1 and reads_context

    def remember(self, annotations: Tensor, finals: Sequence[Tensor], mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, D): keys and the first state, or the fixed context.

        The last state of each direction has read the complete sentence. It is at `</s>` for the forward net and at the
        first word for the backward net, and for a single direction that reads the source reversed.
        """
        size, attention = self.cell.size, self.attention
        summary, has_backward = annotations[:, 0, -size:], annotations.shape[-1] > size
        if not (self._reversed or (has_backward and isinstance(attention, Attention))):
            last = mask.sum(1) - 1
            forward = annotations[torch.arange(len(last), device=last.device), last, :size]
            summary = torch.cat([forward, summary], -1) if has_backward else forward
        if self.initial_weight is None or self.initial_bias is None:
            initial = torch.cat(tuple(finals), -1)  # (B, L S), the encoder's last states
        else:  # s_0 = tanh(W_s backward_1 + b_s), (B, n); wide beside bf16 too
            initial = F.linear(summary, self.initial_weight, self.initial_bias.to(summary.dtype))
            initial = initial.to(wide(summary.dtype)).tanh()
        if not isinstance(attention, Attention):
            return Memory(summary, None, padding, initial)
        fertilities = attention.fertilities(annotations)
        return Memory(annotations, attention.keys(annotations), padding, initial, fertilities)

    def start(self, memory: Memory) -> DecoderState:
        """The state of one row per sentence; a fixed context is known from the start."""
        return DecoderState(memory.initial, memory.values if memory.keys is None else None)

    def unroll(self, memory: Memory, words: Tensor) -> StepOutput:
        if self._fast:
            attention, context_weight = cast(AdditiveAttention, self.attention), cast(Tensor, self.cell.context_weight)
            constants = FAST_PASSES[type(self.cell)], memory.padding, torch.is_grad_enabled()
            attended = memory.keys, memory.values, attention.query_weight, attention.vector
            # The first step has no update, and so no inputs.
            tensors = self.cell.inputs(words[1:]), memory.initial, context_weight, *attended, *self.cell.recurrent()
            return StepOutput(*_Decode.apply(*constants, *tensors))
        return self.run(memory, self.start(memory), words)[1]

    def step(self, memory: Memory, state: DecoderState, words: Tensor) -> tuple[DecoderState, StepOutput]:
        state, (states, contexts, weights) = self.run(memory, state, words[None])
        return state, StepOutput(states[0], contexts[0], None if weights is None else weights[0])

    def run(self, memory: Memory, state: DecoderState, words: Tensor) -> tuple[DecoderState, StepOutput]:
        """T steps from a state along previous words (T, N, m): (the last state, the results (T, N, .) of all steps)."""
        layers, below = state.hidden.split(self.cell.state_size, -1), len(self.lower.cells)
        x, lower = self.lower(words, layers[:below])
        dropped = F.dropout(x, self._dropout, self.training)
        layer, outputs = self.attending_layer(words.dtype), list[StepOutput]()
        last = replace(state, hidden=layers[below])
        for inputs in self.cell.inputs(dropped):
            check_wanted()
            last, output = self.order(layer, memory, last, inputs)
            outputs.append(output)
        rows, contexts, weights = stack_steps(outputs)
        states, upper = self.upper(rows + x if self._skips else rows, layers[below + 1 :], None, contexts)
        if self.attentional_weight is not None:  # Luong et al.'s attentional vectors (equation 5)
            states = F.linear(torch.cat([contexts, states], -1), self.attentional_weight).tanh()
        last = replace(last, hidden=torch.cat([*lower, last.hidden, *upper], -1))
        return last, StepOutput(states, contexts, weights)

    def attending_layer(self, dtype: torch.dtype, add_context: AddContext | None = None) -> AttendingLayer:
        """The parts of a step, with products in `dtype`."""
        recurrent = self.cell.shared_recurrent()
        return AttendingLayer(self.cell, recurrent, self.attention.look, add_context or self.cell.add_context, dtype)

    def states_given(self, run: DecoderOutput, contexts: Tensor) -> Tensor:
        """The states (Ty, B, n) from which words are generated, as a function of the contexts (Ty, B, D) of the steps.

        In the order look-generate-update they do not depend on them. In the other order the update comes between: one
        step of the cell, for all steps of the pass at once.
        """
        if self.order is look_generate_update:
            return run.states
        initial = run.memory.initial
        before = torch.cat([initial[None], run.states[:-1].to(initial.dtype)]).flatten(0, 1)
        inputs = self.cell.add_context(self.cell.inputs(run.words).flatten(0, 1), contexts.flatten(0, 1))
        return self.cell.step(inputs, before, *self.cell.recurrent()).view_as(run.states).to(run.states.dtype)


class InputFeedingDecoder(RecurrentDecoder):
    """A decoder with input feeding (Luong et al. 2015, section 3.3), whose last layer attends.

    The first layer gets the attentional vector of the step before beside the word: vector_t = tanh(W_c [context_t;
    state_t]). So the recurrence runs through all layers and the attention.
    """

    def run(self, memory: Memory, state: DecoderState, words: Tensor) -> tuple[DecoderState, StepOutput]:
        """See `RecurrentDecoder.run`; the context of a state is the vector of the step before."""
        cells = [cast(GatedCell, cell) for cell in (*self.lower.cells, self.cell)]
        dropout, size = self._dropout if self.training else 0.0, self.cell.size
        masks = [F.dropout(words.new_ones(*words.shape[:2], size), dropout) if dropout else None for _ in cells[1:]]
        recurrent = [cell.shared_recurrent() for cell in cells]
        # Those of the vector in the first layer, and of the layer below in the others; the biases of the others; W_c.
        received = [shared(cast(Tensor, cells[0].context_weight)), *(shared(cell.input_weight) for cell in cells[1:])]
        biases = [cell.input_bias().to(words.dtype) for cell in cells[1:]]
        vector_weight = shared(cast(Tensor, self.attentional_weight))
        outputs = list[StepOutput]()
        for step, inputs in enumerate(cells[0].inputs(words)):
            check_wanted()
            states, x = list[Tensor](), torch.empty(0)
            layers = zip(cells, state.hidden.split(self.cell.state_size, -1), strict=True)
            for number, (cell, before) in enumerate(layers):
                if number:
                    mask = masks[number - 1]
                    inputs = product(x if mask is None else x * mask[step], received[number]) + biases[number - 1]
                elif state.context is not None:
                    inputs = product(state.context, received[0], inputs)
                states.append(cell.step(inputs, before, *recurrent[number]))
                output = states[-1][:, :size].to(words.dtype)
                x = output + x if self._residual and number > 1 else output
            context, attended, coverage = self.attention.look(memory, output, state.coverage, state.steps)
            vector = product(torch.cat([context, x], -1), vector_weight).tanh()
            state = DecoderState(torch.cat(states, -1), vector, coverage, state.steps + 1)
            outputs.append(StepOutput(vector, context, attended))
        return state, stack_steps(outputs)


def stack_steps(outputs: Sequence[StepOutput]) -> StepOutput:
    """The results (T, N, .) of T steps."""
    states, contexts, weights = zip(*outputs, strict=True)
    return StepOutput(torch.stack(states), torch.stack(contexts), None if weights[0] is None else torch.stack(weights))


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
    ) -> tuple[Tensor, ...]:
        ctx.set_materialize_grads(False)
        steps, ctx.context_weight = len(inputs) + 1, context_weight
        cells = ctx.cells = pass_class(initial, weights, len(inputs), differentiate)
        attends = FusedAdditivePass if keys.is_cuda else AdditivePass
        attention = ctx.attention = attends(keys, values, padding, query_weight, vector, steps, differentiate)
        for step in range(steps):
            check_wanted()
            if step:
                cells.forward(step - 1, product(attention.contexts[step - 1], context_weight, inputs[step - 1]))
            attention.forward(step, cells.rows[step])
        return tuple(each.view_as(each) for each in (cells.rows.all, attention.contexts, attention.weights))

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
        d_state, parts = torch.zeros_like(cells.states[0]), list[Tensor]()
        for step in reversed(range(cells.steps + 1)):
            if d_rows is not None:
                parts.append(d_rows[step])
            parts.append(attention.backward(step, None if d_weights is None else d_weights[step]))
            if step:
                parts = cells.backward(step - 1, d_state, parts)
                # Contexts have the dtype of the weight, so nothing is left to add.
                add_product(attention.d_contexts[step - 1], cells.d_inputs[step - 1], ctx.context_weight)
        d_state = sum(parts, d_state)
        d_context_weight = over_steps(cells.d_inputs.all, attention.contexts[:-1])
        of_attention = attention.gradients(cells.rows.all)
        return None, None, None, cells.d_inputs.all, d_state, d_context_weight, *of_attention, *cells.d_weights()
