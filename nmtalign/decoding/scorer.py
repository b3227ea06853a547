"""What a search asks of a model, step by step: the log-probabilities of the next word for every open hypothesis."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

from nmtalign.core.inference import Inference
from nmtalign.core.readout import CHUNK_CELLS, slices
from nmtalign.decoding.candidates import Candidates
from nmtalign.errors import UsageError


@dataclass(frozen=True)
class Choice:
    """What a search goes on with."""

    sentences: Tensor | None  # places of those that are kept among the last step's; None = all
    rows: Tensor  # (R,) the row of the last step that each goes on from; the rows of a sentence are adjacent
    words: Tensor  # (R,) ids of the words that they go on with


class WordScores(Protocol):
    """Natural logarithms of the probabilities of U words for R rows, some rows at a time."""

    @property
    def shape(self) -> tuple[int, int]:
        """(R, U)."""

    @property
    def device(self) -> torch.device:
        """Where they are."""

    def logits(self, rows: slice) -> tuple[Tensor, Tensor]:
        """(logits (r, U), log_sums (r, 1)) of some rows: logits - log_sums are the logarithms of the probabilities.

        In float32 (float64 for float64). The caller may change them, and is done with them when it asks for others.
        """


@dataclass(frozen=True)
class Step:
    """What one step gives."""

    scores: WordScores
    weights: Tensor | None  # (R, Tx), padding exactly 0; None without attention


class Session(Protocol):
    """One search over a batch of sentences."""

    def step(self, choice: Choice | None) -> Step:
        """The next step: of one row a sentence at the first, when there is no choice."""


class Scorer(Protocol):
    """A model, or several, that can score words."""

    def start(self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None) -> Session:
        """A session over sentences (B, Tx) that end with `</s>`; mask True = a real token.

        With candidates the words scored are theirs alone, and probabilities are among those of each sentence.
        """


def log_probs(scores: WordScores, rows: slice) -> Tensor:
    """Natural logarithms of the probabilities (r, U) of the words after some rows."""
    logits, log_sums = scores.logits(rows)
    return logits.sub_(log_sums)


def parts(shape: tuple[int, int], on_cpu: bool) -> list[slice]:
    """The rows of so many scores in parts that the processor's cache holds; all at once on a GPU."""
    rows, width = shape
    return list(slices(rows, width, CHUNK_CELLS if on_cpu else rows * width))


class ModelScorer:
    """Scores of one model."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def start(self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None) -> "ModelSession":
        """See `Scorer`."""
        return ModelSession(self.inference, source, source_mask, candidates)


class ModelSession:
    """One search with one model."""

    def __init__(self, inference: Inference, source: Tensor, mask: Tensor, candidates: Candidates | None) -> None:
        self._inference = inference
        self._memory = inference.encode(source, mask)
        self._state = inference.start(self._memory)
        self._weight, self._bias = inference.output_weight, inference.output_bias[None]
        self._several = candidates is not None  # whether each sentence has a bias of its own
        self._room, self._logits = _Room(), _Room()
        if candidates is not None:
            words = torch.from_numpy(candidates.words).to(source.device)
            allowed = torch.from_numpy(candidates.allowed).to(source.device)
            self._weight = self._weight[words]
            self._bias = self._bias[:, words].masked_fill(~allowed, -torch.inf)

    def step(self, choice: Choice | None) -> Step:
        """See `Session`."""
        previous = None
        if choice is not None:
            if choice.sentences is not None:
                self._memory = self._memory.select(choice.sentences)
                self._bias = self._bias[choice.sentences] if self._several else self._bias
            self._state, previous = self._state.select(choice.rows), choice.words
        self._state, features, weights = self._inference.step(self._memory, self._state, previous)
        (room,) = self._logits.of((len(features), len(self._weight)), features, 1)
        logits = torch.mm(features, self._weight.t(), out=room)  # without the bias
        return Step(Softmax(logits, self._bias, self._room), weights)


@dataclass(frozen=True)
class Softmax:
    """Of logits (R, U) and a bias that is still to be added: one for all rows (1, U), or one a sentence (B, U)."""

    logits_without_bias: Tensor
    bias: Tensor
    room: "_Room" = field(default_factory=lambda: _Room())

    @property
    def shape(self) -> tuple[int, int]:
        rows, width = self.logits_without_bias.shape
        return rows, width

    @property
    def device(self) -> torch.device:
        return self.logits_without_bias.device

    def logits(self, rows: slice) -> tuple[Tensor, Tensor]:
        narrow = self.logits_without_bias[rows]
        logits, normalised = self.room.of((len(narrow), narrow.shape[1]), self.bias, 2)
        logits.copy_(narrow)
        each = len(self.logits_without_bias) // len(self.bias)  # rows that share a bias
        first, last = rows.start // each, (rows.stop - 1) // each
        if first == last:
            logits.add_(self.bias[first])
        elif rows.start % each or rows.stop % each:
            logits.add_(self.bias[torch.arange(rows.start, rows.stop, device=logits.device) // each])
        else:
            logits.view(-1, each, logits.shape[1]).add_(self.bias[first : last + 1, None])
        # A softmax is found in half the time of a logarithm of a sum of exponentials. `</s>` is never banned in it.
        torch.log_softmax(logits, -1, out=normalised)
        return logits, logits[:, :1] - normalised[:, :1]


class _Room:
    """Arrays that are used again: new ones would come from the system page by page, at the cost of their use."""

    def __init__(self) -> None:
        self._flat = torch.empty(0)

    def of(self, shape: tuple[int, int], like: Tensor, count: int) -> list[Tensor]:
        """So many arrays of a shape (r, U), of the type of another; those that were handed out before are theirs."""
        cells = shape[0] * shape[1]
        if self._flat.numel() < count * cells or self._flat.dtype != like.dtype:
            self._flat = like.new_empty(count * cells)
        return [self._flat[number * cells : (number + 1) * cells].view(shape) for number in range(count)]


class Ensemble:
    """Several models as one: their probabilities averaged, or their log-probabilities, normalised again."""

    def __init__(self, scorers: Sequence[Scorer], average: Literal["probability", "log"] = "probability") -> None:
        if not scorers:
            raise UsageError("an ensemble needs at least one model")
        self._scorers, self._average = scorers, average

    def start(self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None) -> "_Together":
        """See `Scorer`."""
        sessions = [scorer.start(source, source_mask, candidates) for scorer in self._scorers]
        return _Together(sessions, self._average)


class _Together:
    def __init__(self, sessions: Sequence[Session], average: Literal["probability", "log"]) -> None:
        self._sessions, self._average = sessions, average

    def step(self, choice: Choice | None) -> Step:
        """See `Session`; the weights are the mean of those of the models with attention."""
        steps = [session.step(choice) for session in self._sessions]
        weights = [step.weights.float() for step in steps if step.weights is not None]
        mean = torch.stack(weights).mean(0) if weights else None
        return Step(_Average([step.scores for step in steps], self._average), mean)


@dataclass(frozen=True)
class _Average:
    scores: Sequence[WordScores]
    average: Literal["probability", "log"]

    @property
    def shape(self) -> tuple[int, int]:
        return self.scores[0].shape

    @property
    def device(self) -> torch.device:
        return self.scores[0].device

    def logits(self, rows: slice) -> tuple[Tensor, Tensor]:
        each = torch.stack([log_probs(scores, rows) for scores in self.scores])
        if self.average == "log":
            mean = each.mean(0)
            return mean, mean.logsumexp(-1, keepdim=True)
        total = each.logsumexp(0)
        return total, torch.full_like(total[:, :1], math.log(len(self.scores)))
