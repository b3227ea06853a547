"""The deep output (appendix A.2.2): the maxout layer, and the softmax over a large vocabulary.

The cross-entropy is computed block by block, so that the logits of a batch, (N, K), never exist at the same time.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.functional import apply, fast_dropout, maxout, product, take_once, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.errors import check_wanted
from nmtalign.settings.training_settings import ModelConfig

BLOCK_CELLS = 5 << 23  # logits that exist at the same time, rows * K
CHUNK_CELLS = 1 << 20  # float32 numbers that are processed together, because they fit into the processor's cache
_SMALLEST = 1e-30  # smaller probabilities are imprecise


class Readout(Initialised):
    """maxout(U_o s + V_o e(y_prev) + C_o context), then logits over K words, through `output_rank` if it is not 0.

    There is no V_o if the readout does not depend on the previous word. The readouts "direct" and "attentional" have no
    maxout layer: the softmax receives the decoder's output itself.
    """

    roles: ClassVar[Mapping[str, Role]] = {
        "state_weight": Role.MATRIX,
        "word_weight": Role.MATRIX,
        "context_weight": Role.MATRIX,
        "bias": Role.BIAS,
        "factor": Role.MATRIX,
        "output_weight": Role.SOFTMAX,
        "output_bias": Role.BIAS,
    }

    def __init__(self, config: ModelConfig, context_size: int) -> None:
        super().__init__()
        self.has_maxout = config.readout == "maxout"
        state_size = config.embedding if config.architecture == "transformer" else config.hidden
        width = config.maxout if self.has_maxout else state_size
        if self.has_maxout:
            pre_activations = 2 * config.maxout
            self.state_weight = nn.Parameter(torch.empty(pre_activations, config.hidden))  # U_o
            reads_word = config.readout_previous_word
            self.word_weight = nn.Parameter(torch.empty(pre_activations, config.embedding)) if reads_word else None
            self.context_weight = nn.Parameter(torch.empty(pre_activations, context_size))  # C_o
            self.bias = nn.Parameter(torch.zeros(pre_activations))
        rank = config.output_rank
        self.factor = nn.Parameter(torch.empty(rank, width)) if rank else None
        if not config.shared_embeddings:
            self.output_weight = nn.Parameter(torch.empty(config.target_vocabulary_size, config.softmax_size))
        self.output_bias = nn.Parameter(torch.zeros(config.target_vocabulary_size))

    def features(self, state: Tensor, word: Tensor, context: Tensor, dropout: float = 0.0) -> Tensor:
        """The inputs of the softmax (N, output_rank or l), from states (N, n), words (N, m) and contexts (N, 2n).

        With C contexts (N, C, 2n) for each word they are (N, C, .).
        """
        return self.features_of(state, word, self.products(context.to(word.dtype)), dropout)

    def products(self, contexts: Tensor) -> Tensor:
        """C_o contexts (..., 2l), which are linear in the contexts (..., 2n); without a maxout layer the contexts."""
        return F.linear(contexts, self.context_weight) if self.has_maxout else contexts

    def features_of(self, state: Tensor, word: Tensor, products: Tensor, dropout: float = 0.0) -> Tensor:
        """As `features`, from the `products` of the contexts."""
        dtype = word.dtype
        hidden = state.to(dtype)
        if self.has_maxout:
            total = self.bias.to(dtype)
            if self.word_weight is not None:
                total = F.linear(word, self.word_weight, total)
            total = total + F.linear(hidden, self.state_weight)
            total = (total if products.dim() == 2 else total[:, None]) + products
            hidden = maxout(total)
        if hidden.dim() == 2:
            hidden = fast_dropout(hidden, dropout)
        elif dropout:  # the alternatives of a word lose the same units
            hidden = hidden * F.dropout(torch.ones_like(hidden[:, :1]), dropout)
        return hidden if self.factor is None else F.linear(hidden, self.factor)

    def token_log_probs(self, features: Tensor, targets: Tensor) -> Tensor:
        """Log-probabilities (N,) of `targets` (N,), a chunk of rows at a time, in float32 (float64 for float64)."""
        weight, bias = self.output_weight.to(features.dtype), self.output_bias.to(wide(features.dtype))
        of_targets = features.new_empty(len(targets), dtype=bias.dtype)
        for rows in slices(len(targets), len(bias), CHUNK_CELLS):
            check_wanted()
            if bias.dtype == features.dtype:
                logits = F.linear(features[rows], weight, bias)
            else:  # the bias is not rounded to bf16
                logits = F.linear(features[rows], weight) + bias
            log_probs = logits.log_softmax(-1)
            of_targets[rows] = log_probs.gather(1, targets[rows, None]).squeeze(1)
        return of_targets

    def token_gradients(self, features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """(log_probs (N,), their gradients (N, r)) of each target (N,) with respect to its own features (N, r)."""
        weight, bias = self.output_weight.to(features.dtype), self.output_bias.to(wide(features.dtype))
        nll, log_sums = features.new_empty(2, len(targets), dtype=bias.dtype)
        gradients = torch.empty_like(features)
        for rows in slices(len(targets), len(bias), CHUNK_CELLS if features.device.type == "cpu" else BLOCK_CELLS):
            check_wanted()
            logits = product(features[rows], weight)
            _to_gradient(logits, bias, targets[rows], 0.0, nll[rows], log_sums[rows])
            torch.mm(logits, weight, out=gradients[rows]).neg_()
        return -nll, gradients


class TiedReadout(Readout):
    """A readout whose output weights are the vectors of the target words (Press & Wolf 2017)."""

    def __init__(self, config: ModelConfig, context_size: int, embedding: nn.Module) -> None:
        super().__init__(config, context_size)
        self._embedding = (embedding,)  # in a tuple, so that its weights are saved and counted once

    @property
    def output_weight(self) -> Tensor:  # type: ignore[override]
        """The weights (K, m) of the softmax."""
        return cast(Tensor, self._embedding[0].weight)


def linear_cross_entropy(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    targets: Tensor,
    label_smoothing: float = 0.0,
    row_weights: Tensor | None = None,
    log_terms: Tensor | None = None,
    block_cells: int = BLOCK_CELLS,
) -> tuple[Tensor, Tensor, Tensor]:
    """(objective, nll, log p (N,)) of targets (N,) under softmax(features W^T + b); the objective has a gradient.

    features (N, r), weight (K, r), bias (K,). Objective and nll are sums over the targets. objective = (1 -
    label_smoothing) * nll + label_smoothing * the mean over K words of -log p. `row_weights` (N,) multiply the terms of
    the words, 0 for padding; None = all 1. The gradients are computed together with the loss. Products are in the dtype
    of the features, softmax and sums in float32 (float64 for float64).

    With log_terms (N, C), which have gradients, too, p is a mixture: the sum over c of exp(log_terms[c]) *
    softmax(features[c] W^T + b), for features (N, C, r). One more column (N, C + 1) is the logarithm of what is added
    to p. Each softmax is smoothed with the weight of its share in p, which counts as a constant.
    """
    constants = targets, label_smoothing, row_weights, block_cells, torch.is_grad_enabled()
    objective, nll, log_probs = apply(_LinearCrossEntropy, features, weight, bias, log_terms, *constants)
    return objective, nll, log_probs


def slices(rows: int, vocabulary: int, cells: int) -> Iterator[slice]:
    """Cuts rows into parts of nearly equal size, with at most `cells` logits each (but at least one row)."""
    parts = -(-rows // max(1, cells // vocabulary))
    size = -(-rows // parts) if parts else 1
    for start in range(0, rows, size):
        yield slice(start, min(rows, start + size))


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        features: Tensor,
        weight: Tensor,
        bias: Tensor,
        log_terms: Tensor | None,
        targets: Tensor,
        smoothing: float,
        row_weights: Tensor | None,
        block_cells: int,
        differentiate: bool,
    ) -> tuple[Tensor, Tensor, Tensor]:
        dtype, shape = wide(features.dtype), features.shape
        narrow_weight, wide_bias = weight.to(features.dtype), bias.to(dtype)
        each = 1 if log_terms is None else shape[1]  # softmaxes of a word, which stay in the same block
        features, each_target = features.flatten(0, -2), targets.repeat_interleave(each)
        nll, log_sums = features.new_empty(2, len(features), dtype=dtype)
        d_features, d_bias = torch.empty_like(features), torch.zeros_like(wide_bias)
        d_weight = weight.new_zeros(weight.shape if differentiate else 0, dtype=dtype)
        row_weights = nll.new_ones(len(targets)) if row_weights is None else row_weights.to(dtype)
        softmax_weights = row_weights.repeat_interleave(each)
        d_terms = None if log_terms is None else torch.empty_like(log_terms)
        for words in slices(len(targets), each * len(bias), block_cells):
            rows = slice(words.start * each, words.stop * each)
            block = features[rows]
            logits = block @ narrow_weight.t()
            _to_gradient(logits, wide_bias, each_target[rows], smoothing, nll[rows], log_sums[rows])
            if log_terms is not None and d_terms is not None:
                parts = joint_log_probs(log_terms[words], -nll[rows]).softmax(-1) * row_weights[words, None]
                softmax_weights[rows] = parts[:, :each].flatten()
                d_terms[words] = parts * (smoothing - 1)
            if differentiate:
                torch.mm(logits, narrow_weight, out=d_features[rows]).mul_(softmax_weights[rows, None])
                d_bias += (softmax_weights[None, rows].to(logits.dtype) @ logits)[0]
                _add_product(d_weight, logits, (block * softmax_weights[rows, None]).to(block.dtype))
            del logits  # before those of the next block are computed
        log_probs = -nll if log_terms is None else joint_log_probs(log_terms, -nll).logsumexp(-1)
        objective = total = -(log_probs * row_weights).sum()
        if smoothing:
            gradients = (d_features, d_weight, d_bias) if differentiate else None
            log_sum = (log_sums * softmax_weights).sum()
            smooth = _smooth(features, narrow_weight, wide_bias, log_sum, softmax_weights, smoothing, gradients)
            objective = (1 - smoothing) * total + smooth
        ctx.gradients = d_features.view(shape), d_weight.to(weight.dtype), d_bias.to(bias.dtype), d_terms
        ctx.mark_non_differentiable(total, log_probs)
        return objective.clone(), total, log_probs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        gradients: tuple[Tensor | None, ...] = take_once(ctx, "gradients")
        # The weight of the loss stays in float32: rounded to bf16, it would change only this branch by up to 0.4%.
        scaled = (None if each is None else each.mul_(gradient) for each in gradients)
        return *scaled, *[None] * 5


def joint_log_probs(log_terms: Tensor, log_probs: Tensor) -> Tensor:
    """The log-probabilities (N, .) of each term of `linear_cross_entropy`, given those of the softmaxes (N C,)."""
    each = log_probs.view(len(log_terms), -1)
    return torch.cat([log_terms[:, : each.shape[1]] + each, log_terms[:, each.shape[1] :]], 1)


def _smooth(
    features: Tensor,
    weight: Tensor,
    bias: Tensor,
    log_sum: Tensor,
    counted: Tensor,
    smoothing: float,
    gradients: tuple[Tensor, Tensor, Tensor] | None,
) -> Tensor:
    """smoothing * the mean over K words of -log p = log_sum - logit, summed over all rows at once.

    `counted` (N,) are the weights of the rows, and `log_sum` is their weighted sum. Adds to the gradients.
    """
    share = smoothing / len(bias)
    feature_sum = counted @ features.to(counted.dtype)
    weight_sum = weight.sum(0, dtype=counted.dtype)
    logit_sum = feature_sum @ weight_sum + counted.sum() * bias.sum()
    if gradients is not None:
        d_features, d_weight, d_bias = gradients
        d_features.sub_((counted[:, None] * (share * weight_sum)).to(features.dtype))
        d_weight.sub_(share * feature_sum)
        d_bias.sub_(share * counted.sum())
    return smoothing * log_sum - share * logit_sum


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
    logits: Tensor, bias: Tensor, targets: Tensor, smoothing: float, nll: Tensor, log_sums: Tensor
) -> None:
    """Replaces logits (R, K), which do not contain the bias yet, by their gradient, in place.

    The gradient is the probability, minus 1 - smoothing at the target; `_smooth` adds the part of label smoothing that
    is equal for all words. Fills nll (R,) and the logarithms of the sums of exponentials (R,).
    """
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
        chunk.copy_(probs)
