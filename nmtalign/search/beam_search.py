"""Beam search over a batch of sentences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmtalign.core.devices import widest
from nmtalign.errors import check_wanted
from nmtalign.search.candidates import Candidates
from nmtalign.search.hypotheses import Array, Flags, Floats, Hypothesis, Integers, Scoring, SearchOptions
from nmtalign.search.phrases import PhraseBanks, Phrases
from nmtalign.search.scorer import Choice, Scorer, Session, no_finite_probability
from nmtalign.search.selection import Continuations, Restrictions, best_continuations
from nmtalign.text.vocabulary import EOS_ID

_ROUNDING = 1e-12  # relative; a bound and the score that reaches it are computed in different orders


def beam_search(
    scorer: Scorer,
    source: Tensor,
    source_mask: Tensor,
    options: SearchOptions,
    candidates: Candidates | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    phrases: Sequence[Phrases] | None = None,
    copies: Tensor | None = None,
) -> list[list[Hypothesis]]:
    """The best translations of each sentence, best first: at least one and at most n_best.

    source (B, Tx) int64 ends with `</s>`; source_mask (B, Tx); `copies` (B, Tx) for a copying model. Each translation begins with the prefix of its sentence
    and contains the phrases of its sentence (see `PhraseBanks`); `candidates` must include the words of both. A
    finished hypothesis leaves the beam, which shrinks by one. Open hypotheses are compared by log-probability, finished
    ones by `Scoring`. `</s>` is banned in the first min_length_ratio * Tx steps; at step max_length_ratio * Tx every
    open hypothesis must end. The result for a sentence does not depend on the other sentences of the batch.
    Raises NmtalignError if the model gives no finite probability.
    """
    lengths = source_mask.sum(dim=1).tolist()
    required = phrases if phrases and any(each.words for each in phrases) else None
    restrictions = Restrictions(lengths, options, candidates, prefixes, [each.words for each in required or ()])
    search = BeamSearch(lengths, options, restrictions, PhraseBanks(required, restrictions) if required else None)
    return search.run(scorer.start(source, source_mask, candidates, copies))


@dataclass(frozen=True)
class Ending:
    """A `</s>` after a row: the step (0 = first), the row of that step, the log-probabilities and the score."""

    step: int
    row: int
    token_log_prob: float
    log_prob: float
    score: float


class BackPointers:
    """The words and weights of all steps of a search.

    Row r of step t + 1 is described by entry r of the arrays that were added after step t.
    """

    def __init__(self, keep_weights: bool, scoring: Scoring) -> None:
        self._keep_weights, self._scoring = keep_weights, scoring
        self._steps: list[tuple[Array, Array, Array]] = []  # previous rows, words, log-probabilities of the words
        self._weights: list[Array] = []  # (rows, Tx) for each step
        self._coverage: Array | None = None  # (rows, Tx), sums of the weights so far, if the score needs them

    def add_weights(self, weights: Tensor | None) -> None:
        """Stores the attention weights (rows, Tx) of a step, if hypotheses or scores need them."""
        if weights is None or not (self._keep_weights or self._scoring.coverage_penalty):
            return
        on_host = weights.float().cpu().numpy()
        if self._keep_weights:
            self._weights.append(on_host)
        if self._scoring.coverage_penalty:
            self._coverage = on_host if self._coverage is None else on_host + self._coverage[self._steps[-1][0]]

    def add(self, rows: Array, tokens: Array, log_probs: Array) -> None:
        """Adds the rows of the next step: for each, the row of this step that it continues, and the word."""
        self._steps.append((rows, tokens, log_probs))

    def ending(self, row: int, token_log_prob: float, log_prob: float, source_length: int) -> Ending:
        """The ending of a row of the latest step; source_length includes the `</s>` of the source."""
        step = len(self._steps)
        # The last column belongs to the `</s>` of the source, which need not be covered.
        coverage = None if self._coverage is None else self._coverage[row, : source_length - 1]
        return Ending(step, row, token_log_prob, log_prob, self._scoring.score(log_prob, step + 1, coverage))

    def hypothesis(self, ending: Ending, source_length: int) -> Hypothesis:
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


class BeamSearch:
    """The host's record of one search: which hypotheses are open and which have ended.

    The B sentences that are not finished have R rows of a step each: row b * R + r is hypothesis r of sentence b.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        options: SearchOptions,
        restrictions: Restrictions,
        banks: PhraseBanks | None = None,
    ) -> None:
        self.lengths, self.restrictions = lengths, restrictions
        self._options, self._banks = options, banks
        self._pointers = BackPointers(options.keep_weights, options.scoring)
        self.endings: list[list[Ending]] = [[] for _ in lengths]
        self.step = 0
        self.sentences: Integers = np.arange(len(lengths))  # (B,) positions in the batch
        self.widths: Integers = np.full(len(lengths), options.beam)  # (B,) the beam minus the finished hypotheses
        # (B, R) log-probabilities; -inf where a sentence has fewer hypotheses than another.
        self.totals: Floats = np.zeros((len(lengths), 1))
        self._thresholds = np.full(len(lengths), -np.inf)  # the n_best-th score of each sentence's endings

    @torch.inference_mode()
    def run(self, session: Session) -> list[list[Hypothesis]]:
        """Makes all steps of the search; returns the hypotheses of each sentence."""
        session.step(None)
        while (choice := self._advance(session)) is not None:
            check_wanted()
            session.step(choice)
        return self.results()

    def _advance(self, session: Session) -> Choice | None:
        """Extends the hypotheses by a word; returns the choice for the next step, None at the end."""
        self._pointers.add_weights(session.weights)
        found = self.continuations(session)
        valid = (np.arange(found.totals.shape[1]) < self.widths[:, None]) & np.isfinite(found.totals)
        if not valid.any(axis=1).all():
            raise no_finite_probability()
        ended = valid & (found.tokens == EOS_ID)
        self.finish(found, ended)
        opened = valid & ~ended
        kept: Integers = np.nonzero(self._undecided(np.where(opened, found.totals, -np.inf)))[0]
        self.step += 1
        if not len(kept):
            return None
        rows, words = self._extend(found, opened, kept)
        sentences = None if len(kept) == len(opened) else torch.from_numpy(kept).to(session.device)
        return Choice(sentences, torch.from_numpy(rows).to(session.device), torch.from_numpy(words).to(session.device))

    def continuations(self, session: Session) -> Continuations:
        """The best continuations of each sentence, best first."""
        open_totals = torch.from_numpy(self.totals).to(widest(session.device)).to(session.device)
        best = best_continuations(session, open_totals, int(self.widths.max()), self._restrict)
        totals, hypotheses, columns, gains = (part.cpu().numpy() for part in best)
        rows = np.arange(len(totals))[:, None] * self.totals.shape[1] + hypotheses
        totals, gains = totals.astype(np.float64, copy=False), gains.astype(np.float64)
        found = Continuations(totals, rows, self.restrictions.words(columns), gains)
        if self._banks is None:
            return found
        return self._banks.allocate(found, self.sentences, self.widths, self.totals, self.step)

    def _restrict(self, logits: Tensor, log_sums: Tensor, rows: slice) -> None:
        sentences = self.sentences[np.arange(rows.start, rows.stop) // self.totals.shape[1]]
        if self._banks is None:
            self.restrictions.apply(logits, sentences, self.step)
        else:
            self._banks.restrict(logits, log_sums, rows, sentences, self.step, int(self.widths.max()))

    def finish(self, found: Continuations, ended: Flags) -> None:
        """Records the hypotheses that end with this step."""
        for place, column in np.argwhere(ended):
            sentence, row = self.sentences[place], int(found.rows[place, column])
            gain, total = float(found.gains[place, column]), float(found.totals[place, column])
            endings = self.endings[sentence]
            endings.append(self._pointers.ending(row, gain, total, self.lengths[sentence]))
            if len(endings) >= self._options.n_best:
                scores = sorted((ending.score for ending in endings), reverse=True)
                self._thresholds[sentence] = scores[self._options.n_best - 1]
        self.widths = self.widths - ended.sum(axis=1)

    def _undecided(self, open_totals: Floats) -> Flags:
        """Which sentences (B,) have an open hypothesis that can still become one of the n_best."""
        best = open_totals.max(axis=1)
        if not self._options.safe_stop:
            return np.asarray(best > -np.inf)
        limits = self.restrictions.limits[self.sentences]
        reachable = self._options.scoring.bound(best, self.step + 2, limits)
        return np.asarray(reachable * (1 + _ROUNDING * np.sign(reachable)) > self._thresholds[self.sentences])

    def _extend(self, found: Continuations, opened: Flags, kept: Integers) -> tuple[Integers, Integers]:
        """Makes the rows of the next step: (the row of this step that each row continues, the word that it adds)."""
        opened = opened[kept]
        counts = opened.sum(axis=1)[:, None]
        # Each sentence gets as many rows as the sentence with the most open hypotheses, which come first and in order.
        # A sentence with fewer repeats its last one with a total of -inf: its other continuations may be impossible.
        places = np.arange(counts.max())
        columns = np.argsort(~opened, axis=1, kind="stable")
        chosen = found.at(kept[:, None], np.take_along_axis(columns, np.minimum(places, counts - 1), axis=1))
        self.sentences, self.widths = self.sentences[kept], self.widths[kept]
        self.totals = np.where(places < counts, chosen.totals, -np.inf)
        rows, tokens = chosen.rows.ravel(), chosen.tokens.ravel()
        self._pointers.add(rows, tokens, chosen.gains.ravel())
        return rows, self._banks.extend(rows, tokens) if self._banks else tokens

    def results(self) -> list[list[Hypothesis]]:
        """The n_best hypotheses of each sentence; of equal scores, the one that ended first comes first."""
        best = [sorted(endings, key=lambda ending: -ending.score)[: self._options.n_best] for endings in self.endings]
        found = self.hypotheses(best)
        return self._banks.resolve(found) if self._banks else found

    def hypotheses(self, endings: Sequence[Sequence[Ending]]) -> list[list[Hypothesis]]:
        """Reconstructs the hypotheses that have these endings."""
        pairs = zip(endings, self.lengths, strict=True)
        return [[self._pointers.hypothesis(ending, length) for ending in own] for own, length in pairs]
