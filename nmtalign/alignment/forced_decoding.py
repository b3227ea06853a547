"""Aligning sentence pairs with a translation model by forced decoding.

The reading decides which attention weights align a target word:

- "current": those of the step that writes the word.
- "shifted" (Chen et al. 2020): those of the step that has the word as input, because its state knows the word. In the
  order look-generate-update (the paper's code) the attention of step t + 1 uses the first state that contains word t:
  word t takes the weights of step t + 1, and the last word those of the step that writes `</s>`. In the order
  look-update-generate (the paper's text) the attention of a step precedes its update: word t enters the state in step
  t + 1, after its attention, and step t + 2 is the first to use it. For the last word the decoder then runs one step
  past `</s>`. `</s>` itself, which is never an input, keeps the weights of its own step. In the order
  update-look-generate, also that of a Transformer, the attention of step t + 1 uses word t, as in the first order.
- "posterior": those of the step that writes the word, by Bayes' rule given that word (`force_posterior`).
- "auto": current with one model, as in the paper's figures; with two models, one per direction, posterior, or shifted
  if a model has no posterior.

Steps are those of the model's tokens, before pieces are merged to words.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import cast

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.alignment.links import (
    AlignmentRecord,
    Lines,
    ModelPair,
    ModelSide,
    empty_record,
    make_record,
    word_starts,
)
from nmtalign.core.model import Batch, Forced, TranslationModel, make_batch
from nmtalign.core.numerics import in_halves
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.settings.command_settings import AlignConfig, Reading
from nmtalign.settings.training_settings import Order
from nmtalign.text.tokenizer import EOS_ID, WORD_START, SpacedWords, Subwords, Tokenizer, Tokens, Vocabulary, keep

# The number of steps after which the attention depends on a word, counted from the step that writes it.
STEPS_AHEAD: Mapping[Order, int] = {"look-generate-update": 1, "look-update-generate": 2, "update-look-generate": 1}
_MEAN_LENGTH = 50  # a batch of longer pairs has fewer of them, which bounds memory


def force(model: TranslationModel, batch: Batch, reading: Reading) -> Forced:
    """Decodes a batch on the model's device: log-probabilities (B, Ty), and weights (B, Ty, Tx) of the reading."""
    if reading != "shifted":
        decode = model.force_posterior if reading == "posterior" else model.force
        return decode(batch.source, batch.source_mask, batch.target, batch.target_mask, batch.copies)
    ahead = STEPS_AHEAD[model.config.order]
    # The last word of the longest sentence needs a step too: that of `</s>`, or one more of padding.
    target = F.pad(batch.target, (0, ahead - 1), value=EOS_ID)
    mask = F.pad(batch.target_mask, (0, ahead - 1), value=False)
    forced = model.force(batch.source, batch.source_mask, target, mask, batch.copies)
    weights = shifted(cast(Tensor, forced.weights), batch.target_mask, ahead)  # `Aligner` refuses models without
    return Forced(forced.log_probs[:, : batch.target.shape[1]], weights)


def shifted(weights: Tensor, mask: Tensor, ahead: int) -> Tensor:
    """Returns the weights (B, Ty, Tx) of words, each `ahead` steps after its own, from those of steps.

    weights (B, Ty + ahead - 1, Tx). mask (B, Ty) is True at the words and at `</s>`, which keeps its step.
    """
    last = mask.sum(1) - 1
    own = torch.arange(mask.shape[1], device=mask.device)
    step = torch.where(own < last[:, None], own + ahead, own)
    return weights.gather(1, step[..., None].expand(-1, -1, weights.shape[2]))


class SideReader:
    """Reads lines for one side of a model: tokenised as its training text, or only split at spaces if `tokenized`."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, tokenized: bool) -> None:
        self._subwords = tokenizer if isinstance(tokenizer, Subwords) else None
        self._tokenized = tokenized
        self._tokenizer = SpacedWords() if tokenized else tokenizer
        self._vocabulary, self._encode = vocabulary, vocabulary.encode
        self._pieces: dict[str, Tokens] = {}

    def read(self, line: str) -> ModelSide:
        """Reads one line."""
        if self._subwords and self._tokenized:
            # Each word is split into pieces, so that the words stay those of the text, as gold links count them.
            words = self._tokenizer.tokenize(line)
            parts = [self._pieces_of(self._subwords, word, bool(place)) for place, word in enumerate(words)]
            tokens = [piece for part in parts for piece in part]
            return ModelSide(self._encode(tokens), tuple(words), np.cumsum([0, *map(len, parts)]), tokens)
        tokens = self._vocabulary.known_tokens(line, self._tokenizer.tokenize)
        if self._subwords is None:
            return ModelSide(self._encode(tokens), tuple(tokens), None, tokens)
        words, starts = self._subwords.words(tokens), word_starts(self._subwords.word_index(tokens))
        return ModelSide(self._encode(tokens), tuple(words), starts, tokens)

    def _pieces_of(self, subwords: Subwords, word: str, inside: bool) -> Tokens:
        """Returns the pieces of a word; `inside` a line without spaces they do not begin with "▁"."""
        inside = inside and subwords.unspaced
        key = f" {word}" if inside else word
        if found := self._pieces.get(key):
            return found
        # A tokeniser may leave nothing of a word (of a control character).
        pieces = subwords.tokenize(word) or [word]
        if inside:
            first = pieces[0].removeprefix(WORD_START)
            pieces[:1] = [first] if first in self._vocabulary else list(first)
        return keep(self._pieces, key, pieces or [word])


class Aligner:
    """One model that aligns windows of pairs; if `turned`, it reads the target and writes the source.

    Raises UsageError for a model without attention, or without the posterior that the settings ask for.
    """

    def __init__(self, loaded: LoadedModel, config: AlignConfig, turned: bool = False) -> None:
        if loaded.model.config.attention == "none":
            raise UsageError(f"{loaded.folder}: this model has no attention, so it cannot align; give another one")
        if config.reading == "posterior" and not loaded.model.has_posterior:
            raise UsageError(f"{loaded.folder}: this architecture has no posterior; give --reading shifted")
        self._loaded, self._config, self._turned = loaded, config, turned
        tokenizers = loaded.tokenizers
        self._source = SideReader(tokenizers.source, loaded.source_vocabulary, config.tokenized)
        self._target = SideReader(tokenizers.target, loaded.target_vocabulary, config.tokenized)

    def read(self, window: Sequence[tuple[int, Lines]]) -> list[ModelPair]:
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
            found = in_halves(self._force, batch, _too_much)
            records |= {record.sentence_id: record for record in found}
        return (records[pair.number] for pair in window)

    @torch.inference_mode(False)  # in it, a posterior could not turn gradients on
    @torch.no_grad()
    def _force(self, pairs: Sequence[ModelPair]) -> list[AlignmentRecord]:
        copies = [pair.source.copies for pair in pairs] if self._loaded.model.config.copy else None
        batch = make_batch([(pair.source.ids, pair.target.ids) for pair in pairs], copies=copies)
        batch = batch.to(self._loaded.device)
        forced = force(self._loaded.model, batch, self._config.reading)
        log_probs = forced.log_probs.float().cpu().numpy()
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


def _too_much(pair: ModelPair) -> str:
    sizes = f"{len(pair.source.ids)} and {len(pair.target.ids)} tokens"
    return f"line {pair.number + 1}: out of memory with one pair of {sizes}; leave it out, or split it"
