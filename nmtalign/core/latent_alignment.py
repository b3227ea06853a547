"""Attention as a latent alignment: each target word is generated from one source position, which is not known.

Soft attention generates a word from the mean context. Marginal attention sums over the positions (Shankar & Sarawagi
2019): p(y_t) = sum over j of weights[t, j] * p(y_t | state, previous word, annotations[j]). The sum has a term for
each of the most probable positions; the others share one term, whose context is their mean by their weights. Hard
attention generates the word from one position, which training samples and search takes as the most probable one (Xu
et al. 2015). The cell of the decoder receives the mean context.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from nmtalign.core.numerics import LEAST
from nmtalign.settings.training_settings import ModelConfig


@dataclass(frozen=True)
class Alternatives:
    """The contexts from which words may be generated: C for each of R rows of B sentences."""

    shares: Tensor  # (B, R, C, Tx), of each annotation in each context
    log_weights: Tensor  # (B, R, C), the log-probability of each context; -inf for one without weight
    drawn: bool = False  # whether the contexts were sampled

    def sums(self, values: Tensor) -> Tensor:
        """The sums (B, R, C, V) of values (B, Tx, V) by the shares."""
        return torch.bmm(self.shares.flatten(1, 2).to(values.dtype), values).view(*self.log_weights.shape, -1)

    def with_copied(self, copied: Tensor) -> "Alternatives":
        """The same, and one more for the word that is copied from positions with weights (B, R, Tx)."""
        mass = copied.sum(-1, keepdim=True)
        shares = torch.cat([self.shares, (copied / mass.clamp_min(LEAST))[..., None, :]], -2)
        return Alternatives(shares, torch.cat([self.log_weights, _log(mass)], -1))

    def posterior(self, log_joint: Tensor) -> Tensor:
        """The probability (B, R, Tx) of each position, given log p(context, word) (B, R, C).

        The positions that share a context keep their proportions.
        """
        return (log_joint.softmax(-1)[..., None, :] @ self.shares).squeeze(-2)

    def cost_of_draws(self, weights: Tensor, rewards: Tensor, mask: Tensor) -> Tensor:
        """A number whose gradient teaches weights (B, R, Tx) to draw positions with large rewards (REINFORCE).

        rewards (B, R) are the log-probabilities of the words, of which those with mask (B, R) count. The baseline of a
        word is the mean of the others: unlike a moving average it needs no state, and it depends on no other batch.
        """
        counted = mask.to(weights.dtype)
        count, total = counted.sum(), (rewards * counted).sum()
        advantages = counted * (count * rewards - total) / (count - 1).clamp_min(1)
        return -(advantages.detach() * _log((weights * self.shares[..., 0, :]).sum(-1))).sum()


class Latent:
    """Chooses the alternatives of a model with marginal or hard attention."""

    def __init__(self, config: ModelConfig) -> None:
        self._hard, self._positions = config.attention_kind == "hard", config.attention_positions

    def alternatives(self, weights: Tensor, draw: bool = False) -> Alternatives:
        """Those for weights (B, R, Tx); with `draw`, hard attention samples a position of each row."""
        if not self._hard:
            return self.marginal(weights)
        places = (weights / torch.empty_like(weights).exponential_() if draw else weights).argmax(-1)[..., None]
        return Alternatives(_one_hot(places, weights), torch.zeros_like(places, dtype=weights.dtype), draw)

    def marginal(self, weights: Tensor) -> Alternatives:
        """The most probable positions, and the mean of the others, under weights (B, R, Tx)."""
        length = weights.shape[-1]
        chosen, places = weights.topk(min(self._positions, length), -1)
        if length <= self._positions:
            return Alternatives(_one_hot(places, weights), _log(chosen))
        rest = weights.scatter(-1, places, 0.0)
        mass = rest.sum(-1, keepdim=True)
        mean = rest / mass.clamp_min(LEAST)
        shares = torch.cat([_one_hot(places, weights), mean[..., None, :]], -2)
        return Alternatives(shares, _log(torch.cat([chosen, mass], -1)))


def _one_hot(places: Tensor, weights: Tensor) -> Tensor:
    """Shares (B, R, C, Tx) of contexts that are one annotation each, at places (B, R, C)."""
    shares = weights.new_zeros(*places.shape, weights.shape[-1])
    return shares.scatter_(-1, places[..., None], 1.0)


def _log(weights: Tensor) -> Tensor:
    """The logarithm; -inf, with a gradient of 0, for the weight 0."""
    return weights.clamp_min(LEAST).log().masked_fill(weights == 0, -torch.inf)
