"""Batches of pieces of text, as ids, to their hypotheses; in halves where memory runs out."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import torch

from nmtalign.checks import SettingError
from nmtalign.config import TranslateConfig
from nmtalign.core.devices import in_halves
from nmtalign.data.batches import make_source
from nmtalign.decoding.candidates import CandidateLists, Candidates
from nmtalign.decoding.sampling import Draws, sample
from nmtalign.decoding.scorer import Scorer
from nmtalign.decoding.search import Hypothesis, SearchOptions, beam_search


@dataclass(frozen=True)
class Piece:
    """What is searched at once: source ids without `</s>`, and the target words that are asked for.

    `number` is that of the line within all that is translated, `part` that of the piece within its line: samples depend
    on both, and on nothing else but the text.
    """

    source: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()
    number: int = 0
    part: int = 0


class PieceDecoder:
    """Finds the hypotheses of pieces, whichever way the settings ask for."""

    def __init__(
        self,
        scorer: Scorer,
        options: SearchOptions,
        config: TranslateConfig,
        device: torch.device,
        candidates: CandidateLists | None,
    ) -> None:
        self._scorer, self._options = scorer, options
        self._device, self._candidates = device, candidates
        self._draws = Draws(config.n_best, config.temperature, config.top_k, config.seed) if config.sample else None

    def search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        """The hypotheses of each, best first, or samples as they were drawn.

        Raises ResourceError where one piece is too much for the memory, UsageError for phrases in a sample.
        """
        return in_halves(self._search, pieces, self._too_much)

    def _too_much(self, piece: Piece) -> str:
        fewer = "--n-best" if self._draws else "--beam"
        size = f"one sentence of {len(piece.source)} tokens"
        return f"out of memory with {size}; give a smaller {fewer} or --max-source-length"

    def _search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        source, mask = (part.to(self._device) for part in make_source([piece.source for piece in pieces]))
        given = [(piece.prefix, *piece.phrases) for piece in pieces]
        candidates = self._candidates.of([piece.source for piece in pieces]) if self._candidates else None
        if candidates and any(map(any, given)):
            candidates = allow(candidates, [set(chain(*each)) for each in given])
        prefixes, phrases = [piece.prefix for piece in pieces], [piece.phrases for piece in pieces]
        if not self._draws:
            return beam_search(self._scorer, source, mask, self._options, candidates, prefixes, phrases)
        if any(phrases):
            raise SettingError("a sample cannot be made to hold given phrases; leave out one of them", sample=True)
        numbers = [(piece.number, piece.part) for piece in pieces]
        return sample(self._scorer, source, mask, self._options, self._draws, numbers, candidates, prefixes)


def allow(candidates: Candidates, words: Sequence[set[int]]) -> Candidates:
    """Candidates with some more words, of each sentence its own."""
    every = np.union1d(candidates.words, list(set().union(*words)))
    allowed = np.zeros((len(words), len(every)), np.bool_)
    allowed[:, np.searchsorted(every, candidates.words)] = candidates.allowed
    for row, own in zip(allowed, words, strict=True):
        row[np.searchsorted(every, list(own))] = True
    return Candidates(every, allowed)
