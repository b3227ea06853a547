"""Alignment records, hard links from soft weights, subword pieces merged to words, and how they are printed.

A link is a pair (i, j): source word i and target word j, both counted from 0. `</s>` has no links.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmtalign.settings.command_settings import AlignConfig, LinkMethod

In = TypeVar("In")
Out = TypeVar("Out")

Link = tuple[int, int]  # (source, target), both 0-based
Matrix = NDArray[np.float32]
Pair = tuple[str, str]  # a line of the source text and its translation
Starts = Sequence[int] | NDArray[np.int64] | None  # the first piece of each word and of `</s>`; None: each is a word

THRESHOLD = 0.3  # if none is given


class LinkedPair(NamedTuple):
    """The words of a sentence pair and the hard links between them."""

    source: tuple[str, ...]
    target: tuple[str, ...]
    links: tuple[Link, ...]
    sentence_id: int = 0
    rank: int = 0  # place in an n-best list, from 0


@dataclass(frozen=True)
class AlignmentRecord:
    """A sentence pair with its soft alignment and the log-probability of the target given the source.

    `weights` (Ty+1, Tx+1): row j is target word j, the last row the target's `</s>`; column i is source word i, the
    last column the source's `</s>`; each row sums to 1. A pair with an empty side is not given to the model: its
    weights are 0, its log-probabilities NaN, and it has no links.
    `token_log_probs` (Ty+1,): natural logarithm of the probability of each target word, then of `</s>`.
    """

    source: tuple[str, ...]
    target: tuple[str, ...]
    weights: Matrix = field(compare=False)  # `==` of arrays is no truth value
    log_prob: float
    sentence_id: int
    token_log_probs: NDArray[np.float32] = field(compare=False)
    hard_links: tuple[Link, ...]
    rank: int = 0  # place in an n-best list, from 0
    link_scores: tuple[float, ...] | None = None  # the probability of each hard link, if two directions chose them

    def links(self, method: LinkMethod | None = None, threshold: float | None = None) -> list[Link]:
        """Returns hard links (source, target), sorted by target word: without arguments the stored ones.

        Otherwise they are read from the weights: "argmax" or "threshold" (see `hard_links`); a threshold without a
        method means "threshold". Raises ValueError for another method.
        """
        if method is None and threshold is None:
            return list(self.hard_links)
        if method not in (None, "argmax", "threshold"):
            raise ValueError(f"links are read by argmax or by threshold, not by {method!r}")
        return hard_links(self.weights, method or "threshold", THRESHOLD if threshold is None else threshold)

    def pharaoh(self) -> str:
        """Returns the hard links in Pharaoh's format, source first: "0-0 2-1"."""
        return format_links(self.hard_links)

    def scored_links(self) -> str:
        """Returns the line of `pharaoh`, a tab, and the probability of each: "0-0 2-1\\t0.9800 0.7143".

        The probability of a link is its weight with one model, and in every record that was read from a file, which
        does not store those of two directions. Without links the line is a tab.
        """
        scores = self.link_scores
        if scores is None:
            scores = tuple(float(self.weights[j, i]) for i, j in self.hard_links)
        return format_scored(self.hard_links, scores)

    def empty(self) -> bool:
        """Returns whether a side has no words, so that there was nothing to align."""
        return not (self.source and self.target)


def row_entropies(weights: NDArray[Any]) -> Matrix:
    """Returns the entropy of each row in nats (Ty+1,): 0 for a row of zeros."""
    exact = weights.astype(np.float64)
    logs = np.log(exact, out=np.zeros_like(exact), where=exact > 0)
    return np.asarray(-(exact * logs).sum(1), dtype=np.float32)


def hard_links(weights: NDArray[Any], method: LinkMethod = "argmax", threshold: float = THRESHOLD) -> list[Link]:
    """Returns the links that a method reads from the weights, sorted by target word, then by source word.

    `weights` (Ty+1, Tx+1) has the row and the column of `</s>` last. "argmax" gives each target word one link or none
    (NULL). "threshold" gives every link whose weight is at least `threshold`: any number per target word.
    """
    if method == "argmax":
        return argmax_links(weights)
    return links_where(weights[:-1, :-1] >= max(threshold, np.finfo(np.float32).tiny))


