"""Back-pointers of a beam search, and the hypotheses that are read off along them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import Tensor

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Hypothesis:
    """A finished translation.

    tokens: word ids without `</s>`. log_prob: sum over the words and `</s>`. score: see `Scoring`. token_log_probs:
    len(tokens) + 1 of them. weights (len(tokens) + 1, Tx) float32, whose last row and last column belong to `</s>`;
    None where they were not asked for or the model has no attention. phrase_at: for each phrase that was asked for,
    the place in `tokens` where it begins, which tells whose `<unk>` is whose.
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

    def __init__(self, keep_weights: bool, scoring: Scoring) -> None:
        self._keep_weights, self._scoring = keep_weights, scoring
        self._steps: list[tuple[Array, Array, Array]] = []  # rows they come from, words, log-probabilities
        self._weights: list[Array] = []  # (rows, Tx) a step
        self._coverage: Array | None = None  # (rows, Tx), sums of the weights so far, where the score counts them

    def read(self, weights: Tensor | None) -> None:
        """Keeps the weights (rows, Tx) with which a step chooses its words, where they are wanted."""
        if weights is None or not (self._keep_weights or self._scoring.coverage_penalty):
            return
        read = weights.float().cpu().numpy()
        if self._keep_weights:
            self._weights.append(read)
        if self._scoring.coverage_penalty:
            self._coverage = read if self._coverage is None else read + self._coverage[self._steps[-1][0]]

    def add(self, rows: Array, tokens: Array, log_probs: Array) -> None:
        """Keeps the rows that a step goes on with: the row of this step that each comes from, its word."""
        self._steps.append((rows, tokens, log_probs))

    def ending(self, row: int, token_log_prob: float, log_prob: float, source_length: int) -> Ending:
        """That a row of the step that was read last ends with `</s>`; source_length counts the source's own."""
        step = len(self._steps)
        # The last column that is read is that of the source's own `</s>`, which need not be covered.
        read = None if self._coverage is None else self._coverage[row, : source_length - 1]
        return Ending(step, row, token_log_prob, log_prob, self._scoring.score(log_prob, step + 1, read))

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
