"""Aligning sentence pairs with a translation model by forced decoding.

The reading decides which attention weights align a target word:

- "current": those of the step that writes the word.
- "shifted" (Chen et al. 2020), for Transformers: those of the next step, which has the word as input. `</s>`, which is
  never an input, keeps the weights of its own step. In a recurrent model the next step reads for the next word.
- "posterior": those of the step that writes the word, by Bayes' rule given that word (`force_posterior`).
- "auto": current with one model, as in the paper's figures; with two models, one per direction, posterior. If a model
  has none, it is shifted for Transformers, else current.

Steps are those of the model's tokens, before pieces are merged to words.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor

from nmtalign.alignment.links import AlignmentRecord, ModelPair, ModelSide, Pair, empty_record, make_record
from nmtalign.core.model import Batch, Forced, TranslationModel, make_batch
from nmtalign.core.numerics import in_halves
from nmtalign.errors import NO_PROBABILITY, NmtalignError, UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.settings.command_settings import AlignConfig, Reading
from nmtalign.text.tokenizer import WORD_START, SpacedWords, Subwords, TokenCache, Tokenizer, Vocabulary

_MEAN_LENGTH = 50  # a batch of longer pairs has fewer of them, which bounds memory


def force(model: TranslationModel, batch: Batch, reading: Reading) -> Forced:
    """Decodes a batch on the model's device: log-probabilities (B, Ty), and weights (B, Ty, Tx) of the reading."""
    decode = model.force_posterior if reading == "posterior" else model.force
    forced = decode(batch.source, batch.source_mask, batch.target, batch.target_mask, batch.copies)
    if reading != "shifted":
        return forced
    weights, own = cast(Tensor, forced.weights), torch.arange(batch.target.shape[1], device=batch.target.device)
    step = torch.where(own < batch.target_mask.sum(1, keepdim=True) - 1, own + 1, own)  # `</s>` keeps its step
    return replace(forced, weights=weights.gather(1, step[..., None].expand(-1, -1, weights.shape[2])))


