"""The encoder: forward and backward gated recurrent nets over one shared embedding (PAPER section 2)."""

import torch
from torch import Tensor, nn

from nmtalign.config import ModelConfig
from nmtalign.core.cells import make_cell


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

    def forward(self, embedded: Tensor, mask: Tensor) -> Tensor:
        """Annotations (B, Tx, 2n) of embedded words (B, Tx, m); at padding (mask False) no state changes."""
        batch, length = mask.shape
        inputs = self.cell.inputs(embedded.transpose(0, 1)).view(length, batch, self.directions, -1)
        steps = _both_ways(inputs.movedim(2, 0)).unbind(1)
        keep = mask.t()[None].expand(self.directions, -1, -1)[..., None]
        state_dtype = torch.promote_types(embedded.dtype, torch.float32)
        masks = [None] * length if bool(mask.all()) else _both_ways(keep).to(state_dtype).unbind(1)
        state = embedded.new_zeros(self.directions, batch, self.size, dtype=state_dtype)
        weights = self.cell.start(embedded.dtype)
        states = []
        for step, step_mask in zip(steps, masks, strict=True):
            state = self.cell.update(weights, step, state, step_mask)
            states.append(state)
        annotations = _both_ways(torch.stack(states, 1).to(embedded.dtype))
        return annotations.permute(2, 1, 0, 3).reshape(batch, length, -1)


def _both_ways(directions: Tensor) -> Tensor:
    """Turns the second direction round in time: (D, Tx, ...) to (D, Tx, ...)."""
    if directions.shape[0] == 1:
        return directions
    return torch.stack([directions[0], directions[1].flip(0)])
