"""Sentence pairs as flat arrays of word numbers: what word translations are learned from."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.corpus import Corpus
from nmtalign.data.pipeline import CHUNK, Chunk, LengthLimit, Pairs, Side, WordIndex, tokenize_pairs
from nmtalign.text.tokenizer import Tokenizers

# The work on a pair grows with the product of its lengths, and so long a pair says little of which word is which.
LONGEST = 200  # tokens


@dataclass(frozen=True)
class Text:
    """One side: sentence k is ids[offsets[k]:offsets[k + 1]], each id a place in `words`."""

    words: Sequence[str]
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def lengths(self) -> NDArray[np.int64]:
        """(sentences,) tokens of each."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Bitext:
    """Two sides of as many sentences; `left_out` counts the pairs that were empty or too long."""

    source: Text
    target: Text
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def reversed(self) -> "Bitext":
        """The same pairs, target as source."""
        return Bitext(self.target, self.source, self.left_out)


def corpus_bitext(corpus: Corpus, every: int = 1) -> Bitext:
    """The training pairs of a prepared corpus, or every n-th of them."""
    sides = corpus.splits["train"].flat()
    words = corpus.source_vocabulary.words, corpus.target_vocabulary.words
    lengths = np.stack([np.diff(offsets) for _, offsets in sides])
    chosen = np.arange(lengths.shape[1]) % every == 0
    kept = chosen & (lengths.min(axis=0) > 0) & (lengths.max(axis=0) <= LONGEST)
    texts = [
        Text(names, ids[np.repeat(kept, own)].astype(np.int32), _offsets(own[kept]))
        for names, (ids, _), own in zip(words, sides, lengths, strict=True)
    ]
    return Bitext(texts[0], texts[1], int(chosen.sum() - kept.sum()))


def read_bitext(
    pairs: Iterable[tuple[str, str]],
    tokenizers: Tokenizers,
    workers: int = 1,
    progress: Callable[[int], None] = lambda pairs: None,
) -> Bitext:
    """Lines of text, tokenised; every word has its number. `progress` is called with the number of pairs read."""
    sides = _Collector(), _Collector()
    read = kept = 0
    for block, chunk in tokenized(pairs, tokenizers, LengthLimit(LONGEST), workers):
        for collector, part in zip(sides, (chunk.source, chunk.target), strict=True):
            collector.append(part)
        read, kept = read + len(block), kept + len(chunk.kept)
        progress(read)
    source, target = (side.text() for side in sides)
    return Bitext(source, target, read - kept)


def tokenized(
    pairs: Iterable[tuple[str, str]], tokenizers: Tokenizers, limit: LengthLimit, workers: int
) -> Iterator[tuple[Pairs, Chunk]]:
    """The pairs in blocks, and the tokens of each block, in order."""
    lines = iter(pairs)
    blocks = iter(lambda: list(islice(lines, CHUNK)), [])
    return tokenize_pairs(tokenizers, limit, blocks, workers)


class _Collector:
    """One side on its way to a Text."""

    def __init__(self) -> None:
        self._index = WordIndex()
        self._ids: list[NDArray[np.int32]] = []
        self._lengths: list[NDArray[np.int32]] = []

    def append(self, side: Side) -> None:
        words = side.words()
        table = np.fromiter(map(self._index.__getitem__, words), np.int32, len(words))
        self._ids.append(table[side.ids])
        self._lengths.append(side.lengths)

    def text(self) -> Text:
        empty = np.zeros(0, np.int32)
        ids, lengths = np.concatenate([empty, *self._ids]), np.concatenate([empty, *self._lengths])
        return Text(list(self._index), ids, _offsets(lengths))


def _offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))
