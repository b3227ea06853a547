"""The inputs and results of a translator: one request and one translation per line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nmtalign.search.beam_search import Array


@dataclass(frozen=True)
class Request:
    """A line to translate, and target text that its translation must contain.

    The translation begins with `prefix` and contains each of `phrases`. `extra` is passed on to the result unchanged;
    it contains the other keys of a JSON line.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Alternative:
    """One translation of a line.

    tokens: the tokens of the text, with unknown words replaced if that was requested. log_prob: the log-probability of
    the tokens and `</s>`. token_log_probs: the log-probability of each token and of `</s>`, len(tokens) + 1 numbers.
    score: the quantity that the search compares. alignment (len(tokens) + 1, source tokens + 1): the weights of each
    step, float32, whose last row and column belong to `</s>`; None if it was not requested.
    """

    text: str
    tokens: tuple[str, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...]
    alignment: Array | None = None


@dataclass(frozen=True)
class Translation:
    """The translations of one line, at least one: best first, or samples in the order in which they were drawn.

    A blank line has one empty translation. `source_unknown` counts the source tokens that are not in the vocabulary. A
    line that was split into `sentences`, or cut into several `pieces`, has the joined translations of its pieces; they
    are ordered by the sum of the scores of the pieces. `confidence` is the expected chrF / 100 of the best translation
    (`nmtalign.translating.confidence`), or None if the model has no calibration or there are several models.
    """

    request: Request
    source_tokens: tuple[str, ...]
    source_unknown: int
    n_best: tuple[Alternative, ...]
    pieces: int = 1
    sentences: int = 1
    confidence: float | None = None

    @property
    def source(self) -> str:
        """The line."""
        return self.request.text

    @property
    def text(self) -> str:
        """The best translation; it contains no line break."""
        return self.n_best[0].text

    @property
    def score(self) -> float:
        """The score of the best translation."""
        return self.n_best[0].score

    @property
    def log_prob(self) -> float:
        """The log-probability of the best translation, including `</s>`."""
        return self.n_best[0].log_prob

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the best translation."""
        return self.n_best[0].tokens

    @property
    def alignment(self) -> Array | None:
        """The weights of the best translation (len(tokens) + 1, source tokens + 1), or None."""
        return self.n_best[0].alignment


@dataclass(frozen=True)
class ScoredPair:
    """A sentence pair with the log-probability of its target.

    token_log_probs: those of each target token and of `</s>`, len(target_tokens) + 1 numbers. log_prob: their sum.
    score: the score that a search would give. `source_unknown` and `target_unknown` count unknown tokens.
    """

    number: int  # the number of the pair, from 0
    source: str
    target: str
    source_tokens: tuple[str, ...]
    target_tokens: tuple[str, ...]
    source_unknown: int
    target_unknown: int
    log_prob: float
    score: float
    token_log_probs: tuple[float, ...]

    @property
    def blank(self) -> bool:
        """Whether neither side has a token; the model does not score such a pair."""
        return not (self.source_tokens or self.target_tokens)
