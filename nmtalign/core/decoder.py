"""The decoder: attend, update, in either order (PAPER section 2); one `step` serves training, search and forcing."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.attention import AdditiveAttention
from nmtalign.core.cells import CellWeights, make_cell
from nmtalign.core.recurrence import AttentionReader, StepWeight


@dataclass(frozen=True)
class Memory:
    """What the decoder reads of B encoded sentences."""

    annotations: Tensor  # (B, Tx, 2n)
    mask: Tensor  # (B, Tx), True = a real token
    keys: Tensor | None  # (B, Tx, n'), U_a annotations; None without attention
    context: Tensor | None  # (B, c), the fixed context of a model without attention
    summary: Tensor  # (B, n) or (B, c), what the first decoder state is made of

    def select(self, sentences: Tensor) -> "Memory":
        """The memory of the sentences (indices) alone."""
        return Memory(
            self.annotations[sentences],
            self.mask[sentences],
            None if self.keys is None else self.keys[sentences],
            None if self.context is None else self.context[sentences],
            self.summary[sentences],
        )


@dataclass(frozen=True)
class DecoderState:
    """The state of R rows: hidden (R, n), in float32 even where the weights are bf16, and the last context (R, c)."""

    hidden: Tensor
    context: Tensor | None  # None before the first step

    def select(self, rows: Tensor) -> "DecoderState":
        """The rows (indices) alone, in their order."""
        return DecoderState(self.hidden[rows], None if self.context is None else self.context[rows])


@dataclass(frozen=True)
class Pass:
    """The decoder's weights and the source, taken up for the steps of one pass."""

    cell: CellWeights
    query: StepWeight | None
    context_weight: StepWeight | None  # None where the context is fixed
    reader: AttentionReader | None
    fixed: Tensor | None  # (B, c), the fixed context
    fixed_inputs: Tensor | None  # (B, 3n), what the cell takes from it


class Decoder(nn.Module):
    """A gated recurrent net that looks at the source once a step, or, without attention, has one fixed context."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        self.update_first = config.order == "look-generate-update"
        attends = config.attention == "additive"
        summary_size = config.hidden if attends else annotation_size
        self.initial_weight = nn.Parameter(torch.empty(config.hidden, summary_size))  # W_s
        self.initial_bias = nn.Parameter(torch.zeros(config.hidden))
        self.cell = make_cell(config.cell, config.embedding, config.hidden, context_size=annotation_size)
        self.attention = AdditiveAttention(config.hidden, annotation_size, config.attention_hidden) if attends else None

    def remember(self, annotations: Tensor, mask: Tensor) -> Memory:
        """The memory of annotations (B, Tx, D): keys and the backward state at the first word, or the fixed context."""
        size = len(self.initial_bias)
        last = mask.sum(1) - 1
        final = annotations[torch.arange(len(last), device=last.device), last, :size]
        two_ways = annotations.shape[-1] > size
        backward_first = annotations[:, 0, size:]
        if self.attention is not None:
            summary = backward_first if two_ways else final
            return Memory(annotations, mask, self.attention.keys(annotations), None, summary)
        context = torch.cat([final, backward_first], -1) if two_ways else final
        return Memory(annotations, mask, None, context, context)

    def initial_state(self, memory: Memory, rows: int = 1) -> DecoderState:
        """s_0 = tanh(W_s backward_1 + b_s) for `rows` adjacent rows a sentence."""
        dtype = memory.summary.dtype
        hidden = F.linear(memory.summary, self.initial_weight.to(dtype), self.initial_bias.to(dtype))
        wide = hidden.to(torch.promote_types(dtype, torch.float32)).tanh()
        return DecoderState(wide.repeat_interleave(rows, 0) if rows > 1 else wide, None)

    def start(self, memory: Memory) -> Pass:
        """Takes weights and source up for the steps of one pass."""
        dtype = memory.annotations.dtype
        cell = self.cell.start(dtype)
        context_weight = self.cell.context_weight
        if context_weight is None:
            raise ValueError("the decoder's cell has no context")
        if self.attention is None or memory.keys is None:
            fixed = memory.context
            fixed_inputs = None if fixed is None else F.linear(fixed, context_weight.to(dtype))
            return Pass(cell, None, None, None, fixed, fixed_inputs)
        padding = None if bool(memory.mask.all()) else ~memory.mask
        reader = AttentionReader(memory.keys, memory.annotations, self.attention.vector.to(dtype), padding)
        query = StepWeight(self.attention.query_weight, dtype)
        return Pass(cell, query, StepWeight(context_weight, dtype), reader, None, None)

    def step(self, taken: Pass, state: DecoderState, inputs: Tensor | None) -> tuple[DecoderState, Tensor | None]:
        """One step: from the state and the cell inputs (rows, 3n) of the previous word to (state, weights (rows, Tx)).

        The new state's `hidden` and `context` are what the readout reads. `inputs` is None at the first step of
        "look-generate-update", where no word has been generated that the state could take up.
        """
        if self.update_first:
            hidden = state.hidden if inputs is None else self._update(taken, state, inputs)
            context, weights = self._look(taken, hidden)
            return DecoderState(hidden, context), weights
        context, weights = self._look(taken, state.hidden)
        looked = DecoderState(state.hidden, context)
        if inputs is None:
            raise ValueError("look-update-generate needs the cell inputs of the first step too")
        return DecoderState(self._update(taken, looked, inputs), context), weights

    def _update(self, taken: Pass, state: DecoderState, inputs: Tensor) -> Tensor:
        if taken.context_weight is not None and state.context is not None:
            inputs = taken.context_weight(state.context, inputs)
        elif taken.fixed_inputs is not None:
            inputs = inputs + _spread(taken.fixed_inputs, len(inputs))
        return self.cell.update(taken.cell, inputs, state.hidden)

    def _look(self, taken: Pass, hidden: Tensor) -> tuple[Tensor, Tensor | None]:
        if taken.reader is not None and taken.query is not None:
            return taken.reader(taken.query(hidden))
        if taken.fixed is None:
            raise ValueError("this memory holds neither keys nor a fixed context")
        return _spread(taken.fixed, len(hidden)), None


def _spread(sentences: Tensor, rows: int) -> Tensor:
    """One row a sentence to adjacent rows of it."""
    return sentences if len(sentences) == rows else sentences.repeat_interleave(rows // len(sentences), 0)
