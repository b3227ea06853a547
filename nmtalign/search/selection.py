"""Selects the best continuations of each beam without sorting the scores of all words."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from nmtalign.core.readout import CHUNK_CELLS
from nmtalign.search.hypotheses import Floats, Integers
from nmtalign.search.restrictions import Restrictions
from nmtalign.search.scorer import WordScores

_MIN_WIDTH = 4096  # words; below, `_by_blocks` is not faster than `_by_rows`
_STRIDE = 1000  # words k, k + _STRIDE, k + 2 * _STRIDE, ... form one block
_SPARE = 4  # more candidates than needed, so that most ties at the last place need no second pass
Restrict = Callable[[Tensor, Tensor, slice], None]


@dataclass(frozen=True)
class Beams:
    """The open hypotheses of B unfinished sentences: R rows of a step per sentence."""

    sentences: Integers  # (B,) positions in the batch
    widths: Integers  # (B,) the beam size minus the number of finished hypotheses
    totals: Floats  # (B, R) log-probabilities; -inf where a sentence has fewer hypotheses than another

    @classmethod
    def first(cls, sentences: int, width: int) -> "Beams":
        """The beams before the first step."""
        return cls(np.arange(sentences), np.full(sentences, width), np.zeros((sentences, 1)))

    def sentences_of(self, rows: slice) -> Integers:
        """The sentence of each row in a range."""
        return np.asarray(self.sentences[np.arange(rows.start, rows.stop) // self.totals.shape[1]])


@dataclass(frozen=True)
class Chosen:
    """The best continuations of the beams of B sentences, best first, on the host; every array is (B, W)."""

    totals: Floats  # the log-probability of the hypothesis with the word
    rows: Integers  # the row of the step: sentence * R + hypothesis
    tokens: Integers  # the word's id
    gains: Floats  # the log-probability of the word

    @classmethod
    def of(cls, found: "Continuations", beams: Beams, restrictions: Restrictions) -> "Chosen":
        """Copies the continuations to the host."""
        rows = np.arange(len(beams.totals))[:, None] * beams.totals.shape[1] + found.hypotheses.cpu().numpy()
        tokens = restrictions.words(found.columns.cpu().numpy())
        return cls(found.totals.cpu().numpy(), rows, tokens, found.gains.double().cpu().numpy())

    def select(self, sentences: Integers, columns: Integers) -> "Chosen":
        """The continuations of some sentences (b,) at these columns (b, w)."""
        at = sentences[:, None], columns
        return Chosen(self.totals[at], self.rows[at], self.tokens[at], self.gains[at])

    def padded(self, width: int) -> "Chosen":
        """The same with room for `width` continuations per sentence; the new ones have a total of -inf."""
        missing = ((0, 0), (0, max(0, width - self.totals.shape[1])))
        rows, tokens = (np.pad(part, missing, mode="edge") for part in (self.rows, self.tokens))
        totals, gains = (np.pad(part, missing, constant_values=-np.inf) for part in (self.totals, self.gains))
        return Chosen(totals, rows, tokens, gains)


@dataclass(frozen=True)
class Continuations:
    """The W best continuations of the beams of B sentences, best first; ties by hypothesis, then by word.

    If a sentence has fewer than W possible continuations, the others have a total of -inf and any valid position.
    """

    totals: Tensor  # (B, W) float64, the log-probability of the hypothesis with the word
    hypotheses: Tensor  # (B, W) positions in the beam
    columns: Tensor  # (B, W) positions among the scored words
    gains: Tensor  # (B, W) the log-probability of the word


def best_continuations(
    scores: WordScores,
    open_totals: Tensor,
    count: int,
    restrict: Restrict,
    min_width: int = _MIN_WIDTH,
    stride: int = _STRIDE,
) -> Continuations:
    """The `count` best continuations, or as many as there are, by open_totals (B, R) float64 + log-probability.

    `restrict` receives the logits (r, U) and log_sums (r, 1) of some rows and bans words by setting logits to -inf.
    `min_width` and `stride` change the speed, not the result.
    """
    sentences, rows = open_totals.shape
    width = scores.shape[1]
    most = max(1, CHUNK_CELLS // (rows * width)) if open_totals.device.type == "cpu" else sentences
    # More blocks than are examined must exist, so that both ways find `count` continuations.
    use_blocks = width >= min_width and rows * stride > count + _SPARE
    found = []
    for start in range(0, sentences, most):
        beam = open_totals[start : start + most]
        part = slice(start * rows, (start + len(beam)) * rows)
        logits, log_sums = scores.logits(part)
        restrict(logits, log_sums, part)
        by_blocks = _by_blocks(logits, log_sums, beam, count, stride) if use_blocks else None
        found.append(by_blocks or _by_rows(logits, log_sums, beam, count))
    totals, hypotheses, columns, gains = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Continuations(totals, hypotheses, columns, gains)


_Found = tuple[Tensor, Tensor, Tensor, Tensor]  # as the fields of `Continuations`


def _by_rows(logits: Tensor, log_sums: Tensor, beam: Tensor, count: int) -> _Found:
    """Selects the best words of each row, then the best of these for each sentence."""
    gains, words = largest(logits.sub_(log_sums), count)
    # Totals are float64, so that long hypotheses lose no precision.
    totals = gains.double().reshape(*beam.shape, -1) + beam[:, :, None]
    best, places = largest(totals.flatten(1), count)
    words, gains = (part.reshape(len(beam), -1).gather(1, places) for part in (words, gains))
    return best, places // totals.shape[2], words, gains


def _by_blocks(logits: Tensor, log_sums: Tensor, beam: Tensor, count: int, stride: int) -> _Found | None:
    """Selects the same from the blocks with the largest maxima; None if too many blocks have equal maxima.

    The `count` best words of a sentence lie in the `count` blocks with the largest maxima, so only these blocks are
    examined. Computing the maxima reads each score once, in the order of memory.
    """
    sentences, rows = beam.shape
    width = logits.shape[1]
    full = width // stride
    maxima = logits[:, : full * stride].unflatten(1, (full, stride)).amax(1)
    rest = logits[:, full * stride :]
    torch.maximum(maxima[:, : rest.shape[1]], rest, out=maxima[:, : rest.shape[1]])
    totals = ((maxima - log_sums).double().view(sentences, rows, -1) + beam[:, :, None]).flatten(1)
    block_totals, blocks = totals.topk(min(count + _SPARE, totals.shape[1]), dim=1)
    hypotheses, starts = blocks // stride, blocks % stride
    columns = starts[:, :, None] + torch.arange(0, width, stride, device=logits.device)
    row = torch.arange(sentences, device=logits.device)[:, None] * rows + hypotheses
    gains = logits[row[:, :, None], columns.clamp(max=width - 1)] - log_sums[row]
    gains.masked_fill_(columns >= width, -torch.inf)
    sums = (gains.double() + beam.gather(1, hypotheses)[:, :, None]).flatten(1)
    # The last blocks extend beyond the last word. Each hypothesis therefore spans `padded` places: a place beyond the
    # last word, which is -inf and appears if too few words are possible, belongs to no other hypothesis or sentence.
    padded = -(-width // stride) * stride
    gains, places = gains.flatten(1), (hypotheses[:, :, None] * padded + columns).flatten(1)
    best, at = sums.topk(min(count + 1, sums.shape[1]), dim=1)
    if bool(((best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -torch.inf)).any()):
        order = places.argsort(1)
        sums, gains, places = sums.gather(1, order), gains.gather(1, order), places.gather(1, order)
        best, at = largest(sums, count)
    best, at = best[:, :count], at[:, :count]
    ambiguous = (block_totals[:, -1] >= best[:, -1]) & (block_totals[:, -1] > -torch.inf)
    if bool(ambiguous.any()):
        return None
    places = places.gather(1, at)
    return best, places // padded, (places % padded).clamp(max=width - 1), gains.gather(1, at)


def largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` largest values of each row, largest first; among equal values the smaller index comes first.

    values (N, C) -> values and int64 indices, both (N, min(count, C)). `torch.topk` does not specify which of several
    equal values it returns; with a fixed order the result depends only on the row. Entries of -inf come in any order.
    """
    width = values.shape[1]
    best, places = values.topk(min(count + _SPARE, width), dim=1)
    equal = (best[:, 1 : count + 1] == best[:, :count][:, : best.shape[1] - 1]) & (best[:, 1 : count + 1] > -torch.inf)
    tied = equal.any(dim=1)
    if tied.any():
        rows = tied.nonzero().squeeze(1)
        ordered = _order_ties(best[rows], places[rows])
        if best.shape[1] < width:
            cut_off = best[rows, -1] == best[rows, count - 1]
            ordered[cut_off, :count] = _find_ties(values[rows[cut_off]], best[rows[cut_off], :count])
        places[rows] = ordered
    return best[:, :count], places[:, :count]


def _order_ties(best: Tensor, places: Tensor) -> Tensor:
    """The places (N, k) of descending values (N, k), with the places of equal values in ascending order."""
    ascending, order = places.sort(dim=1)
    return ascending.gather(1, best.gather(1, order).argsort(dim=1, descending=True, stable=True))


def _find_ties(values: Tensor, best: Tensor) -> Tensor:
    """The places of the k best values (N, k) of rows (N, C) in which many more values equal the last of them."""
    # `nonzero` lists the entries that reach the last one by row and ascending index. Two stable sorts, the second by
    # row, bring them into the order of `largest`.
    reaching = values >= best[:, -1:]
    rows, columns = reaching.nonzero(as_tuple=True)
    order = values[rows, columns].argsort(descending=True, stable=True)
    order = order[rows[order].argsort(stable=True)]
    counts = reaching.sum(dim=1)
    starts = counts.cumsum(dim=0) - counts
    return columns[order[starts[:, None] + torch.arange(best.shape[1], device=values.device)]]
