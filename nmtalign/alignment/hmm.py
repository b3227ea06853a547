"""A hidden Markov model of word alignment (Vogel, Ney & Tillmann 1996), with exact posteriors.

The model writes the target words from left to right. For each word it chooses a source word, or NULL with the
probability `NULL_SHARE`; then it writes the target word with the probability t(target word | source word). The choice
depends on the distance from the source word that was chosen before, which NULL does not change:

    p(a_j = k | a_1 .. a_{j-1}) = (1 - NULL_SHARE) * c(k - i) / sum over the source words k' of c(k' - i)

Here i is the last choice that was not NULL; at the beginning it is -1, the place before the first source word.
`jumps` (2 R + 1,) are the weights c of the distances -R to R; longer distances have the weight of the nearest one.
"""

from typing import NamedTuple

import torch
from torch import Tensor

FARTHEST = 8  # R: distances beyond it have one weight
NULL_SHARE = 0.2  # the probability that a target word comes from no source word; chosen on gold links of a dev set


class Posteriors(NamedTuple):
    """What a model says about a batch of pairs with T target and S source words, padding included."""

    links: Tensor  # (B, T, S): the probability that target word j comes from source word i, given all words
    null: Tensor  # (B, T): the probability that it comes from none; 0 at padding
    log_probs: Tensor  # (B, T): log p(target word | the words before it, all source words); 0 at padding
    jumps: Tensor  # (2 R + 1,): how often the model expects each distance in the batch


def even_jumps() -> Tensor:
    """Returns the weights of distances before training: all equal (2 R + 1,), float64."""
    return torch.ones(2 * FARTHEST + 1, dtype=torch.float64)


def forward_backward(
    translation: Tensor, null: Tensor, source_lengths: Tensor, target_lengths: Tensor, jumps: Tensor
) -> Posteriors:
    """Returns the exact posteriors of a batch.

    `translation` (B, T, S) has t(target word | source word), and 0 at padding; `null` (B, T) has t(target word | NULL),
    more than 0. The lengths (B,) count words.
    """
    batch, steps, width = translation.shape
    farthest = len(jumps) // 2
    # The places in `jumps` (S + 1, S) of the distances between places; row 0 is before the first word.
    distances = (torch.arange(width) - torch.arange(-1, width)[:, None]).clamp_(-farthest, farthest) + farthest
    weights = jumps.to(translation.dtype)[distances]  # (S + 1, S): row i is the place i - 1
    inside = torch.arange(width) < source_lengths[:, None]
    inverse = 1 / (inside.to(translation.dtype) @ weights.T)  # (B, S + 1)
    emitted = translation.permute(1, 0, 2) * (1 - NULL_SHARE)
    padding = (torch.arange(steps) >= target_lengths[:, None]).T[..., None]
    kept = (null.T[..., None] * NULL_SHARE).masked_fill(padding, 1)  # a padded step keeps the place

    places = translation.new_zeros(steps + 1, batch, width + 1)  # the last choice after each word
    places[0, :, 0] = 1
    links = torch.empty_like(emitted)
    scales = translation.new_empty(steps, batch, 1)
    for step in range(steps):
        arriving = (places[step] * inverse) @ weights * emitted[step]
        total = places[step] * kept[step]
        total[:, 1:] += arriving
        scales[step] = total.sum(1, keepdim=True)
        torch.div(total, scales[step], out=places[step + 1])
        torch.div(arriving, scales[step], out=links[step])

    later = translation.new_ones(batch, width + 1)  # what the words after a step say about its place
    leaving = torch.empty_like(emitted)
    absent = torch.empty_like(scales)
    kept /= scales
    for step in range(steps - 1, -1, -1):
        links[step] *= later[:, 1:]
        staying = kept[step] * later
        torch.sum(places[step] * staying, 1, keepdim=True, out=absent[step])
        torch.mul(emitted[step], later[:, 1:], out=leaving[step]).div_(scales[step])
        later = inverse * (leaving[step] @ weights.T) + staying
    moved = (places[:-1] * inverse).flatten(0, 1).T @ leaving.flatten(0, 1) * weights
    counts = torch.zeros(len(jumps), dtype=torch.float64).index_add_(0, distances.flatten(), moved.flatten().double())
    absent.masked_fill_(padding, 0)
    return Posteriors(links.permute(1, 0, 2), absent[..., 0].T, scales[..., 0].T.log(), counts)


def equal_choices(translation: Tensor, null: Tensor, source_lengths: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the posteriors of IBM Model 1 (Brown et al. 1993), in which all source words are equally likely choices.

    The arguments and the results, links (B, T, S) and null (B, T), are those of `forward_backward`; `null` at padding
    is any number more than 0, and so is its posterior.
    """
    links = translation * ((1 - NULL_SHARE) / source_lengths)[:, None, None]
    absent = null * NULL_SHARE
    total = links.sum(2) + absent
    return links / total[..., None], absent / total
