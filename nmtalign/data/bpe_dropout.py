"""BPE-dropout (Provilkov et al. 2020): in training the words of a pair are cut into other pieces in every epoch."""

from collections.abc import Callable, Sequence
from itertools import accumulate, chain, groupby

import numpy as np
from torch import Tensor

from nmtalign.data.batches import Batch, make_batch
from nmtalign.data.corpus import Corpus
from nmtalign.settings.definition import SettingError
from nmtalign.text.tokenizer import WORD_START, SentencePieces
from nmtalign.text.vocabulary import UNK, UNK_ID, Vocabulary

_SEEDS = 2**32 - 1  # seeds are 0 to 2^32 - 2; for sentencepiece, 2^32 - 1 means "no seed"


class BpeDropout:
    """Samples the pieces of training pairs: each merge of two pieces is left out with a probability.

    The pieces of a sentence depend on the seed, the epoch and the number of the pair only.
    """

    def __init__(self, corpus: Corpus, dropout: float, seed: int) -> None:
        """Raises SettingError if the pieces of the corpus are not those of BPE."""
        self._dropout, self._seed = dropout, seed
        self._sides: list[tuple[SentencePieces, Vocabulary]] = []
        for tokenizer, vocabulary in (
            (corpus.tokenizers.source, corpus.source_vocabulary),
            (corpus.tokenizers.target, corpus.target_vocabulary),
        ):
            if not isinstance(tokenizer, SentencePieces) or not tokenizer.merges:
                rule = f"{corpus.folder} has no BPE pieces; prepare it with `nmtalign prep --vocabulary bpe`"
                raise SettingError(rule, bpe_dropout=dropout)
            sentence = [vocabulary.words[2]] * 99  # the first merge
            if tokenizer.sample([sentence], 0.5, seed=1) != tokenizer.sample([sentence], 0.5, seed=1):
                rule = "the installed sentencepiece cannot repeat its samples; pip install 'sentencepiece>=0.2.3'"
                raise SettingError(rule, bpe_dropout=dropout)
            self._sides.append((tokenizer, vocabulary))

    def of_epoch(self, epoch: int) -> Callable[[Batch], Batch]:
        """A call with a batch of training pairs returns it with sampled pieces."""
        first = int(np.random.SeedSequence([self._seed, epoch]).generate_state(1, np.uint64)[0])

        def sample(batch: Batch) -> Batch:
            seeds = [first + 2 * int(index) for index in batch.indices]
            sources = self._sampled(0, batch.source, batch.source_mask, seeds)
            targets = self._sampled(1, batch.target, batch.target_mask, [seed + 1 for seed in seeds])
            return make_batch([*zip(sources, targets, strict=True)], batch.indices)

        return sample

    def _sampled(self, side: int, ids: Tensor, mask: Tensor, seeds: Sequence[int]) -> list[list[int]]:
        lengths = (mask.sum(1) - 1).tolist()  # without `</s>`
        rows = zip(ids.tolist(), lengths, seeds, strict=True)
        return [self._of_sentence(side, row[:length], seed % _SEEDS) for row, length, seed in rows]

    def _of_sentence(self, side: int, ids: list[int], seed: int) -> list[int]:
        """The pieces of a sentence; words with an unknown piece, whose text is not stored, keep theirs."""
        tokenizer, vocabulary = self._sides[side]
        pieces = vocabulary.decode(ids)
        runs = [pieces] if UNK_ID not in ids else _runs(pieces)
        found: list[int] = []
        for run, sampled in zip(runs, tokenizer.sample(runs, self._dropout, seed), strict=True):
            new = vocabulary.encode(sampled)
            is_same_text = UNK_ID not in new and "".join(sampled) == "".join(run)
            found += new if is_same_text else vocabulary.encode(run)
        return found


def _runs(pieces: Sequence[str]) -> list[list[str]]:
    """Consecutive words with and without unknown pieces, separately."""
    numbers = accumulate(piece.startswith(WORD_START) for piece in pieces)
    words = [[piece for _, piece in word] for _, word in groupby(zip(numbers, pieces, strict=True), lambda one: one[0])]
    return [[*chain.from_iterable(run)] for _, run in groupby(words, lambda word: UNK in word)]
