"""The decoder's parameters, its passes in training and its steps in search (appendix A.2.2).

A decoder is a stack of layers, of which one attends to the source. RNNsearch has one layer. In the stacks of Luong et
al. (2015) the last layer attends; in that of Wu et al. (2016) the first one does, and the layers above it receive the
context beside the output of the layer below. Layers that do not attend are plain recurrences (`unroll`). With input
feeding, all layers run together, step by step (`luong`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import (
    KEPT_BYTES,
    AdditiveAttention,
    AdditiveAttentionPass,
    Attention,
    AttentionInputs,
    AttentionPass,
    Encoded,
    Memory,
)
from nmtalign.core.attention_variants import (
    LOCAL_PASSES,
    Coverage,
    CoverageAttentionPass,
    DotAttention,
    GeneralAttention,
    PositionPredictor,
)
from nmtalign.core.cell_variants import CELLS, Stack
from nmtalign.core.functional import wide
from nmtalign.core.gpu import missing
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.core.luong import InputFeedingStep
from nmtalign.core.step import Advance, Decoder, DecoderPass, DecoderState, DecoderStep, cell_pass, run, unroll
from nmtalign.settings.training_settings import ModelConfig

SCORES: Mapping[str, type[AdditiveAttention | DotAttention]] = {
    "additive": AdditiveAttention,
    "concat": AdditiveAttention,  # Luong et al.'s name for it
    "dot": DotAttention,
    "general": GeneralAttention,
}


class RecurrentDecoder(Initialised, Decoder):
    """The decoder's parameters: its cells, its alignment model, and its first state (appendix A.2.2).

    `cell` belongs to the layer that attends, or that receives the fixed context. The first state of RNNsearch is made
    from the annotations; in the order update-look-generate each layer begins with the encoder's last state.
    """

    roles: ClassVar[Mapping[str, Role]] = {
        "initial_weight": Role.MATRIX,
        "initial_bias": Role.BIAS,
        "attentional_weight": Role.MATRIX,
    }

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        self.update_first = config.order != "look-update-generate"
        self._first_update = config.order != "look-generate-update"  # whether the first step of a sentence has one
        self._reversed = config.reverse_source
        size, attends = config.hidden, config.attention != "none"
        state_size = CELLS[config.cell].state_parts * size
        if config.order == "update-look-generate":
            self.initial_weight, self.initial_bias = None, None
        else:
            self.initial_weight = nn.Parameter(torch.empty(state_size, size if attends else annotation_size))
            self.initial_bias = nn.Parameter(torch.zeros(state_size))
        below = 0 if config.attention_layer == "first" else config.layers - 1
        above = config.layers - 1 - below
        self.feeds_vectors = config.input_feeding == "attentional"
        fed = size if self.feeds_vectors else 0
        self.lower = Stack(config, [config.embedding, *[size] * (below - 1)][:below], 0, fed=fed)
        if config.input_feeding != "attentional" or below:
            fed = annotation_size if config.input_feeding == "context" else 0
        self.cell = CELLS[config.cell](size if below else config.embedding, size, context_size=fed)
        self.upper = Stack(config, [size + annotation_size] * above, below + 1)
        self.attention: Attention | None = SCORES[config.attention](config, annotation_size) if attends else None
        covers = config.coverage == "linguistic"
        self.coverage = Coverage(annotation_size, config.attention_hidden) if covers else None
        self.position = PositionPredictor(config) if config.attention_span == "local-p" else None
        self._span, self._window = config.attention_span, config.attention_window
        # W_c of Luong et al.'s equation 5: tanh(W_c [context; state])
        vector = config.readout == "attentional"
        self.attentional_weight = nn.Parameter(torch.empty(size, annotation_size + size)) if vector else None
        self._dropout = config.dropout if below else 0.0
        self._residual = config.residual
        self._skips = config.residual and below > 1  # whether a residual connection skips the attending layer

    @property
    def is_papers(self) -> bool:
        """Whether it is a decoder of the paper: one layer, a first state of its own, contexts that are fed to the cell.

        The products of its contexts can be computed once per sentence (`Inference`).
        """
        return self.initial_weight is not None and self.cell.context_weight is not None

    @property
    def has_posterior(self) -> bool:
        """Whether the states of a pass are known functions of its contexts (`states_given`)."""
        return self.attention is not None and self.is_papers and self.cell.state_parts == 1

    def remember(self, encoded: Encoded, mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, D): keys and the first state, or the fixed context.

        The last state of each direction has read the complete sentence. It is at `</s>` for the forward net and at the
        first word for the backward net, and for a single direction that reads the source reversed.
        """
        annotations, size = encoded.annotations, self.cell.size
        last = mask.sum(1) - 1
        ends = [annotations[:, 0, -size:]]
        if not self._reversed:
            ends.insert(0, annotations[torch.arange(len(last), device=last.device), last, :size])
        if annotations.shape[-1] == size:
            ends = ends[:1]
        if self.attention is None:
            context = torch.cat(ends, -1) if len(ends) > 1 else ends[0]
            return Memory(context, None, padding, self._initial_state(context, encoded))
        shares = None if self.coverage is None else self.coverage.shares(annotations)
        initial = self._initial_state(ends[-1], encoded)
        return Memory(annotations, self.attention.keys(annotations), padding, initial, shares)

    def _initial_state(self, summary: Tensor, encoded: Encoded) -> Tensor:
        """s_0 = tanh(W_s backward_1 + b_s), (B, n), or the encoder's last states (B, L S); wide beside bf16 too."""
        if self.initial_weight is None or self.initial_bias is None:
            return torch.cat(encoded.finals, -1)
        weight, bias = self.initial_weight.to(summary.dtype), self.initial_bias.to(summary.dtype)
        return F.linear(summary, weight, bias).to(wide(summary.dtype)).tanh()

    def _layers_of(self, state: Tensor) -> tuple[Sequence[Tensor], Tensor, Sequence[Tensor]]:
        """The states of the layers below, of the attending layer, and of those above, from (N, L S)."""
        states, below = state.split(self.cell.state_size, -1), len(self.lower.cells)
        return states[:below], states[below], states[below + 1 :]

    def unroll(self, memory: Memory, words: Tensor, kept_bytes: int = KEPT_BYTES) -> DecoderPass:
        """All steps along given previous words (Ty, B, m), the first one's vector 0, with a gradient."""
        length, dtype, differentiate = len(words), words.dtype, torch.is_grad_enabled()
        with torch.no_grad():
            attention = self._attend(memory, self.start(memory), words, differentiate, kept_bytes)
        attended = memory.keys, memory.values, *self._attention_parameters(memory, dtype)
        if self.feeds_vectors:
            fed = self._fed_step(memory.initial, words, attention, None)
            return DecoderPass(memory, words, *run(fed, *fed.tensors, *attended))
        below, initial, above = self._layers_of(memory.initial)
        x = self.lower(words, below)[0]
        dropped = F.dropout(x, self._dropout, self.training)
        inputs = self.cell.inputs(dropped if self._first_update else dropped[1:])
        if attention is None:
            fixed = 0 if self.cell.context_weight is None else self.cell.context_inputs(memory.values)
            rows, _ = unroll(self.cell, inputs + fixed, initial)
            contexts, weights = memory.values.expand(length, -1, -1), None
        else:
            recurrent, weight = self.cell.recurrent(dtype), self.cell.context_weight
            context_weight = None if weight is None else weight.to(dtype)
            with torch.no_grad():
                pass_class = cell_pass(self.cell, words.device)
                cells = pass_class(initial, *recurrent, None, len(inputs), differentiate)
            step = DecoderStep(cells, attention, inputs, context_weight, self.update_first, None, length)
            rows, _, contexts, weights = run(step, inputs, initial, *recurrent, context_weight, *attended)
        rows = rows[1:] if self._first_update else rows[:length]
        states, _ = self.upper(rows + x if self._skips else rows, above, None, contexts)
        return DecoderPass(memory, words, self._attentional(states, contexts), contexts, weights)

    def _attentional(self, states: Tensor, contexts: Tensor) -> Tensor:
        """Luong et al.'s attentional vectors, tanh(W_c [context; state]) (equation 5); else the states themselves."""
        if self.attentional_weight is None:
            return states
        return F.linear(torch.cat([contexts, states], -1), self.attentional_weight.to(states.dtype)).tanh()

    def start(self, memory: Memory) -> DecoderState:
        """The state of one row per sentence."""
        coverage = None if memory.shares is None else torch.zeros_like(memory.shares)
        position = memory.initial.new_zeros(len(memory.initial), dtype=torch.long) if self._span == "local-m" else None
        return DecoderState(memory.initial, None, coverage, position)

    def advance(self, memory: Memory, state: DecoderState, words: Tensor, first: bool) -> Advance:
        """One step of search from the previous words (N, m), which are 0 at the `first` step; without a gradient.

        The rows of one sentence are adjacent. N is a multiple of the number of sentences.
        """
        if self.feeds_vectors:
            return self._advance_fed(memory, state, words)
        rows = len(words)
        below, middle, above = self._layers_of(state.hidden)
        x, lower = self.lower(words[None], below)
        inputs = self.cell.inputs(x)
        if self.attention is None and self.cell.context_weight is not None:
            inputs = inputs + self._each(self.cell.context_inputs(memory.values), rows)
        step = self._step(memory, replace(state, hidden=middle), inputs, self.cell.context_weight, first)
        attention, hidden = step.attention, step.cells.rows[-1]
        contexts = self._each(memory.values, rows) if attention is None else attention.contexts[0]
        weights = None if attention is None else attention.weights[0]
        outputs, upper = self.upper(hidden + x if self._skips else hidden[None], above, None, contexts[None])
        hidden = self._attentional(outputs[0], contexts)
        fed = contexts if self.update_first and self.cell.context_weight is not None else None
        states = torch.cat([*lower, step.hidden, *upper], -1)
        return Advance(state.after(states, fed, attention), hidden, contexts, weights)

    def _advance_fed(self, memory: Memory, state: DecoderState, words: Tensor) -> Advance:
        """As `advance`, with input feeding."""
        step = self._fed_step(state.hidden, words[None], self._attend(memory, state, words[None]), state.context)
        step.run()
        states = torch.cat([cells.states[-1] for cells in step.layers], -1)
        vectors, contexts, weights = (result[0] for result in step.results())
        return Advance(state.after(states, vectors, step.attention), vectors, contexts, weights)

    def _fed_step(
        self, hidden: Tensor, words: Tensor, attention: AttentionPass | None, previous: Tensor | None
    ) -> InputFeedingStep:
        """Steps with input feeding from the states (N, L S) of all layers."""
        cells = [*self.lower.layers(), self.cell]
        initial = hidden.split(self.cell.state_size, -1)
        dropout = self._dropout if self.training else 0.0
        return InputFeedingStep(
            cells, initial, words, self.attentional_weight, attention, previous, self._residual, dropout
        )

    def folded_step(self, memory: Memory, state: DecoderState, word_inputs: Tensor, first: bool) -> DecoderStep:
        """One step of search over a folded memory (see `Inference`), for a paper's decoder; word_inputs (N, 3n)."""
        if self.attention is None:
            word_inputs = word_inputs + self._each(memory.values[:, : word_inputs.shape[-1]], len(word_inputs))
        return self._step(memory, state, word_inputs[None], None, first)

    def _step(
        self, memory: Memory, state: DecoderState, inputs: Tensor, context_weight: Tensor | None, first: bool
    ) -> DecoderStep:
        """One step of the attending layer; without a context weight the memory is folded, or nothing is fed.

        At the `first` step of a sentence the order look-generate-update has no update, and does not use the word.
        """
        attention = self._attend(memory, state, inputs)
        updates = 0 if first and not self._first_update else 1
        cells = cell_pass(self.cell, inputs.device)(
            state.hidden, *self.cell.recurrent(inputs.dtype), None, updates, differentiate=False
        )
        folded = context_weight is None and self.cell.context_weight is not None
        step = DecoderStep(cells, attention, inputs, context_weight, self.update_first, state.context, 1, folded)
        step.run()
        return step

    def _each(self, values: Tensor, rows: int) -> Tensor:
        """The values (B, .) of the sentence of each row: (N, .)."""
        return values.repeat_interleave(rows // len(values), 0)

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
        return unroll(self.cell, inputs.flatten(0, 1)[None], before.flatten(0, 1))[0][1].view_as(run.states)

    @torch.no_grad()
    def energies(self, run: DecoderPass) -> Tensor:
        """The energies (Ty, B, Tx) whose softmax are the weights of a pass, those of padding included.

        Raises ValueError unless it is a decoder of the paper with global attention.
        """
        initial, dtype = run.memory.initial[..., : self.cell.size], run.words.dtype
        states = run.states if self.update_first else torch.cat([initial[None].to(dtype), run.states[:-1]])
        attention = self._attend(run.memory, self.start(run.memory), states)
        if attention is None or not self.is_papers or self._span != "global":
            raise ValueError("only a decoder of the paper with global attention returns energies")
        energies = []
        for step, state in enumerate(states):
            energies.append(attention.energies(step, state)[:, 0])
            attention.forward(step, state)  # the next energies may depend on the coverage
        return torch.stack(energies)

    def _attention_parameters(self, memory: Memory, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The parameters of attention steps over a memory, in a dtype."""
        parameters = () if self.attention is None else self.attention.parameters_in(dtype)
        if self.position is not None:
            return *parameters, *self.position.parameters_in(dtype)
        if self.coverage is None or memory.shares is None:
            return parameters
        return *parameters, self.coverage.vector(dtype), memory.shares

    def _attend(
        self,
        memory: Memory,
        state: DecoderState,
        inputs: Tensor,
        differentiate: bool = False,
        kept_bytes: int = KEPT_BYTES,
    ) -> AttentionPass | None:
        """The attention steps beside inputs (T, N, .), from a state of N rows; None without attention."""
        if self.attention is None:
            return None
        steps, rows, _ = inputs.shape
        parameters = self._attention_parameters(memory, inputs.dtype)
        carried = state.coverage, state.position, self._window
        arguments = AttentionInputs(memory, parameters, rows, steps, differentiate, *carried, kept_bytes)
        if self.coverage is not None:
            return CoverageAttentionPass(arguments)
        pass_class = self.attention.pass_class
        one_row = rows == len(memory.values)  # the kernels compute one row per sentence
        if self._span != "global":
            pass_class = LOCAL_PASSES[pass_class]
        elif pass_class is AdditiveAttentionPass and one_row and not missing(memory.values.device):
            from nmtalign.core.gpu.fused_attention import FusedAttentionPass

            pass_class = FusedAttentionPass
        return pass_class(arguments)
