"""Softmax cross-entropy over a large vocabulary, without ever holding all logits."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from nmtalign.core.functional import apply, take_once, wide
from nmtalign.core.gpu import missing

BLOCK_CELLS = 5 << 23  # logits held at a time, rows * K
CHUNK_CELLS = 1 << 20  # numbers of float32 worked on at a time: what the processor's cache holds
_LEAST = 1e-30  # a probability below may have lost digits


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
    K words of -log p. `row_weights` (N,) multiply each word's share, 0 for padding; None = all 1. The gradients are
    found with the loss; the products are in the features' type, softmax and sums in float32 (float64 for float64).
    """
    rows = _Rows(features.detach(), weight.detach(), bias.detach(), targets, label_smoothing, row_weights)
    objective, nll = apply(_LinearCrossEntropy, features, weight, bias, rows, torch.is_grad_enabled())
    return objective, nll


def token_gradients(features: Tensor, weight: Tensor, bias: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """(log_probs (N,), their gradients (N, r)) of each target (N,) by its own features (N, r).

    weight (K, r), bias (K,); the products are in the features' type, the softmax in float32 (float64 for float64).
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
    """Cuts rows into parts of nearly equal size, of at most `cells` logits each (or of one row)."""
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
        # The weight of the loss stays in float32: rounded to bf16, it would scale this branch by up to 0.4% alone.
        return *(each.mul_(gradient) for each in (found.features, found.weight, found.bias)), None, None


@dataclass(frozen=True)
class _Rows:
    """The arguments of `linear_cross_entropy`, and what is computed of them by blocks of rows."""

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
            del logits  # before the next block's are made
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
        """smoothing * the mean over words of -log p = log_sum - logit: the even share of all words, taken at once."""
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
    """`total (K, r) += d_logits^T block` in total's own type, by parts of the vocabulary that the cache holds."""
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
    """Turns logits (R, K), to which the bias is still to be added, into their gradient in place.

    The gradient is (probability - (1 - smoothing) at the target) * scale; the even share that label smoothing takes
    from every word is left to `_smooth`. Fills nll (R,) and the logarithms of the sums of exponentials (R,).
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
        # The sum of exponentials follows from any probability that does not underflow: the target's, else the largest.
        known, place = probs.gather(1, picked), picked
        if logits.device.type != "cpu" or float(known.min()) < _LEAST:
            known, place = probs.max(-1, keepdim=True)
        torch.sub(exact.gather(1, place), known.log(), out=log_sums[rows, None])
        torch.sub(log_sums[rows, None], exact.gather(1, picked), out=nll[rows, None])
        probs.scatter_add_(1, picked, torch.full_like(picked, smoothing - 1, dtype=nll.dtype))
        if scale is not None:
            probs *= scale[rows, None]
        chunk.copy_(probs)
    return None
