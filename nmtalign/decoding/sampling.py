"""Translations drawn from the model, word by word."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmtalign.decoding.candidates import Candidates
from nmtalign.decoding.ranking import largest
from nmtalign.decoding.restrictions import Flags, Floats, Integers, Restrictions, SearchOptions
from nmtalign.decoding.scorer import Choice, Scorer, Step, log_probs, parts
from nmtalign.decoding.trace import Ending, Hypothesis, Trace
from nmtalign.errors import NmtalignError, UsageError
from nmtalign.text.vocabulary import EOS_ID


@dataclass(frozen=True)
class Draws:
    """How `sample` draws: so many samples a sentence, each word from the `top_k` most probable ones (0 = from all).

    Log-probabilities are divided by `temperature`: below 1, probable words become more so. Raises UsageError for a
    temperature that is not a number above 0.
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
    """Independent translations of each sentence, in the order in which they were drawn, so that fewer of them are the
    first of more; the same translation may come twice.

    source (B, Tx) int64 ending with `</s>`, source_mask (B, Tx). Lengths, `<unk>`, candidates and prefixes are
    restricted as in `beam_search`; the rest of `options` is for search alone. log_prob is that of the model, before
    temperature and `top_k`. A sentence's draws depend on the seed, the sentence's `numbers`, and the place of the draw
    alone. Raises NmtalignError where the model gives no finite number.
    """
    device = source.device
    lengths = source_mask.sum(dim=1).tolist()
    prefixes = prefixes or [()] * len(lengths)
    restrictions = Restrictions(lengths, options, candidates.words if candidates else None, prefixes)
    sampling = _Sampling(lengths, Trace(options.keep_weights, options.scoring), restrictions, draws, numbers)
    with torch.inference_mode():
        session = scorer.start(source, source_mask, candidates)
        choice = None
        while True:
            kept = sampling.advance(session.step(choice))
            if kept is not None and not len(kept):
                return sampling.results()
            choice = Choice(
                None if kept is None else torch.from_numpy(kept).to(device),
                torch.from_numpy(sampling.rows).to(device),
                torch.from_numpy(sampling.tokens).to(device),
            )


class _Sampling:
    """The bookkeeping: S samples that are open, those of a sentence side by side, each with its row of the step.

    After `advance`, `rows` and `tokens` (rows of the next step,) hold the row of this step that each continues, and
    the word with which it does; a sentence that has fewer samples than another has its last one several times.
    """

    def __init__(
        self,
        lengths: list[int],
        trace: Trace,
        restrictions: Restrictions,
        draws: Draws,
        numbers: Sequence[Sequence[int]],
    ) -> None:
        self.lengths, self.trace, self.restrictions, self.draws = lengths, trace, restrictions, draws
        self.endings: dict[tuple[int, int], Ending] = {}
        self.step = 0
        each, seed = draws.count, draws.seed % (1 << 64)
        self.generators = [[np.random.default_rng([seed, *own, place]) for place in range(each)] for own in numbers]
        # Of the S open samples: sentence, place among its samples, row of the step, log-probability.
        self.sentences: Integers = np.repeat(np.arange(len(lengths)), each)
        self.places: Integers = np.tile(np.arange(each), len(lengths))
        self.of_rows: Integers = self.sentences
        self.totals: Floats = np.zeros(len(self.sentences))
        self.rows: Integers = np.arange(0)
        self.tokens: Integers = np.arange(0)

    def advance(self, step: Step) -> Integers | None:
        """Takes what a step gave.

        Returns the sentences to go on with, as places among those of this step; None if that is all of them.
        """
        self.trace.read(step.weights)
        columns, gains = self._draw(step)
        tokens = self.restrictions.words(columns)
        self.totals = self.totals + gains
        ended = tokens == EOS_ID
        for number in np.nonzero(ended)[0]:
            sentence, row = int(self.sentences[number]), int(self.of_rows[number])
            gain, total = float(gains[number]), float(self.totals[number])
            ending = self.trace.ending(row, gain, total, self.lengths[sentence])
            self.endings[sentence, int(self.places[number])] = ending
        before = np.unique(self.sentences)
        kept = np.isin(before, self.sentences[~ended])
        if kept.any():
            self._go_on(~ended, tokens, gains)
        self.step += 1
        return None if kept.all() else np.nonzero(kept)[0]

    def results(self) -> list[list[Hypothesis]]:
        """The samples of each sentence."""
        return [
            [self.trace.hypothesis(self.endings[sentence, place], length) for place in range(self.draws.count)]
            for sentence, length in enumerate(self.lengths)
        ]

    def _draw(self, step: Step) -> tuple[Integers, Floats]:
        """The column that each sample goes on with (S,), and its log-probability."""
        pairs = zip(self.sentences, self.places, strict=True)
        chances = np.array([self.generators[sentence][place].random() for sentence, place in pairs])
        found = []
        for rows in parts(step.scores.shape, step.scores.device.type == "cpu"):
            own = np.nonzero((self.of_rows >= rows.start) & (self.of_rows < rows.stop))[0]
            if len(own):
                place = torch.from_numpy(self.of_rows[own] - rows.start).to(step.scores.device)
                gains = log_probs(step.scores, rows)[place]
                self.restrictions.apply(gains, self.sentences[own], self.step)
                columns = draw(gains, torch.from_numpy(chances[own]).to(gains.device), self.draws)
                found.append((columns, gains.gather(1, columns[:, None]).squeeze(1).double()))
        chosen, totals = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
        if not np.isfinite(totals).all():
            raise NmtalignError("the model gives no finite probability: is it damaged, or has its training diverged?")
        return chosen, totals

    def _go_on(self, opened: Flags, tokens: Integers, gains: Floats) -> None:
        rows, tokens, gains = self.of_rows[opened], tokens[opened], gains[opened]
        self.sentences, self.places, self.totals = self.sentences[opened], self.places[opened], self.totals[opened]
        _, starts, sentences, counts = np.unique(
            self.sentences, return_index=True, return_inverse=True, return_counts=True
        )
        most = int(counts.max())
        ranks = np.arange(len(rows)) - starts[sentences]
        # The last of a sentence stands for those that it has fewer of.
        samples = (starts[:, None] + np.minimum(np.arange(most), counts[:, None] - 1)).ravel()
        self.of_rows = sentences * most + ranks
        self.rows, self.tokens = rows[samples], tokens[samples]
        self.trace.add(self.rows, self.tokens, gains[samples])


def draw(log_probs: Tensor, chances: Tensor, draws: Draws) -> Tensor:
    """One column (S,) of each row of log-probabilities (S, U), given a number from 0 to below 1 for each (S,) float64.

    That is the first column at which the sum of the probabilities, by rising column or with top_k by falling
    probability, is above the chance's part of the whole.
    """
    values, columns = largest(log_probs, draws.top_k) if draws.top_k else (log_probs, None)
    values = values.double()
    sums = ((values - values.amax(1, keepdim=True)) / draws.temperature).exp().cumsum(1)
    whole = sums[:, -1:]
    part = torch.minimum(chances[:, None] * whole, whole.nextafter(torch.zeros_like(whole)))
    place = torch.searchsorted(sums, part, right=True).clamp_(max=sums.shape[1] - 1)
    return (place if columns is None else columns.gather(1, place)).squeeze(1)
