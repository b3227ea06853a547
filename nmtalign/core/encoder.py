"""The encoder: forward and backward gated recurrent nets over one shared embedding (PAPER section 2)."""

import torch
from torch import Tensor, nn

from nmtalign.config import ModelConfig
from nmtalign.core.cells import make_cell
from nmtalign.core.elementwise import wide
from nmtalign.core.recurrence import unroll


class Encoder(nn.Module):
    """Both directions run as one batch: step t of the forward net beside step Tx - 1 - t of the backward net."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.directions = 2 if config.bidirectional else 1
        self.size = config.hidden
        self.cell = make_cell(config.cell, config.embedding, config.hidden, directions=self.directions)

    @property
    def output_size(self) -> int:
        """Width of an annotation: 2n, or n with one direction."""
        return self.directions * self.size

    def forward(self, embedded: Tensor, padding: Tensor | None) -> Tensor:
        """Annotations (B, Tx, 2n) of embedded words (B, Tx, m); at padding (B, Tx), where True, no state changes."""
        batch, length, _ = embedded.shape
        inputs = self.cell.inputs(self._both_ways(embedded.transpose(0, 1)))
        skip = None if padding is None else self._both_ways(padding.t())[..., None]
        initial = embedded.new_zeros(self.directions, batch, self.size, dtype=wide(embedded.dtype))
        states = unroll(self.cell, inputs, initial, skip).states[:, 1:]
        ways = [states[0], states[1].flip(0)] if self.directions == 2 else [states[0]]
        return torch.stack([way.transpose(0, 1) for way in ways], 2).view(batch, length, -1)

    def _both_ways(self, steps: Tensor) -> Tensor:
        """What each direction reads at its steps: (Tx, ...) to (D, Tx, ...)."""
        return torch.stack([steps, steps.flip(0)]) if self.directions == 2 else steps[None]
