"""The options of a search, and the words that each sentence may use at each step."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from nmtalign.errors import UsageError
from nmtalign.search.hypotheses import Flags, Integers, Scoring
from nmtalign.text.vocabulary import EOS_ID, UNK_ID


@dataclass(frozen=True)
class SearchOptions:
    """The options of `beam_search`; raises UsageError if n_best is larger than the beam.

    With `safe_stop` a sentence is finished when no open hypothesis can become one of the n_best any more. Without it,
    a sentence is finished when its beam is empty, as in the released code of Bahdanau et al. (2015).
    """

    beam: int = 12
    scoring: Scoring = field(default_factory=Scoring)
    n_best: int = 1
    allow_unk: bool = False
    min_length_ratio: float = 0.0
    max_length_ratio: float = 3.0
    safe_stop: bool = True
    keep_weights: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.n_best <= self.beam:
            raise UsageError(f"n_best = {self.n_best}: must be from 1 to the beam, which is {self.beam}")


class Restrictions:
    """The length limits of B sentences, the prefixes of their translations, and the ban of `<unk>`.

    `limits` (B,): the step, counted from 1, at which every translation must end. A limit always leaves room for the
    prefix and the words of the required phrases. The scores of a step have one column per word: `words` (U,) maps
    columns to word ids; None if they are equal.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        options: SearchOptions,
        words: Integers | None,
        prefixes: Sequence[Sequence[int]],
        phrase_words: Sequence[int] | None = None,
    ) -> None:
        """`lengths` (B,) of the sources include `</s>`; `phrase_words` (B,) count the words of the phrases."""
        self._allow_unk, self._words = options.allow_unk, words
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

    def apply(self, logits: Tensor, sentences: Integers, step: int, incomplete: Flags | None = None) -> None:
        """Bans words by setting logits (r, U) to -inf, at `step` (0 = first), for rows of these sentences (r,).

        Bans `<unk>` unless it is allowed; all words except the next word of the prefix; `</s>` before the minimum
        length and in rows that are `incomplete` (r,), which still lack a phrase; all words except `</s>` at the last
        step.
        """
        prefix = self._prefixes[sentences, step] if step < self._prefixes.shape[1] else None
        if not self._allow_unk:
            logits[slice(None) if prefix is None else _indices(prefix < 0, logits), UNK_ID] = -torch.inf
        too_early, last = self._min_lengths[sentences] > step, self.limits[sentences] == step + 1
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
