"""Back-pointers of a beam search, and the hypotheses that are read off along them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: word ids without `</s>`. log_prob: sum over the words and `</s>`. score: see `Scoring`. token_log_probs:
    len(tokens) + 1 of them. weights (len(tokens) + 1, Tx) float32, whose last row and last column belong to `</s>`;
    None where they were not asked for or the model has no attention.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]
    weights: npt.NDArray[np.float32] | None = None


@dataclass(frozen=True)
class Scoring:
    """score = (log_prob - word_penalty * length) / length ** length_penalty + coverage_penalty * coverage.

    length counts `</s>`; coverage is the sum over the source words of log(min(1, sum of the weights on the word))
    (Wu et al. 2016, equation 14), at most 0.
    """

    length_penalty: float = 1.0
    word_penalty: float = 0.0
    coverage_penalty: float = 0.0

    def score(self, log_prob: float, length: int, coverage: Array | None = None) -> float:
        """The score of a translation; `coverage` (Tx,) are the sums of its weights on each source word."""
        score = float((log_prob - self.word_penalty * length) / length**self.length_penalty)
        if coverage is not None and self.coverage_penalty:
            score += self.coverage_penalty * float(np.log(np.clip(coverage, _LEAST_COVERAGE, 1.0)).sum())
        return score

    def bound(self, log_probs: Array, shortest: int, longest: Array) -> Array:
        """The most that open hypotheses (B,) can score at a length from `shortest` to their `longest` (B,).

        Every further word costs probability and coverage only takes away, so log_prob stays what it is at best.
        """
        if not self.word_penalty:
            return np.asarray(log_probs / longest**self.length_penalty)
        lengths = np.arange(shortest, max(shortest, int(longest.max())) + 1)
        scores = (log_probs[:, None] - self.word_penalty * lengths) / lengths**self.length_penalty
        allowed = (lengths <= longest[:, None]) | (lengths == shortest)
        return np.asarray(np.where(allowed, scores, -np.inf).max(axis=1))


_LEAST_COVERAGE = 1e-6  # a word that was not read at all costs log of this


@dataclass(frozen=True)
class Ending:
    """A `</s>` that follows a row: the step (0 = first), the row of that step, and what it gives."""

    step: int
    row: int
    token_log_prob: float
    log_prob: float
    score: float


class Trace:
    """What each step of a search leaves behind; a row of step t + 1 is entry number `row` of what step t added."""

    def __init__(self, keep_weights: bool) -> None:
        self._keep_weights = keep_weights
        self._steps: list[tuple[Array, Array, Array]] = []  # rows they come from, words, log-probabilities
        self._weights: list[Array] = []  # (rows, Tx) a step

    def add_weights(self, weights: Array) -> None:
        """Keeps the weights (rows, Tx) with which a step chose its words, if they are wanted."""
        if self._keep_weights:
            self._weights.append(weights)

    def add(self, rows: Array, tokens: Array, log_probs: Array) -> None:
        """Keeps the rows that a step goes on with: the row of this step that each comes from, its word."""
        self._steps.append((rows, tokens, log_probs))

    def hypothesis(self, ending: Ending, source_length: int) -> Hypothesis:
        """Reads off the hypothesis that `ending` ends; source_length counts `</s>`."""
        row, places, tokens, log_probs = ending.row, [ending.row], [], [ending.token_log_prob]
        for rows, words, gains in reversed(self._steps[: ending.step]):
            tokens.append(int(words[row]))
            log_probs.append(float(gains[row]))
            row = int(rows[row])
            places.append(row)
        weights = None
        if self._weights:
            steps = zip(self._weights, reversed(places), strict=False)
            weights = np.stack([step[place, :source_length] for step, place in steps]).astype(np.float32)
        return Hypothesis(tuple(reversed(tokens)), ending.log_prob, ending.score, tuple(reversed(log_probs)), weights)
