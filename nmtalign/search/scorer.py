"""Scorers give the log-probabilities of the next word: one model, or several models as an ensemble.

Beam search, sampling and forced decoding ask a scorer for one step after the other.
"""

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.attention import select_rows
from nmtalign.core.copying import known_words
from nmtalign.core.functional import product
from nmtalign.core.inference import Inference
from nmtalign.core.int8 import Int8Matrix, Int8Weight, outputs_of
from nmtalign.core.readout import CHUNK_CELLS, slices
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.search.candidates import Candidates

Array = npt.NDArray[Any]
Average = Literal["probability", "log"]
_INT8_PART_CELLS = 3 << 19  # logits of a part in eight bits, whose products are not kept beside it
_SMALLEST = 1e-30  # smaller probabilities are imprecise
_LOWEST = -1e30  # below any log-probability except -inf


@dataclass(frozen=True)
class Choice:
    """The rows and words with which a search continues."""

    sentences: Tensor | None  # positions, among the sentences of the last step, of those that continue; None = all
    rows: Tensor  # (R,) the row of the last step that each row continues; the rows of a sentence are adjacent
    words: Tensor  # (R,) the id of the word that extends each row


class Session(ABC):
    """The steps of one search over a batch of sentences, and the log-probabilities that the latest step gives.

    A step has R rows, the same number for each sentence, and scores U words: those of the vocabulary, and the places of
    the source if a model can copy words of these sentences that the vocabulary lacks. The caller asks for the
    log-probabilities of a few rows at a time.
    """

    device: torch.device
    part_cells: int = CHUNK_CELLS  # logits that are processed together on a CPU
    weights: Tensor | None = None  # (R, Tx) of the latest step, exactly 0 at padding; None without attention

    @abstractmethod
    def step(self, choice: Choice | None) -> None:
        """Makes the next step. The first step has one row per sentence and no choice (None)."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(R, U) of the latest step."""

    @abstractmethod
    def logits(self, rows: slice) -> tuple[Tensor, Tensor]:
        """(logits (r, U), log_sums (r, 1)) of some rows; the log-probabilities are logits - log_sums.

        Both are float32 (float64 for a float64 model). The caller may change them; the next call overwrites them.
        """

    def log_probs(self, rows: slice) -> Tensor:
        """The log-probabilities (r, U) of some rows; the next call overwrites them."""
        logits, log_sums = self.logits(rows)
        return logits.sub_(log_sums)

    def log_probs_of(self, words: Tensor) -> Tensor:
        """The log-probability (R,) of one word (R,) in each row."""
        found = []
        for rows in self.parts():
            logits, log_sums = self.logits(rows)
            found.append((logits.gather(1, words[rows, None]) - log_sums).squeeze(1))
        return torch.cat(found)

    def parts(self) -> list[slice]:
        """All rows, in parts that fit into the processor's cache; one part on a GPU."""
        rows, width = self.shape
        return list(slices(rows, width, self.part_cells if self.device.type == "cpu" else rows * width))


class Scorer(Protocol):
    """A model or an ensemble of models that can score words."""

    def start(
        self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None, copies: Tensor | None = None
    ) -> Session:
        """A session over sentences (B, Tx) that end with `</s>`; mask True = a real token.

        `copies` (B, Tx) are the ids that a copying model copies from each place. With candidates only their words are
        scored, and the probabilities of each sentence are normalised over the words that it may use. The candidates of
        a sentence include all words that the model can copy.
        """


class ModelScorer:
    """The scores of one model."""

    def __init__(self, inference: Inference) -> None:
        self.inference = inference

    def start(
        self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None, copies: Tensor | None = None
    ) -> Session:
        """See `Scorer`."""
        return _ModelSession(self.inference, source, source_mask, candidates, copies)


