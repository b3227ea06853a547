"""Two directions' soft alignments as one: how far both models agree on each link.

Forward and backward matrices F and B are both [target row, source column], (Ty+1, Tx+1) with the row and the column of
`</s>`, which stands for NULL, or (Ty, Tx) without: the backward one is turned round before it comes here. So a row of F
sums to 1 (where target word j comes from), and a column of B (what became of source word i).
"""

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.links import Link, Matrix
from nmtalign.config import SoftSymmetrization

# Of weights given to links by default; chosen on the development set of the gold alignments.
THRESHOLDS = {"product": 0.15, "mutual": 0.1, "agreement": 0.6}
_NULL = 0.01  # how much both directions' NULL counts beside the product of two words
_LEAST = 1e-12


def soft_links(
    forward: NDArray[Any], backward: NDArray[Any], method: SoftSymmetrization, threshold: float = 0.0, end: bool = True
) -> list[Link]:
    """The links on which two soft matrices agree, by target word, then by source word; a threshold of 0 is the default.

    - "product": sqrt(F[j, i] B[j, i]), the geometric mean of both weights, is at least the threshold (Liang et al.
      2006, who take the product of posteriors).
    - "mutual": the product is the largest of its row and of its column, the geometric mean at least the threshold.
    - "agreement": `posterior` is at least the threshold. At 0.5 this is minimum Bayes risk for the number of errors, a
      wrong link and a missing one counting alike; 0.6 had the lowest error rate for plain and for guided models.
    - "bayes-risk": minimum Bayes risk for F1, and so for AER where all gold links are sure (see `expected_f1_links`).
    """
    if method == "bayes-risk":
        return expected_f1_links(posterior(forward, backward, end))
    least = threshold or THRESHOLDS[method]
    if method == "agreement":
        return _linked(posterior(forward, backward, end) >= least)
    both = _both(forward, backward, end)
    chosen = both >= max(least**2, _LEAST)
    if method == "mutual":
        chosen &= (both == both.max(1, keepdims=True, initial=0)) & (both == both.max(0, keepdims=True, initial=0))
    return _linked(chosen)


def posterior(forward: NDArray[Any], backward: NDArray[Any], end: bool = True) -> Matrix:
    """The posterior of each link given both directions, (Ty, Tx) without `</s>`: fractions between 0 and 1.

    F[j, i] B[j, i] is how likely both directions choose the link (agreement, Liang et al. 2006). Normalised over the
    source words it is a posterior of where target word j comes from, over the target words one of what source word i
    became, each with NULL among the choices; the mean of both is returned.
    """
    both = _both(forward, backward, end)
    target_null, source_null = np.zeros((len(both), 1)), np.zeros((1, both.shape[1]))
    if end:
        target_null = _NULL * np.square(forward[:-1, -1:], dtype=np.float64)
        source_null = _NULL * np.square(backward[-1:, :-1], dtype=np.float64)
    by_target = both / (both.sum(1, keepdims=True) + target_null + _LEAST)
    by_source = both / (both.sum(0, keepdims=True) + source_null + _LEAST)
    return np.asarray((by_target + by_source) / 2, dtype=np.float32)


def expected_f1_links(posteriors: NDArray[Any]) -> list[Link]:
    """The links with the largest expected F1 = 2 |A and G| / (|A| + |G|) against gold links G, to the first order.

    Each possible link (Ty, Tx) is in G with its posterior, so that the expected |A and G| is the sum of those of A, and
    the expected |G| that of all. The best A of each size are the likeliest links; the best size is found by trying all.
    It comes to a threshold of half the F1 that can be expected, which is low where the models are unsure of all.
    """
    order = np.argsort(-posteriors, axis=None, kind="stable")
    sums = np.cumsum(posteriors.ravel()[order], dtype=np.float64)
    if not len(sums) or not sums[-1] > 0:
        return []
    size = int(np.argmax(sums / (np.arange(1, len(sums) + 1) + sums[-1]))) + 1
    chosen = np.zeros(posteriors.size, dtype=bool)
    chosen[order[:size]] = True
    return _linked(chosen.reshape(posteriors.shape))


def combined(forward: NDArray[Any], backward: NDArray[Any], mean: Literal["geometric", "arithmetic"]) -> Matrix:
    """One matrix of two with `</s>`: the mean of both weights of each link, and rows that sum to 1.

    NULL of a target word is the mean of its weight on `</s>` in F and of the chance that no source word chooses it in
    B, each choosing by itself; and so for the row of `</s>`, turned round. A row without any weight stays 0.
    """
    first, second = forward.astype(np.float64), backward.astype(np.float64)
    first[-1, :-1] = np.prod(1 - first[:-1, :-1], axis=0)
    second[:-1, -1] = np.prod(1 - second[:-1, :-1], axis=1)
    return _normalised(_mean(first, second, mean))


def combined_words(forward: NDArray[Any], backward: NDArray[Any], mean: Literal["geometric", "arithmetic"]) -> Matrix:
    """The same of two matrices without `</s>`: (Ty, Tx), no NULL."""
    return _normalised(_mean(forward.astype(np.float64), backward.astype(np.float64), mean))


def _mean(first: NDArray[Any], second: NDArray[Any], mean: Literal["geometric", "arithmetic"]) -> NDArray[Any]:
    return np.asarray(np.sqrt(np.maximum(first * second, 0)) if mean == "geometric" else (first + second) / 2)


def _normalised(weights: NDArray[Any]) -> Matrix:
    total = weights.sum(axis=1, keepdims=True)
    return np.asarray(np.divide(weights, total, out=np.zeros_like(weights), where=total > 0), dtype=np.float32)


def _both(forward: NDArray[Any], backward: NDArray[Any], end: bool) -> NDArray[np.float64]:
    """The product of both weights of each pair of words."""
    stop = -1 if end else None
    return np.asarray(forward[:stop, :stop].astype(np.float64) * backward[:stop, :stop])


def _linked(chosen: NDArray[np.bool_]) -> list[Link]:
    target, source = np.nonzero(chosen)
    return list(zip(source.tolist(), target.tolist(), strict=True))
