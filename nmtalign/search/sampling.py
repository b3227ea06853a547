"""Sampling: translations drawn word by word from the model's probabilities."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from nmtalign.errors import NO_PROBABILITY, NmtalignError
from nmtalign.search import beam_search
from nmtalign.settings.command_settings import TranslateConfig


class Sampling(beam_search.BeamSearch):
    """A beam search whose hypotheses are samples: each is continued by one word, which is drawn.

    `run` gives `n_best` independent translations of each sentence, in the order in which they were drawn; some may be
    equal. Each word is drawn from the `top_k` most probable ones (0 = all). Log-probabilities are divided by
    `temperature`; below 1 it makes probable words more probable. Lengths, `<unk>`, candidates, prefixes and scores are
    those of `BeamSearch`. log_prob is the model's, before temperature and `top_k`. The samples of a sentence depend
    only on the seed, on the sentence's `numbers` and on the number of each draw, so that a smaller count gives the
    first of the same samples.
    """

    def __init__(
        self,
        sources: beam_search.Sources,
        config: TranslateConfig,
        numbers: Sequence[Sequence[int]],
        keep_weights: bool = False,
    ) -> None:
        # A search with as many hypotheses as results ends when all of them have ended.
        super().__init__(sources, replace(config, beam=config.n_best), keep_weights)
        count, seed = config.n_best, config.seed % (1 << 64)
        self._generators = [[np.random.default_rng([seed, *own, n]) for n in range(count)] for own in numbers]
        # The numbers of each sentence's samples: of the open ones in order, and of those that ended.
        self._open = [np.arange(count) for _ in numbers]
        self._ended: list[list[int]] = [[] for _ in numbers]

    def continuations(self, session: beam_search.Session) -> beam_search.Continuations:
        """The open samples (B, W), each with the word that is drawn."""
        places = np.arange(self.widths.max())
        opened = places < self.widths[:, None]
        # At the first step a sentence has only one row, which all of its samples continue.
        last = self.totals.shape[1] - 1
        rows = np.arange(len(opened))[:, None] * (last + 1) + np.minimum(places, last)
        columns, gains = self._draw(session, rows[opened], np.nonzero(opened)[0])
        found = beam_search.Continuations(np.full(rows.shape, -np.inf), rows, np.zeros_like(rows), np.zeros(rows.shape))
        found.totals[opened] = np.broadcast_to(self.totals, rows.shape)[opened] + gains
        found.tokens[opened], found.gains[opened] = self.restrictions.words(columns), gains
        return found

    def _draw(
        self, session: beam_search.Session, rows: beam_search.Integers, places: beam_search.Integers
    ) -> tuple[beam_search.Integers, beam_search.Floats]:
        """The column that is drawn for each open sample (S,) in these rows, and its log-probability."""
        opened = ((sentence, number) for sentence in self.sentences for number in self._open[sentence])
        chances = np.array([self._generators[sentence][number].random() for sentence, number in opened])
        found = []
        for part in session.parts():
            own = np.nonzero((rows >= part.start) & (rows < part.stop))[0]
            if len(own):
                gains = session.log_probs(part)[torch.from_numpy(rows[own] - part.start).to(session.device)]
                gains = gains.cpu() if gains.device.type == "mps" else gains  # mps has no float64
                self.restrictions.apply(gains, self.sentences[places[own]], self.step)
                columns = draw(gains, torch.from_numpy(chances[own]).to(gains.device), self._config)
                found.append((columns, gains.gather(1, columns[:, None]).squeeze(1).double()))
        chosen, log_probs = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
        if not np.isfinite(log_probs).all():
            raise NmtalignError(NO_PROBABILITY)
        return chosen, log_probs

    def finish(self, found: beam_search.Continuations, ended: beam_search.Flags) -> None:
        """Records the samples that end with this step, and their numbers."""
        for sentence, width, flags in zip(self.sentences, self.widths, ended, strict=True):
            self._ended[sentence] += self._open[sentence][flags[:width]].tolist()
            self._open[sentence] = self._open[sentence][~flags[:width]]
        super().finish(found, ended)

    def ranked(self) -> list[list[beam_search.Ending]]:
        """The samples of each sentence in the order of their numbers."""
        pairs = zip(self.endings, self._ended, strict=True)
        return [[own[place] for place in np.argsort(numbers)] for own, numbers in pairs]


def draw(log_probs: Tensor, chances: Tensor, config: TranslateConfig) -> Tensor:
    """Draws one column (S,) of each row of log-probabilities (S, U), given random numbers (S,) in [0, 1), float64.

    The columns are ordered by index, or with top_k by decreasing probability. The first column is drawn at which the
    cumulative probability exceeds the random number times the total.
    """
    values, columns = beam_search.largest(log_probs, config.top_k) if config.top_k else (log_probs, None)
    values = values.double()
    sums = ((values - values.amax(1, keepdim=True)) / config.temperature).exp().cumsum(1)
    total = sums[:, -1:]
    part = torch.minimum(chances[:, None] * total, total.nextafter(torch.zeros_like(total)))
    place = torch.searchsorted(sums, part, right=True).clamp_(max=sums.shape[1] - 1)
    return (place if columns is None else columns.gather(1, place)).squeeze(1)
