"""What goes into a translator and what comes out of it, a line each."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nmtalign.decoding.trace import Array


@dataclass(frozen=True)
class Request:
    """A line to translate, and what its translation has to hold.

    `prefix` is target text with which the translation begins; each of `phrases` (target text) appears in it somewhere.
    `extra` is passed through to the result unread: the other keys of a line of JSON.
    """

    text: str
    prefix: str = ""
    phrases: tuple[str, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Alternative:
    """One translation of a line.

    tokens: those of the text, unknown words replaced where that was asked for. log_prob: natural logarithm of the
    probability of the tokens and `</s>`; token_log_probs: that of each, len(tokens) + 1 of them, the last that of
    `</s>`. score: what the search compares. alignment (len(tokens) + 1, source tokens + 1): weights of each step over
    the source, float32, the last row and the last column those of `</s>`; None where it was not asked for.
    """

    text: str
    tokens: tuple[str, ...]
    score: float
    log_prob: float
    token_log_probs: tuple[float, ...]
    alignment: Array | None = None


@dataclass(frozen=True)
class Translation:
    """What became of one line: its translations, best first, or samples in the order drawn; at least one.

    A blank line has one empty translation. `source_unknown` counts the source tokens that the model does not know. A
    line in more than one piece has one translation, joined of theirs.
    """

    request: Request
    source_tokens: tuple[str, ...]
    source_unknown: int
    n_best: tuple[Alternative, ...]
    pieces: int = 1

    @property
    def source(self) -> str:
        """The line."""
        return self.request.text

    @property
    def text(self) -> str:
        """The best translation, without any end of line in it."""
        return self.n_best[0].text

    @property
    def score(self) -> float:
        """The score of the best."""
        return self.n_best[0].score

    @property
    def log_prob(self) -> float:
        """The log-probability of the best, `</s>` counted."""
        return self.n_best[0].log_prob

    @property
    def tokens(self) -> tuple[str, ...]:
        """The tokens of the best."""
        return self.n_best[0].tokens

    @property
    def alignment(self) -> Array | None:
        """The weights of the best (len(tokens) + 1, source tokens + 1), or None."""
        return self.n_best[0].alignment


@dataclass(frozen=True)
class ScoredPair:
    """A pair with what the models say of its target.

    token_log_probs: of each target token, then of `</s>`: len(target_tokens) + 1 of them, natural logarithms.
    log_prob: their sum. score: what a search makes of it. The unknown ones are counted among the tokens of each side.
    """

    number: int  # of the pair, from 0
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
        """Whether neither side has a word, so that no model was asked."""
        return not (self.source_tokens or self.target_tokens)
