"""Hard links from soft weights, subword pieces merged to words, and the Pharaoh format.

A link is a pair (i, j): source word i and target word j, both counted from 0. `</s>` has no links.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.config import LinkMethod
from nmtalign.errors import InputError

Link = tuple[int, int]  # (source, target), both 0-based
Matrix = NDArray[np.float32]

THRESHOLD = 0.3  # for those who give none
_WORDS_AT_ONCE = 256  # target words whose weights are summed together, in float64: of a long line all would be many GB
_LINK = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)


def hard_links(
    weights: NDArray[Any], method: LinkMethod = "argmax", threshold: float = THRESHOLD, end: bool = True
) -> list[Link]:
    """The links that a method reads off the weights, by target word, then by source word.

    `weights` (Ty+1, Tx+1) with the row and the column of `</s>` last, or (Ty, Tx) where `end` is False. "argmax": one
    link a target word or none; "threshold": every link whose weight is at least `threshold`, in whatever row.
    """
    return argmax_links(weights, end) if method == "argmax" else threshold_links(weights, threshold, end)


def argmax_links(weights: NDArray[Any], end: bool = True) -> list[Link]:
    """One link a target word, to the source word with the largest weight, or none (NULL) where `</s>` has the largest.

    `weights` (Ty+1, Tx+1) with the row and the column of `</s>` last, or (Ty, Tx) where `end` is False: then no word is
    NULL. Of equal weights the first counts. A row of zeros, as an empty pair has, gives no link.
    """
    words = weights[:-1] if end else weights
    if not words.size:
        return []
    best = words.argmax(axis=1)
    largest = words[np.arange(len(words)), best] > 0  # not so where there is nothing, or no number
    if end:
        largest &= best != words.shape[1] - 1
    linked = np.flatnonzero(largest)
    return list(zip(best[linked].tolist(), linked.tolist(), strict=True))


def threshold_links(weights: NDArray[Any], threshold: float, end: bool = True) -> list[Link]:
    """Every link whose weight is at least `threshold`, which is a part of the row's whole: any number a target word.

    `weights` as for `argmax_links`. A target word whose weights are all smaller is NULL; `</s>` has no links.
    """
    words = weights[:-1, :-1] if end else weights
    target, source = np.nonzero(words >= max(threshold, np.finfo(np.float32).tiny))
    return list(zip(source.tolist(), target.tolist(), strict=True))


def drop_end(weights: NDArray[Any]) -> Matrix:
    """(Ty, Tx) of weights (Ty+1, Tx+1): those between words alone, each row summing to 1 again.

    A row that has all its weight on `</s>` becomes 0.
    """
    words = weights[:-1, :-1].astype(np.float64)
    total = words.sum(axis=1, keepdims=True)
    np.divide(words, total, out=words, where=total > 0)
    return words.astype(np.float32)


def sharpened(weights: NDArray[Any], temperature: float) -> Matrix:
    """The weights to the power 1 / temperature, each row (the last axis) summing to what it summed to, 1 or 0.

    It is the softmax with its energies divided by the temperature: below 1 sharper, above flatter. Zeros stay zeros.
    """
    largest = weights.max(axis=-1, keepdims=True, initial=0)
    scaled = np.divide(weights, largest, out=np.zeros(weights.shape), where=largest > 0)
    scaled **= 1 / temperature
    total = scaled.sum(axis=-1, keepdims=True)
    np.divide(scaled, total, out=scaled, where=total > 0)
    return np.asarray(scaled, dtype=np.float32)


def merge_pieces(weights: NDArray[Any], source_word_index: Sequence[int], target_word_index: Sequence[int]) -> Matrix:
    """The weights between words: summed over the pieces of a source word, averaged over those of a target word.

    `weights` (pieces+1, pieces+1); an index holds for each piece the number of its word, from 0, rising. The row and
    the column of `</s>` stay a word of their own, and rows that sum to 1 still do. A word without pieces gets zeros.
    """
    columns, rows = _with_end(source_word_index), _with_end(target_word_index)
    if all(np.array_equal(index, np.arange(len(index))) for index in (columns, rows)):  # each piece is a word
        return np.asarray(weights, dtype=np.float32)
    starts = [np.flatnonzero(np.diff(index, prepend=-1)) for index in (columns, rows)]
    found = merge_starts(weights, *starts)
    shape = rows[-1] + 1, columns[-1] + 1
    if found.shape == shape:
        return found
    merged = np.zeros(shape, dtype=np.float32)
    merged[np.ix_(rows[starts[1]], columns[starts[0]])] = found
    return merged


def merge_starts(
    weights: NDArray[Any], source_starts: NDArray[np.int64] | None, target_starts: NDArray[np.int64] | None
) -> Matrix:
    """The same of places where words start: rising, none twice, that of `</s>` last; None where each piece is a word.

    What comes back shares no memory with `weights`.
    """
    if target_starts is None:
        if source_starts is None:
            return np.array(weights, dtype=np.float32)
        target_starts = np.arange(len(weights))
    words = len(target_starts)
    merged = np.empty((words, weights.shape[1] if source_starts is None else len(source_starts)), dtype=np.float32)
    bounds = np.append(target_starts, len(weights))
    for first in range(0, words, _WORDS_AT_ONCE):
        own = bounds[first : first + _WORDS_AT_ONCE + 1]
        rows = weights[own[0] : own[-1]]
        if source_starts is not None:
            rows = np.add.reduceat(rows, source_starts, axis=1, dtype=np.float64)
        sums = np.add.reduceat(rows, own[:-1] - own[0], axis=0, dtype=np.float64)
        np.divide(sums, np.diff(own)[:, None], out=merged[first : first + _WORDS_AT_ONCE], casting="same_kind")
    return merged


def merge_log_probs(log_probs: NDArray[Any], target_word_index: Sequence[int]) -> NDArray[np.float32]:
    """The log-probabilities of words: summed over the pieces of each; that of `</s>`, the last, stays."""
    return np.bincount(_with_end(target_word_index), weights=log_probs).astype(np.float32)


def _with_end(word_index: Sequence[int]) -> NDArray[np.int64]:
    """The index with `</s>`, the last piece and the last word."""
    return np.array([*word_index, max(word_index, default=-1) + 1], dtype=np.int64)


def format_links(links: Iterable[Link]) -> str:
    """Links in Pharaoh's format, source first: "0-0 2-1"."""
    return " ".join(f"{i}-{j}" for i, j in links)


def parse_links(text: str, where: str) -> list[Link]:
    """The links of a line in Pharaoh's format; raises InputError that starts with `where` (file and line)."""
    return [_parse_link(part, where) for part in text.split()]


def _parse_link(part: str, where: str) -> Link:
    match = _LINK.fullmatch(part)
    if not match:
        raise InputError(f"{where}: {part!r} is not a link; write source-target, counted from 0, as in 0-0 2-1")
    return int(match[1]), int(match[2])
