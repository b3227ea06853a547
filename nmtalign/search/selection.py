"""Restricts the words of each row, and selects the best continuations of each beam without sorting all scores."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from nmtalign.search.candidates import Candidates
from nmtalign.search.hypotheses import Array, Flags, Integers, SearchOptions
from nmtalign.search.scorer import Session
from nmtalign.text.vocabulary import EOS_ID, UNK_ID

_MIN_WIDTH = 4096  # words; below, `_by_blocks` is not faster than `_by_rows`
_STRIDE = 1000  # words k, k + _STRIDE, k + 2 * _STRIDE, ... form one block
_SPARE = 4  # more candidates than needed, so that most ties at the last place need no second pass
Restrict = Callable[[Tensor, Tensor, slice], None]
Found = tuple[Tensor, Tensor, Tensor, Tensor]


class Continuations(NamedTuple):
    """The best continuations of the beams of B sentences, best first, on the host; every array is (B, W).

    If a sentence has fewer than W possible continuations, the others have a total of -inf.
    """

    totals: Array  # float64, the log-probability of the hypothesis with the word
    rows: Array  # the row of the step that is continued
    tokens: Array  # the word's id
    gains: Array  # float64, the log-probability of the word

    def at(self, sentences: Integers, columns: Integers) -> "Continuations":
        """The continuations of sentences (b, 1) in columns (b, w)."""
        return Continuations(*(part[sentences, columns] for part in self))


class Restrictions:
    """The length limits of B sentences, the prefixes of their translations, and the ban of `<unk>`.

    `limits` (B,): the step, counted from 1, at which every translation must end. A limit always leaves room for the
    prefix and the words of the required phrases. A step scores one column per word: the columns are those of the
    candidates, or without them the word ids.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        options: SearchOptions,
        candidates: Candidates | None = None,
        prefixes: Sequence[Sequence[int]] | None = None,
        phrase_words: Sequence[int] = (),
    ) -> None:
        """`lengths` (B,) of the sources include `</s>`; `phrase_words` (B,) count the words of the phrases."""
        self._allow_unk, self._words = options.allow_unk, candidates.words if candidates else None
        prefixes = prefixes or [()] * len(lengths)
        self.prefix_lengths: Integers = np.array([len(prefix) for prefix in prefixes])
        phrase_lengths = np.array(phrase_words or [0] * len(lengths))
        limits = [max(1, int(options.max_length_ratio * length)) for length in lengths]
        self.limits: Integers = np.maximum(limits, self.prefix_lengths + phrase_lengths + 1)
        # The number of first steps in which `</s>` is banned.
        self._min_lengths = np.minimum([int(options.min_length_ratio * length) for length in lengths], self.limits - 1)
        # The columns of the prefixes, padded with -1.
        self._prefixes = np.full((len(lengths), max(self.prefix_lengths)), -1)
        for row, prefix in zip(self._prefixes, prefixes, strict=True):
            row[: len(prefix)] = self.columns(prefix)

    def columns(self, words: Sequence[int] | Integers) -> Integers:
        """The columns of word ids, all of which must be scored."""
        ids = np.array(words, np.int64)
        return ids if self._words is None else np.searchsorted(self._words, ids)

    def words(self, columns: Integers) -> Integers:
        """The word ids of columns."""
        return columns if self._words is None else np.asarray(self._words[columns])

    def may_end(self, sentences: Integers, step: int) -> Flags:
        """Which of these sentences (r,) have their minimum length at a step."""
        return np.asarray(self._min_lengths[sentences] <= step)

    def apply(self, logits: Tensor, sentences: Integers, step: int, incomplete: Flags | None = None) -> None:
        """Bans words by setting logits (r, U) to -inf, at `step` (0 = first), for rows of these sentences (r,).

        Bans `<unk>` unless it is allowed; all words except the next word of the prefix; `</s>` before the minimum
        length and in rows that are `incomplete` (r,), which still lack a phrase; all words except `</s>` at the last
        step.
        """
        prefix = self._prefixes[sentences, step] if step < self._prefixes.shape[1] else None
        if not self._allow_unk:
            logits[slice(None) if prefix is None else _indices(prefix < 0, logits), UNK_ID] = -torch.inf
        too_early, last = ~self.may_end(sentences, step), self.limits[sentences] == step + 1
        if incomplete is not None:
            too_early = too_early | incomplete
        if too_early.any():
            logits[_indices(too_early, logits), EOS_ID] = -torch.inf
        if last.any():
            _ban_all_but(logits, last, np.full(len(last), EOS_ID))
        if prefix is not None:
            _ban_all_but(logits, prefix >= 0, prefix)


