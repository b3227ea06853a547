"""The ids of pairs for a model that copies source words: see `nmtalign.text.vocabulary.pair_ids`."""

import dataclasses

import numpy as np
import torch
from numpy.typing import NDArray

from nmtalign.data.batches import Batch
from nmtalign.data.corpus import CORPUS_FILE, Corpus, Split, SplitSide
from nmtalign.errors import FormatError
from nmtalign.text.vocabulary import EOS_ID, UNK_ID


class CopyIds:
    """A call with a batch of a split returns it with the ids of a copying model."""

    def __init__(self, corpus: Corpus, split: Split) -> None:
        """Raises FormatError for a damaged corpus."""
        for side in (split.source, split.target):
            places = np.flatnonzero(side.ids == UNK_ID)
            if len(side.unknown) != len(places) or not np.array_equal(places, side.unknown_at):
                raise FormatError(f"{corpus.folder / CORPUS_FILE}: damaged: unknown words; run nmtalign prep again")
        self._split, self._size = split, len(corpus.target_vocabulary)
        # What each word is on the target side: an id below K, or a number from K that no word of the target has.
        self._known = np.array(corpus.target_vocabulary.encode(corpus.source_vocabulary.words), np.int64)
        missing = self._known == UNK_ID
        self._known[missing] = self._size + np.flatnonzero(missing)
        self._known[EOS_ID] = EOS_ID

    def __call__(self, batch: Batch) -> Batch:
        """Equal words of a pair get equal numbers; then the numbers from K become places of the source."""
        size, source, target = self._size, batch.source.numpy(), batch.target.numpy().copy()
        words, ids = self._known[source], _unknown(self._split.source, source, batch)
        words[source == UNK_ID] = np.where(ids < size, ids, ids + len(self._known))
        target[target == UNK_ID] = size + _unknown(self._split.target, target, batch)
        first = (words[:, :, None] == words[:, None]).argmax(2)
        copies = np.where(words < size, words, size + first)
        equal = target[:, :, None] == words[:, None]
        places = np.where(equal.any(2), size + equal.argmax(2), UNK_ID)
        return dataclasses.replace(
            batch,
            copies=torch.from_numpy(copies),
            target=torch.from_numpy(np.where(target < size, target, places)),
        )


def _unknown(side: SplitSide, ids: NDArray[np.int64], batch: Batch) -> NDArray[np.int64]:
    """What the `<unk>` of ids (B, T) are on the other side, in the order of rows and places."""
    rows, places = np.nonzero(ids == UNK_ID)
    at = side.offsets[batch.indices][rows] + places
    return side.unknown[np.searchsorted(side.unknown_at, at)].astype(np.int64)
