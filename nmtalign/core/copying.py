"""The pointer-generator (See et al. 2017, equations 8 and 9; Gu et al. 2016): a model that can copy source words.

p(y) = p_gen softmax(y) + (1 - p_gen) * the sum of the weights of the source words that equal y. A copying model also
gets the ids of what is copied from each place of the source (`nmtalign.text.tokenizer.pair_ids`). A target id from K
is a place of the source, whose word the target vocabulary lacks. As an input it is `<unk>`.
"""

from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.decoder import DecoderOutput
from nmtalign.core.numerics import LEAST, Initialised, Role, wide
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.tokenizer import UNK_ID


def known_words(words: Tensor, size: int) -> Tensor:
    """Word ids with `<unk>` for the ids from `size`, the number of words of the vocabulary."""
    return words.masked_fill(words >= size, UNK_ID)


class Copying(Initialised):
    """The parameters of p_gen = sigmoid(w_c . context + w_s . state + w_x . previous word + b)."""

    def __init__(self, config: ModelConfig, context_size: int) -> None:
        super().__init__()
        self._words = config.target_vocabulary_size
        self.context_weight = Role.MATRIX.parameter(1, context_size)
        self.state_weight = Role.MATRIX.parameter(1, config.hidden)
        self.word_weight = Role.MATRIX.parameter(1, config.embedding)
        self.bias = Role.BIAS.parameter(1)

    def forward(self, state: Tensor, word: Tensor, context: Tensor) -> Tensor:
        """The logit (...) of p_gen, from states (..., n), previous words (..., m) and contexts (..., D)."""
        dtype = wide(word.dtype)
        total = F.linear(context.to(dtype), self.context_weight.to(dtype), self.bias.to(dtype))
        total = total + F.linear(state.to(dtype), self.state_weight.to(dtype))
        return (total + F.linear(word.to(dtype), self.word_weight.to(dtype))).squeeze(-1)

    def log_terms(self, run: DecoderOutput, target: Tensor) -> tuple[Tensor, Tensor]:
        """(log p_gen, log((1 - p_gen) * copied weight)) of target words (Ty, B), with a gradient.

        The first is -inf for a word beyond the vocabulary, the second for a word that cannot be copied.
        """
        equal = cast(Tensor, run.memory.copies) == target[..., None]
        mass = (cast(Tensor, run.weights) * equal).sum(-1).clamp_min(LEAST).log()
        mass = mass.masked_fill(~equal.any(-1), -torch.inf)
        gate = self(run.states, run.words, run.contexts)
        return F.logsigmoid(gate).masked_fill(target >= self._words, -torch.inf), F.logsigmoid(-gate) + mass
