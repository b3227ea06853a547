"""Beam search: scorers, hypotheses and their scores, the words that they may use, and the best continuations.

A scorer, one model or an ensemble, gives the log-probabilities of each step to beam search, sampling and forced
decoding. The arrays of a search are on the host. The best continuations are selected on the device of the scorer,
without sorting all scores.
"""

import functools
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.core.attention import select_rows
from nmtalign.core.copying import known_words
from nmtalign.core.inference import Inference
from nmtalign.core.model import CHUNK_CELLS, slices
from nmtalign.core.numerics import LEAST, Int8Weight, check_wanted, product, weight_steps, widest
from nmtalign.errors import NO_PROBABILITY, NmtalignError
from nmtalign.search.candidates import Candidates
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.text.tokenizer import EOS_ID, UNK_ID

Array = npt.NDArray[Any]
Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_SMALLEST_COVERAGE = 1e-6  # a source word without any weight costs the logarithm of this
_ROUNDING = 1e-12  # relative; a bound and the score that reaches it are computed in different orders
_MIN_WIDTH = 4096  # words; below, `_by_blocks` is not faster than `_by_rows`
_STRIDE = 1000  # words k, k + _STRIDE, k + 2 * _STRIDE, ... form one block
_SPARE = 4  # more candidates than needed, so that most ties at the last place need no second pass
Found = tuple[Tensor, Tensor, Tensor, Tensor]
_INT8_PART_CELLS = {127: 3 << 19, 63: 12 << 19}  # by `weight_steps`; 63: without VNNI, few rows take as long as more
_LOWEST = -1e30  # below any log-probability except -inf


@dataclass(frozen=True)
class Choice:
    """The rows and words with which a search continues."""

    sentences: Tensor | None  # positions, among the sentences of the last step, of those that continue; None = all
    rows: Tensor  # (R,) the row of the last step that each row continues; the rows of a sentence are adjacent
    words: Tensor  # (R,) the id of the word that extends each row


@dataclass(frozen=True)
class Sources:
    """B sentences to translate.

    With `candidates` only their words are scored, and the probabilities of each sentence are normalised over the words
    that it may use. The candidates of a sentence include the words of its prefix, with which each of its translations
    begins, and all words that the model can copy.
    """

    ids: Tensor  # (B, Tx) int64, ending with `</s>`
    mask: Tensor  # (B, Tx), True = a real token
    candidates: Candidates | None = None
    prefixes: Sequence[Sequence[int]] | None = None
    copies: Tensor | None = None  # (B, Tx), the ids that a copying model copies from each place


class Session(ABC):
    """The steps of one search over a batch of sentences, and the log-probabilities that the latest step gives.

    A step has R rows, the same number for each sentence, and scores U words: those of the vocabulary, and the places of
    the source if a model can copy words of these sentences that the vocabulary lacks. The caller asks for the
    log-probabilities of a few rows at a time.
    """

    device: torch.device
    part_cells: int = CHUNK_CELLS  # log-probabilities that are processed together on a CPU
    weights: Tensor | None = None  # (R, Tx) of the latest step, exactly 0 at padding; None without attention

    @abstractmethod
    def step(self, choice: Choice | None) -> None:
        """Makes the next step. The first step has one row per sentence and no choice (None)."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(R, U) of the latest step."""

    @abstractmethod
    def log_probs(self, rows: slice) -> Tensor:
        """The log-probabilities (r, U) of some rows, float32 or wider; the caller and the next call may change them."""

    def parts(self) -> list[slice]:
        """All rows, in parts that fit into the processor's cache; one part on a GPU."""
        rows, width = self.shape
        return list(slices(rows, width, self.part_cells if self.device.type == "cpu" else rows * width))


Scorer = Callable[[Sources], Session]


