"""The encoder: forward and backward gated recurrent nets over one shared embedding (PAPER section 2).

An only direction is the forward one, or, with the source reversed (Sutskever et al. 2014), the backward one: it reads
`</s>` first, then the words from the last to the first, so that the first word is the last thing it has read when the
decoder takes its state up. Annotations stay where their words are: what attention and alignments show does not turn.
"""

import torch
from torch import Tensor, nn

from nmtalign.config import ModelConfig
from nmtalign.core.elementwise import wide
from nmtalign.core.kinds import make_cell
from nmtalign.core.recurrence import unroll


class Encoder(nn.Module):
    """Both directions run as one batch: step t of the forward net beside step Tx - 1 - t of the backward net."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        # Which directions there are: whether each reads the source from its end.
        self._backward = (False, True) if config.bidirectional else (config.reverse_source,)
        self.directions = len(self._backward)
        self.size = config.hidden
        self.cell = make_cell(config.cell, config.embedding, config.hidden, directions=self.directions)

    @property
    def output_size(self) -> int:
        """Width of an annotation: 2n, or n with one direction."""
        return self.directions * self.size

    def forward(self, embedded: Tensor, padding: Tensor | None) -> Tensor:
        """Annotations (B, Tx, 2n) of embedded words (B, Tx, m); at padding (B, Tx), where True, no state changes."""
        batch, length, _ = embedded.shape
        inputs = self.cell.inputs(self._in_turn(embedded.transpose(0, 1)))
        skip = None if padding is None else self._in_turn(padding.t())[..., None]
        initial = embedded.new_zeros(self.directions, batch, self.size, dtype=wide(embedded.dtype))
        states = unroll(self.cell, inputs, initial, skip).states[:, 1:]
        ways = [way.flip(0) if back else way for way, back in zip(states, self._backward, strict=True)]
        return torch.stack([way.transpose(0, 1) for way in ways], 2).view(batch, length, -1)

    def _in_turn(self, steps: Tensor) -> Tensor:
        """What each direction reads at its steps: (Tx, ...) to (D, Tx, ...)."""
        return torch.stack([steps.flip(0) if back else steps for back in self._backward])
