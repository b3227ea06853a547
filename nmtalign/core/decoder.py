"""The decoder along given words: attend, update, in either order (PAPER section 2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.coverage import Coverage, CoveredLooks
from nmtalign.core.elementwise import wide
from nmtalign.core.kinds import make_attention, make_cell
from nmtalign.core.recurrence import unroll, unroll_attending


@dataclass(frozen=True)
class Memory:
    """What the decoder reads of B encoded sentences."""

    annotations: Tensor  # (B, Tx, 2n)
    padding: Tensor | None  # (B, Tx), True = no token; None where there is no padding
    keys: Tensor | None  # (B, Tx, n'), U_a annotations (n with other scores); None without attention
    context: Tensor | None  # (B, c), the fixed context of a model without attention
    summary: Tensor  # (B, n) or (B, c), what the first decoder state is made of
    shares: Tensor | None = None  # (B, Tx), what a weight of 1 adds to a word's coverage; None without coverage


class Decoder(nn.Module):
    """A gated recurrent net that looks at the source once a step, or, without attention, has one fixed context."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        self.update_first = config.order == "look-generate-update"
        self._reversed = config.reverse_source
        summary_size = annotation_size if config.attention == "none" else config.hidden
        self.initial_weight = nn.Parameter(torch.empty(config.hidden, summary_size))  # W_s
        self.initial_bias = nn.Parameter(torch.zeros(config.hidden))
        self.cell = make_cell(config.cell, config.embedding, config.hidden, context_size=annotation_size)
        self.attention = make_attention(config, annotation_size)
        covers = config.coverage == "linguistic"
        self.coverage = Coverage(annotation_size, config.attention_hidden) if covers else None

    def remember(self, annotations: Tensor, mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, D): keys and the backward state at the first word, or the fixed context.

        Each direction's last state has read the whole sentence: the forward net's stands at `</s>`, the backward one's
        at the first word, and so does that of an only direction that reads the source reversed.
        """
        size = len(self.initial_bias)
        last = mask.sum(1) - 1
        ends = [annotations[:, 0, -size:]]
        if not self._reversed:
            ends.insert(0, annotations[torch.arange(len(last), device=last.device), last, :size])
        if annotations.shape[-1] == size:
            ends = ends[:1]
        if self.attention is not None:
            summary = ends[-1]
            shares = None if self.coverage is None else self.coverage.shares(annotations)
            return Memory(annotations, padding, self.attention.keys(annotations), None, summary, shares)
        context = torch.cat(ends, -1) if len(ends) > 1 else ends[0]
        return Memory(annotations, padding, None, context, context)

    def initial_state(self, memory: Memory) -> Tensor:
        """s_0 = tanh(W_s backward_1 + b_s), (B, n), in float32 even beside bf16."""
        dtype = memory.summary.dtype
        hidden = F.linear(memory.summary, self.initial_weight.to(dtype), self.initial_bias.to(dtype))
        return hidden.to(wide(dtype)).tanh()

    def unroll(self, memory: Memory, words: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """All steps along given previous words (Ty, B, m), the first one's vector 0.

        Returns what the readout reads, states (Ty, B, n) and contexts (Ty, B, c), and weights (Ty, B, Tx), which are
        None without attention.
        """
        length, initial = len(words), self.initial_state(memory)
        inputs = self.cell.inputs(words[1:] if self.update_first else words)
        if self.attention is not None and memory.keys is not None:
            looks_class, parameters = self.attention.looks_class, self.attention.looks_parameters(inputs.dtype)
            if self.coverage is not None and memory.shares is not None:
                looks_class = CoveredLooks
                parameters += (self.coverage.vector(inputs.dtype), memory.shares)
            source = (memory.keys, memory.annotations, memory.padding, length)
            unrolled = unroll_attending(self.cell, inputs, initial, *source, looks_class, parameters)
            contexts = unrolled.contexts
        else:
            unrolled = unroll(self.cell, inputs + self._context_inputs(memory.context), initial)
            contexts = None if memory.context is None else memory.context.expand(length, -1, -1)
        if contexts is None:
            raise ValueError("this memory holds neither keys nor a fixed context")
        return unrolled.states[:length] if self.update_first else unrolled.states[1:], contexts, unrolled.weights

    def _context_inputs(self, context: Tensor | None) -> Tensor:
        """What the cell takes from contexts (..., c): (..., 3n)."""
        if context is None or self.cell.context_weight is None:
            raise ValueError("this memory holds neither keys nor a fixed context")
        return F.linear(context, self.cell.context_weight.to(context.dtype))
