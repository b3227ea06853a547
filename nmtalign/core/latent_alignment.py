"""Attention as a latent alignment: each target word is generated from one source position, which is not known.

Soft attention generates a word from the mean context. Marginal attention sums over the positions (Shankar & Sarawagi
2019): p(y_t) = sum over j of weights[t, j] * p(y_t | state, previous word, annotations[j]). The sum has a term for
each of the most probable positions; the others share one term, whose context is their mean by their weights. Hard
attention generates the word from one position, which training samples and search takes as the most probable one (Xu
et al. 2015). The cell of the decoder receives the mean context, or (`PosteriorContexts`) the mean by the weights given
the word.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nmtalign.core.attention import MIN_ROWS, extended
from nmtalign.core.functional import dots
from nmtalign.settings.training_settings import ModelConfig

_SMALLEST = 1e-30  # of weights, before their logarithm is taken or they are divided


@dataclass(frozen=True)
class Alternatives:
    """The contexts from which words may be generated: C for each of R rows of B sentences."""

    shares: Tensor  # (B, R, C, Tx), of each annotation in each context
    log_weights: Tensor  # (B, R, C), the log-probability of each context; -inf for one without weight

    @classmethod
    def marginal(cls, weights: Tensor, positions: int) -> "Alternatives":
        """The most probable positions, and the mean of the others, under weights (B, R, Tx)."""
        length = weights.shape[-1]
        chosen, places = weights.topk(min(positions, length), -1)
        if length <= positions:
            return cls(_one_hot(places, weights), _log(chosen))
        rest = weights.scatter(-1, places, 0.0)
        mass = rest.sum(-1, keepdim=True)
        mean = rest / mass.clamp_min(_SMALLEST)
        shares = torch.cat([_one_hot(places, weights), mean[..., None, :]], -2)
        return cls(shares, _log(torch.cat([chosen, mass], -1)))

    @classmethod
    def one(cls, places: Tensor, weights: Tensor) -> "Alternatives":
        """The positions (B, R) with certainty, among those of weights (B, R, Tx)."""
        places = places[..., None]
        return cls(_one_hot(places, weights), torch.zeros_like(places, dtype=weights.dtype))

    @classmethod
    def sampled(cls, weights: Tensor) -> "Alternatives":
        """One position of each row, drawn from weights (B, R, Tx)."""
        places = (weights / torch.empty_like(weights).exponential_()).argmax(-1)
        return cls.one(places, weights)

    @classmethod
    def of(cls, config: ModelConfig, weights: Tensor) -> "Alternatives":
        """Those of a model outside training that has marginal or hard attention, for its weights (B, R, Tx)."""
        if config.attention_kind == "hard":
            return cls.one(weights.argmax(-1), weights)
        return cls.marginal(weights, config.attention_positions)

    def sums(self, values: Tensor) -> Tensor:
        """The sums (B, R, C, V) of values (B, Tx, V) by the shares; those of a row do not depend on the other rows."""
        shares = self.shares.flatten(1, 2).to(values.dtype)
        sums = torch.bmm(extended(shares, MIN_ROWS), values)[:, : shares.shape[1]]
        return sums.view(*self.log_weights.shape, -1)

    def with_copied(self, copied: Tensor) -> "Alternatives":
        """The same, and one more for the word that is copied from positions with weights (B, R, Tx)."""
        mass = copied.sum(-1, keepdim=True)
        shares = torch.cat([self.shares, (copied / mass.clamp_min(_SMALLEST))[..., None, :]], -2)
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


@dataclass(frozen=True)
class PosteriorFeed:
    """Computes the posterior weights of a step, given the word that it generates.

    The next step receives the context by these weights.
    """

    # (step, state (B, n), weights (B, Tx), previous word (B, m), products) -> posterior weights (B, Tx)
    given_word: Callable[[int, Tensor, Tensor, Tensor, Tensor], Tensor]
    words: Tensor  # (T, B, m), the vectors of the previous words
    products: Tensor  # (B, Tx, 2l), those of the readout with the annotations
    parameters: tuple[Tensor, ...]  # the others of the readout, which `given_word` uses

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """Those that receive gradients, in the order of `PosteriorContexts.gradients`."""
        return self.words, self.products, *self.parameters


class PosteriorContexts:
    """The contexts (T, B, D) of one pass by the posterior weights.

    The weights are computed again in the backward pass, so that the logits of one step exist at a time.
    """

    def __init__(self, values: Tensor, weights: Tensor, feed: PosteriorFeed) -> None:
        """`values` are the annotations (B, Tx, D); `weights` (T, B, Tx) are filled step by step by the caller."""
        self._values, self._weights, self._feed = values, weights, feed
        self._shares = torch.zeros_like(weights, dtype=values.dtype)
        self.contexts = values.new_zeros(*weights.shape[:2], values.shape[-1])

    def forward(self, step: int, row: Tensor) -> None:
        """Fills the context of a step, whose weights are known, for the states row (B, n)."""
        feed = self._feed
        self._shares[step] = feed.given_word(step, row, self._weights[step], feed.words[step], feed.products)
        self.contexts[step] = torch.bmm(self._shares[step, :, None], self._values).squeeze(1)

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_contexts = torch.zeros_like(self.contexts)
        self._d_words = torch.zeros_like(self._feed.words)
        self._d_shared = [torch.zeros_like(each) for each in (self._feed.products, *self._feed.parameters)]

    def backward(self, step: int, row: Tensor) -> tuple[Tensor, Tensor]:
        """The gradients of the states row (B, n) and of the weights (B, Tx), once `d_contexts[step]` is complete."""
        feed = self._feed
        d_posterior = dots(self.d_contexts[step], self._values)
        inputs = row, self._weights[step], feed.words[step], feed.products
        leaves = [each.detach().requires_grad_() for each in inputs]
        with torch.enable_grad():
            posterior = feed.given_word(step, *leaves)
        found = torch.autograd.grad(posterior, [*leaves, *feed.parameters], d_posterior.to(posterior.dtype))
        self._d_words[step] = found[2]
        for total, part in zip(self._d_shared, found[3:], strict=True):
            total += part
        return found[0], found[1]

    def d_values(self) -> Tensor:
        """The gradient of the values, after all backward steps."""
        return torch.bmm(self._shares.permute(1, 2, 0), self.d_contexts.transpose(0, 1))

    def gradients(self) -> tuple[Tensor, ...]:
        """Those of the words, products and parameters of the feed, after all backward steps."""
        return self._d_words, *self._d_shared


def _one_hot(places: Tensor, weights: Tensor) -> Tensor:
    """Shares (B, R, C, Tx) of contexts that are one annotation each, at places (B, R, C)."""
    shares = weights.new_zeros(*places.shape, weights.shape[-1])
    return shares.scatter_(-1, places[..., None], 1.0)


def _log(weights: Tensor) -> Tensor:
    """The logarithm; -inf, with a gradient of 0, for the weight 0."""
    return weights.clamp_min(_SMALLEST).log().masked_fill(weights == 0, -torch.inf)
