"""The decoder along given words: attend, update, in either order (PAPER section 2)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.attention import AdditiveAttention
from nmtalign.core.cells import make_cell
from nmtalign.core.coverage import Coverage
from nmtalign.core.elementwise import wide
from nmtalign.core.recurrence import unroll, unroll_attending


@dataclass(frozen=True)
class Memory:
    """What the decoder reads of B encoded sentences."""

    annotations: Tensor  # (B, Tx, 2n)
    padding: Tensor | None  # (B, Tx), True = no token; None where there is no padding
    keys: Tensor | None  # (B, Tx, n'), U_a annotations; None without attention
    context: Tensor | None  # (B, c), the fixed context of a model without attention
    summary: Tensor  # (B, n) or (B, c), what the first decoder state is made of
    shares: Tensor | None = None  # (B, Tx), what a weight of 1 adds to a word's coverage; None without coverage


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
        sizes = (config.hidden, annotation_size, config.attention_hidden)
        self.attention = AdditiveAttention(*sizes, config.attention_temperature) if attends else None
        covers = config.coverage == "linguistic"
        self.coverage = Coverage(annotation_size, config.attention_hidden) if covers else None

    def remember(self, annotations: Tensor, mask: Tensor, padding: Tensor | None) -> Memory:
        """The memory of annotations (B, Tx, D): keys and the backward state at the first word, or the fixed context."""
        size = len(self.initial_bias)
        last = mask.sum(1) - 1
        final = annotations[torch.arange(len(last), device=last.device), last, :size]
        two_ways = annotations.shape[-1] > size
        backward_first = annotations[:, 0, size:]
        if self.attention is not None:
            summary = backward_first if two_ways else final
            shares = None if self.coverage is None else self.coverage.shares(annotations)
            return Memory(annotations, padding, self.attention.keys(annotations), None, summary, shares)
        context = torch.cat([final, backward_first], -1) if two_ways else final
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
            arguments = (memory.keys, memory.annotations, memory.padding, length)
            covered = None
            if self.coverage is not None and memory.shares is not None:
                covered = self.coverage.vector(inputs.dtype), memory.shares
            unrolled = unroll_attending(self.cell, self.attention, inputs, initial, *arguments, covered)
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
