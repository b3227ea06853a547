"""Beam search over a batch of sentences, whose rows share the annotations of their sentence (PAPER section 6)."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtalign.decoding.candidates import Candidates
from nmtalign.decoding.scorer import Choice, Scorer, Step
from nmtalign.decoding.selection import best_continuations
from nmtalign.decoding.trace import Ending, Hypothesis, Scoring, Trace
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.text.vocabulary import EOS_ID, UNK_ID

__all__ = ["Hypothesis", "SearchOptions", "beam_search"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SearchOptions:
    """How `beam_search` searches; raises UsageError for an n_best that is larger than the beam.

    With `safe_stop` a sentence is done when no open hypothesis can come under the n_best any more; without, as in the
    paper's code, when its beam is empty.
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


def beam_search(
    scorer: Scorer,
    source: Tensor,
    source_mask: Tensor,
    options: SearchOptions,
    candidates: Candidates | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: up to n_best of them, at least one.

    source (B, Tx) int64 ending with `</s>`, source_mask (B, Tx). Each translation begins with the words of its prefix.
    A hypothesis that is finished leaves the beam, which shrinks by one. Open ones are compared by log-probability,
    finished ones by `Scoring`. `</s>` is banned in the first min_length_ratio * Tx steps; in the last of
    max_length_ratio * Tx every open hypothesis is made to end. Nothing depends on the other sentences of the batch.
    Raises NmtalignError where the model gives no finite number.
    """
    device = source.device
    lengths = source_mask.sum(dim=1).tolist()
    with torch.inference_mode():
        session = scorer.start(source, source_mask, candidates)
        search = _Search(lengths, options, candidates.words if candidates else None, prefixes or [()] * len(lengths))
        choice = None
        while True:
            kept = search.advance(session.step(choice))
            if kept is not None and not len(kept):
                return search.results()
            choice = Choice(
                None if kept is None else torch.from_numpy(kept).to(device),
                torch.from_numpy(search.rows).to(device),
                torch.from_numpy(search.tokens).to(device),
            )


@dataclass(frozen=True)
class _Continuations:
    """The best continuations of each sentence's beam, best first; every array (B, W)."""

    totals: Floats  # log-probability of the hypothesis with this word
    rows: Integers  # of the step: sentence * R + hypothesis
    tokens: Integers
    gains: Floats  # log-probability of this word

    def select(self, sentences: Integers, columns: Integers) -> "_Continuations":
        """Those of some sentences (b,) in another order (b, w)."""
        at = sentences[:, None], columns
        return _Continuations(self.totals[at], self.rows[at], self.tokens[at], self.gains[at])


class _Search:
    """The bookkeeping of one search, on the host: which hypotheses are open, which have ended.

    After `advance`, `rows` and `tokens` (rows of the next step,) hold the row of this step that each continues, and
    the word with which it does.
    """

    def __init__(
        self, lengths: list[int], options: SearchOptions, words: Integers | None, prefixes: Sequence[Sequence[int]]
    ) -> None:
        self.options = options
        self.lengths = lengths
        self.words = words  # the word of each column of the scores; None = the column's own number
        self.prefixes = prefixes
        self.longest_prefix = max(map(len, prefixes))
        limits = [max(1, int(options.max_length_ratio * length)) for length in lengths]
        self.limits = np.array([max(most, len(prefix) + 1) for most, prefix in zip(limits, prefixes, strict=True)])
        self.least = np.minimum([int(options.min_length_ratio * length) for length in lengths], self.limits - 1)
        self.trace = Trace(options.keep_weights)
        self.coverage: Floats | None = None  # (rows, Tx), sums of the weights so far, where the score counts them
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

    def advance(self, step: Step) -> Integers | None:
        """Takes what a step gave for its rows (B*R).

        Returns the sentences to go on with, as places among those of this step; None if that is all of them.
        """
        self._read(step.weights)
        found = self._continuations(step)
        valid = (np.arange(found.totals.shape[1]) < self.widths[:, None]) & np.isfinite(found.totals)
        if not valid.any(axis=1).all():
            raise NmtalignError("the model gives no finite probability: is it damaged, or has its training diverged?")
        ended = valid & (found.tokens == EOS_ID)
        self._finish(found, ended)
        opened = valid & ~ended
        kept: Integers = np.nonzero(self._undecided(np.where(opened, found.totals, -np.inf)))[0]
        everything = len(kept) == len(opened)
        if len(kept):
            self._go_on(found, opened, kept)
        self.step += 1
        return None if everything else kept

    def results(self) -> list[list[Hypothesis]]:
        """The n_best of each sentence; of equal scores the one that ended first comes first."""
        best = [sorted(endings, key=lambda ending: -ending.score)[: self.options.n_best] for endings in self.endings]
        return [
            [self.trace.hypothesis(ending, length) for ending in endings]
            for endings, length in zip(best, self.lengths, strict=True)
        ]

    def _read(self, weights: Tensor | None) -> None:
        """Keeps the weights where they are wanted."""
        if weights is None or not (self.options.keep_weights or self.options.scoring.coverage_penalty):
            return
        read = weights.float().cpu().numpy()
        self.trace.add_weights(read)
        if self.options.scoring.coverage_penalty:
            self.coverage = read + (0 if self.coverage is None else self.coverage[self.rows])

    def _restrict(self, log_probs: Tensor, rows: slice) -> None:
        """Bans words (r, U): `<unk>`; all but the prefix; `</s>` where it is too early; all but it where it is late."""
        if self.longest_prefix <= self.step and not self.options.allow_unk:
            log_probs[:, UNK_ID] = -torch.inf
        width = self.open.shape[1]
        of_rows = self.sentences[np.arange(rows.start, rows.stop) // width]
        early, last = self.least[of_rows] > self.step, self.limits[of_rows] == self.step + 1
        if early.any():
            log_probs[torch.from_numpy(early).to(log_probs.device), EOS_ID] = -torch.inf
        if last.any():
            _leave_only(log_probs, np.nonzero(last)[0], EOS_ID)
        if self.step < self.longest_prefix:
            self._hold_to_prefixes(log_probs, of_rows)

    def _hold_to_prefixes(self, log_probs: Tensor, of_rows: Integers) -> None:
        for row, sentence in enumerate(of_rows):
            prefix = self.prefixes[sentence]
            if self.step < len(prefix):
                _leave_only(log_probs, np.array([row]), self._column(prefix[self.step]))
            elif not self.options.allow_unk:
                log_probs[row, UNK_ID] = -torch.inf

    def _column(self, word: int) -> int:
        return word if self.words is None else int(np.searchsorted(self.words, word))

    def _continuations(self, step: Step) -> _Continuations:
        open_totals = torch.from_numpy(self.open).to(step.scores.device)
        found = best_continuations(step.scores, open_totals, int(self.widths.max()), self._restrict)
        rows = np.arange(len(self.open))[:, None] * self.open.shape[1] + found.hypotheses.cpu().numpy()
        tokens = found.columns.cpu().numpy()
        if self.words is not None:
            tokens = self.words[tokens]
        return _Continuations(found.totals.cpu().numpy(), rows, tokens, found.gains.double().cpu().numpy())

    def _finish(self, found: _Continuations, ended: Flags) -> None:
        scoring = self.options.scoring
        for place, column in np.argwhere(ended):
            sentence, total = self.sentences[place], float(found.totals[place, column])
            row = int(found.rows[place, column])
            # The last column that is read is that of the source's own `</s>`, which need not be covered.
            read = None if self.coverage is None else self.coverage[row, : self.lengths[sentence] - 1]
            score = scoring.score(total, self.step + 1, read)
            endings = self.endings[sentence]
            endings.append(Ending(self.step, row, float(found.gains[place, column]), total, score))
            if len(endings) >= self.options.n_best:
                scores = sorted((ending.score for ending in endings), reverse=True)
                self.threshold[sentence] = scores[self.options.n_best - 1]
        self.widths = self.widths - ended.sum(axis=1)

    def _undecided(self, open_totals: Floats) -> Flags:
        """Which sentences have an open hypothesis that can still come under the n_best."""
        best = open_totals.max(axis=1)
        if not self.options.safe_stop:
            return np.asarray(best > -np.inf)
        reachable = self.options.scoring.bound(best, self.step + 2, self.limits[self.sentences])
        return np.asarray(reachable > self.threshold[self.sentences])

    def _go_on(self, found: _Continuations, opened: Flags, kept: Integers) -> None:
        opened = opened[kept]
        # Open ones first, their order kept; R falls to the most that any sentence has.
        columns = np.argsort(~opened, axis=1, kind="stable")[:, : opened.sum(axis=1).max()]
        chosen = found.select(kept, columns)
        self.open = np.where(np.take_along_axis(opened, columns, axis=1), chosen.totals, -np.inf)
        self.rows, self.tokens = chosen.rows.ravel(), chosen.tokens.ravel()
        self.trace.add(self.rows, self.tokens, chosen.gains.ravel())
        self.sentences, self.widths = self.sentences[kept], self.widths[kept]


def _leave_only(log_probs: Tensor, rows: Integers, column: int) -> None:
    """Bans every word but one (its column) in some rows."""
    index = torch.from_numpy(rows).to(log_probs.device)
    left = log_probs[index, column]
    log_probs[index] = -torch.inf
    log_probs[index, column] = left
