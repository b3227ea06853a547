"""The deep output: maxout layer and softmax over the target words (PAPER section 2)."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.autograd import apply

CHUNK_CELLS = 1 << 21  # logits held at a time: rows * K


class Readout(nn.Module):
    """maxout(U_o s + V_o e(y_prev) + C_o context), then logits over K words, by way of `output_rank` if it is not 0."""

    def __init__(self, config: ModelConfig, context_size: int) -> None:
        super().__init__()
        pre_activations = 2 * config.maxout
        self.state_weight = nn.Parameter(torch.empty(pre_activations, config.hidden))  # U_o
        self.word_weight = nn.Parameter(torch.empty(pre_activations, config.embedding))  # V_o
        self.context_weight = nn.Parameter(torch.empty(pre_activations, context_size))  # C_o
        self.bias = nn.Parameter(torch.zeros(pre_activations))
        rank = config.output_rank
        self.factor = nn.Parameter(torch.empty(rank, config.maxout)) if rank else None
        self.output_weight = nn.Parameter(torch.empty(config.target_vocabulary_size, rank or config.maxout))
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size))

    def features(self, state: Tensor, word: Tensor, context: Tensor, dropout: float = 0.0) -> Tensor:
        """What the softmax reads, (N, output_rank or l), of states (N, n), previous words (N, m), contexts (N, 2n)."""
        dtype = word.dtype
        total = F.linear(word, self.word_weight.to(dtype), self.bias.to(dtype))
        total = total + F.linear(state.to(dtype), self.state_weight.to(dtype))
        total = total + F.linear(context.to(dtype), self.context_weight.to(dtype))
        even, odd = total.unflatten(-1, (-1, 2)).unbind(-1)
        hidden = F.dropout(torch.maximum(even, odd), dropout)
        return hidden if self.factor is None else F.linear(hidden, self.factor.to(dtype))

    def log_probs(self, features: Tensor) -> Tensor:
        """Natural logarithms (N, K) of the words' probabilities, in float32 (float64 for float64)."""
        logits = F.linear(features, self.output_weight.to(features.dtype), self.output_bias.to(features.dtype))
        return logits.to(_wide(logits.dtype)).log_softmax(-1)

    def token_log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        """Natural logarithms (N,) of the probabilities of `targets` (N,), a chunk of rows at a time; no gradient."""
        parts = [
            self.log_probs(features[rows]).gather(1, targets[rows, None]).squeeze(1)
            for rows in _chunks(len(targets), len(self.output_bias))
        ]
        return torch.cat(parts) if parts else features.new_zeros(0, dtype=_wide(features.dtype))

    def cross_entropy(self, features: Tensor, targets: Tensor, label_smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """(objective, nll), both summed over N words; the objective alone has a gradient.

        objective = (1 - label_smoothing) * nll + label_smoothing * the mean over K words of -log p.
        """
        objective, nll = apply(
            _LinearCrossEntropy, features, self.output_weight, self.output_bias, targets, label_smoothing
        )
        return objective, nll


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.promote_types(dtype, torch.float32)


def _chunks(rows: int, vocabulary: int) -> Iterator[slice]:
    size = max(16, CHUNK_CELLS // vocabulary)
    for start in range(0, rows, size):
        yield slice(start, start + size)


class _LinearCrossEntropy(torch.autograd.Function):
    """Softmax and loss by chunks of rows: never more than a chunk of the (N, K) logits exists, its gradient neither."""

    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        wide = _wide(features.dtype)
        narrow_weight, narrow_bias = weight.to(features.dtype), bias.to(features.dtype)
        d_features = torch.empty_like(features)
        d_weight = torch.zeros_like(weight, dtype=wide)
        d_bias = torch.zeros_like(bias, dtype=wide)
        nll = features.new_zeros((), dtype=wide)
        log_sum = features.new_zeros((), dtype=wide)
        for rows in _chunks(len(targets), len(bias)):
            chunk, picked = features[rows], targets[rows, None]
            logits = torch.addmm(narrow_bias, chunk, narrow_weight.t()).to(wide)
            target_logits = logits.gather(1, picked)
            probs = logits.softmax(-1)
            # log p of the target, kept from underflow; the sum of exponentials follows from it.
            log_p = probs.gather(1, picked).clamp_min(torch.finfo(wide).tiny).log()
            nll -= log_p.sum()
            log_sum += (target_logits - log_p).sum()
            d_bias += probs.sum(0)
            d_logits = probs.to(features.dtype)
            # (1 - smoothing) is taken from the target here; smoothing / K from every word below, for all rows at once.
            d_logits.scatter_add_(1, picked, torch.full_like(picked, smoothing - 1, dtype=d_logits.dtype))
            torch.mm(d_logits, narrow_weight, out=d_features[rows])
            d_weight += d_logits.t() @ chunk  # summed over chunks in float32
        objective = nll
        d_bias.index_add_(0, targets, torch.full_like(targets, smoothing - 1, dtype=wide))
        if smoothing:
            share = smoothing / len(bias)
            feature_sum = features.to(wide).sum(0)
            weight_sum = weight.to(wide).sum(0)
            logit_sum = feature_sum @ weight_sum + len(targets) * bias.to(wide).sum()
            objective = (1 - smoothing) * nll + smoothing * log_sum - share * logit_sum
            d_features -= (share * weight_sum).to(features.dtype)
            d_weight -= share * feature_sum
            d_bias -= share * len(targets)
        ctx.save_for_backward(d_features, d_weight.to(weight.dtype), d_bias.to(bias.dtype))
        ctx.mark_non_differentiable(nll)
        return objective.clone(), nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        d_features, d_weight, d_bias = ctx.saved_tensors
        return d_features * gradient.to(d_features.dtype), d_weight * gradient, d_bias * gradient, None, None
