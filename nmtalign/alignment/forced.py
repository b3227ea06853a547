"""Forced decoding: the attention weights and log-probabilities that a model gives for sentence pairs.

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

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from nmtalign.alignment.links import (
    THRESHOLD,
    AlignmentRecord,
    Link,
    Matrix,
    hard_links,
    merge_starts,
)
from nmtalign.core.model import Batch, Forced, TranslationModel, make_batch
from nmtalign.core.numerics import in_halves
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel
from nmtalign.settings.command_settings import AlignConfig, Reading
from nmtalign.settings.training_settings import Order
from nmtalign.text.tokenizer import EOS_ID, WORD_START, SpacedWords, Subwords, Tokenizer, Tokens, Vocabulary, keep

Lines = tuple[str, str]
T = TypeVar("T")

# The number of steps after which the attention depends on a word, counted from the step that writes it.
STEPS_AHEAD: Mapping[Order, int] = {"look-generate-update": 1, "look-update-generate": 2, "update-look-generate": 1}
_WINDOW = 20  # batches that are read together and sorted by length
_MEAN_LENGTH = 50  # a batch of longer pairs has fewer of them, which bounds memory


def force(model: TranslationModel, batch: Batch, reading: Reading) -> Forced:
    """Decodes a batch on the model's device: log-probabilities (B, Ty), and weights (B, Ty, Tx) of the reading."""
    if reading == "shifted":
        return _force_shifted(model, batch)
    decode = model.force_posterior if reading == "posterior" else model.force
    return decode(batch.source, batch.source_mask, batch.target, batch.target_mask, batch.copies)


def _force_shifted(model: TranslationModel, batch: Batch) -> Forced:
    ahead = STEPS_AHEAD[model.config.order]
    # The last word of the longest sentence needs a step too: that of `</s>`, or one more of padding.
    target = F.pad(batch.target, (0, ahead - 1), value=EOS_ID)
    mask = F.pad(batch.target_mask, (0, ahead - 1), value=False)
    forced = model.force(batch.source, batch.source_mask, target, mask, batch.copies)
    if forced.weights is None:
        return forced
    steps = batch.target.shape[1]
    return Forced(forced.log_probs[:, :steps], shifted(forced.weights, batch.target_mask, ahead))


def shifted(weights: Tensor, mask: Tensor, ahead: int) -> Tensor:
    """Returns the weights (B, Ty, Tx) of words, each `ahead` steps after its own, from those of steps.

    weights (B, Ty + ahead - 1, Tx). mask (B, Ty) is True at the words and at `</s>`, which keeps its step.
    """
    last = mask.sum(1) - 1
    own = torch.arange(mask.shape[1], device=mask.device)
    step = torch.where(own < last[:, None], own + ahead, own)
    return weights.gather(1, step[..., None].expand(-1, -1, weights.shape[2]))


@dataclass(frozen=True, slots=True)
class ModelSide:
    """One side of a pair: its tokens and their ids, its words, and where each word starts (None: each token is a word).

    `starts` (words + 1,) are places in `ids`; the last one is that of `</s>`, after all ids.
    """

    ids: Sequence[int]
    words: tuple[str, ...]
    starts: NDArray[np.int64] | None
    tokens: Sequence[str]
    copies: Sequence[int] = ()  # of the source side of a copying model


class SideReader:
    """Reads lines for one side of a model: tokenised as its training text, or only split at spaces if `tokenized`."""

    def __init__(self, tokenizer: Tokenizer, vocabulary: Vocabulary, tokenized: bool) -> None:
        self._in_pieces = isinstance(tokenizer, Subwords)
        self._tokenizer: Tokenizer = SpacedWords() if tokenized and not self._in_pieces else tokenizer
        self._vocabulary, self._encode = vocabulary, vocabulary.encode
        self._spaced = SpacedWords().tokenize if tokenized and self._in_pieces else None
        self._pieces: dict[str, Tokens] = {}

    def read(self, line: str) -> ModelSide:
        """Reads one line."""
        if self._spaced is not None:
            return self._of_words(self._spaced(line))
        tokens = self._vocabulary.known_tokens(line, self._tokenizer.tokenize)
        if not self._in_pieces:
            return ModelSide(self._encode(tokens), tuple(tokens), None, tokens)
        starts = [place for place, token in enumerate(tokens) if token.startswith(WORD_START) or place == 0]
        words = tuple(self._tokenizer.words(tokens))
        return ModelSide(self._encode(tokens), words, np.array([*starts, len(tokens)]), tokens)

    def _of_words(self, words: list[str]) -> ModelSide:
        """Splits each word into pieces, so that the words stay those of the text, as gold links count them."""
        pieces = self._pieces
        parts = [pieces.get(word) or self._found(word) for word in words]
        tokens = [piece for part in parts for piece in part]
        starts = np.cumsum([0, *map(len, parts)])
        return ModelSide(self._encode(tokens), tuple(words), starts, tokens)

    def _found(self, word: str) -> Tokens:
        """Returns the pieces of a new word, or the word if the tokeniser leaves nothing (of a control character)."""
        return keep(self._pieces, word, self._tokenizer.tokenize(word) or [word])


