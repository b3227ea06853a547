"""The deep output (appendix A.2.2): the maxout layer, and the softmax over a large vocabulary.

The cross-entropy is computed block by block, so that the logits of a batch, (N, K), never exist at the same time.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.functional import apply, take_once, wide
from nmtalign.core.gpu import missing
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig

BLOCK_CELLS = 5 << 23  # logits that exist at the same time, rows * K
CHUNK_CELLS = 1 << 20  # float32 numbers that are processed together: what the processor's cache has room for
_SMALLEST = 1e-30  # a smaller probability may have lost digits


class Readout(Initialised):
    """maxout(U_o s + V_o e(y_prev) + C_o context), then logits over K words, through `output_rank` if it is not 0.

    There is no V_o if the readout does not depend on the previous word.
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
        """The inputs of the softmax (N, output_rank or l), from states (N, n), words (N, m) and contexts (N, 2n)."""
        dtype = word.dtype
        total = self.bias.to(dtype)
        if self.word_weight is not None:
            total = F.linear(word, self.word_weight.to(dtype), total)
        total = total + F.linear(state.to(dtype), self.state_weight.to(dtype))
        total = total + F.linear(context.to(dtype), self.context_weight.to(dtype))
        hidden = F.dropout(apply(_Maxout, total), dropout)
        return hidden if self.factor is None else F.linear(hidden, self.factor.to(dtype))

    def log_probs(self, features: Tensor) -> Tensor:
        """Log-probabilities (N, K) of the words, in float32 (float64 for float64)."""
        logits = F.linear(features, self.output_weight.to(features.dtype), self.output_bias.to(features.dtype))
        return logits.to(wide(logits.dtype)).log_softmax(-1)

    def token_log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        """Log-probabilities (N,) of `targets` (N,), a chunk of rows at a time, without a gradient."""
        parts = [
            self.log_probs(features[rows]).gather(1, targets[rows, None]).squeeze(1)
            for rows in slices(len(targets), len(self.output_bias), CHUNK_CELLS)
        ]
        return torch.cat(parts) if parts else features.new_zeros(0, dtype=wide(features.dtype))

    def token_gradients(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """As the function `token_gradients`, for this softmax."""
        return token_gradients(features, self.output_weight, self.output_bias, targets)

    def cross_entropy(
        self, features: Tensor, targets: Tensor, label_smoothing: float = 0.0, row_weights: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """As the function `linear_cross_entropy`, for this softmax."""
        weight, bias = self.output_weight, self.output_bias
        return linear_cross_entropy(features, weight, bias, targets, label_smoothing, row_weights)


def maxout(values: Tensor) -> Tensor:
    """The larger of each pair of adjacent values, (N, 2l) to (N, l), without a gradient."""
    first, second = values.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.maximum(first, second)


class _Maxout(torch.autograd.Function):
    """The larger of each pair of adjacent values, (N, 2l) to (N, l); of two equal ones, the first."""

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


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    row_weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """(objective, nll) of targets (N,) under softmax(features W^T + b), both summed; the objective has a gradient.

    features (N, r), weight (K, r), bias (K,). objective = (1 - label_smoothing) * nll + label_smoothing * the mean over
    K words of -log p. `row_weights` (N,) multiply the terms of the words, 0 for padding; None = all 1. The gradients
    are computed together with the loss. Products are in the dtype of the features, softmax and sums in float32
    (float64 for float64).
    """
    rows = _Rows(features.detach(), weight.detach(), bias.detach(), targets, label_smoothing, row_weights)
    objective, nll = apply(_LinearCrossEntropy, features, weight, bias, rows, torch.is_grad_enabled())
    return objective, nll


def token_gradients(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(log_probs (N,), their gradients (N, r)) of each target (N,) with respect to its own features (N, r).

    weight (K, r), bias (K,). Products are in the dtype of the features, the softmax in float32 (float64 for float64).
    """
    weight, dtype = weight.to(features.dtype), wide(features.dtype)
    log_probs, gradients = features.new_empty(len(targets), dtype=dtype), torch.empty_like(features)
    for rows in slices(len(targets), len(bias), CHUNK_CELLS if features.device.type == "cpu" else BLOCK_CELLS):
        logits = (features[rows] @ weight.t()).to(dtype) + bias
        picked = targets[rows, None]
        chosen = logits.gather(1, picked)
        log_probs[rows] = (chosen - logits.logsumexp(-1, keepdim=True))[:, 0]
        probs = logits.softmax(-1).scatter_add_(1, picked, torch.full_like(chosen, -1.0))
        torch.mm(probs.to(features.dtype), weight, out=gradients[rows]).neg_()
    return log_probs, gradients


def slices(rows: int, vocabulary: int, cells: int) -> Iterator[slice]:
    """Cuts rows into parts of nearly equal size, with at most `cells` logits each (but at least one row)."""
    most = max(1, cells // vocabulary)
    parts = -(-rows // most)
    size = -(-rows // parts) if parts else 1
    for start in range(0, rows, size):
        yield slice(start, min(rows, start + size))


@dataclass(frozen=True)
class _Gradients:
    features: Tensor
    weight: Tensor
    bias: Tensor


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, bias: Tensor, rows: "_Rows", differentiate: bool
    ) -> tuple[Tensor, Tensor]:
        objective, nll, gradients = rows.compute(differentiate)
        ctx.gradients = gradients
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        found: _Gradients = take_once(ctx, "gradients")
        # The weight of the loss stays in float32: rounded to bf16, it would change this branch alone by up to 0.4%.
        return *(each.mul_(gradient) for each in (found.features, found.weight, found.bias)), None, None


@dataclass(frozen=True)
class _Rows:
    """The arguments of `linear_cross_entropy`, and its computation by blocks of rows."""

    features: Tensor
    weight: Tensor
    bias: Tensor
    targets: Tensor
    smoothing: float
    row_weights: Tensor | None

    def compute(self, differentiate: bool) -> tuple[Tensor, Tensor, _Gradients | None]:
        """(objective, nll, gradients of the objective)."""
        features, targets = self.features, self.targets
        dtype = wide(features.dtype)
        weight, bias = self.weight.to(features.dtype), self.bias.to(dtype)
        nll, log_sums = features.new_empty(2, len(targets), dtype=dtype)
        d_features, d_bias = torch.empty_like(features), torch.zeros_like(bias)
        d_weight = self.weight.new_zeros(self.weight.shape if differentiate else 0, dtype=dtype)
        for rows in slices(len(targets), len(bias), BLOCK_CELLS):
            block = features[rows]
            logits = block @ weight.t()
            scale = None if self.row_weights is None else self.row_weights[rows]
            _to_gradient(logits, bias, targets[rows], self.smoothing, scale, nll[rows], log_sums[rows])
            if differentiate:
                torch.mm(logits, weight, out=d_features[rows])
                d_bias += (logits.new_ones(1, len(block)) @ logits)[0]
                _add_product(d_weight, logits, block)
            del logits  # before those of the next block are computed
        if self.row_weights is not None:
            nll, log_sums = nll * self.row_weights, log_sums * self.row_weights
        gradients = _Gradients(d_features, d_weight, d_bias) if differentiate else None
        objective = total = nll.sum()
        if self.smoothing:
            objective = (1 - self.smoothing) * total + self._smooth(log_sums, weight, bias, gradients)
        if gradients is not None and d_weight.dtype != self.weight.dtype:
            gradients = _Gradients(d_features, d_weight.to(self.weight.dtype), d_bias.to(self.bias.dtype))
        return objective.clone(), total, gradients

    def _smooth(self, log_sums: Tensor, weight: Tensor, bias: Tensor, gradients: _Gradients | None) -> Tensor:
        """smoothing * the mean over the words of -log p = log_sum - logit, for all words at once."""
        share = self.smoothing / len(bias)
        counted = torch.ones_like(log_sums) if self.row_weights is None else self.row_weights.to(log_sums.dtype)
        feature_sum = counted @ self.features.to(log_sums.dtype)
        weight_sum = weight.sum(0, dtype=log_sums.dtype)
        logit_sum = feature_sum @ weight_sum + counted.sum() * bias.sum()
        if gradients is not None:
            gradients.features.sub_((counted[:, None] * (share * weight_sum)).to(self.features.dtype))
            gradients.weight.sub_(share * feature_sum)
            gradients.bias.sub_(share * counted.sum())
        return self.smoothing * log_sums.sum() - share * logit_sum


def _add_product(total: Tensor, d_logits: Tensor, block: Tensor) -> None:
    """`total (K, r) += d_logits^T block` in the dtype of `total`, by parts that fit into the cache."""
    if total.dtype == block.dtype:
        total.addmm_(d_logits.t(), block)
        return
    cells = 4 * CHUNK_CELLS if total.device.type == "cpu" else total.numel()
    vocabulary, rank = total.shape
    for words in slices(vocabulary, rank, cells):
        total[words] += d_logits[:, words].t() @ block


def _to_gradient(
    logits: Tensor,
    bias: Tensor,
    targets: Tensor,
    smoothing: float,
    scale: Tensor | None,
    nll: Tensor,
    log_sums: Tensor,
) -> None:
    """Replaces logits (R, K), which do not contain the bias yet, by their gradient, in place.

    The gradient is (probability - (1 - smoothing) at the target) * scale; `_smooth` adds the part of label smoothing
    that is equal for all words. Fills nll (R,) and the logarithms of the sums of exponentials (R,).
    """
    if not missing(logits.device):
        from nmtalign.core.gpu.softmax import softmax_gradient

        return softmax_gradient(logits, bias, targets, smoothing, scale, nll, log_sums)
    cells = CHUNK_CELLS if logits.device.type == "cpu" else BLOCK_CELLS
    parts = list(slices(len(targets), logits.shape[1], cells))
    room = [bias.new_empty(parts[0].stop, len(bias)) for _ in range(2)]
    for rows in parts:
        chunk, picked = logits[rows], targets[rows, None]
        exact, probs = (buffer[: len(chunk)] for buffer in room)
        torch.softmax(exact.copy_(chunk).add_(bias), -1, out=probs)
        # The sum of exponentials follows from any probability without underflow: the target's, else the largest.
        known, place = probs.gather(1, picked), picked
        if logits.device.type != "cpu" or float(known.min()) < _SMALLEST:
            known, place = probs.max(-1, keepdim=True)
        torch.sub(exact.gather(1, place), known.log(), out=log_sums[rows, None])
        torch.sub(log_sums[rows, None], exact.gather(1, picked), out=nll[rows, None])
        probs.scatter_add_(1, picked, torch.full_like(picked, smoothing - 1, dtype=nll.dtype))
        if scale is not None:
            probs *= scale[rows, None]
        chunk.copy_(probs)
    return None
