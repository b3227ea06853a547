"""Batches of pieces of text, as ids, to their hypotheses; in halves where memory runs out."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from nmtalign.config import TranslateConfig
from nmtalign.data.batches import make_source
from nmtalign.decoding.candidates import CandidateLists
from nmtalign.decoding.scorer import Scorer
from nmtalign.decoding.search import Hypothesis, SearchOptions, beam_search
from nmtalign.errors import ResourceError


@dataclass(frozen=True)
class Piece:
    """What is searched at once: source ids without `</s>`, and the target words that are asked for."""

    source: tuple[int, ...]
    prefix: tuple[int, ...] = ()
    phrases: tuple[tuple[int, ...], ...] = ()


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
        self._scorer, self._options, self._config = scorer, options, config
        self._device, self._candidates = device, candidates

    def search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        """The hypotheses of each, best first; raises ResourceError where one piece is too much for the memory."""
        try:
            return self._search(pieces)
        except (MemoryError, RuntimeError) as error:
            if not _out_of_memory(error):
                raise
        if len(pieces) == 1:
            raise ResourceError(
                f"out of memory with one sentence of {len(pieces[0].source)} tokens; "
                "give a smaller --beam or --max-source-length"
            )
        half = len(pieces) // 2
        return self.search(pieces[:half]) + self.search(pieces[half:])

    def _search(self, pieces: Sequence[Piece]) -> list[list[Hypothesis]]:
        source, mask = (part.to(self._device) for part in make_source([piece.source for piece in pieces]))
        candidates = self._candidates.of([piece.source for piece in pieces]) if self._candidates else None
        prefixes = [piece.prefix for piece in pieces]
        return beam_search(self._scorer, source, mask, self._options, candidates, prefixes)


def _out_of_memory(error: Exception) -> bool:
    """Whether PyTorch means that, whichever class it says it with."""
    told = str(error).lower()
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or ("memory" in told and "alloc" in told)
