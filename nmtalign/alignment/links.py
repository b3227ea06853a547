"""Hard links from soft weights, subword pieces merged to words, and the Pharaoh format.

A link is a pair (i, j): source word i and target word j, both counted from 0. `</s>` has no links.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.alignment.record import Link, Matrix
from nmtalign.errors import InputError

_WORDS_AT_ONCE = 256  # target words whose weights are summed together, in float64: of a long line all would be many GB
_LINK = re.compile(r"(\d{1,9})-(\d{1,9})", re.ASCII)


def argmax_links(weights: NDArray[Any]) -> list[Link]:
    """One link a target word, to the source word with the largest weight, or none (NULL) where `</s>` has the largest.

    `weights` (Ty+1, Tx+1) with the row and the column of `</s>` last. Of equal weights the first counts. A row of
    zeros, as an empty pair has, gives no link.
    """
    words = weights[:-1]
    best = words.argmax(axis=1)
    null = words.shape[1] - 1
    return [(int(i), j) for j, i in enumerate(best) if i != null and words[j, i] > 0]


def merge_pieces(weights: NDArray[Any], source_word_index: Sequence[int], target_word_index: Sequence[int]) -> Matrix:
    """The weights between words: summed over the pieces of a source word, averaged over those of a target word.

    `weights` (pieces+1, pieces+1); an index holds for each piece the number of its word, from 0, rising. The row and
    the column of `</s>` stay a word of their own, and rows that sum to 1 still do.
    """
    columns, rows = _with_end(source_word_index), _with_end(target_word_index)
    if all(np.array_equal(index, np.arange(len(index))) for index in (columns, rows)):  # each piece is a word
        return np.asarray(weights, dtype=np.float32)
    merged = np.empty((rows[-1] + 1, columns[-1] + 1), dtype=np.float32)
    for first in range(0, len(merged), _WORDS_AT_ONCE):
        words = merged[first : first + _WORDS_AT_ONCE]
        start, stop = np.searchsorted(rows, (first, first + len(words)))
        words[:] = _merged(weights[start:stop], columns, rows[start:stop] - first, words.shape)
    return merged


def _merged(weights: NDArray[Any], columns: NDArray[Any], rows: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """The same for some target words alone; float64."""
    summed = np.zeros((shape[1], len(rows)))
    np.add.at(summed, columns, weights.T)
    merged = np.zeros(shape)
    np.add.at(merged, rows, summed.T)
    pieces = np.bincount(rows, minlength=shape[0])[:, None]
    return np.asarray(merged / np.maximum(pieces, 1))  # a word without pieces keeps weights of 0


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
