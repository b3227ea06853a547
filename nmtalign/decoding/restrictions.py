"""Which words each sentence of a batch may go on with, whether they are searched for or drawn."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from nmtalign.decoding.trace import Scoring
from nmtalign.errors import UsageError
from nmtalign.text.vocabulary import EOS_ID, UNK_ID

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class SearchOptions:
    """How `beam_search` searches; raises UsageError for an n_best that is larger than the beam.

    With `safe_stop` a sentence is done when no open hypothesis can come under the n_best any more; without, as in the
    paper's code, when its beam is empty.
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
    """The limits of B sentences, and the words with which their translations begin.

    `least` (B,): in so many first steps `</s>` is banned. `limits` (B,): the last step, counted from 1, in which every
    translation is made to end; there is always room for the prefix and the words of the phrases. A step has one column
    a word: `words` says which, None where it is the word's own number.
    """

    def __init__(
        self,
        lengths: Sequence[int],
        options: SearchOptions,
        words: Integers | None,
        prefixes: Sequence[Sequence[int]],
        phrase_words: Sequence[int] | None = None,
    ) -> None:
        self._allow_unk, self._words = options.allow_unk, words
        given = np.array([len(prefix) for prefix in prefixes])
        phrased = np.array(phrase_words or [0] * len(lengths))
        limits = [max(1, int(options.max_length_ratio * length)) for length in lengths]
        self.limits: Integers = np.maximum(limits, given + phrased + 1)
        self.least = np.minimum([int(options.min_length_ratio * length) for length in lengths], self.limits - 1)
        self.prefix_lengths: Integers = given
        self._held = np.full((len(lengths), max(given)), -1)  # columns of the prefixes, -1 after their ends
        for row, prefix in zip(self._held, prefixes, strict=True):
            row[: len(prefix)] = self.columns(prefix)

    def columns(self, words: Sequence[int] | Integers) -> Integers:
        """The columns of words, all of which are scored."""
        ids = np.array(words, np.int64)
        return ids if self._words is None else np.searchsorted(self._words, ids)

    def words(self, columns: Integers) -> Integers:
        """The words of columns."""
        return columns if self._words is None else np.asarray(self._words[columns])

    def apply(self, logits: Tensor, sentences: Integers, step: int, unfinished: Flags | None = None) -> None:
        """Bans words of rows (r, U) of these sentences (r,) in step `step` (0 = first), by -inf.

        Those are `<unk>`, unless it is allowed; all but the prefix's next word; `</s>` where it is too early, or for
        rows that are `unfinished` (r,) for another reason; all but `</s>` in the last step.
        """
        held = self._held[sentences, step] if step < self._held.shape[1] else None
        if not self._allow_unk:
            logits[slice(None) if held is None else _index(held < 0, logits), UNK_ID] = -torch.inf
        early, last = self.least[sentences] > step, self.limits[sentences] == step + 1
        if unfinished is not None:
            early = early | unfinished
        if early.any():
            logits[_index(early, logits), EOS_ID] = -torch.inf
        if last.any():
            _leave_only(logits, last, np.full(len(last), EOS_ID))
        if held is not None:
            _leave_only(logits, held >= 0, held)


def _index(flags: npt.NDArray[Any], like: Tensor) -> Tensor:
    return torch.from_numpy(np.nonzero(flags)[0]).to(like.device)


def _leave_only(logits: Tensor, flags: npt.NDArray[Any], columns: Integers) -> None:
    """Bans every word but one, that of the column (r,), in the rows with a flag (r,)."""
    rows, kept = _index(flags, logits), torch.from_numpy(columns[flags]).to(logits.device)
    left = logits[rows, kept]
    logits[rows] = -torch.inf
    logits[rows, kept] = left