class SideReader:
    """Reads lines for one side of a model: tokenised as its training text, or only split at spaces if `tokenized`."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, tokenized: bool) -> None:
        self._subwords = tokenizer if isinstance(tokenizer, Subwords) else None
        self._tokenized = tokenized
        self._tokenizer = SpacedWords() if tokenized else tokenizer
        self._vocabulary, self._encode = vocabulary, vocabulary.encode
        self._pieces = TokenCache(self._find_pieces)

    def read(self, line: str) -> ModelSide:
        if self._subwords and self._tokenized:
            # Each word is split into pieces, so that the words stay those of the text, as gold links count them.
            words = self._tokenizer.tokenize(line)
            inside = " " if self._subwords.unspaced else ""
            parts = [self._pieces[f"{inside}{word}" if place else word] for place, word in enumerate(words)]
            tokens = [piece for part in parts for piece in part]
            return ModelSide(self._encode(tokens), tuple(words), np.cumsum([0, *map(len, parts)]), tokens)
        tokens = self._vocabulary.known_tokens(line, self._tokenizer.tokenize)
        if self._subwords is None:
            return ModelSide(self._encode(tokens), tuple(tokens), None, tokens)
        words, starts = self._subwords.words(tokens), self._subwords.word_starts(tokens)
        return ModelSide(self._encode(tokens), tuple(words), starts, tokens)

    def _find_pieces(self, key: str) -> Sequence[str]:
        """The pieces of a word. A space before it marks a word inside an unspaced line, which gets no "▁"."""
        word = key.removeprefix(" ")
        # The tokeniser removes control characters. A word of nothing else is one piece.
        pieces = self._vocabulary.known_tokens(word, cast(Subwords, self._subwords).tokenize) or [word]
        if word != key:
            first = pieces[0].removeprefix(WORD_START)
            pieces[:1] = [first] if first in self._vocabulary else list(first)
        return pieces or [word]


class Aligner:
    """One model that aligns windows of pairs; if `turned`, it reads the target and writes the source.

    Raises UsageError for a model without attention, or without the reading that the settings ask for.
    """

    def __init__(self, loaded: LoadedModel, config: AlignConfig, turned: bool = False) -> None:
        if loaded.model.config.attention == "none":
            raise UsageError(f"{loaded.folder}: this model has no attention, so it cannot align; give another one")
        transformer = loaded.model.config.architecture == "transformer"
        if config.reading == "posterior" and not loaded.model.has_posterior:
            other = "shifted" if transformer else "current"
            raise UsageError(f"{loaded.folder}: this architecture has no posterior; give --reading {other}")
        if config.reading == "shifted" and not transformer:
            raise UsageError(f"{loaded.folder}: is no Transformer, so it has no shifted reading; leave --reading out")
        self._loaded, self._config, self._turned = loaded, config, turned
        tokenizers = loaded.tokenizers
        self._source = SideReader(tokenizers.source, loaded.source_vocabulary, config.tokenized)
        self._target = SideReader(tokenizers.target, loaded.target_vocabulary, config.tokenized)

    def read(self, window: Sequence[tuple[int, Pair]]) -> list[ModelPair]:
        """Tokenises the numbered lines of a window."""
        read_source, read_target, source = self._source.read, self._target.read, 1 if self._turned else 0
        pairs = [ModelPair(number, read_source(pair[source]), read_target(pair[1 - source])) for number, pair in window]
        return list(map(self._with_copies, pairs)) if self._loaded.model.config.copy else pairs

    def _with_copies(self, pair: ModelPair) -> ModelPair:
        """The pair with the ids of a copying model, each of which depends on both sides."""
        source, target, copies = self._loaded.ids(pair.source.tokens, pair.target.tokens)
        return ModelPair(pair.number, replace(pair.source, ids=source, copies=copies), replace(pair.target, ids=target))

    def records(self, window: Sequence[ModelPair]) -> Iterator[AlignmentRecord]:
        """Returns the records of a window, in order."""
        records = {pair.number: empty_record(pair) for pair in window if pair.empty()}
        for batch in _batches([pair for pair in window if not pair.empty()], self._config.batch_size):
            found = in_halves(self._force, batch, lambda pair: too_much(pair.number, pair.source.ids, pair.target.ids))
            records |= {record.sentence_id: record for record in found}
        return (records[pair.number] for pair in window)

    @torch.inference_mode(False)  # inference mode would allow no gradients, which a posterior needs
    @torch.no_grad()
    def _force(self, pairs: Sequence[ModelPair]) -> list[AlignmentRecord]:
        copies = [pair.source.copies for pair in pairs] if self._loaded.model.config.copy else None
        batch = make_batch([(pair.source.ids, pair.target.ids) for pair in pairs], copies=copies)
        batch = batch.to(self._loaded.device)
        forced = force(self._loaded.model, batch, self._config.reading)
        log_probs = forced.log_probs.float().cpu().numpy()
        if np.isnan(log_probs).any():
            raise NmtalignError(NO_PROBABILITY)
        weights = cast(Tensor, forced.weights).float().cpu().numpy()  # it has attention
        totals = log_probs.sum(axis=1, dtype=np.float64).tolist()
        records = []
        for pair, own, probabilities, total in zip(pairs, weights, log_probs, totals, strict=True):
            rows, columns = len(pair.target.ids) + 1, len(pair.source.ids) + 1  # without padding
            records.append(make_record(pair, own[:rows, :columns], probabilities[:rows], total, self._config))
        return records


def _batches(pairs: list[ModelPair], size: int) -> Iterator[list[ModelPair]]:
    """Yields batches of at most `size` pairs of similar length, fewer if they are long."""
    batch: list[ModelPair] = []
    for pair in sorted(pairs, key=ModelPair.length):
        if batch and (len(batch) == size or (len(batch) + 1) * pair.length() > size * _MEAN_LENGTH):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def too_much(number: int, source: Sequence[int], target: Sequence[int]) -> str:
    """The message about a pair, on the line with this number, that does not fit into memory."""
    sizes = f"{len(source)} and {len(target)} tokens"
    return f"line {number + 1}: out of memory with one pair of {sizes}; leave it out, or split it"
