"""Forced decoding: the weights and log-probabilities of given sentence pairs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from nmtalign.alignment.links import THRESHOLD, Matrix, drop_end, hard_links, merge_starts, sharpened
from nmtalign.alignment.readings import chosen, force
from nmtalign.alignment.record import AlignmentRecord
from nmtalign.alignment.sides import Side, SideReader
from nmtalign.config import AlignConfig
from nmtalign.core.devices import in_halves
from nmtalign.data.batches import make_batch
from nmtalign.errors import UsageError
from nmtalign.model_directory import LoadedModel

Lines = tuple[str, str]
T = TypeVar("T")

_WINDOW = 20  # batches that are read at a time and sorted by length
_MEAN_LENGTH = 50  # a batch of longer pairs holds fewer of them, so that memory stays bounded


@dataclass(frozen=True, slots=True)
class Pair:
    """A pair as a model reads it."""

    number: int
    source: Side
    target: Side

    def length(self) -> int:
        """Of its longer side, `</s>` counted."""
        return max(len(self.source.ids), len(self.target.ids)) + 1

    def empty(self) -> bool:
        """Whether a side has no words: such a pair is not given to the model."""
        return not (self.source.ids and self.target.ids)


def align_pairs(
    loaded: LoadedModel, pairs: Iterable[Lines], config: AlignConfig, *, tokenized: bool = False, first: int = 0
) -> Iterator[AlignmentRecord]:
    """The records of sentence pairs (lines of text), in order, one each, numbered from `first`.

    Lines are tokenised as the model's training text was; `tokenized` lines are split at spaces only, and the words of
    the records are just these. Subword pieces are merged to words. Pairs are read in windows, sorted by length into
    batches, and given to the model; a pair with an empty side is not. Reading, temperature, links and whether `</s>` is
    dropped are those of `config`. Raises UsageError for a model without attention.
    """
    aligner = Aligner(loaded, chosen(config, 1), tokenized)
    return (record for window in windows([aligner], pairs, config, first) for record in aligner.records(window[0]))


def window_size(config: AlignConfig) -> int:
    """How many pairs are read at a time: from a multiple of it on, alignments are those of a run from the start."""
    return config.batch_size * _WINDOW


def windows(
    aligners: "Sequence[Aligner]", pairs: Iterable[Lines], config: AlignConfig, first: int
) -> Iterator[list[list[Pair]]]:
    """The pairs a window at a time, tokenised for each aligner; by a thread, while the window before is aligned."""

    def read(window: Sequence[tuple[int, Lines]]) -> list[list[Pair]]:
        return [aligner.read(window) for aligner in aligners]

    numbered = enumerate(pairs, first)
    size = window_size(config)
    return _one_ahead(read, iter(lambda: list(islice(numbered, size)), []))


def _one_ahead(work: Callable[[T], list[list[Pair]]], items: Iterator[T]) -> Iterator[list[list[Pair]]]:
    # Not `prefetched`: its thread would read the texts too, and Ctrl-C would wait for a pipe that says nothing.
    with ThreadPoolExecutor(1, "tokenise") as thread:
        coming: Future[list[list[Pair]]] | None = None
        for item in items:
            before, coming = coming, thread.submit(work, item)
            if before is not None:
                yield before.result()
        if coming is not None:
            yield coming.result()


class Aligner:
    """One model that aligns windows of pairs; `turned` where it reads the pairs' target and writes their source.

    Raises UsageError for a model without attention.
    """

    def __init__(self, loaded: LoadedModel, config: AlignConfig, tokenized: bool, turned: bool = False) -> None:
        if loaded.model.config.attention == "none":
            raise _no_attention(loaded)
        self._loaded, self._config, self._turned = loaded, config, turned
        tokenizers = loaded.tokenizers
        self._source = SideReader(tokenizers.source, loaded.source_vocabulary, tokenized)
        self._target = SideReader(tokenizers.target, loaded.target_vocabulary, tokenized)

    def read(self, window: Sequence[tuple[int, Lines]]) -> list[Pair]:
        """The numbered lines of a window as the model reads them."""
        read_source, read_target, source = self._source.read, self._target.read, 1 if self._turned else 0
        return [Pair(number, read_source(pair[source]), read_target(pair[1 - source])) for number, pair in window]

    def records(self, window: Sequence[Pair]) -> Iterator[AlignmentRecord]:
        """The records of a window, in order."""
        records = {pair.number: self._empty_record(pair) for pair in window if pair.empty()}
        for batch in _batches([pair for pair in window if not pair.empty()], self._config.batch_size):
            found = in_halves(self._force, batch, _too_much)
            records |= {record.sentence_id: record for record in found}
        return (records[pair.number] for pair in window)

    @torch.no_grad()
    def _force(self, pairs: Sequence[Pair]) -> list[AlignmentRecord]:
        batch = make_batch([(pair.source.ids, pair.target.ids) for pair in pairs]).to(self._loaded.device)
        forced = force(self._loaded.model, batch, self._config.reading)
        if forced.weights is None:
            raise _no_attention(self._loaded)
        log_probs, weights = forced.log_probs.float().cpu().numpy(), forced.weights.float().cpu().numpy()
        if self._config.temperature != 1:
            weights = sharpened(weights, self._config.temperature)
        totals = log_probs.sum(axis=1, dtype=np.float64).tolist()
        return [
            self._record(pair, weights[row], log_probs[row], total)
            for row, (pair, total) in enumerate(zip(pairs, totals, strict=True))
        ]

    def _record(self, pair: Pair, weights: Matrix, log_probs: Matrix, log_prob: float) -> AlignmentRecord:
        """The record of one row of a batch: padding cut off, pieces merged to words."""
        rows, columns = len(pair.target.ids) + 1, len(pair.source.ids) + 1
        merged = merge_starts(weights[:rows, :columns], pair.source.starts, pair.target.starts)
        return self._made(pair, merged, _of_words(log_probs[:rows], pair.target.starts), log_prob)

    def _empty_record(self, pair: Pair) -> AlignmentRecord:
        rows, columns = len(pair.target.words) + 1, len(pair.source.words) + 1
        return self._made(pair, np.zeros((rows, columns), np.float32), np.zeros(rows, np.float32), 0.0)

    def _made(
        self, pair: Pair, weights: Matrix, token_log_probs: NDArray[np.float32], log_prob: float
    ) -> AlignmentRecord:
        """The record of weights between words and `</s>`, which is dropped where that is asked for."""
        config, mass = self._config, 0.0
        if config.drop_end:
            mass = float(weights[:-1, -1].sum(dtype=np.float64))
            weights = drop_end(weights)
        links = hard_links(weights, config.links or "argmax", config.threshold or THRESHOLD, end=not config.drop_end)
        return AlignmentRecord(
            source=pair.source.words,
            target=pair.target.words,
            weights=weights,
            log_prob=log_prob,
            sentence_id=pair.number,
            token_log_probs=token_log_probs,
            hard_links=tuple(links),
            end=not config.drop_end,
            dropped_mass=mass,
        )


def _of_words(log_probs: NDArray[np.float32], starts: NDArray[np.int64] | None) -> NDArray[np.float32]:
    """The log-probabilities of words and `</s>`, summed over the pieces of each."""
    if starts is None:
        return log_probs.copy()
    return np.add.reduceat(log_probs, starts, dtype=np.float64).astype(np.float32)


def _no_attention(loaded: LoadedModel) -> UsageError:
    return UsageError(
        f"{loaded.folder}: this model has no attention: it cannot align; train one with --attention additive"
    )


def _batches(pairs: list[Pair], size: int) -> Iterator[list[Pair]]:
    """Batches of at most `size` pairs of about one length; fewer where they are long."""
    batch: list[Pair] = []
    for pair in sorted(pairs, key=Pair.length):
        if batch and (len(batch) == size or (len(batch) + 1) * pair.length() > size * _MEAN_LENGTH):
            yield batch
            batch = []
        batch.append(pair)
    if batch:
        yield batch


def _too_much(pair: Pair) -> str:
    sizes = f"{len(pair.source.ids)} and {len(pair.target.ids)} tokens"
    return f"line {pair.number + 1}: out of memory with one pair of {sizes}; leave it out, or split it"
