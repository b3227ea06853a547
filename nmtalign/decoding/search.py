"""Beam search over a batch of sentences, whose rows share the annotations of their sentence (PAPER section 6)."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtalign.core.model import TranslationModel
from nmtalign.decoding.ranking import largest
from nmtalign.decoding.trace import Ending, Hypothesis, Trace, normalized
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.text.vocabulary import EOS_ID, UNK_ID

__all__ = ["Hypothesis", "SearchOptions", "beam_search"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SearchOptions:
    """How `beam_search` searches; raises UsageError for an n_best that is larger than the beam."""

    beam: int = 12
    length_penalty: float = 1.0
    n_best: int = 1
    allow_unk: bool = False
    max_length_ratio: float = 3.0
    keep_weights: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam:
            raise UsageError(f"n_best = {self.n_best}: must be from 1 to the beam, which is {self.beam}")


def beam_search(
    model: TranslationModel, source: Tensor, source_mask: Tensor, options: SearchOptions
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: up to n_best of them, at least one.

    source (B, Tx) int64 ending with `</s>`, source_mask (B, Tx). A hypothesis that is finished leaves the beam, which
    shrinks by one. Open ones are compared by log-probability, finished ones by
    score = log_prob / length ** length_penalty, `</s>` counted. A sentence is done when its beam is empty, or when no
    open hypothesis can come under the n_best any more. At most max_length_ratio * Tx steps: in the last one every
    open hypothesis is made to end. Nothing depends on the other sentences of the batch.
    Raises NmtalignError where the model gives no finite number.
    """
    with torch.inference_mode():
        memory = model.encode(source, source_mask)
        state = model.initial_state(memory, rows=1)
        search = _Search(source_mask.sum(dim=1).tolist(), options)
        previous = None
        while True:
            out = model.step(memory, state, previous)
            kept = search.advance(out.log_probs, out.weights)
            if not len(kept):
                return search.results()
            if len(kept) < len(memory.mask):
                memory = memory.select(torch.from_numpy(kept).to(source.device))
            state = out.state.select(torch.from_numpy(search.rows).to(source.device))
            previous = torch.from_numpy(search.tokens).to(source.device)


@dataclass(frozen=True)
class _Candidates:
    """The best continuations of each sentence's beam, best first; every array (B, W)."""

    totals: Floats  # log-probability of the hypothesis with this word
    rows: Integers  # of the step: sentence * R + hypothesis
    tokens: Integers
    gains: Floats  # log-probability of this word

    def select(self, sentences: Integers, columns: Integers) -> "_Candidates":
        """Those of some sentences (b,) in another order (b, w)."""
        at = sentences[:, None], columns
        return _Candidates(self.totals[at], self.rows[at], self.tokens[at], self.gains[at])