def argmax_links(weights: NDArray[Any]) -> list[Link]:
    """Returns a link from each target word to the source word with the largest weight, none (NULL) if that is `</s>`.

    `weights` (Ty+1, Tx+1) has the row and the column of `</s>` last. Of equal weights the first counts. A row of zeros,
    as in an empty pair, gives no link.
    """
    words = weights[:-1]
    best = words.argmax(axis=1)
    largest = words[np.arange(len(words)), best] > 0  # false for rows of zeros and for NaN
    largest &= best != words.shape[1] - 1
    linked = np.flatnonzero(largest)
    return list(zip(best[linked].tolist(), linked.tolist(), strict=True))


def links_where(chosen: NDArray[np.bool_]) -> list[Link]:
    """Returns the links at the True places of a (Ty, Tx) matrix, sorted by target word, then by source word."""
    target, source = np.nonzero(chosen)
    return list(zip(source.tolist(), target.tolist(), strict=True))


def merge_pieces(weights: NDArray[Any], source_starts: Starts, target_starts: Starts) -> Matrix:
    """Merges weights between pieces to words: sums over the pieces of a source word, means over those of a target word.

    `weights` (pieces+1, pieces+1). The row and the column of `</s>` stay, and rows that sum to 1 still do. The result
    shares no memory with `weights`.
    """
    if source_starts is not None:
        weights = np.add.reduceat(weights, source_starts, axis=1, dtype=np.float64)
    if target_starts is not None:
        sums = np.add.reduceat(weights, target_starts, axis=0, dtype=np.float64)
        weights = sums / np.diff(target_starts, append=len(weights))[:, None]
    return np.array(weights, dtype=np.float32)


def merge_log_probs(log_probs: Sequence[float] | NDArray[Any], target_starts: Starts) -> NDArray[np.float32]:
    """Returns the log-probabilities of words, each the sum over its pieces; that of `</s>`, the last, stays."""
    if target_starts is None:
        return np.array(log_probs, dtype=np.float32)
    return np.add.reduceat(log_probs, target_starts, dtype=np.float64).astype(np.float32)


def format_links(links: Iterable[Link]) -> str:
    """Returns links in Pharaoh's format, source first: "0-0 2-1"."""
    return " ".join(f"{i}-{j}" for i, j in links)


def format_scored(links: Iterable[Link], scores: Iterable[float]) -> str:
    """Returns links in Pharaoh's format, a tab, and the probability of each."""
    return f"{format_links(links)}\t{' '.join(f'{min(score, 1.0):.4f}' for score in scores)}"


@dataclass(frozen=True, slots=True)
class ModelSide:
    """One side of a pair: its tokens and their ids, its words, and where each word starts (None: each token is a word).

    `starts` (words + 1,) are places in `ids`; the last one is that of `</s>`, after all ids.
    """

    ids: Sequence[int]
    words: tuple[str, ...]
    starts: Starts
    tokens: Sequence[str]
    copies: Sequence[int] = ()  # of the source side of a copying model


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


def empty_record(pair: ModelPair) -> AlignmentRecord:
    """Returns the record of a pair with an empty side: the log-probabilities are unknown, NaN."""
    source, target = pair.source.words, pair.target.words
    weights = np.zeros((len(target) + 1, len(source) + 1), np.float32)
    unknown = np.full(len(target) + 1, np.nan, np.float32)
    return AlignmentRecord(source, target, weights, math.nan, pair.number, unknown, ())


def make_record(
    pair: ModelPair, weights: Matrix, token_log_probs: NDArray[np.float32], log_prob: float, config: AlignConfig
) -> AlignmentRecord:
    """Returns the record of a pair whose pieces and `</s>` have these weights, which are merged to words.

    Without a method of links (`config.links` is None) it has no hard links.
    """
    source, target = pair.source, pair.target
    merged = merge_pieces(weights, source.starts, target.starts)
    log_probs = merge_log_probs(token_log_probs, target.starts)
    links = hard_links(merged, config.links, config.threshold or THRESHOLD) if config.links is not None else ()
    return AlignmentRecord(source.words, target.words, merged, log_prob, pair.number, log_probs, tuple(links))


def in_order(function: Callable[[In], Out], items: Iterable[In], threads: int, ahead: int = 3) -> Iterator[Out]:
    """Yields the results in order; the threads compute at most `ahead` results each in advance."""
    rest = iter(items)
    pool = ThreadPoolExecutor(threads, "align")
    try:
        coming = deque(pool.submit(function, item) for item in islice(rest, ahead * threads))
        while coming:
            done = coming.popleft().result()
            coming.extend(pool.submit(function, item) for item in islice(rest, 1))
            yield done
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # as in `load_batches`
