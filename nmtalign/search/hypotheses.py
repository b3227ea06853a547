"""Hypotheses, how they are scored, and the options of a search."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from nmtalign.errors import UsageError

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
    belong to `</s>`; None if they were not requested or the model has no attention. given: the words of required
    phrases that the model does not know, by their positions in `tokens`, where there is an `<unk>`.
    """

    tokens: tuple[int, ...]
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]
    weights: npt.NDArray[np.float32] | None = None
    given: Mapping[int, str] = field(default_factory=dict)


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
        """The score of a translation; `coverage` (Tx,) is the sum of the weights of each source word."""
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
class SearchOptions:
    """The options of `beam_search`; raises UsageError if n_best is larger than the beam.

    With `safe_stop` a sentence is finished when no open hypothesis can become one of the n_best any more. Without it,
    a sentence is finished when its beam is empty, as in the released code of Bahdanau et al. (2015).
    """

    beam: int = 12
    scoring: Scoring = field(default_factory=Scoring)
    n_best: int = 1
    allow_unk: bool = False
    min_length_ratio: float = 0.0
    max_length_ratio: float = 3.0
    safe_stop: bool = True
    keep_weights: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam:
            raise UsageError(f"n_best = {self.n_best}: must be from 1 to the beam, which is {self.beam}")
