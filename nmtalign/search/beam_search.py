"""Beam search over a batch of sentences."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmtalign.search.candidates import Candidates
from nmtalign.search.hypotheses import BackPointers, Ending, Flags, Floats, Hypothesis, Integers
from nmtalign.search.phrases import PhraseBanks, Phrases
from nmtalign.search.restrictions import Restrictions, SearchOptions
from nmtalign.search.scorer import Choice, ScoredStep, Scorer, no_finite_probability
from nmtalign.search.selection import Beams, Chosen, best_continuations
from nmtalign.text.vocabulary import EOS_ID

_ROUNDING = 1e-12  # relative; a bound and the score that reaches it are computed in different orders


def beam_search(
    scorer: Scorer,
    source: Tensor,
    source_mask: Tensor,
    options: SearchOptions,
    candidates: Candidates | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    phrases: Sequence[Sequence[Sequence[int]]] | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: at least one and at most n_best.

    source (B, Tx) int64 ends with `</s>`; source_mask (B, Tx). Each translation begins with the prefix of its sentence
    and contains each of the sentence's phrases (see `PhraseBanks`); `candidates` must include the words of both. A
    finished hypothesis leaves the beam, which shrinks by one. Open hypotheses are compared by log-probability, finished
    ones by `Scoring`. `</s>` is banned in the first min_length_ratio * Tx steps; at step max_length_ratio * Tx every
    open hypothesis must end. The result for a sentence does not depend on the other sentences of the batch.
    Raises NmtalignError if the model gives no finite probability.
    """
    lengths = source_mask.sum(dim=1).tolist()
    prefixes = prefixes or [()] * len(lengths)
    required = [Phrases(each) for each in phrases] if phrases and any(map(any, phrases)) else None
    phrase_words = [each.words for each in required] if required else None
    restrictions = Restrictions(lengths, options, candidates.words if candidates else None, prefixes, phrase_words)
    search = _BeamSearch(lengths, options, restrictions, PhraseBanks(required, restrictions) if required else None)
    with torch.inference_mode():
        session = scorer.start(source, source_mask, candidates)
        choice = search.advance(session.step(None))
        while choice is not None:
            choice = search.advance(session.step(choice))
    return search.results()


class _BeamSearch:
    """The host's record of one search: which hypotheses are open and which have ended."""

    def __init__(
        self, lengths: list[int], options: SearchOptions, restrictions: Restrictions, banks: PhraseBanks | None
    ) -> None:
        self.lengths, self.options = lengths, options
        self.restrictions, self.banks = restrictions, banks
        self.pointers = BackPointers(options.keep_weights, options.scoring)
        self.endings: list[list[Ending]] = [[] for _ in lengths]
        self.threshold = np.full(len(lengths), -np.inf)  # the n_best-th score of each sentence's endings
        self.step = 0
        self.beams = Beams.first(len(lengths), options.beam)

    def advance(self, step: ScoredStep) -> Choice | None:
        """Extends the hypotheses by the scores of a step; returns the choice for the next step, None at the end."""
        self.pointers.add_weights(step.weights)
        found = self._continuations(step)
        valid = (np.arange(found.totals.shape[1]) < self.beams.widths[:, None]) & np.isfinite(found.totals)
        if not valid.any(axis=1).all():
            raise no_finite_probability()
        ended = valid & (found.tokens == EOS_ID)
        self._finish(found, ended)
        opened = valid & ~ended
        kept: Integers = np.nonzero(self._undecided(np.where(opened, found.totals, -np.inf)))[0]
        self.step += 1
        if not len(kept):
            return None
        rows, tokens = self._extend(found, opened, kept)
        return Choice.on(step.scores.device, None if len(kept) == len(opened) else kept, rows, tokens)

    def results(self) -> list[list[Hypothesis]]:
        """The n_best hypotheses of each sentence; of equal scores, the one that ended first comes first."""
        best = [sorted(endings, key=lambda ending: -ending.score)[: self.options.n_best] for endings in self.endings]
        found = [
            [self.pointers.hypothesis(ending, length) for ending in endings]
            for endings, length in zip(best, self.lengths, strict=True)
        ]
        return self.banks.resolve(found) if self.banks else found

    def _continuations(self, step: ScoredStep) -> Chosen:
        beams = self.beams
        open_totals = torch.from_numpy(beams.totals).to(step.scores.device)
        found = best_continuations(step.scores, open_totals, int(beams.widths.max()), self._restrict)
        chosen = Chosen.of(found, beams, self.restrictions)
        return self.banks.allocate(chosen, beams, self.step) if self.banks else chosen

    def _restrict(self, logits: Tensor, log_sums: Tensor, rows: slice) -> None:
        sentences = self.beams.sentences_of(rows)
        if self.banks:
            incomplete = self.banks.read_wanted(logits, log_sums, rows, sentences, self.step)
            self.restrictions.apply(logits, sentences, self.step, incomplete)
            self.banks.read_best(logits, log_sums, rows, sentences, int(self.beams.widths.max()))
        else:
            self.restrictions.apply(logits, sentences, self.step)

    def _finish(self, found: Chosen, ended: Flags) -> None:
        """Records the hypotheses that end with this step."""
        beams = self.beams
        for place, column in np.argwhere(ended):
            sentence, row = beams.sentences[place], int(found.rows[place, column])
            gain, total = float(found.gains[place, column]), float(found.totals[place, column])
            endings = self.endings[sentence]
            endings.append(self.pointers.ending(row, gain, total, self.lengths[sentence]))
            if len(endings) >= self.options.n_best:
                scores = sorted((ending.score for ending in endings), reverse=True)
                self.threshold[sentence] = scores[self.options.n_best - 1]
        self.beams = replace(beams, widths=beams.widths - ended.sum(axis=1))

    def _undecided(self, open_totals: Floats) -> Flags:
        """Which sentences (B,) have an open hypothesis that can still become one of the n_best."""
        best, sentences = open_totals.max(axis=1), self.beams.sentences
        if not self.options.safe_stop:
            return np.asarray(best > -np.inf)
        reachable = self.options.scoring.bound(best, self.step + 2, self.restrictions.limits[sentences])
        return np.asarray(reachable * (1 + _ROUNDING * np.sign(reachable)) > self.threshold[sentences])

    def _extend(self, found: Chosen, opened: Flags, kept: Integers) -> tuple[Integers, Integers]:
        """Makes the beams of the next step: (the row of this step that each row continues, the word that it adds)."""
        opened = opened[kept]
        counts = opened.sum(axis=1)[:, None]
        # Each sentence gets as many rows as the sentence with the most open hypotheses, which come first and in order.
        # A sentence with fewer repeats its last one with a total of -inf: its other continuations may be impossible.
        places = np.arange(counts.max())
        columns = np.argsort(~opened, axis=1, kind="stable")
        chosen = found.select(kept, np.take_along_axis(columns, np.minimum(places, counts - 1), axis=1))
        totals = np.where(places < counts, chosen.totals, -np.inf)
        self.beams = Beams(self.beams.sentences[kept], self.beams.widths[kept], totals)
        rows, tokens = chosen.rows.ravel(), chosen.tokens.ravel()
        self.pointers.add(rows, tokens, chosen.gains.ravel())
        return rows, self.banks.extend(rows, tokens) if self.banks else tokens
