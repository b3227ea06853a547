"""Forced decoding: the weights and log-probabilities of given sentence pairs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import torch

from nmtalign.alignment.links import argmax_links, merge_log_probs, merge_pieces
from nmtalign.alignment.record import AlignmentRecord, Matrix
from nmtalign.config import AlignConfig
from nmtalign.core.halving import in_halves
from nmtalign.data.batches import make_batch
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.text.tokenizer import SentencePieces, SpacedWords, Tokenizer

_WINDOW = 20  # batches that are read at a time and sorted by length
_MEAN_LENGTH = 50  # a batch of longer pairs holds fewer of them, so that memory stays bounded


@dataclass(frozen=True)
class _Side:
    """One sentence: what the model reads (`tokens`), the words, and for each token the word that it is part of."""

    tokens: Sequence[str]
    words: Sequence[str]
    word_index: Sequence[int]


@dataclass(frozen=True)
class _Pair:
    number: int
    source: _Side
    target: _Side

    def length(self) -> int:
        return max(len(self.source.tokens), len(self.target.tokens)) + 1

    def empty(self) -> bool:
        return not (self.source.tokens and self.target.tokens)


def align_pairs(
    loaded: LoadedModel, pairs: Iterable[tuple[str, str]], config: AlignConfig, *, tokenized: bool = False
) -> Iterator[AlignmentRecord]:
    """The records of sentence pairs (lines of text), in order, one each; hard links by argmax.

    Lines are tokenised as the model's training text was; `tokenized` lines are split at spaces only, and the words of
    the records are just these. Subword pieces are merged to words. Pairs are read in windows, sorted by length into
    batches, and given to the model; a pair with an empty side is not. Raises UsageError for a model without attention.
    """
    if loaded.model.config.attention == "none":
        raise _no_attention(loaded)
    return _align(loaded, iter(pairs), config, tokenized)


def _no_attention(loaded: LoadedModel) -> UsageError:
    return UsageError(
        f"{loaded.folder}: this model has no attention: it cannot align; train one with --attention additive"
    )


def _align(
    loaded: LoadedModel, pairs: Iterator[tuple[str, str]], config: AlignConfig, tokenized: bool
) -> Iterator[AlignmentRecord]:
    tokenizers = loaded.tokenizers
    numbered = enumerate(pairs)
    while window := list(islice(numbered, config.batch_size * _WINDOW)):
        read = [
            _Pair(number, _side(tokenizers.source, source, tokenized), _side(tokenizers.target, target, tokenized))
            for number, (source, target) in window
        ]
        records = {pair.number: _empty_record(pair) for pair in read if pair.empty()}
        for batch in _batches([pair for pair in read if not pair.empty()], config.batch_size):
            found = in_halves(lambda part: _force(loaded, part), batch, _too_much)
            records |= {record.sentence_id: record for record in found}
        yield from (records[pair.number] for pair in read)


def _side(tokenizer: Tokenizer, line: str, tokenized: bool) -> _Side:
    if not tokenized:
        tokens = tokenizer.tokenize(line)
        return _Side(tokens, tokenizer.words(tokens), tokenizer.word_index(tokens))
    words = SpacedWords().tokenize(line)
    if not isinstance(tokenizer, SentencePieces):
        return _Side(words, words, range(len(words)))
    # Word by word, so that the words stay those of the text, as its gold links count them.
    # A word of which the tokeniser leaves nothing (a control character, say) stands for itself, unknown.
    pieces = [tokenizer.tokenize(word) or [word] for word in words]
    index = [number for number, part in enumerate(pieces) for _ in part]
    return _Side([piece for part in pieces for piece in part], words, index)


def _batches(pairs: list[_Pair], size: int) -> Iterator[list[_Pair]]:
    """Batches of at most `size` pairs of about one length; fewer where they are long."""
    batch: list[_Pair] = []
    for pair in sorted(pairs, key=_Pair.length):
        if batch and (len(batch) == size or (len(batch) + 1) * pair.length() > size * _MEAN_LENGTH):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def _too_much(pair: _Pair) -> str:
    sizes = f"{len(pair.source.tokens)} and {len(pair.target.tokens)} tokens"
    return f"line {pair.number + 1}: out of memory with one pair of {sizes}; leave it out, or split it"


@torch.no_grad()
def _force(loaded: LoadedModel, pairs: Sequence[_Pair]) -> list[AlignmentRecord]:
    source, target = loaded.source_vocabulary, loaded.target_vocabulary
    batch = make_batch([(source.encode(pair.source.tokens), target.encode(pair.target.tokens)) for pair in pairs])
    batch = batch.to(loaded.device)
    forced = loaded.model.force(batch.source, batch.source_mask, batch.target, batch.target_mask)
    if forced.weights is None:
        raise _no_attention(loaded)
    log_probs, weights = forced.log_probs.float().cpu().numpy(), forced.weights.float().cpu().numpy()
    return [_record(pair, weights[row], log_probs[row]) for row, pair in enumerate(pairs)]


def _record(pair: _Pair, weights: Matrix, log_probs: Matrix) -> AlignmentRecord:
    """The record of one row of a batch: padding cut off, pieces merged to words."""
    rows, columns = len(pair.target.tokens) + 1, len(pair.source.tokens) + 1
    weights, log_probs = weights[:rows, :columns], log_probs[:rows]
    log_prob = float(log_probs.sum(dtype=np.float64))
    if rows > len(pair.target.words) + 1 or columns > len(pair.source.words) + 1:
        weights = merge_pieces(weights, pair.source.word_index, pair.target.word_index)
        log_probs = merge_log_probs(log_probs, pair.target.word_index)
    return AlignmentRecord(
        source=tuple(pair.source.words),
        target=tuple(pair.target.words),
        weights=weights,
        log_prob=log_prob,
        sentence_id=pair.number,
        token_log_probs=log_probs,
        hard_links=tuple(argmax_links(weights)),
    )


def _empty_record(pair: _Pair) -> AlignmentRecord:
    rows, columns = len(pair.target.words) + 1, len(pair.source.words) + 1
    return AlignmentRecord(
        source=tuple(pair.source.words),
        target=tuple(pair.target.words),
        weights=np.zeros((rows, columns), dtype=np.float32),
        log_prob=0.0,
        sentence_id=pair.number,
        token_log_probs=np.zeros(rows, dtype=np.float32),
        hard_links=(),
    )
