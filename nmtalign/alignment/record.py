"""One sentence pair with its soft alignment."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.links import THRESHOLD, Link, Matrix, hard_links
from nmtalign.config import LinkMethod

__all__ = ["AlignmentRecord", "Link", "Matrix", "check_shape"]


@dataclass(frozen=True)
class AlignmentRecord:
    """The words of a pair, the weights between them and the log-probability of the target given the source.

    `weights` (Ty+1, Tx+1): row j is target word j, the last row the target's `</s>`; column i is source word i, the
    last column the source's `</s>`; a row sums to 1. A pair without source or target words was not given to the model:
    its weights are 0, its log-probability is 0 and it has no links.
    `token_log_probs` (Ty+1,): natural logarithm of the probability of each target word, then of `</s>`.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Matrix
    log_prob: float
    sentence_id: int
    token_log_probs: NDArray[np.float32]
    hard_links: tuple[Link, ...]
    rank: int = 0  # place in an n-best list, from 0
    end: bool = True  # whether the row and the column of `</s>` are there; without them `weights` is (Ty, Tx)
    dropped_mass: float = 0.0  # the sum of the column of `</s>` over the target words, before it was dropped

    def links(self, method: LinkMethod | None = None, threshold: float | None = None) -> list[Link]:
        """The hard links, (source, target), by target word: those stored with the weights, if nothing is said.

        Otherwise they are read off the weights: "argmax" or "threshold" (see `hard_links`), which a threshold given
        alone means, too. Raises ValueError for another method.
        """
        if method is None and threshold is None:
            return list(self.hard_links)
        if method not in (None, "argmax", "threshold"):
            raise ValueError(f"links are read by argmax or by threshold, not by {method!r}")
        return hard_links(self.weights, method or "threshold", THRESHOLD if threshold is None else threshold, self.end)

    def end_mass(self) -> float:
        """The sum over the target words of their weight on the source's `</s>`.

        Where its column was dropped it is what was dropped, and of a record that was read from a file then 0.
        """
        if not self.end:
            return self.dropped_mass
        return float(self.weights[:-1, -1].sum(dtype=np.float64))

    def empty(self) -> bool:
        """Whether a side has no words, so that there was nothing to align."""
        return not (self.source and self.target)


def check_shape(source: Sequence[str], target: Sequence[str], weights: NDArray[Any], end: bool = True) -> None:
    """Raises ValueError unless the weights have a row a target word and a column a source word, and one for `</s>`.

    Without `end` that of `</s>` is not there.
    """
    more = 1 if end else 0
    expected = (len(target) + more, len(source) + more)
    if weights.shape != expected:
        words = "these words and </s>" if end else "these words"
        raise ValueError(f"weights have the shape {weights.shape}; {words} need {expected}")