class _Search:
    """The bookkeeping of one search, on the host: which hypotheses are open, which have ended.

    After `advance`, `rows` and `tokens` (rows of the next step,) hold the row of this step that each continues, and
    the word with which it does.
    """

    def __init__(self, lengths: list[int], options: SearchOptions) -> None:
        self.options = options
        self.lengths = lengths
        self.limits = np.array([max(1, int(options.max_length_ratio * length)) for length in lengths])
        self.trace = Trace(options.keep_weights)
        self.endings: list[list[Ending]] = [[] for _ in lengths]
        self.threshold = np.full(len(lengths), -np.inf)  # score of each sentence's n_best-th ending
        self.step = 0
        # Of the sentences still searched, B of them: place in the batch, what the endings have left of the beam, and
        # the log-probability of the open hypotheses (B, R), -inf where a sentence has fewer of them than another.
        self.sentences: Integers = np.arange(len(lengths))
        self.widths: Integers = np.full(len(lengths), options.beam)
        self.open: Floats = np.zeros((len(lengths), 1))
        self.rows: Integers = np.arange(0)
        self.tokens: Integers = np.arange(0)

    def advance(self, log_probs: Tensor, weights: Tensor | None) -> Integers:
        """Takes a step's log_probs (B*R, K), which it may change, and weights (B*R, Tx).

        Returns the sentences to go on with, as places among those of this step.
        """
        self._restrict(log_probs)
        self.trace.add_weights(weights)
        found = self._candidates(log_probs)
        valid = (np.arange(found.totals.shape[1]) < self.widths[:, None]) & np.isfinite(found.totals)
        if not valid.any(axis=1).all():
            raise NmtalignError("the model gives no finite probability: is it damaged, or has its training diverged?")
        ended = valid & (found.tokens == EOS_ID)
        self._finish(found, ended)
        opened = valid & ~ended
        kept: Integers = np.nonzero(self._undecided(np.where(opened, found.totals, -np.inf)))[0]
        if len(kept):
            self._go_on(found, opened, kept)
        self.step += 1
        return kept

    def results(self) -> list[list[Hypothesis]]:
        """The n_best of each sentence; of equal scores the one that ended first comes first."""
        best = [sorted(endings, key=lambda ending: -ending.score)[: self.options.n_best] for endings in self.endings]
        return [
            [self.trace.hypothesis(ending, length) for ending in endings]
            for endings, length in zip(best, self.lengths, strict=True)
        ]

    def _restrict(self, log_probs: Tensor) -> None:
        """Bans `<unk>`, and everything but `</s>` for sentences at their limit."""
        if not self.options.allow_unk:
            log_probs[:, UNK_ID] = -torch.inf
        last = np.repeat(self.limits[self.sentences] == self.step + 1, self.open.shape[1])
        if last.any():
            rows = torch.from_numpy(np.nonzero(last)[0]).to(log_probs.device)
            ends = log_probs[rows, EOS_ID]
            log_probs[rows] = -torch.inf
            log_probs[rows, EOS_ID] = ends

    def _candidates(self, log_probs: Tensor) -> _Candidates:
        count, width = len(self.sentences), int(self.widths.max())
        gains, words = largest(log_probs, width)
        # Sums are kept in float64, so that a long hypothesis loses nothing.
        totals = gains.double() + torch.from_numpy(self.open).to(gains.device).view(-1, 1)
        best, places = largest(totals.reshape(count, -1), width)
        hypotheses = places // words.shape[1]
        words, gains = (part.reshape(count, -1).gather(1, places) for part in (words, gains))
        rows = np.arange(count)[:, None] * self.open.shape[1] + hypotheses.cpu().numpy()
        return _Candidates(best.cpu().numpy(), rows, words.cpu().numpy(), gains.double().cpu().numpy())

    def _finish(self, found: _Candidates, ended: Flags) -> None:
        for place, column in np.argwhere(ended):
            sentence, total = self.sentences[place], float(found.totals[place, column])
            score = normalized(total, self.step + 1, self.options.length_penalty)
            gain = float(found.gains[place, column])
            endings = self.endings[sentence]
            endings.append(Ending(self.step, int(found.rows[place, column]), gain, total, score))
            if len(endings) >= self.options.n_best:
                scores = sorted((ending.score for ending in endings), reverse=True)
                self.threshold[sentence] = scores[self.options.n_best - 1]
        self.widths = self.widths - ended.sum(axis=1)

    def _undecided(self, open_totals: Floats) -> Flags:
        """Which sentences have an open hypothesis that can still come under the n_best.

        Every further word costs probability, so the best that one can reach is its own at the greatest length.
        """
        reachable = open_totals.max(axis=1) / self.limits[self.sentences] ** self.options.length_penalty
        return np.asarray(reachable > self.threshold[self.sentences])

    def _go_on(self, found: _Candidates, opened: Flags, kept: Integers) -> None:
        opened = opened[kept]
        # Open ones first, their order kept; R falls to the most that any sentence has.
        columns = np.argsort(~opened, axis=1, kind="stable")[:, : opened.sum(axis=1).max()]
        chosen = found.select(kept, columns)
        self.open = np.where(np.take_along_axis(opened, columns, axis=1), chosen.totals, -np.inf)
        self.rows, self.tokens = chosen.rows.ravel(), chosen.tokens.ravel()
        self.trace.add(self.rows, self.tokens, chosen.gains.ravel())
        self.sentences, self.widths = self.sentences[kept], self.widths[kept]