@dataclass(frozen=True, slots=True)
class ModelPair:
    """A sentence pair as a model reads it."""

    number: int
    source: ModelSide
    target: ModelSide

    def length(self) -> int:
        """Returns the tokens of its longer side, with `</s>`."""
        return max(len(self.source.ids), len(self.target.ids)) + 1

    def empty(self) -> bool:
        """Returns whether a side has no words: such a pair is not given to the model."""
        return not (self.source.ids and self.target.ids)


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
        records = {pair.number: empty_record(pair, self._config) for pair in window if pair.empty()}
        for batch in _batches([pair for pair in window if not pair.empty()], self._config.batch_size):
            found = in_halves(self._force, batch, _too_much)
            records |= {record.sentence_id: record for record in found}
        return (records[pair.number] for pair in window)

    @torch.no_grad()
    def _force(self, pairs: Sequence[ModelPair]) -> list[AlignmentRecord]:
        copies = [pair.source.copies for pair in pairs] if self._loaded.model.config.copy else None
        batch = make_batch([(pair.source.ids, pair.target.ids) for pair in pairs], copies=copies)
        batch = batch.to(self._loaded.device)
        forced = force(self._loaded.model, batch, self._config.reading)
        if forced.weights is None:
            raise TypeError("a model with attention returned no weights")
        log_probs, weights = forced.log_probs.float().cpu().numpy(), forced.weights.float().cpu().numpy()
        totals = log_probs.sum(axis=1, dtype=np.float64).tolist()
        return [
            self._record_of_tokens(pair, weights[row], log_probs[row], total)
            for row, (pair, total) in enumerate(zip(pairs, totals, strict=True))
        ]

    def _record_of_tokens(
        self, pair: ModelPair, weights: Matrix, log_probs: Matrix, log_prob: float
    ) -> AlignmentRecord:
        """Returns the record of one row of a batch, without padding and with pieces merged to words."""
        rows, columns = len(pair.target.ids) + 1, len(pair.source.ids) + 1
        merged = merge_starts(weights[:rows, :columns], pair.source.starts, pair.target.starts)
        log_probs = log_probs[:rows].copy()
        if pair.target.starts is not None:
            log_probs = np.add.reduceat(log_probs, pair.target.starts, dtype=np.float64).astype(np.float32)
        return make_record(pair, merged, log_probs, log_prob, self._config)


def empty_record(pair: ModelPair, config: AlignConfig) -> AlignmentRecord:
    """Returns the record of a pair with an empty side: the log-probabilities are unknown, NaN."""
    rows, columns = len(pair.target.words) + 1, len(pair.source.words) + 1
    unknown = np.full(rows, np.nan, np.float32)
    return make_record(pair, np.zeros((rows, columns), np.float32), unknown, math.nan, config)


def make_record(
    pair: ModelPair, weights: Matrix, token_log_probs: NDArray[np.float32], log_prob: float, config: AlignConfig
) -> AlignmentRecord:
    """Returns the record of weights between words and `</s>`.

    Without a method of links (`config.links` is None) it has no hard links.
    """
    links: list[Link] = []
    if config.links is not None:
        links = hard_links(weights, config.links, config.threshold or THRESHOLD)
    return AlignmentRecord(
        source=pair.source.words,
        target=pair.target.words,
        weights=weights,
        log_prob=log_prob,
        sentence_id=pair.number,
        token_log_probs=token_log_probs,
        hard_links=tuple(links),
    )


def window_size(config: AlignConfig) -> int:
    """Returns the number of pairs that are read together; a run from a multiple of it repeats those of a full run."""
    return config.batch_size * _WINDOW


def windows(
    read: Callable[[Sequence[tuple[int, Lines]]], T], pairs: Iterable[Lines], config: AlignConfig, first: int
) -> Iterator[T]:
    """Yields windows of pairs, read by a thread while the previous window is aligned."""
    numbered = enumerate(pairs, first)
    # Not read ahead as in `load_batches`: a thread would also read the texts, and Ctrl-C would wait for an idle pipe.
    with ThreadPoolExecutor(1, "tokenise") as thread:
        coming: Future[T] | None = None
        while window := list(islice(numbered, window_size(config))):
            before, coming = coming, thread.submit(read, window)
            if before is not None:
                yield before.result()
        if coming is not None:
            yield coming.result()


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