class ModelSession(Session):
    """The steps of one search with one model; `partial(ModelSession, inference)` is its scorer.

    The logits are products plus a bias: one bias for all rows (1, U), or with candidates one per sentence (B, U).
    """

    def __init__(self, inference: Inference, sources: Sources) -> None:
        self.device, candidates, copies = sources.ids.device, sources.candidates, sources.copies
        self._inference = inference
        self._memory = inference.encode(sources.ids, sources.mask, copies)
        self._state = inference.start(self._memory)
        self._weight = inference.output_weight
        self._by_parts = isinstance(self._weight, Int8Weight)
        self.part_cells = _INT8_PART_CELLS[weight_steps()] if self._by_parts else CHUNK_CELLS
        self._bias = inference.output_bias[None]
        self._product_buffer, self._softmax_buffers = _ReusedBuffers(), _ReusedBuffers()
        size = len(self._weight)
        if candidates is not None:
            words = torch.from_numpy(candidates.words).to(self.device)
            allowed = torch.from_numpy(candidates.allowed).to(self.device)
            known, copies = known_words(words, size), None if copies is None else torch.searchsorted(words, copies)
            self._weight = Int8Weight.of(self._weight[known]) if self._by_parts else self._weight[known]
            self._bias = self._bias[:, known].masked_fill(~allowed | (words >= size), -torch.inf)
        elif copies is not None:
            self._bias = F.pad(self._bias, (0, max(0, int(copies.max()) + 1 - size)), value=-torch.inf)
        self._copies: _CopyColumns | None = None
        if copies is not None:
            self._copies = _CopyColumns(copies, (copies[:, :, None] == copies[:, None]).int().argmax(2))

    def step(self, choice: Choice | None) -> None:
        previous = None
        if choice is not None:
            if choice.sentences is not None:
                self._memory = select_rows(self._memory, choice.sentences)
                self._bias = self._bias[choice.sentences] if len(self._bias) > 1 else self._bias
                self._copies = self._copies and select_rows(self._copies, choice.sentences)
            self._state, previous = self._state.select(choice.rows), choice.words
        found = self._inference.step(self._memory, self._state, previous)
        self._state, self._features, self.weights, self._gate, self._log_weights = found
        if self._log_weights is None and not self._by_parts:
            (buffer,) = self._product_buffer.take(1, (len(self._features), len(self._weight)), self._features)
            self._products = product(self._features, self._weight, out=buffer)

    @property
    def shape(self) -> tuple[int, int]:
        return len(self._features), self._bias.shape[1]

    def log_probs(self, rows: slice) -> Tensor:
        if self._log_weights is None:
            features, products = self._features[rows], None if self._by_parts else self._products[rows]
            logits, found = self._softmax_buffers.take(2, (len(features), self._bias.shape[1]), self._bias)
            self._fill(logits, features, products, self._bias_of(rows))
            torch.log_softmax(logits, -1, out=found)
        else:
            found = self._mixture(rows, self._log_weights)
        if self._copies is not None and self._gate is not None and self.weights is not None:
            sentences = torch.arange(rows.start, rows.stop, device=self.device) * len(self._memory.values)
            sentences //= len(self._features)
            self._copies.mix(found, self._gate[rows], self.weights[rows], sentences)
        return found

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
            lost = (found < LEAST) & (bias > -torch.inf)
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

    def mix(self, log_probs: Tensor, gate: Tensor, weights: Tensor, sentences: Tensor) -> None:
        """Changes log-probabilities (N, U) to those of the mixture.

        gate (N,) are logits, weights (N, Tx), sentences (N,) the sentence of each row. Without a gradient.
        """
        columns, first, gate = self.columns[sentences], self.first[sentences], gate.to(log_probs.dtype)[:, None]
        mass = torch.zeros_like(weights, dtype=log_probs.dtype).scatter_add_(1, first, weights.to(log_probs.dtype))
        log_probs += F.logsigmoid(gate)
        both = torch.logaddexp(log_probs.gather(1, columns), mass.log() + F.logsigmoid(-gate))
        log_probs.scatter_(1, columns, both.gather(1, first))


class _ReusedBuffers:
    """Memory that one step after the other uses: the first use of new pages would cost as much as the work on them."""

    _flat = torch.empty(0)

    def take(self, count: int, shape: tuple[int, int], like: Tensor) -> list[Tensor]:
        """Returns `count` uninitialised (r, U) buffers with the dtype of `like`; they overwrite earlier ones."""
        cells = shape[0] * shape[1]
        if self._flat.numel() < count * cells or self._flat.dtype != like.dtype:
            self._flat = like.new_empty(count * cells)
        return [self._flat[number * cells : (number + 1) * cells].view(shape) for number in range(count)]