class _ModelSession(Session):
    """The steps of one search with one model.

    The logits are products plus a bias: one bias for all rows (1, U), or with candidates one per sentence (B, U).
    """

    def __init__(
        self,
        inference: Inference,
        source: Tensor,
        mask: Tensor,
        candidates: Candidates | None,
        copies: Tensor | None,
    ) -> None:
        self.device = source.device
        self._inference = inference
        self._memory = inference.encode(source, mask, copies)
        self._state = inference.start(self._memory)
        self._weight: Tensor | Int8Matrix = inference.output_weight
        self._by_parts = isinstance(self._weight, Int8Weight)
        self.part_cells = _INT8_PART_CELLS if self._by_parts else CHUNK_CELLS
        self._bias = inference.output_bias[None]
        self._bias_per_sentence = candidates is not None
        self._product_buffer, self._softmax_buffers = _ReusedBuffers(), _ReusedBuffers()
        size = len(self._weight)
        if candidates is not None:
            words = torch.from_numpy(candidates.words).to(source.device)
            allowed = torch.from_numpy(candidates.allowed).to(source.device)
            known, copies = known_words(words, size), None if copies is None else torch.searchsorted(words, copies)
            self._weight = outputs_of(self._weight, known)
            self._bias = self._bias[:, known].masked_fill(~allowed | (words >= size), -torch.inf)
        elif copies is not None:
            self._bias = F.pad(self._bias, (0, max(0, int(copies.max()) + 1 - size)), value=-torch.inf)
        self._copies = None if copies is None else _CopyColumns.of(copies)

    def step(self, choice: Choice | None) -> None:
        """See `Session`."""
        previous = None
        if choice is not None:
            if choice.sentences is not None:
                self._memory = self._memory.select(choice.sentences)
                self._bias = self._bias[choice.sentences] if self._bias_per_sentence else self._bias
                self._copies = self._copies and select_rows(self._copies, choice.sentences)
            self._state, previous = self._state.select(choice.rows), choice.words
        found = self._inference.step(self._memory, self._state, previous)
        self._state, self._features, self.weights, self._gate, self._log_weights = found
        if self._log_weights is None and not self._by_parts:
            (buffer,) = self._product_buffer.take(1, (len(self._features), len(self._weight)), self._features)
            self._products = product(self._features, self._weight, out=buffer)

    @property
    def shape(self) -> tuple[int, int]:
        """See `Session`."""
        return len(self._features), self._bias.shape[1]

    def logits(self, rows: slice) -> tuple[Tensor, Tensor]:
        """See `Session`."""
        if self._log_weights is None:
            features, products = self._features[rows], None if self._by_parts else self._products[rows]
            logits, normalised = self._softmax_buffers.take(2, (len(features), self._bias.shape[1]), self._bias)
            self._fill(logits, features, products, self._bias_of(rows))
            torch.log_softmax(logits, -1, out=normalised)
            # log_softmax takes half the time of logsumexp. The difference at `</s>`, which is always a candidate, is
            # the logarithm of the sum.
            log_sums = logits[:, :1] - normalised[:, :1]
        else:
            logits = self._mixture(rows, self._log_weights)
            log_sums = torch.zeros_like(logits[:, :1])
        if self._copies is None or self._gate is None or self.weights is None:
            return logits, log_sums
        sentences = torch.arange(rows.start, rows.stop, device=self.device) * len(self._memory.values)
        sentences //= len(self._features)
        return logits, self._copies.mix(logits, log_sums, self._gate[rows], self.weights[rows], sentences)

    def _mixture(self, rows: slice, log_weights: Tensor) -> Tensor:
        """The log-probabilities (r, U) of some rows, whose alternatives have log_weights (R, C)."""
        width, count = self._bias.shape[1], log_weights.shape[1]
        most = self.part_cells if self.device.type == "cpu" else len(log_weights) * count * width
        (mixed,) = self._product_buffer.take(1, (rows.stop - rows.start, width), self._bias)
        for part in slices(len(mixed), count * width, most):
            own, found = slice(rows.start + part.start, rows.start + part.stop), mixed[part]
            bias, weights = self._bias_of(own), log_weights[own]
            features = self._features[own].flatten(0, 1)
            products = None if self._by_parts else product(features, self._weight)
            logits, probs = self._softmax_buffers.take(2, (len(features), width), self._bias)
            self._fill(logits, features, products, bias if bias.dim() == 1 else bias.repeat_interleave(count, 0))
            torch.softmax(logits, -1, out=probs)
            each = probs.view(-1, count, width)
            torch.bmm(weights.exp()[:, None], each, out=found[:, None])  # sums of logarithms would take twice as long
            lost = (found < _SMALLEST) & (bias > -torch.inf)
            found.log_()
            if bool(lost.any()):
                row, column = lost.nonzero().unbind(1)
                terms = weights - logits.logsumexp(-1).view_as(weights)
                found[row, column] = (logits.view_as(each)[row, :, column] + terms[row]).logsumexp(1)
        return mixed

    def _bias_of(self, rows: slice) -> Tensor:
        """The bias (U,) of all these rows, or (r, U)."""
        each = len(self._features) // len(self._bias)  # rows that share a bias
        first, last = rows.start // each, (rows.stop - 1) // each
        one = first == last
        return self._bias[first if one else torch.arange(rows.start, rows.stop, device=self.device) // each]

    def _fill(self, logits: Tensor, features: Tensor, products: Tensor | None, bias: Tensor) -> None:
        """Fills logits (r, U) of features (r, F) from their products (r, K) with the weight.

        Products in eight bits are None: they are computed here, while their part of the rows is in the processor's
        cache. In float32 one product of all rows of a step is faster.
        """
        width = len(self._weight)
        if products is None:
            product(features, self._weight, bias[..., :width], out=logits[:, :width])
        else:
            torch.add(products, bias[..., :width], out=logits[:, :width])
        logits[:, width:] = bias[..., width:]  # the places of the source


@dataclass(frozen=True)
class _CopyColumns:
    """The columns of a search step that belong to the words which B sentences can copy."""

    columns: Tensor  # (B, Tx)
    first: Tensor  # (B, Tx), the first place that has the same column

    @classmethod
    def of(cls, columns: Tensor) -> "_CopyColumns":
        """Those of columns (B, Tx)."""
        return cls(columns, (columns[:, :, None] == columns[:, None]).int().argmax(2))

    def mix(self, logits: Tensor, log_sums: Tensor, gate: Tensor, weights: Tensor, sentences: Tensor) -> Tensor:
        """Changes logits (N, U) so that logits - (the returned log_sums (N, 1)) are those of the mixture.

        gate (N,) are logits, weights (N, Tx), sentences (N,) the sentence of each row. Without a gradient.
        """
        columns, first, gate = self.columns[sentences], self.first[sentences], gate.to(logits.dtype)[:, None]
        mass = torch.zeros_like(weights, dtype=logits.dtype).scatter_add_(1, first, weights.to(logits.dtype))
        log_sums = log_sums - F.logsigmoid(gate)
        both = torch.logaddexp(logits.gather(1, columns), mass.log() + F.logsigmoid(-gate) + log_sums)
        logits.scatter_(1, columns, both.gather(1, first))
        return log_sums


class _ReusedBuffers:
    """Memory that one step after the other uses: the first use of new pages would cost as much as the work on them."""

    def __init__(self) -> None:
        self._flat = torch.empty(0)

    def take(self, count: int, shape: tuple[int, int], like: Tensor) -> list[Tensor]:
        """Returns `count` uninitialised (r, U) buffers with the dtype of `like`; they overwrite earlier ones."""
        cells = shape[0] * shape[1]
        if self._flat.numel() < count * cells or self._flat.dtype != like.dtype:
            self._flat = like.new_empty(count * cells)
        return [self._flat[number * cells : (number + 1) * cells].view(shape) for number in range(count)]


class Ensemble:
    """Several models as one scorer: the mean of their probabilities, or of their log-probabilities, renormalised."""

    def __init__(self, scorers: Sequence[Scorer], average: Average = "probability") -> None:
        if not scorers:
            raise UsageError("an ensemble needs at least one model")
        self._scorers, self._average = scorers, average

    def start(
        self, source: Tensor, source_mask: Tensor, candidates: Candidates | None = None, copies: Tensor | None = None
    ) -> Session:
        """See `Scorer`."""
        sessions = [scorer.start(source, source_mask, candidates, copies) for scorer in self._scorers]
        return _EnsembleSession(sessions, self._average)


class _EnsembleSession(Session):
    """The steps of one search with several models; the weights are the mean over the models that have attention."""

    def __init__(self, sessions: Sequence[Session], average: Average) -> None:
        self.device = sessions[0].device
        self._sessions, self._average = sessions, average

    def step(self, choice: Choice | None) -> None:
        """See `Session`."""
        for session in self._sessions:
            session.step(choice)
        weights = [session.weights.float() for session in self._sessions if session.weights is not None]
        self.weights = torch.stack(weights).mean(0) if weights else None

    @property
    def shape(self) -> tuple[int, int]:
        """See `Session`."""
        return self._sessions[0].shape

    def logits(self, rows: slice) -> tuple[Tensor, Tensor]:
        """See `Session`."""
        each = [session.log_probs(rows) for session in self._sessions]
        count = len(each)
        if self._average == "log":
            mean = functools.reduce(Tensor.add_, each).div_(count)
            return mean, mean.logsumexp(-1, keepdim=True)
        # torch.logsumexp over the models takes about twice as long. The rounding of torch.logaddexp, which is faster,
        # depends on the position of a number in its tensor.
        largest = functools.reduce(torch.maximum, each).clamp(min=_LOWEST)
        for log_probs in each:
            log_probs.sub_(largest).exp_()
        total = functools.reduce(Tensor.add_, each).log_().add_(largest)
        return total, torch.full_like(total[:, :1], math.log(count))


def no_finite_probability() -> NmtalignError:
    """The error of a model whose weights are damaged or have diverged."""
    return NmtalignError("the model gives no finite probability: is it damaged, or has its training diverged?")


def force(
    scorer: Scorer,
    source: Tensor,
    source_mask: Tensor,
    target: Tensor,
    lengths: Sequence[int],
    copies: Tensor | None = None,
) -> tuple[Array, Array | None]:
    """Forced decoding: log-probabilities (B, Ty) of given target words, and coverage (B, Tx) or None.

    source (B, Tx) and target (B, Ty) end with `</s>`. `lengths` of the targets include it and must not increase, so
    that the sentences that have ended are the last rows. Log-probabilities are float64, 0 at padding. Coverage is the
    sum of the weights of each source word; None without attention.
    """
    session = scorer.start(source, source_mask, None, copies)
    steps, coverage, choice, before = list[Tensor](), None, None, len(lengths)
    for place in range(lengths[0]):
        rows = sum(length > place for length in lengths)
        if place:
            kept = torch.arange(rows, device=source.device)
            choice = Choice(kept if rows < before else None, kept, target[:rows, place - 1])
        session.step(choice)
        steps.append(session.log_probs_of(target[:rows, place]))
        if session.weights is not None:
            coverage = source.new_zeros(source.shape, dtype=torch.float32) if coverage is None else coverage
            coverage[:rows] += session.weights.float()
        before = rows
    log_probs = np.zeros(target.shape)
    for place, gains in enumerate(steps):
        log_probs[: len(gains), place] = gains.cpu().double().numpy()
    return log_probs, None if coverage is None else coverage.cpu().numpy()
