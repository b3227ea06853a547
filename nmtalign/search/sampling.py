"""Sampling: translations drawn word by word from the model's probabilities."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from nmtalign.search import beam_search
from nmtalign.search.candidates import Candidates


@dataclass(frozen=True)
class Draws:
    """The options of `sample`: `count` samples per sentence, each word from the `top_k` most probable (0 = all).

    Log-probabilities are divided by `temperature`, a number greater than 0; below 1 it makes probable words more
    probable.
    """

    count: int = 1
    temperature: float = 1.0
    top_k: int = 0
    seed: int = 1234


@torch.inference_mode()
def sample(
    scorer: beam_search.Scorer,
    source: Tensor,
    source_mask: Tensor,
    options: beam_search.SearchOptions,
    draws: Draws,
    numbers: Sequence[Sequence[int]],
    candidates: Candidates | None = None,
    prefixes: Sequence[Sequence[int]] | None = None,
    copies: Tensor | None = None,
) -> list[list[beam_search.Hypothesis]]:
    """Independent translations of each sentence, in the order in which they were drawn; two of them may be equal.

    The arguments are those of `beam_search`. Lengths, `<unk>`, candidates and prefixes are restricted as there;
    `keep_weights` and `scoring` apply, too. log_prob is the model's, before temperature and `top_k`. The samples of a
    sentence depend only on the seed, on the sentence's `numbers` and on the number of each draw, so that a smaller
    count gives the first of the same samples. Raises NmtalignError if the model gives no finite probability.
    """
    lengths = source_mask.sum(dim=1).tolist()
    options = replace(options, beam=draws.count, n_best=draws.count, safe_stop=False)
    restrictions = beam_search.Restrictions(lengths, options, candidates, prefixes)
    search = _Sampling(lengths, options, restrictions, draws, numbers)
    return search.run(scorer(source, source_mask, candidates, copies))


class _Sampling(beam_search.BeamSearch):
    """A beam search whose hypotheses are samples: each is continued by one word, which is drawn."""

    def __init__(
        self,
        lengths: Sequence[int],
        options: beam_search.SearchOptions,
        restrictions: beam_search.Restrictions,
        draws: Draws,
        numbers: Sequence[Sequence[int]],
    ) -> None:
        super().__init__(lengths, options, restrictions)
        self._draws, seed = draws, draws.seed % (1 << 64)
        self._generators = [[np.random.default_rng([seed, *own, n]) for n in range(draws.count)] for own in numbers]
        # The numbers of each sentence's samples: of the open ones in order, and of those that ended.
        self._open = [np.arange(draws.count) for _ in lengths]
        self._ended: list[list[int]] = [[] for _ in lengths]

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
                columns = draw(gains, torch.from_numpy(chances[own]).to(gains.device), self._draws)
                found.append((columns, gains.gather(1, columns[:, None]).squeeze(1).double()))
        chosen, log_probs = (torch.cat(part).cpu().numpy() for part in zip(*found, strict=True))
        if not np.isfinite(log_probs).all():
            raise beam_search.no_finite_probability()
        return chosen, log_probs

    def finish(self, found: beam_search.Continuations, ended: beam_search.Flags) -> None:
        """Records the samples that end with this step, and their numbers."""
        for sentence, width, flags in zip(self.sentences, self.widths, ended, strict=True):
            self._ended[sentence] += self._open[sentence][flags[:width]].tolist()
            self._open[sentence] = self._open[sentence][~flags[:width]]
        super().finish(found, ended)

    def results(self) -> list[list[beam_search.Hypothesis]]:
        """The samples of each sentence in the order of their numbers."""
        pairs = zip(self.endings, self._ended, strict=True)
        return self.hypotheses([[own[place] for place in np.argsort(numbers)] for own, numbers in pairs])


def draw(log_probs: Tensor, chances: Tensor, draws: Draws) -> Tensor:
    """Draws one column (S,) of each row of log-probabilities (S, U), given random numbers (S,) in [0, 1), float64.

    The columns are ordered by index, or with top_k by decreasing probability. The first column is drawn at which the
    cumulative probability exceeds the random number times the total.
    """
    values, columns = beam_search.largest(log_probs, draws.top_k) if draws.top_k else (log_probs, None)
    values = values.double()
    sums = ((values - values.amax(1, keepdim=True)) / draws.temperature).exp().cumsum(1)
    total = sums[:, -1:]
    part = torch.minimum(chances[:, None] * total, total.nextafter(torch.zeros_like(total)))
    place = torch.searchsorted(sums, part, right=True).clamp_(max=sums.shape[1] - 1)
    return (place if columns is None else columns.gather(1, place)).squeeze(1)