class EnsembleSession(Session):
    """The steps of one search with several models; `partial(EnsembleSession, scorers, average)` is their scorer.

    The probabilities are the mean of those of the models, or of their log-probabilities, renormalised. The weights are
    the mean over the models that have attention.
    """

    def __init__(self, scorers: Sequence[Scorer], average: Literal["probability", "log"], sources: Sources) -> None:
        self.device, self._average = sources.ids.device, average
        self._sessions = [scorer(sources) for scorer in scorers]

    def step(self, choice: Choice | None) -> None:
        for session in self._sessions:
            session.step(choice)
        weights = [session.weights.float() for session in self._sessions if session.weights is not None]
        self.weights = torch.stack(weights).mean(0) if weights else None

    @property
    def shape(self) -> tuple[int, int]:
        return self._sessions[0].shape

    def log_probs(self, rows: slice) -> Tensor:
        each = [session.log_probs(rows) for session in self._sessions]
        if self._average == "log":
            return functools.reduce(Tensor.add_, each).div_(len(each)).log_softmax(-1)
        # torch.logsumexp over the models takes about twice as long. The rounding of torch.logaddexp, which is faster,
        # depends on the position of a number in its tensor.
        largest = functools.reduce(torch.maximum, each).clamp(min=_LOWEST)
        for log_probs in each:
            log_probs.sub_(largest).exp_()
        return functools.reduce(Tensor.add_, each).div_(len(each)).log_().add_(largest)


def force(scorer: Scorer, sources: Sources, target: Tensor, lengths: Sequence[int]) -> tuple[Array, Array | None]:
    """Forced decoding: log-probabilities (B, Ty) of given target words, and coverage (B, Tx) or None.

    target (B, Ty) ends with `</s>`. `lengths` of the targets include it and must not increase, so that the sentences
    that have ended are the last rows. Log-probabilities are float64, 0 at padding. Coverage is the sum of the weights
    of each source word; None without attention. Raises NmtalignError if a log-probability is not a number.
    """
    session, source = scorer(sources), sources.ids
    log_probs = target.new_zeros(target.shape, dtype=widest(target.device))
    coverage, choice, rows = None, None, len(lengths)
    for place in range(lengths[0]):
        before, rows = rows, sum(length > place for length in lengths)
        if place:
            kept = torch.arange(rows, device=source.device)
            choice = Choice(kept if rows < before else None, kept, target[:rows, place - 1])
        session.step(choice)
        words = target[:rows, place, None]
        log_probs[:rows, place, None] = torch.cat(
            [session.log_probs(own).gather(1, words[own]) for own in session.parts()]
        )
        if session.weights is not None:
            coverage = source.new_zeros(source.shape, dtype=torch.float32) if coverage is None else coverage
            coverage[:rows] += session.weights.float()
    if log_probs.isnan().any():
        raise NmtalignError(NO_PROBABILITY)
    return log_probs.cpu().double().numpy(), None if coverage is None else coverage.cpu().numpy()


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
        lengths = np.arange(shortest, max(shortest, int(longest.max())) + 1)
        scores = (log_probs[:, None] - self.word_penalty * lengths) / lengths**self.length_penalty
        allowed = (lengths <= longest[:, None]) | (lengths == shortest)
        return np.asarray(np.where(allowed, scores, -np.inf).max(axis=1))


class Continuations(NamedTuple):
    """The best continuations of the beams of B sentences, best first, on the host; every array is (B, W).

    If a sentence has fewer than W possible continuations, the others have a total of -inf.
    """

    totals: Array  # float64, the log-probability of the hypothesis with the word
    rows: Array  # the row of the step that is continued
    tokens: Array  # the word's id
    gains: Array  # float64, the log-probability of the word


