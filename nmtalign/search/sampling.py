"""Sampling: translations drawn word by word from the model's probabilities."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmtalign.errors import UsageError
from nmtalign.search.candidates import Candidates
from nmtalign.search.hypotheses import BackPointers, Ending, Flags, Floats, Hypothesis, Integers
from nmtalign.search.restrictions import Restrictions, SearchOptions
from nmtalign.search.scorer import Choice, ScoredStep, Scorer, no_finite_probability
from nmtalign.search.selection import largest
from nmtalign.text.vocabulary import EOS_ID


@dataclass(frozen=True)
class Draws:
    """The options of `sample`: `count` samples per sentence, each word from the `top_k` most probable (0 = all).

    Log-probabilities are divided by `temperature`; a temperature below 1 makes probable words more probable. Raises
    UsageError if it is not a number greater than 0.
    """

    count: int = 1
    temperature: float = 1.0
    top_k: int = 0
    seed: int = 1234

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise UsageError(f"temperature = {self.temperature}: must be a number greater than 0")


def sample(
    scorer: Scorer,
    source: Tensor,
    source_mask: Tensor,
    options: SearchOptions,
    draws: Draws,
    numbers: Sequence[Sequence[int]],
    candidates: Candidates | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Independent translations of each sentence, in the order in which they were drawn; two of them may be equal.

    source (B, Tx) int64 ends with `</s>`; source_mask (B, Tx). Lengths, `<unk>`, candidates and prefixes are restricted
    as in `beam_search`; the other `options` apply only to beam search. log_prob is the model's, before temperature and
    `top_k`. The samples of a sentence depend only on the seed, on the sentence's `numbers` and on the number of each
    draw, so that a smaller count gives the first of the same samples. Raises NmtalignError if the model gives no finite
    probability.
    """
    lengths = source_mask.sum(dim=1).tolist()
    prefixes = prefixes or [()] * len(lengths)
    restrictions = Restrictions(lengths, options, candidates.words if candidates else None, prefixes)
    sampling = _Sampling(lengths, BackPointers(options.keep_weights, options.scoring), restrictions, draws, numbers)
    with torch.inference_mode():
        session = scorer.start(source, source_mask, candidates)
        choice = sampling.advance(session.step(None))
        while choice is not None:
            choice = sampling.advance(session.step(choice))
    return sampling.results()


class _Sampling:
    """The host's record of S open samples; those of a sentence are adjacent, and each has its own row of the step."""

    def __init__(
        self,
        lengths: list[int],
        pointers: BackPointers,
        restrictions: Restrictions,
        draws: Draws,
        numbers: Sequence[Sequence[int]],
    ) -> None:
        self.lengths, self.pointers, self.restrictions, self.draws = lengths, pointers, restrictions, draws
        self.endings: dict[tuple[int, int], Ending] = {}
        self.step = 0
        each, seed = draws.count, draws.seed % (1 << 64)
        self.generators = [[np.random.default_rng([seed, *own, place]) for place in range(each)] for own in numbers]
        # For each of the S open samples: its sentence, its number within the sentence, its row, its log-probability.
        self.sentences: Integers = np.repeat(np.arange(len(lengths)), each)
        self.places: Integers = np.tile(np.arange(each), len(lengths))
        self.rows: Integers = self.sentences
        self.totals: Floats = np.zeros(len(self.sentences))

    def advance(self, step: ScoredStep) -> Choice | None:
        """Draws a word for each open sample; returns the choice for the next step, None at the end."""
        self.pointers.add_weights(step.weights)
        columns, gains = self._draw(step)
        tokens = self.restrictions.words(columns)
        self.totals = self.totals + gains
        ended = tokens == EOS_ID
        for number in np.nonzero(ended)[0]:
            sentence, row = int(self.sentences[number]), int(self.rows[number])
            gain, total = float(gains[number]), float(self.totals[number])
            ending = self.pointers.ending(row, gain, total, self.lengths[sentence])
            self.endings[sentence, int(self.places[number])] = ending
        self.step += 1
        if ended.all():
            return None
        before = np.unique(self.sentences)
        kept = np.isin(before, self.sentences[~ended])
        rows, words = self._extend(~ended, tokens, gains)
        return Choice.on(step.scores.device, None if kept.all() else np.nonzero(kept)[0], rows, words)

    def results(self) -> list[list[Hypothesis]]:
        """The samples of each sentence."""
        return [
            [self.pointers.hypothesis(self.endings[sentence, place], length) for place in range(self.draws.count)]
            for sentence, length in enumerate(self.lengths)
        ]

    def _draw(self, step: ScoredStep) -> tuple[Integers, Floats]:
        """The column that is drawn for each sample (S,), and its log-probability."""
        pairs = zip(self.sentences, self.places, strict=True)
        chances = np.array([self.generators[sentence][place].random() for sentence, place in pairs])
        found = []
        for rows in step.scores.parts():
            own = np.nonzero((self.rows >= rows.start) & (self.rows < rows.stop))[0]
            if len(own):
                place = torch.from_numpy(self.rows[own] - rows.start).to(step.scores.device)
                gains = step.scores.log_probs(rows)[place]
                self.restrictions.apply(gains, self.sentences[own], self.step)
                columns = draw(gains, torch.from_numpy(chances[own]).to(gains.device), self.draws)
                found.append((columns, gains.gather(1, columns[:, None]).squeeze(1).double()))
        chosen, totals = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
        if not np.isfinite(totals).all():
            raise no_finite_probability()
        return chosen, totals

    def _extend(self, opened: Flags, tokens: Integers, gains: Floats) -> tuple[Integers, Integers]:
        """Assigns the rows of the next step: (the row of this step that each row continues, the word that it adds).

        A sentence that has fewer samples than another repeats its last one.
        """
        rows, tokens, gains = self.rows[opened], tokens[opened], gains[opened]
        self.sentences, self.places, self.totals = self.sentences[opened], self.places[opened], self.totals[opened]
        _, starts, sentences, counts = np.unique(
            self.sentences, return_index=True, return_inverse=True, return_counts=True
        )
        most = int(counts.max())
        self.rows = sentences * most + np.arange(len(rows)) - starts[sentences]
        samples = (starts[:, None] + np.minimum(np.arange(most), counts[:, None] - 1)).ravel()
        self.pointers.add(rows[samples], tokens[samples], gains[samples])
        return rows[samples], tokens[samples]


def draw(log_probs: Tensor, chances: Tensor, draws: Draws) -> Tensor:
    """Draws one column (S,) of each row of log-probabilities (S, U), given random numbers (S,) in [0, 1), float64.

    The columns are ordered by index, or with top_k by decreasing probability. The first column is drawn at which the
    cumulative probability exceeds the random number times the total.
    """
    values, columns = largest(log_probs, draws.top_k) if draws.top_k else (log_probs, None)
    values = values.double()
    sums = ((values - values.amax(1, keepdim=True)) / draws.temperature).exp().cumsum(1)
    total = sums[:, -1:]
    part = torch.minimum(chances[:, None] * total, total.nextafter(torch.zeros_like(total)))
    place = torch.searchsorted(sums, part, right=True).clamp_(max=sums.shape[1] - 1)
    return (place if columns is None else columns.gather(1, place)).squeeze(1)