def _indices(flags: Flags, like: Tensor) -> Tensor:
    return torch.from_numpy(np.nonzero(flags)[0]).to(like.device)


def _ban_all_but(logits: Tensor, flags: Flags, columns: Integers) -> None:
    """Bans all columns except one (r,) in the rows whose flag (r,) is set."""
    rows, allowed = _indices(flags, logits), torch.from_numpy(columns[flags]).to(logits.device)
    values = logits[rows, allowed]
    logits[rows] = -torch.inf
    logits[rows, allowed] = values


def best_continuations(
    session: Session,
    open_totals: Tensor,
    count: int,
    restrict: Restrict,
    min_width: int = _MIN_WIDTH,
    stride: int = _STRIDE,
) -> Found:
    """The `count` best continuations of each beam, or as many as there are, by open_totals (B, R) + log-probability.

    Returns four tensors (B, W), best first, equal ones by hypothesis, then by word: the totals (with the dtype of
    `open_totals`), the positions of the hypotheses in the beam, those of the words among the scored words, and the
    words' log-probabilities.
    If a sentence has fewer than W possible continuations, the others have a total of -inf and any valid position.
    `restrict` receives the logits (r, U) and log_sums (r, 1) of some rows and bans words by setting logits to -inf.
    `min_width` and `stride` change the speed, not the result.
    """
    sentences, rows = open_totals.shape
    width = session.shape[1]
    most = max(1, session.part_cells // (rows * width)) if open_totals.device.type == "cpu" else sentences
    # More blocks than are examined must exist, so that both ways find `count` continuations.
    use_blocks = width >= min_width and rows * stride > count + _SPARE
    found = []
    for start in range(0, sentences, most):
        beam = open_totals[start : start + most]
        part = slice(start * rows, (start + len(beam)) * rows)
        logits, log_sums = session.logits(part)
        restrict(logits, log_sums, part)
        by_blocks = _by_blocks(logits, log_sums, beam, count, stride) if use_blocks else None
        found.append(by_blocks or _by_rows(logits, log_sums, beam, count))
    totals, hypotheses, columns, gains = (torch.cat(parts) for parts in zip(*found, strict=True))
    return totals, hypotheses, columns, gains


def _by_rows(logits: Tensor, log_sums: Tensor, beam: Tensor, count: int) -> Found:
    """Selects the best words of each row, then the best of these for each sentence."""
    gains, words = largest(logits.sub_(log_sums), count)
    # Totals are float64 where the device has it, so that long hypotheses lose no precision.
    totals = gains.to(beam.dtype).reshape(*beam.shape, -1) + beam[:, :, None]
    best, places = largest(totals.flatten(1), count)
    words, gains = (part.reshape(len(beam), -1).gather(1, places) for part in (words, gains))
    return best, places // totals.shape[2], words, gains


def _by_blocks(logits: Tensor, log_sums: Tensor, beam: Tensor, count: int, stride: int) -> Found | None:
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
    totals = ((maxima - log_sums).to(beam.dtype).view(sentences, rows, -1) + beam[:, :, None]).flatten(1)
    block_totals, blocks = totals.topk(min(count + _SPARE, totals.shape[1]), dim=1)
    hypotheses, starts = blocks // stride, blocks % stride
    columns = starts[:, :, None] + torch.arange(0, width, stride, device=logits.device)
    row = torch.arange(sentences, device=logits.device)[:, None] * rows + hypotheses
    gains = logits[row[:, :, None], columns.clamp(max=width - 1)] - log_sums[row]
    gains.masked_fill_(columns >= width, -torch.inf)
    sums = (gains.to(beam.dtype) + beam.gather(1, hypotheses)[:, :, None]).flatten(1)
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
        places[rows] = values[rows].sort(dim=1, descending=True, stable=True).indices[:, : best.shape[1]]
    return best[:, :count], places[:, :count]