class Restrictions:
    """The length limits of B sentences, the prefixes of their translations, and the ban of `<unk>`.

    `lengths` (B,) of the sources include `</s>`. `limits` (B,): the step, counted from 1, at which every translation
    must end. A limit always leaves room for the prefix and the words of the required phrases. A step scores one column
    per word: the columns are those of the candidates, or without them the word ids.
    """

    def __init__(self, sources: Sources, config: TranslateConfig, phrase_words: Sequence[int] = ()) -> None:
        """`phrase_words` (B,) count the words of the phrases."""
        self.lengths = lengths = cast(list[int], sources.mask.sum(1).tolist())
        self._allow_unk = config.allow_unk or config.replace_unk
        self._words = sources.candidates.words if sources.candidates else None
        prefixes = sources.prefixes or [()] * len(lengths)
        self.prefix_lengths: Integers = np.array([len(prefix) for prefix in prefixes])
        limits = [max(1, int(config.max_length_ratio * length)) for length in lengths]
        self.limits: Integers = np.maximum(limits, self.prefix_lengths + np.array(phrase_words or 0) + 1)
        # The number of first steps in which `</s>` is banned.
        self.min_lengths = np.minimum([int(config.min_length_ratio * length) for length in lengths], self.limits - 1)
        # The columns of the prefixes, each followed by -1.
        self._prefixes = np.full((len(lengths), max(self.prefix_lengths) + 1), -1)
        for row, prefix in zip(self._prefixes, prefixes, strict=True):
            row[: len(prefix)] = self.columns(prefix)

    def columns(self, words: Sequence[int] | Integers) -> Integers:
        """The columns of word ids, all of which must be scored."""
        ids = np.array(words, np.int64)
        return ids if self._words is None else np.searchsorted(self._words, ids)

    def words(self, columns: Integers) -> Integers:
        """The word ids of columns."""
        return columns if self._words is None else np.asarray(self._words[columns])

    def apply(self, log_probs: Tensor, sentences: Integers, step: int, incomplete: Flags | bool = False) -> None:
        """Bans words by setting log_probs (r, U) to -inf, at `step` (0 = first), for rows of these sentences (r,).

        Bans `<unk>` unless it is allowed; `</s>` before the minimum length and in rows that are `incomplete` (r,),
        which still lack a phrase; all words except the next word of the prefix, and at the last step except `</s>`.
        """
        only = self._prefixes[sentences, min(step, self._prefixes.shape[1] - 1)]
        only = np.where(self.limits[sentences] == step + 1, EOS_ID, only)
        forced, too_early = only >= 0, (self.min_lengths[sentences] > step) | incomplete
        if not self._allow_unk:
            log_probs[_indices(~forced, log_probs) if forced.any() else slice(None), UNK_ID] = -torch.inf
        if too_early.any():
            log_probs[_indices(too_early, log_probs), EOS_ID] = -torch.inf
        if forced.any():
            rows, allowed = _indices(forced, log_probs), torch.from_numpy(only[forced]).to(log_probs.device)
            values = log_probs[rows, allowed]
            log_probs[rows] = -torch.inf
            log_probs[rows, allowed] = values


def _indices(flags: Flags, like: Tensor) -> Tensor:
    return torch.from_numpy(np.nonzero(flags)[0]).to(like.device)


class Ending(NamedTuple):
    """A `</s>` after a row: the step (0 = first), the row of that step, the log-probabilities and the score."""

    step: int
    row: int
    token_log_prob: float
    log_prob: float
    score: float


