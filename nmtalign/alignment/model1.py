"""IBM Model 1 (Brown et al. 1993): word translation probabilities, learned from sentence pairs.

Each target word comes from one source word of its sentence, or from none (the NULL word), all equally likely:

    p(a_j = i) = t(f_j | e_i) / Z_j    with    Z_j = t(f_j | NULL) + sum over i of t(f_j | e_i)

An iteration of expectation-maximisation sums these over the corpus to counts and normalises the counts. A "cell" is a
source token together with a target token of its sentence. There are too many cells to store (400 million for a million
pairs), so each iteration makes them again, by source word, so that the probabilities of the word stay in the cache.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice, pairwise

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.lexical import different
from nmtalign.data.corpus import Corpus
from nmtalign.data.pipeline import CHUNK, Chunk, Pairs, Side, WordIndex, tokenize_pairs
from nmtalign.text.tokenizer import TextBytes, Tokenizers

CUTOFF = 1e-6  # less probable translations are dropped
CELLS = 1 << 20  # made together
SCRATCH = 1 << 23  # places for the pairs of different words of a block
_LEAST = np.float32(1e-30)  # avoids a division by 0 for a target word that every source word has dropped

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]
Cells = tuple[NDArray[np.int64], NDArray[np.int64]]  # for each cell the place of its target token, and its key
# The work on a pair grows with the product of its lengths, and long pairs tell little about single words.
LONGEST = 200  # tokens


@dataclass(frozen=True)
class WordNumbers:
    """One side of a bitext: sentence k is ids[offsets[k]:offsets[k + 1]]; each id is a place in `words`."""

    words: Sequence[str]
    ids: NDArray[np.int32]
    offsets: NDArray[np.int64]

    def lengths(self) -> NDArray[np.int64]:
        """Returns the (sentences,) token counts."""
        return np.diff(self.offsets)


@dataclass(frozen=True)
class Bitext:
    """Two sides with the same number of sentences; `left_out` counts pairs that were empty or too long."""

    source: WordNumbers
    target: WordNumbers
    left_out: int = 0

    def __len__(self) -> int:
        return len(self.source.offsets) - 1

    def reversed(self) -> "Bitext":
        """Returns the same pairs with source and target exchanged."""
        return Bitext(self.target, self.source, self.left_out)


def corpus_bitext(corpus: Corpus, every: int = 1) -> Bitext:
    """Returns the training pairs of a prepared corpus, or every n-th of them; bytes are joined to words."""
    if isinstance(corpus.tokenizers.source, TextBytes):
        return read_bitext(islice(_texts(corpus), 0, None, every), Tokenizers.spaced())
    sides = corpus.splits["train"].source, corpus.splits["train"].target
    words = corpus.source_vocabulary.words, corpus.target_vocabulary.words
    lengths = np.stack([side.lengths for side in sides])
    chosen = np.arange(lengths.shape[1]) % every == 0
    kept = chosen & (lengths.min(axis=0) > 0) & (lengths.max(axis=0) <= LONGEST)
    texts = [
        WordNumbers(names, side.ids[np.repeat(kept, own)].astype(np.int32), _offsets(own[kept]))
        for names, side, own in zip(words, sides, lengths, strict=True)
    ]
    return Bitext(texts[0], texts[1], int(chosen.sum() - kept.sum()))


def _texts(corpus: Corpus) -> Iterator[tuple[str, str]]:
    train, tokenizers = corpus.splits["train"], corpus.tokenizers
    for number in range(len(train)):
        source = corpus.source_vocabulary.decode(train.source.sentence(number))
        target = corpus.target_vocabulary.decode(train.target.sentence(number))
        yield tokenizers.source.detokenize(source), tokenizers.target.detokenize(target)


def read_bitext(
    pairs: Iterable[tuple[str, str]],
    tokenizers: Tokenizers,
    workers: int = 1,
    progress: Callable[[int], object] = lambda pairs: None,
) -> Bitext:
    """Returns tokenised lines of text. `progress` is called with the number of pairs read."""
    sides = _SideCollector(), _SideCollector()
    read = kept = 0
    for block, chunk in tokenized(pairs, tokenizers, LONGEST, workers):
        for collector, part in zip(sides, (chunk.source, chunk.target), strict=True):
            collector.append(part)
        read, kept = read + len(block), kept + len(chunk.kept)
        progress(read)
    source, target = (side.text() for side in sides)
    return Bitext(source, target, read - kept)


def tokenized(
    pairs: Iterable[tuple[str, str]], tokenizers: Tokenizers, longest: int | None, workers: int
) -> Iterator[tuple[Pairs, Chunk]]:
    """Yields the pairs in blocks, each with its tokens, in order."""
    lines = iter(pairs)
    blocks = iter(lambda: list(islice(lines, CHUNK)), [])
    return tokenize_pairs(tokenizers, longest, blocks, workers)


class _SideCollector:
    """Collects the blocks of one side."""

    def __init__(self) -> None:
        self._index = WordIndex()
        self._ids: list[NDArray[np.int32]] = []
        self._lengths: list[NDArray[np.int32]] = []

    def append(self, side: Side) -> None:
        words = side.words()
        table = np.fromiter(map(self._index.__getitem__, words), np.int32, len(words))
        self._ids.append(table[side.ids])
        self._lengths.append(side.lengths)

    def text(self) -> WordNumbers:
        empty = np.zeros(0, np.int32)
        ids, lengths = np.concatenate([empty, *self._ids]), np.concatenate([empty, *self._lengths])
        return WordNumbers(list(self._index), ids, _offsets(lengths))


def _offsets(lengths: NDArray[np.integer]) -> NDArray[np.int64]:
    return np.concatenate(([0], np.cumsum(lengths, dtype=np.int64)))


@dataclass
class _Block:
    """Source words `first` to `last` - 1 and their translations; a key is (source - first) * target words + target."""

    first: int
    last: int
    keys: Ids  # sorted
    probabilities: Floats


def learn(
    bitext: Bitext,
    iterations: int = 5,
    cutoff: float = CUTOFF,
    progress: Callable[[int, float], None] = lambda iteration, share: None,
    cells: int = CELLS,
    scratch: int = SCRATCH,
) -> tuple[Ids, Ids, Floats]:
    """Runs the iterations, starting from uniform probabilities; the same bitext gives the same result.

    Returns the source ids, target ids and probabilities t(target | source) of the word pairs that were kept, by source
    id, then target id, without NULL. `progress` is called with the iteration, from 1, and the fraction of it that is
    done. `cells` are made together. Memory: about 25 bytes per token, 4 bytes per place of the `scratch` space for the
    word pairs of a block, and 8 bytes per word pair whose probability is at least `cutoff`.
    """
    model = _Model(bitext, cells, scratch)
    for iteration in range(1, iterations + 1):
        model.iterate(cutoff, iteration == iterations, partial(progress, iteration))
    return model.translations()


class _Model:
    """The probabilities, and the tokens of the corpus sorted by source word."""

    def __init__(self, bitext: Bitext, cells: int, scratch: int) -> None:
        source, target = bitext.source, bitext.target
        self._cells_at_once, self._scratch = cells, scratch
        source_lengths, self._lengths = source.lengths(), target.lengths()
        self._target, self._offsets = target.ids, target.offsets
        self._width = len(target.words)
        self._null = np.ones(self._width, np.float32)
        self._sums = np.repeat((source_lengths + 1).astype(np.float32), self._lengths)  # Z, (target tokens,)
        sentences = np.repeat(np.arange(len(bitext), dtype=np.int32), source_lengths)
        self._sentences = sentences[np.argsort(source.ids, kind="stable")]  # of each source token, by source word
        self._starts = np.concatenate(([0], np.cumsum(np.bincount(source.ids, minlength=len(source.words)))))
        self._slots = np.zeros(max(scratch, self._width), np.int32)
        cells_before = np.concatenate(([0], np.cumsum(self._lengths[self._sentences])))
        self._blocks = self._cut(cells_before[self._starts])

    def _cut(self, cells: NDArray[np.int64]) -> list[_Block]:
        """Cuts the source words into blocks that fit into the scratch space and, if possible, have few cells."""
        words, most = len(cells) - 1, max(self._scratch // max(self._width, 1), 1)
        bounds = [0]
        while bounds[-1] < words:
            start = bounds[-1]
            fitting = int(np.searchsorted(cells, cells[start] + self._cells_at_once, side="right")) - 1
            bounds.append(min(max(fitting, start + 1), start + most, words))
        empty = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return [_Block(first, last, *empty) for first, last in pairwise(bounds)]

    def iterate(self, cutoff: float, last: bool, progress: Callable[[float], None]) -> None:
        """Runs one iteration; the last one does not compute Z again."""
        self._null = self._null_probabilities()
        sums = self._null[self._target]
        for block in self._blocks:
            self._update(block, cutoff, None if last else sums)
            progress(float(self._starts[block.last] / max(self._starts[-1], 1)))
        self._sums = np.maximum(sums, _LEAST, out=sums)

    def _null_probabilities(self) -> Floats:
        counts = np.zeros(self._width)
        for start in range(0, len(self._target), self._cells_at_once):
            part = slice(start, start + self._cells_at_once)
            ids, sums = self._target[part], self._sums[part]
            counts += np.bincount(ids, self._null[ids] / sums, minlength=self._width)
        return np.asarray(counts / max(counts.sum(), 1e-300), np.float32)

    def _update(self, block: _Block, cutoff: float, sums: Floats | None) -> None:
        """Computes the new probabilities of a block from Z and the old ones; adds them to the next Z, `sums`."""
        ranges = self._ranges(block)
        # Cells that were made in one piece are used for both passes.
        parts = list(self._cells(block, ranges)) if len(ranges) == 1 else None
        if not len(block.keys):
            block.keys = self._keys(block, parts or self._cells(block, ranges))
            block.probabilities = np.ones(len(block.keys), np.float32)
        self._slots[block.keys] = np.arange(1, len(block.keys) + 1)
        old = np.concatenate(([np.float32(0)], block.probabilities))  # place 0 is that of dropped translations
        counts = np.zeros(len(old))
        for positions, keys in parts or self._cells(block, ranges):
            slots = self._slots[keys]
            counts += np.bincount(slots, old[slots] / self._sums[positions], minlength=len(old))
        rows = block.keys // self._width
        totals = np.bincount(rows, counts[1:], minlength=block.last - block.first)
        new = (counts[1:] / np.maximum(totals[rows], 1e-300)).astype(np.float32)
        kept = new >= cutoff
        padded = np.concatenate(([np.float32(0)], np.where(kept, new, np.float32(0))))
        if sums is not None:
            for positions, keys in parts or self._cells(block, ranges):
                np.add.at(sums, positions, padded[self._slots[keys]])
        self._slots[block.keys] = 0
        block.keys, block.probabilities = block.keys[kept], new[kept]

    def _keys(self, block: _Block, parts: Iterable[Cells]) -> Ids:
        """Returns the distinct keys of the cells of a block, sorted."""
        seen = np.zeros(0, np.int32)
        for _, keys in parts:
            seen = different(np.concatenate((seen, different(keys.astype(np.int32)))))
        return seen

    def _ranges(self, block: _Block) -> list[tuple[int, int]]:
        """Cuts the tokens of a block into ranges of few cells."""
        first, last = int(self._starts[block.first]), int(self._starts[block.last])
        cells = np.cumsum(self._lengths[self._sentences[first:last]])
        steps = np.arange(self._cells_at_once, cells[-1] if len(cells) else 0, self._cells_at_once)
        bounds = [first, *(first + np.searchsorted(cells, steps, side="right")).tolist(), last]
        return [(start, stop) for start, stop in pairwise(bounds) if start < stop]

    def _cells(self, block: _Block, ranges: list[tuple[int, int]]) -> Iterator[Cells]:
        """Yields the cells of each range of the tokens of a block."""
        counts = np.diff(self._starts[block.first : block.last + 1])
        bases = np.repeat(np.arange(len(counts)) * self._width, counts)
        first = int(self._starts[block.first])
        for start, stop in ranges:
            sentences = self._sentences[start:stop]
            lengths = self._lengths[sentences]
            ends = np.cumsum(lengths)
            positions = np.repeat(self._offsets[sentences] - ends + lengths, lengths)
            positions += np.arange(len(positions))
            keys = np.repeat(bases[start - first : stop - first], lengths)
            keys += self._target[positions]
            yield positions, keys

    def translations(self) -> tuple[Ids, Ids, Floats]:
        """Returns everything that was kept."""
        sources = [np.zeros(0, np.int32)] + [block.first + block.keys // self._width for block in self._blocks]
        targets = [np.zeros(0, np.int32)] + [block.keys % self._width for block in self._blocks]
        probabilities = [np.zeros(0, np.float32)] + [block.probabilities for block in self._blocks]
        return np.concatenate(sources), np.concatenate(targets), np.concatenate(probabilities)
