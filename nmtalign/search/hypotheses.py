"""Hypotheses, how they are scored, and the back-pointers from which a search reconstructs them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SMALLEST_COVERAGE = 1e-6  # a source word without any weight costs the logarithm of this


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: word ids without `</s>`. log_prob: the sum over all words and `</s>`. score: see `Scoring`.
    token_log_probs: len(tokens) + 1 numbers. weights: (len(tokens) + 1, Tx) float32, whose last row and last column
    belong to `</s>`; None if they were not requested or the model has no attention. phrase_at: for each required
    phrase, its first position in `tokens`, which shows to which phrase an `<unk>` belongs.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]
    weights: npt.NDArray[np.float32] | None = None
    phrase_at: tuple[int, ...] = ()


@dataclass(frozen=True)
class Scoring:
    """score = (log_prob - word_penalty * length) / length ** length_penalty + coverage_penalty * coverage.

    The length includes `</s>`. The coverage is the sum over the source words of log(min(1, sum of the word's weights))
    (Wu et al. 2016, equation 14); it is at most 0.
    """

    length_penalty: float = 1.0
    word_penalty: float = 0.0
    coverage_penalty: float = 0.0

    def score(self, log_prob: float, length: int, coverage: Array | None = None) -> float:
        """The score of a translation; `coverage` (Tx,) holds the sum of the weights of each source word."""
        score = float((log_prob - self.word_penalty * length) / length**self.length_penalty)
        if coverage is not None and self.coverage_penalty:
            score += self.coverage_penalty * float(np.log(np.clip(coverage, _SMALLEST_COVERAGE, 1.0)).sum())
        return score

    def bound(self, log_probs: Array, shortest: int, longest: Array) -> Array:
        """The highest score that open hypotheses (B,) can reach at a length from `shortest` to their `longest` (B,).

        Each further word lowers the log-probability and coverage is never positive, so the present log-probability is
        the best case.
        """
        if not self.word_penalty:
            return np.asarray(log_probs / longest**self.length_penalty)
        lengths = np.arange(shortest, max(shortest, int(longest.max())) + 1)
        scores = (log_probs[:, None] - self.word_penalty * lengths) / lengths**self.length_penalty
        allowed = (lengths <= longest[:, None]) | (lengths == shortest)
        return np.asarray(np.where(allowed, scores, -np.inf).max(axis=1))


@dataclass(frozen=True)
class Ending:
    """A `</s>` after a row: the step (0 = first), the row of that step, the log-probabilities and the score."""

    step: int
    row: int
    token_log_prob: float
    log_prob: float
    score: float


class BackPointers:
    """The words and weights of all steps of a search.

    Row r of step t + 1 is described by entry r of the arrays that were added after step t.
    """

    def __init__(self, keep_weights: bool, scoring: Scoring) -> None:
        self._keep_weights, self._scoring = keep_weights, scoring
        self._steps: list[tuple[Array, Array, Array]] = []  # previous rows, words, log-probabilities of the words
        self._weights: list[Array] = []  # (rows, Tx) for each step
        self._coverage: Array | None = None  # (rows, Tx), sums of the weights so far, if the score needs them

    def add_weights(self, weights: Tensor | None) -> None:
        """Stores the attention weights (rows, Tx) of a step, if hypotheses or scores need them."""
        if weights is None or not (self._keep_weights or self._scoring.coverage_penalty):
            return
        on_host = weights.float().cpu().numpy()
        if self._keep_weights:
            self._weights.append(on_host)
        if self._scoring.coverage_penalty:
            self._coverage = on_host if self._coverage is None else on_host + self._coverage[self._steps[-1][0]]

    def add(self, rows: Array, tokens: Array, log_probs: Array) -> None:
        """Adds the rows of the next step: for each, the row of this step that it continues, and the word."""
        self._steps.append((rows, tokens, log_probs))

    def ending(self, row: int, token_log_prob: float, log_prob: float, source_length: int) -> Ending:
        """The ending of a row of the latest step; source_length includes the `</s>` of the source."""
        step = len(self._steps)
        # The last column belongs to the `</s>` of the source, which need not be covered.
        coverage = None if self._coverage is None else self._coverage[row, : source_length - 1]
        return Ending(step, row, token_log_prob, log_prob, self._scoring.score(log_prob, step + 1, coverage))

    def hypothesis(self, ending: Ending, source_length: int) -> Hypothesis:
        """Reconstructs the hypothesis that has this ending; source_length includes `</s>`."""
        row, path, tokens, log_probs = ending.row, [ending.row], [], [ending.token_log_prob]
        for rows, words, gains in reversed(self._steps[: ending.step]):
            tokens.append(int(words[row]))
            log_probs.append(float(gains[row]))
            row = int(rows[row])
            path.append(row)
        weights = None
        if self._weights:
            steps = zip(self._weights, reversed(path), strict=False)
            weights = np.stack([step[place, :source_length] for step, place in steps]).astype(np.float32)
        return Hypothesis(tuple(reversed(tokens)), ending.log_prob, ending.score, tuple(reversed(log_probs)), weights)
