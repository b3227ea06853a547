"""The deep output: maxout layer and softmax over the target words (PAPER section 2)."""

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.functional import apply, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.core.softmax import CHUNK_CELLS, linear_cross_entropy, slices, token_gradients


class Readout(Initialised):
    """maxout(U_o s + V_o e(y_prev) + C_o context), then logits over K words, by way of `output_rank` if it is not 0.

    V_o is left out where the readout does not see the previous word.
    """

    roles: ClassVar[Mapping[str, Role]] = {
        "state_weight": Role.MATRIX,
        "word_weight": Role.MATRIX,
        "context_weight": Role.MATRIX,
        "bias": Role.BIAS,
        "factor": Role.MATRIX,
        "output_weight": Role.MATRIX,
        "output_bias": Role.BIAS,
    }

    def __init__(self, config: ModelConfig, context_size: int) -> None:
        super().__init__()
        pre_activations = 2 * config.maxout
        self.state_weight = nn.Parameter(torch.empty(pre_activations, config.hidden))  # U_o
        reads_word = config.readout_previous_word
        self.word_weight = nn.Parameter(torch.empty(pre_activations, config.embedding)) if reads_word else None  # V_o
        self.context_weight = nn.Parameter(torch.empty(pre_activations, context_size))  # C_o
        self.bias = nn.Parameter(torch.zeros(pre_activations))
        rank = config.output_rank
        self.factor = nn.Parameter(torch.empty(rank, config.maxout)) if rank else None
        self.output_weight = nn.Parameter(torch.empty(config.target_vocabulary_size, rank or config.maxout))
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size))

    def features(self, state: Tensor, word: Tensor, context: Tensor, dropout: float = 0.0) -> Tensor:
        """What the softmax reads, (N, output_rank or l), of states (N, n), previous words (N, m), contexts (N, 2n)."""
        dtype = word.dtype
        total = self.bias.to(dtype)
        if self.word_weight is not None:
            total = F.linear(word, self.word_weight.to(dtype), total)
        total = total + F.linear(state.to(dtype), self.state_weight.to(dtype))
        total = total + F.linear(context.to(dtype), self.context_weight.to(dtype))
        hidden = F.dropout(apply(_Maxout, total), dropout)
        return hidden if self.factor is None else F.linear(hidden, self.factor.to(dtype))

    def log_probs(self, features: Tensor) -> Tensor:
        """Natural logarithms (N, K) of the words' probabilities, in float32 (float64 for float64)."""
        logits = F.linear(features, self.output_weight.to(features.dtype), self.output_bias.to(features.dtype))
        return logits.to(wide(logits.dtype)).log_softmax(-1)

    def token_log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        """Natural logarithms (N,) of the probabilities of `targets` (N,), a chunk of rows at a time; no gradient."""
        parts = [
            self.log_probs(features[rows]).gather(1, targets[rows, None]).squeeze(1)
            for rows in slices(len(targets), len(self.output_bias), CHUNK_CELLS)
        ]
        return torch.cat(parts) if parts else features.new_zeros(0, dtype=wide(features.dtype))

    def token_gradients(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(log_probs (N,) of the targets (N,), their gradients by the features (N, output_rank or l))."""
        return token_gradients(features, self.output_weight, self.output_bias, targets)

    def cross_entropy(
        self, features: Tensor, targets: Tensor, label_smoothing: float = 0.0, row_weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """(objective, nll), both summed over N words, as `linear_cross_entropy` explains."""
        weight, bias = self.output_weight, self.output_bias
        return linear_cross_entropy(features, weight, bias, targets, label_smoothing, row_weights)


def maxout(values: Tensor) -> Tensor:
    """The larger of each two adjacent values, (N, 2l) to (N, l), without a gradient."""
    first, second = values.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.maximum(first, second)


class _Maxout(torch.autograd.Function):
    """The larger of each two adjacent values, (N, 2l) to (N, l); of two equal ones, the first."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        first, second = values.unflatten(-1, (-1, 2)).unbind(-1)
        ctx.save_for_backward(first >= second)
        return maxout(values)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (chosen,) = ctx.saved_tensors
        both = gradient.new_empty(*gradient.shape, 2)
        torch.mul(gradient, chosen, out=both[..., 0])
        torch.sub(gradient, both[..., 0], out=both[..., 1])
        return both.flatten(-2)
