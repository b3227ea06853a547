"""A hidden Markov model of word alignment (Vogel, Ney & Tillmann 1996), with exact posteriors.

The model writes the target words from left to right. For each word it chooses a source word, or NULL with the
probability `NULL_SHARE`; then it writes the target word with the probability t(target word | source word). The choice
depends on the distance from the source word that was chosen before, which NULL does not change:

    p(a_j = k | a_1 .. a_{j-1}) = (1 - NULL_SHARE) * c(k - i) / sum over the source words k' of c(k' - i)

Here i is the last choice that was not NULL; at the beginning it is -1, the place before the first source word.
`jumps` (2 R + 1,) are the weights c of the distances -R to R; longer distances have the weight of the nearest one. Long
distances are rare, so the weight of each is the mean over distances that are about as long (`jump_weights`).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from nmtalign.alignment.lexical import Counts, Floats, Numbers

FARTHEST = 100  # R: distances beyond it have one weight
_ALIKE = 1.3  # distances are about as long if none is more than this number of times as long as the other
NULL_SHARE = 0.1  # the probability that a target word comes from no source word; chosen on gold links of a dev set


class Posteriors(NamedTuple):
    """What a model says about a batch of pairs with T target and S source words, padding included."""

    links: Floats  # (B, T, S): the probability that target word j comes from source word i, given all words
    null: Floats  # (B, T): the probability that it comes from none; 0 at padding
    log_probs: Floats  # (B, T): log p(target word | the words before it, all source words); 0 at padding
    jumps: Counts  # (2 R + 1,): how often the model expects each distance in the batch; 0 if they are not counted


def jump_weights(expected: Counts) -> Counts:
    """Returns the weights of distances (2 R + 1,), whose sum is 1, given how often each is expected."""
    lengths = np.arange(1, FARTHEST + 1)
    first, last = np.ceil(lengths / _ALIKE).astype(int), np.minimum(lengths * _ALIKE, FARTHEST).astype(int)
    means = []
    for one in (expected[:FARTHEST][::-1], expected[FARTHEST + 1 :]):  # to the left, to the right
        sums = np.append(0, one.cumsum())
        means.append((sums[last] - sums[first - 1]) / (last - first + 1))
    weights = np.concatenate((means[0][::-1], expected[[FARTHEST]], means[1]))
    weights += 1e-6 * weights.sum() + 1e-3  # no distance is impossible
    return np.asarray(weights / weights.sum())


def forward_backward(
    translation: Floats, null: Floats, lengths: Sequence[Numbers], jumps: Counts, count_jumps: bool = True
) -> Posteriors:
    """Returns the exact posteriors of a batch.

    `translation` (B, T, S) has t(target word | source word), and 0 at padding; `null` (B, T) has t(target word | NULL),
    more than 0. `lengths` (B,) count the words of source and target. Only learning needs `count_jumps`, which takes
    most of the time of a pair of hundreds of words.
    """
    batch, steps, width = translation.shape
    farthest = len(jumps) // 2
    # The places in `jumps` (S + 1, S) of the distances between places; row 0 is before the first word.
    distances = (np.arange(width) - np.arange(-1, width)[:, None]).clip(-farthest, farthest) + farthest
    weights = jumps.astype(translation.dtype)[distances]  # (S + 1, S): row i is the place i - 1
    inside = np.arange(width) < lengths[0][:, None]
    inverse = 1 / (inside.astype(translation.dtype) @ weights.T)  # (B, S + 1)
    emitted = np.multiply(translation.transpose(1, 0, 2), 1 - NULL_SHARE, order="C")
    padding = (np.arange(steps) >= lengths[1][:, None]).T
    kept = np.multiply(null.T, NULL_SHARE, order="C")[..., None]
    kept[padding] = 1  # a padded step keeps the place

    places = np.zeros((steps + 1, batch, width + 1), translation.dtype)  # the last choice after each word
    places[0, :, 0] = 1
    links = np.empty_like(emitted)
    scales = np.empty((steps, batch, 1), translation.dtype)
    for step in range(steps):
        arriving = (places[step] * inverse) @ weights * emitted[step]
        total = places[step] * kept[step]
        total[:, 1:] += arriving
        scales[step] = total.sum(1, keepdims=True)
        np.divide(total, scales[step], out=places[step + 1])
        np.divide(arriving, scales[step], out=links[step])

    later = np.ones((batch, width + 1), translation.dtype)  # what the words after a step say about its place
    moved = np.zeros((width + 1, width))
    absent = np.empty_like(scales)
    kept /= scales
    emitted /= scales
    for step in range(steps - 1, -1, -1):
        links[step] *= later[:, 1:]
        staying = kept[step] * later
        absent[step] = (places[step] * staying).sum(1, keepdims=True)
        leaving = emitted[step] * later[:, 1:]
        if count_jumps:
            moved += (places[step] * inverse).T @ leaving
        later = inverse * (leaving @ weights.T) + staying
    counts = np.zeros(len(jumps))
    if count_jumps:
        counts += np.bincount(distances.ravel(), (moved * weights).ravel(), len(jumps))
    absent[padding] = 0
    return Posteriors(links.transpose(1, 0, 2), absent[..., 0].T, np.log(scales[..., 0].T), counts)


def equal_choices(translation: Floats, null: Floats, source_lengths: Numbers) -> tuple[Floats, Floats]:
    """Returns the posteriors of IBM Model 1 (Brown et al. 1993), in which all source words are equally likely choices.

    The arguments and the results, links (B, T, S) and null (B, T), are those of `forward_backward`; `null` at padding
    is any number more than 0, and so is its posterior.
    """
    links = translation * ((1 - NULL_SHARE) / source_lengths).astype(translation.dtype)[:, None, None]
    absent = null * NULL_SHARE
    total = links.sum(2) + absent
    return links / total[..., None], absent / total
