"""The best continuations of each sentence's beam, found without looking at every word of every hypothesis twice."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from nmtalign.core.readout import CHUNK_CELLS
from nmtalign.decoding.ranking import largest
from nmtalign.decoding.scorer import WordScores

_WIDE = 4096  # words; fewer are looked at one by one
_STRIDE = 1000  # words k, k + _STRIDE, k + 2 * _STRIDE, ... are one block
_SPARE = 4  # blocks more than can hold winners, so that equal maxima across the border are mostly seen
Restrict = Callable[[Tensor, Tensor, slice], None]


@dataclass(frozen=True)
class Continuations:
    """The W best continuations of B sentences' beams, best first; equal ones by hypothesis, then by word.

    Where a sentence has fewer than W that are possible, the rest have a total of -inf, and some place of its own.
    """

    totals: Tensor  # (B, W) float64, log-probability of the hypothesis with the word
    hypotheses: Tensor  # (B, W) places in the beam
    columns: Tensor  # (B, W) places among the scored words
    gains: Tensor  # (B, W) log-probability of the word


def best_continuations(scores: WordScores, open_totals: Tensor, count: int, restrict: Restrict) -> Continuations:
    """The `count` best, or as many as there are, by open_totals (B, R) float64 + the word's log-probability.

    `restrict` is given the logits (r, U) and log_sums (r, 1) of some rows, and changes logits before words are chosen:
    -inf bans one.
    """
    sentences, rows = open_totals.shape
    width = scores.shape[1]
    most = max(1, CHUNK_CELLS // (rows * width)) if open_totals.device.type == "cpu" else sentences
    # There must be more blocks than are looked into, so that both ways find `count` continuations.
    wide = width >= _WIDE and rows * _STRIDE > count + _SPARE
    found = []
    for start in range(0, sentences, most):
        beam = open_totals[start : start + most]
        part = slice(start * rows, (start + len(beam)) * rows)
        logits, log_sums = scores.logits(part)
        restrict(logits, log_sums, part)
        blocks = _by_blocks(logits, log_sums, beam, count) if wide else None
        found.append(blocks or _by_rows(logits, log_sums, beam, count))
    totals, hypotheses, columns, gains = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Continuations(totals, hypotheses, columns, gains)


_Found = tuple[Tensor, Tensor, Tensor, Tensor]


def _by_rows(logits: Tensor, log_sums: Tensor, beam: Tensor, count: int) -> _Found:
    """The best of each row, and of these the best of each sentence."""
    gains, words = largest(logits.sub_(log_sums), count)
    # Sums are kept in float64, so that a long hypothesis loses nothing.
    totals = gains.double().reshape(*beam.shape, -1) + beam[:, :, None]
    best, places = largest(totals.flatten(1), count)
    words, gains = (part.reshape(len(beam), -1).gather(1, places) for part in (words, gains))
    return best, places // totals.shape[2], words, gains


def _by_blocks(logits: Tensor, log_sums: Tensor, beam: Tensor, count: int) -> _Found | None:
    """The same by way of the largest of each block of words; None where too many blocks are equal.

    What is among the `count` best of a sentence is in one of the `count` blocks with the largest maxima: the others are
    passed over. Finding the maxima reads every score once, and in order.
    """
    sentences, rows = beam.shape
    width = logits.shape[1]
    full = width // _STRIDE
    maxima = logits[:, : full * _STRIDE].unflatten(1, (full, _STRIDE)).amax(1)
    rest = logits[:, full * _STRIDE :]
    torch.maximum(maxima[:, : rest.shape[1]], rest, out=maxima[:, : rest.shape[1]])
    totals = ((maxima - log_sums).double().view(sentences, rows, -1) + beam[:, :, None]).flatten(1)
    reached, blocks = totals.topk(min(count + _SPARE, totals.shape[1]), dim=1)
    hypotheses, starts = blocks // _STRIDE, blocks % _STRIDE
    columns = starts[:, :, None] + torch.arange(0, width, _STRIDE, device=logits.device)
    row = torch.arange(sentences, device=logits.device)[:, None] * rows + hypotheses
    inside = columns.clamp(max=width - 1)
    gains = logits[row[:, :, None], inside] - log_sums[row]
    gains.masked_fill_(columns >= width, -torch.inf)
    sums = (gains.double() + beam.gather(1, hypotheses)[:, :, None]).flatten(1)
    # Blocks reach beyond the last word. A hypothesis is `reach` places wide, so that what lies beyond, which is -inf
    # and comes out where too little is finite, is no place of the next hypothesis or sentence.
    reach = -(-width // _STRIDE) * _STRIDE
    gains, places = gains.flatten(1), (hypotheses[:, :, None] * reach + columns).flatten(1)
    best, at = sums.topk(min(count + 1, sums.shape[1]), dim=1)
    if bool(((best[:, 1:] == best[:, :-1]) & (best[:, 1:] > -torch.inf)).any()):
        order = places.argsort(1)
        sums, gains, places = sums.gather(1, order), gains.gather(1, order), places.gather(1, order)
        best, at = largest(sums, count)
    best, at = best[:, :count], at[:, :count]
    missed = (reached[:, -1] >= best[:, -1]) & (reached[:, -1] > -torch.inf)
    if bool(missed.any()):
        return None
    places = places.gather(1, at)
    return best, places // reach, (places % reach).clamp(max=width - 1), gains.gather(1, at)
