"""The alignment model: additive attention (PAPER section 2)."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class AdditiveAttention(nn.Module):
    """energies[i, j] = v_a . tanh(W_a s_{i-1} + U_a annotations[j]), no bias; weights = softmax over j."""

    def __init__(self, state_size: int, annotation_size: int, size: int) -> None:
        super().__init__()
        self.query_weight = nn.Parameter(torch.empty(size, state_size))  # W_a
        self.key_weight = nn.Parameter(torch.empty(size, annotation_size))  # U_a
        self.vector = nn.Parameter(torch.empty(size))  # v_a

    def keys(self, annotations: Tensor) -> Tensor:
        """U_a annotations, which no step changes: (B, Tx, 2n) to (B, Tx, n')."""
        return F.linear(annotations, self.key_weight.to(annotations.dtype))
