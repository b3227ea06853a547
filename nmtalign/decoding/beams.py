"""What a beam search keeps on the host between two steps."""

from dataclasses import dataclass

import numpy as np

from nmtalign.decoding.restrictions import Floats, Integers, Restrictions
from nmtalign.decoding.selection import Continuations


@dataclass(frozen=True)
class Beams:
    """What is open of B sentences that are still searched: a row of a step for each hypothesis, R a sentence."""

    sentences: Integers  # (B,) places in the batch
    widths: Integers  # (B,) what endings have left of each beam
    totals: Floats  # (B, R) log-probabilities; -inf where a sentence has fewer hypotheses than another

    @classmethod
    def first(cls, sentences: int, width: int) -> "Beams":
        """Of sentences for which nothing was found yet."""
        return cls(np.arange(sentences), np.full(sentences, width), np.zeros((sentences, 1)))

    def sentences_of(self, rows: slice) -> Integers:
        """The sentence of each of some rows."""
        return np.asarray(self.sentences[np.arange(rows.start, rows.stop) // self.totals.shape[1]])


@dataclass(frozen=True)
class Chosen:
    """The best continuations of the beams of B sentences, best first; every array (B, W)."""

    totals: Floats  # log-probability of the hypothesis with this word
    rows: Integers  # of the step: sentence * R + hypothesis
    tokens: Integers
    gains: Floats  # log-probability of this word

    @classmethod
    def of(cls, found: Continuations, beams: Beams, restrictions: Restrictions) -> "Chosen":
        """What was found, brought to the host."""
        rows = np.arange(len(beams.totals))[:, None] * beams.totals.shape[1] + found.hypotheses.cpu().numpy()
        tokens = restrictions.words(found.columns.cpu().numpy())
        return cls(found.totals.cpu().numpy(), rows, tokens, found.gains.double().cpu().numpy())

    def select(self, sentences: Integers, columns: Integers) -> "Chosen":
        """Those of some sentences (b,) in another order (b, w)."""
        at = sentences[:, None], columns
        return Chosen(self.totals[at], self.rows[at], self.tokens[at], self.gains[at])

    def widened(self, width: int) -> "Chosen":
        """With room for `width` continuations a sentence."""
        missing = ((0, 0), (0, max(0, width - self.totals.shape[1])))
        rows, tokens = (np.pad(part, missing, mode="edge") for part in (self.rows, self.tokens))
        totals, gains = (np.pad(part, missing, constant_values=-np.inf) for part in (self.totals, self.gains))
        return Chosen(totals, rows, tokens, gains)
