"""The pointer-generator (See et al. 2017, equations 8 and 9; Gu et al. 2016): a model that can copy source words.

p(y) = p_gen softmax(y) + (1 - p_gen) * the sum of the weights of the source words that equal y. The ids of a copying
model are those of `nmtalign.text.vocabulary.pair_ids`: a source id also says what is copied from its place, and a
target id from K is a place of the source, whose word the target vocabulary lacks. As an input it is `<unk>`.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.functional import wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.vocabulary import COPY_SHIFT, UNK_ID, WORD_BITS

_SMALLEST = 1e-30  # of the weights that are copied, before their logarithm is taken


def source_parts(source: Tensor) -> tuple[Tensor, Tensor]:
    """The words (B, Tx) of source ids, and the ids (B, Tx) of what is copied from each place."""
    return source & WORD_BITS, source >> COPY_SHIFT


def known_words(words: Tensor, size: int) -> Tensor:
    """Word ids with `<unk>` for the ids from `size`, the number of words of the vocabulary."""
    return words.masked_fill(words >= size, UNK_ID)


class Copying(Initialised):
    """The parameters of p_gen = sigmoid(w_c . context + w_s . state + w_x . previous word + b)."""

    roles: ClassVar[Mapping[str, Role]] = {
        "context_weight": Role.MATRIX,
        "state_weight": Role.MATRIX,
        "word_weight": Role.MATRIX,
        "bias": Role.BIAS,
    }

    def __init__(self, config: ModelConfig, context_size: int) -> None:
        super().__init__()
        self.context_weight = nn.Parameter(torch.empty(1, context_size))
        self.state_weight = nn.Parameter(torch.empty(1, config.hidden))
        self.word_weight = nn.Parameter(torch.empty(1, config.embedding))
        self.bias = nn.Parameter(torch.zeros(1))

    def forward(self, state: Tensor, word: Tensor, context: Tensor) -> Tensor:
        """The logit (...) of p_gen, from states (..., n), previous words (..., m) and contexts (..., D)."""
        dtype = wide(word.dtype)
        total = F.linear(context.to(dtype), self.context_weight.to(dtype), self.bias.to(dtype))
        total = total + F.linear(state.to(dtype), self.state_weight.to(dtype))
        return (total + F.linear(word.to(dtype), self.word_weight.to(dtype))).squeeze(-1)


def copied(gate: Tensor, weights: Tensor, copies: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """(log p_gen, log((1 - p_gen) * copied weight)) of target words (Ty, B), with a gradient.

    gate (Ty, B) are logits, weights (Ty, B, Tx), copies (B, Tx). The second is -inf for a word that is not copied.
    """
    equal = copies == target[..., None]
    mass = (weights * equal).sum(-1).clamp_min(_SMALLEST).log().masked_fill(~equal.any(-1), -torch.inf)
    return F.logsigmoid(gate), F.logsigmoid(-gate) + mass


def mix(log_probs: Tensor, gate: Tensor, weights: Tensor, columns: Tensor) -> None:
    """Mixes log-probabilities (N, U) of the vocabulary with those of copying, in place, without a gradient.

    gate (N,) are logits, weights (N, Tx); columns (N, Tx) are those of the words that are copied from each place. A
    column that belongs to no word of the vocabulary is -inf before.
    """
    first = (columns[:, :, None] == columns[:, None]).int().argmax(2)
    mass = torch.zeros_like(weights).scatter_add_(1, first, weights).to(log_probs.dtype)
    log_probs += F.logsigmoid(gate)[:, None]
    both = torch.logaddexp(log_probs.gather(1, columns), mass.log() + F.logsigmoid(-gate)[:, None])
    log_probs.scatter_(1, columns, both.gather(1, first))
