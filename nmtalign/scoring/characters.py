"""The statistics of chrF and chrF++: n-grams of characters, and of words with their marks set apart."""

import string
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.ngrams import Ints, Numbered, matches
from nmtalign.scoring.sums import chrf_values

CHARACTER_ORDER, WORD_ORDER = 6, 2
_MARKS = frozenset(string.punctuation)


def character_codes(lines: Sequence[Sequence[str]]) -> Numbered:
    """The characters of lines of words, by code point + 1; white space does not count."""
    joined = ["".join(words) for words in lines]
    lengths = np.fromiter(map(len, joined), np.int64, len(joined))
    text = "\0".join([*joined, ""]).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(text, np.uint32).astype(np.int64) + 1
    codes[np.cumsum(lengths + 1) - 1] = 0
    return Numbered(codes, lengths)


def with_small_codes(texts: Sequence[Numbered]) -> list[Numbered]:
    """The texts with their different characters numbered from 1, alike in all texts."""
    seen = np.zeros(max(int(text.codes.max(initial=0)) for text in texts) + 1, np.bool_)
    for text in texts:
        seen[text.codes] = True
    seen[0] = True
    numbers = np.cumsum(seen) - 1
    return [Numbered(numbers[text.codes], text.lengths) for text in texts]


def words_and_marks(word: str) -> list[str]:
    """A word, cut at one ASCII mark at its end or else at its beginning, as chrF++ does."""
    if len(word) > 1 and word[-1] in _MARKS:
        return [word[:-1], word[-1]]
    if len(word) > 1 and word[0] in _MARKS:
        return [word[0], word[1:]]
    return [word]


def order_counts(systems: Sequence[Numbered], reference: Numbered, order: int) -> list[Ints]:
    """For each system (N, 3 order): n-grams of hypothesis and reference and their matches, for orders 1 to `order`."""
    wanted = np.stack([reference.ngrams(number) for number in range(1, order + 1)], axis=1)
    table = []
    for system, found in zip(systems, matches(systems, [reference], order), strict=True):
        counted = np.stack([system.ngrams(number) for number in range(1, order + 1)], axis=1)
        counted[wanted == 0] = 0  # without one in the reference, those of the hypothesis do not count either
        table.append(np.stack([counted, wanted, found], axis=2).reshape(len(wanted), -1))
    return table


def of_best_reference(candidates: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """(N, D) of the counts against each reference those with the best F of the sentence, the first of equal ones."""
    if len(candidates) == 1:
        return candidates[0]
    scores = np.stack([chrf_values(counts) for counts in candidates])
    best: NDArray[np.int64] = np.stack(candidates)[scores.argmax(axis=0), np.arange(scores.shape[1])]
    return best
