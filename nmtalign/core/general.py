"""Luong et al.'s score "general" (2015), bilinear: energies[i, j] = s . W_a annotations[j]; no vector, no tanh."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.dot import DotAttention


class GeneralAttention(DotAttention):
    """The product of the state with keys that have learnt what to be: W_a (n, 2n) is its one parameter."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, annotation_size)
        self.key_weight = nn.Parameter(torch.empty(config.hidden, annotation_size))  # W_a

    def keys(self, annotations: Tensor) -> Tensor:
        """W_a annotations, over the temperature: (B, Tx, 2n) to (B, Tx, n)."""
        return self._over_temperature(F.linear(annotations, self.key_weight.to(annotations.dtype)))
