"""Beam search over a batch of sentences, whose rows share the annotations of their sentence (PAPER section 6)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmtalign.decoding.banks import PhraseBanks
from nmtalign.decoding.beams import Beams, Chosen
from nmtalign.decoding.candidates import Candidates
from nmtalign.decoding.phrases import Phrases
from nmtalign.decoding.restrictions import Flags, Floats, Integers, Restrictions, SearchOptions
from nmtalign.decoding.scorer import Choice, Scorer, Step
from nmtalign.decoding.selection import best_continuations
from nmtalign.decoding.trace import Ending, Hypothesis, Trace
from nmtalign.errors import NmtalignError
from nmtalign.text.vocabulary import EOS_ID

__all__ = ["Hypothesis", "SearchOptions", "beam_search"]

_ROUNDING = 1e-12  # relative; a bound and the score that reaches it are not computed in quite the same way


def beam_search(
    scorer: Scorer,
    source: Tensor,
    source_mask: Tensor,
    options: SearchOptions,
    candidates: Candidates | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    phrases: Sequence[Sequence[Sequence[int]]] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: up to n_best of them, at least one.

    source (B, Tx) int64 ending with `</s>`, source_mask (B, Tx). Each translation begins with the words of its
    sentence's prefix, and each of the sentence's phrases stands somewhere in it (see `PhraseBanks`); candidates hold
    the words of both. A hypothesis that is finished leaves the beam, which shrinks by one. Open ones are compared by
    log-probability, finished ones by `Scoring`. `</s>` is banned in the first min_length_ratio * Tx steps; in the last
    of max_length_ratio * Tx every open hypothesis is made to end. Nothing depends on the other sentences of the batch.
    Raises NmtalignError where the model gives no finite number.
    """
    device = source.device
    lengths = source_mask.sum(dim=1).tolist()
    prefixes = prefixes or [()] * len(lengths)
    wanted = [Phrases(each) for each in phrases] if phrases and any(map(any, phrases)) else None
    room = [each.words for each in wanted] if wanted else [0] * len(lengths)
    restrictions = Restrictions(lengths, options, candidates.words if candidates else None, prefixes, room)
    search = _Search(lengths, options, restrictions, PhraseBanks(wanted, restrictions) if wanted else None)
    with torch.inference_mode():
        session = scorer.start(source, source_mask, candidates)
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


class _Search:
    """The bookkeeping of one search, on the host: which hypotheses are open, which have ended.

    After `advance`, `rows` and `tokens` (rows of the next step,) hold the row of this step that each continues, and
    the word with which it does.
    """

    def __init__(
        self, lengths: list[int], options: SearchOptions, restrictions: Restrictions, banks: PhraseBanks | None
    ) -> None:
        self.lengths, self.options = lengths, options
        self.restrictions, self.banks = restrictions, banks
        self.trace = Trace(options.keep_weights, options.scoring)
        self.endings: list[list[Ending]] = [[] for _ in lengths]
        self.threshold = np.full(len(lengths), -np.inf)  # score of each sentence's n_best-th ending
        self.step = 0
        self.beams = Beams.first(len(lengths), options.beam)
        self.rows: Integers = np.arange(0)
        self.tokens: Integers = np.arange(0)

    def advance(self, step: Step) -> Integers | None:
        """Takes what a step gave for its rows (B*R).

        Returns the sentences to go on with, as places among those of this step; None if that is all of them.
        """
        self.trace.read(step.weights)
        found = self._continuations(step)
        valid = (np.arange(found.totals.shape[1]) < self.beams.widths[:, None]) & np.isfinite(found.totals)
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
        found = [
            [self.trace.hypothesis(ending, length) for ending in endings]
            for endings, length in zip(best, self.lengths, strict=True)
        ]
        return self.banks.read_off(found) if self.banks else found

    def _continuations(self, step: Step) -> Chosen:
        beams, device = self.beams, step.scores.device
        open_totals = torch.from_numpy(beams.totals).to(device)
        found = best_continuations(step.scores, open_totals, int(beams.widths.max()), self._restrict)
        chosen = Chosen.of(found, beams, self.restrictions)
        return self.banks.allocate(chosen, beams, self.step) if self.banks else chosen

    def _restrict(self, logits: Tensor, log_sums: Tensor, rows: slice) -> None:
        sentences = self.beams.sentences_of(rows)
        if self.banks:
            unfinished = self.banks.read_wanted(logits, log_sums, rows, sentences, self.step)
            self.restrictions.apply(logits, sentences, self.step, unfinished)
            self.banks.read_best(logits, log_sums, rows, sentences, int(self.beams.widths.max()))
        else:
            self.restrictions.apply(logits, sentences, self.step)

    def _finish(self, found: Chosen, ended: Flags) -> None:
        beams = self.beams
        for place, column in np.argwhere(ended):
            sentence, row = beams.sentences[place], int(found.rows[place, column])
            gain, total = float(found.gains[place, column]), float(found.totals[place, column])
            endings = self.endings[sentence]
            endings.append(self.trace.ending(row, gain, total, self.lengths[sentence]))
            if len(endings) >= self.options.n_best:
                scores = sorted((ending.score for ending in endings), reverse=True)
                self.threshold[sentence] = scores[self.options.n_best - 1]
        self.beams = replace(beams, widths=beams.widths - ended.sum(axis=1))

    def _undecided(self, open_totals: Floats) -> Flags:
        """Which sentences have an open hypothesis that can still come under the n_best."""
        best, sentences = open_totals.max(axis=1), self.beams.sentences
        if not self.options.safe_stop:
            return np.asarray(best > -np.inf)
        reachable = self.options.scoring.bound(best, self.step + 2, self.restrictions.limits[sentences])
        return np.asarray(reachable * (1 + _ROUNDING * np.sign(reachable)) > self.threshold[sentences])

    def _go_on(self, found: Chosen, opened: Flags, kept: Integers) -> None:
        opened = opened[kept]
        counts = opened.sum(axis=1)[:, None]
        # Open ones first, their order kept; R falls to the most that any sentence has. A sentence that has fewer
        # repeats its last one with a total of -inf: what else was found for it may be no possible continuation.
        places = np.arange(counts.max())
        columns = np.argsort(~opened, axis=1, kind="stable")
        chosen = found.select(kept, np.take_along_axis(columns, np.minimum(places, counts - 1), axis=1))
        totals = np.where(places < counts, chosen.totals, -np.inf)
        self.beams = Beams(self.beams.sentences[kept], self.beams.widths[kept], totals)
        self.rows, self.tokens = chosen.rows.ravel(), chosen.tokens.ravel()
        self.trace.add(self.rows, self.tokens, chosen.gains.ravel())
        if self.banks:
            self.tokens = self.banks.go_on(self.rows, self.tokens)