class BeamSearch:
    """One search, and its record on the host: which hypotheses are open and which have ended.

    A finished hypothesis leaves the beam, which shrinks by one. Open hypotheses are compared by log-probability,
    finished ones by `Scoring`. `</s>` is banned in the first min_length_ratio * Tx steps; at step max_length_ratio * Tx
    every open hypothesis must end. A sentence is finished when no open hypothesis can become one of the n_best any
    more; with `search` = paper when its beam is empty, as in the released code of Bahdanau et al. (2015). The result
    for a sentence does not depend on the other sentences of the batch, except for rounding.

    The B sentences that are not finished have R rows of a step each: row b * R + r is hypothesis r of sentence b.
    """

    def __init__(
        self, sources: Sources, config: TranslateConfig, keep_weights: bool = False, phrase_words: Sequence[int] = ()
    ) -> None:
        """See `Restrictions`; with `keep_weights` the hypotheses have their weights."""
        self.restrictions = Restrictions(sources, config, phrase_words)
        self.lengths = lengths = self.restrictions.lengths
        self._sources, self._config, self._keep_weights = sources, config, keep_weights
        self._scoring = Scoring(config.length_penalty, config.word_penalty, config.coverage_penalty)
        self.endings: list[list[Ending]] = [[] for _ in lengths]
        self.step = 0
        self.sentences: Integers = np.arange(len(lengths))  # (B,) positions in the batch
        self.widths: Integers = np.full(len(lengths), config.beam)  # (B,) the beam minus the finished hypotheses
        # (B, R) log-probabilities; -inf where a sentence has fewer hypotheses than another.
        self.totals: Floats = np.zeros((len(lengths), 1))
        self._thresholds = np.full(len(lengths), -np.inf)  # the n_best-th score of each sentence's endings
        # For each step, of the rows of the next one: the row that each continues, the word, its log-probability.
        self._steps: list[tuple[Array, Array, Array]] = []
        self._weights: list[Array] = []  # (rows, Tx) for each step, if hypotheses have them
        self._coverage: Array | None = None  # (rows, Tx), sums of the weights so far, if the score needs them

    @torch.inference_mode()
    def run(self, scorer: Scorer) -> list[list[Hypothesis]]:
        """The best translations of each sentence, best first: at least one and at most n_best.

        Raises NmtalignError if the model gives no finite probability.
        """
        session = scorer(self._sources)
        self._dtype = widest(session.device)
        session.step(None)
        while (choice := self._advance(session)) is not None:
            check_wanted()
            session.step(choice)
        return self.results()

    def _advance(self, session: Session) -> Choice | None:
        """Extends the hypotheses by a word; returns the choice for the next step, None at the end."""
        if session.weights is not None and (self._keep_weights or self._scoring.coverage_penalty):
            weights = session.weights.float().cpu().numpy()
            if self._keep_weights:
                self._weights.append(weights)
            if self._scoring.coverage_penalty:
                self._coverage = weights if self._coverage is None else weights + self._coverage[self._steps[-1][0]]
        found = self.continuations(session)
        valid = (np.arange(found.totals.shape[1]) < self.widths[:, None]) & np.isfinite(found.totals)
        if not valid.any(axis=1).all():
            raise NmtalignError(NO_PROBABILITY)
        ended = valid & (found.tokens == EOS_ID)
        self.finish(found, ended)
        opened = valid & ~ended
        best = np.where(opened, found.totals, -np.inf).max(axis=1)
        undecided = best > -np.inf  # whether an open hypothesis can still become one of the n_best
        if self._config.search != "paper":
            reachable = self._scoring.bound(best, self.step + 2, self.restrictions.limits[self.sentences])
            undecided = reachable * (1 + _ROUNDING * np.sign(reachable)) > self._thresholds[self.sentences]
        kept: Integers = np.nonzero(undecided)[0]
        self.step += 1
        if not len(kept):
            return None
        rows, words = self.extend(found, opened, kept)
        sentences = None if len(kept) == len(opened) else torch.from_numpy(kept).to(session.device)
        return Choice(sentences, *torch.from_numpy(np.stack([rows, words])).to(session.device))

    def continuations(self, session: Session) -> Continuations:
        """The best continuations of each sentence, best first."""
        open_totals = torch.from_numpy(self.totals).to(self._dtype).to(session.device)
        best = best_continuations(session, open_totals, int(self.widths.max()), self.restrict)
        # All in one copy to the host, for which a GPU waits; numbers of words and rows are exact as floats.
        found = torch.stack([part.to(self._dtype) for part in best]).cpu().double().numpy()
        hypotheses, columns = found[1:3].astype(np.int64)
        rows = np.arange(len(columns))[:, None] * self.totals.shape[1] + hypotheses
        return Continuations(found[0], rows, self.restrictions.words(columns), found[3])

    def restrict(self, log_probs: Tensor, rows: slice) -> None:
        """Bans words of some rows of the step by setting their log_probs (r, U) to -inf."""
        sentences = self.sentences[np.arange(rows.start, rows.stop) // self.totals.shape[1]]
        self.restrictions.apply(log_probs, sentences, self.step)

    def finish(self, found: Continuations, ended: Flags) -> None:
        """Records the hypotheses that end with this step."""
        for place, column in np.argwhere(ended):
            sentence, row = self.sentences[place], int(found.rows[place, column])
            gain, total = float(found.gains[place, column]), float(found.totals[place, column])
            # The last column belongs to the `</s>` of the source, which need not be covered.
            coverage = None if self._coverage is None else self._coverage[row, : self.lengths[sentence] - 1]
            score = self._scoring.score(total, self.step + 1, coverage)
            endings = self.endings[sentence]
            endings.append(Ending(self.step, row, gain, total, score))
            if len(endings) >= self._config.n_best:
                scores = sorted((ending.score for ending in endings), reverse=True)
                self._thresholds[sentence] = scores[self._config.n_best - 1]
        self.widths = self.widths - ended.sum(axis=1)

    def extend(self, found: Continuations, opened: Flags, kept: Integers) -> tuple[Integers, Integers]:
        """Makes the rows of the next step: (the row of this step that each row continues, the word that it adds)."""
        opened = opened[kept]
        counts = opened.sum(axis=1)[:, None]
        # Each sentence gets as many rows as the sentence with the most open hypotheses, which come first and in order.
        # A sentence with fewer repeats its last one with a total of -inf: its other continuations may be impossible.
        places = np.arange(counts.max())
        columns = np.argsort(~opened, axis=1, kind="stable")
        columns = np.take_along_axis(columns, np.minimum(places, counts - 1), axis=1)
        chosen = Continuations(*(part[kept[:, None], columns] for part in found))
        self.sentences, self.widths = self.sentences[kept], self.widths[kept]
        self.totals = np.where(places < counts, chosen.totals, -np.inf)
        rows, tokens = chosen.rows.ravel(), chosen.tokens.ravel()
        self._steps.append((rows, tokens, chosen.gains.ravel()))
        return rows, tokens

    def ranked(self) -> list[list[Ending]]:
        """The n_best endings of each sentence; of equal scores, the one that ended first comes first."""
        return [sorted(endings, key=lambda ending: -ending.score)[: self._config.n_best] for endings in self.endings]

    def results(self) -> list[list[Hypothesis]]:
        pairs = zip(self.ranked(), self.lengths, strict=True)
        return [[self._hypothesis(ending, length) for ending in own] for own, length in pairs]

    def _hypothesis(self, ending: Ending, source_length: int) -> Hypothesis:
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


def best_continuations(
    session: Session, open_totals: Tensor, count: int, restrict: Callable[[Tensor, slice], None]
) -> Found:
    """The `count` best continuations of each beam, or as many as there are, by open_totals (B, R) + log-probability.

    Returns four tensors (B, W), best first, equal ones by hypothesis, then by word: the totals (with the dtype of
    `open_totals`), the positions of the hypotheses in the beam, those of the words among the scored words, and the
    words' log-probabilities. If a sentence has fewer than W possible continuations, the others have a total of -inf and
    any valid position. `restrict` receives the log-probabilities (r, U) of some rows and bans words by setting them to
    -inf.
    """
    sentences, rows = open_totals.shape
    width = session.shape[1]
    most = max(1, session.part_cells // (rows * width)) if open_totals.device.type == "cpu" else sentences
    # More blocks than are examined must exist, so that both ways find `count` continuations.
    use_blocks = width >= _MIN_WIDTH and rows * _STRIDE > count + _SPARE
    found = []
    for start in range(0, sentences, most):
        beam = open_totals[start : start + most]
        part = slice(start * rows, (start + len(beam)) * rows)
        log_probs = session.log_probs(part)
        restrict(log_probs, part)
        by_blocks = _by_blocks(log_probs, beam, count, _STRIDE) if use_blocks else None
        found.append(by_blocks or _by_rows(log_probs, beam, count))
    totals, hypotheses, columns, gains = (torch.cat(parts) for parts in zip(*found, strict=True))
    return totals, hypotheses, columns, gains


def _by_rows(log_probs: Tensor, beam: Tensor, count: int) -> Found:
    """Selects the best words of each row, then the best of these for each sentence."""
    gains, words = largest(log_probs, count)
    # Totals are float64 where the device has it, so that long hypotheses lose no precision.
    totals = gains.to(beam.dtype).reshape(*beam.shape, -1) + beam[:, :, None]
    best, places = largest(totals.flatten(1), count)
    words, gains = (part.reshape(len(beam), -1).gather(1, places) for part in (words, gains))
    return best, places // totals.shape[2], words, gains


def _by_blocks(log_probs: Tensor, beam: Tensor, count: int, stride: int) -> Found | None:
    """Selects the same from the blocks with the largest maxima; None if too many blocks have equal maxima.

    The `count` best words of a sentence lie in the `count` blocks with the largest maxima, so only these blocks are
    examined. Computing the maxima reads each score once, in the order of memory.
    """
    sentences, rows = beam.shape
    width = log_probs.shape[1]
    full = width // stride
    maxima = log_probs[:, : full * stride].unflatten(1, (full, stride)).amax(1)
    rest = log_probs[:, full * stride :]
    torch.maximum(maxima[:, : rest.shape[1]], rest, out=maxima[:, : rest.shape[1]])
    totals = (maxima.to(beam.dtype).view(sentences, rows, -1) + beam[:, :, None]).flatten(1)
    block_totals, blocks = totals.topk(min(count + _SPARE, totals.shape[1]), dim=1)
    hypotheses, starts = blocks // stride, blocks % stride
    columns = starts[:, :, None] + torch.arange(0, width, stride, device=log_probs.device)
    row = torch.arange(sentences, device=log_probs.device)[:, None] * rows + hypotheses
    gains = log_probs[row[:, :, None], columns.clamp(max=width - 1)].masked_fill_(columns >= width, -torch.inf)
    sums = (gains.to(beam.dtype) + beam.gather(1, hypotheses)[:, :, None]).flatten(1)
    # The last blocks extend beyond the last word. Each hypothesis therefore spans `padded` places: a place beyond the
    # last word, which is -inf and appears if too few words are possible, belongs to no other hypothesis or sentence.
    padded = -(-width // stride) * stride
    gains, places = gains.flatten(1), (hypotheses[:, :, None] * padded + columns).flatten(1)
    best, at = sums.topk(min(count + 1, sums.shape[1]), dim=1)
    equal = ((best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -torch.inf)).any()
    ambiguous = ((block_totals[:, -1:] >= best[:, :count][:, -1:]) & (block_totals[:, -1:] > -torch.inf)).any()
    if bool(equal | ambiguous):  # a GPU waits for this only once
        if bool(ambiguous):
            return None
        order = places.argsort(1)
        sums, gains, places = sums.gather(1, order), gains.gather(1, order), places.gather(1, order)
        best, at = largest(sums, count)
    best, at = best[:, :count], at[:, :count]
    places = places.gather(1, at)
    return best, places // padded, (places % padded).clamp(max=width - 1), gains.gather(1, at)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row, largest first; among equal values the smaller index comes first.

    values (N, C) -> values and int64 indices, both (N, min(count, C)). `torch.topk` does not specify which of several
    equal values it returns; with a fixed order the result depends only on the row. Entries of -inf come in any order.
    """
    width = values.shape[1]
    best, places = values.topk(min(count + _SPARE, width), dim=1)
    equal = (best[:, 1 : count + 1] == best[:, :count][:, : best.shape[1] - 1]) & (best[:, 1 : count + 1] > -torch.inf)
    tied = equal.any(dim=1)
    if tied.any():
        rows = tied.nonzero().squeeze(1)
        places[rows] = values[rows].sort(dim=1, descending=True, stable=True).indices[:, : best.shape[1]]
    return best[:, :count], places[:, :count]
