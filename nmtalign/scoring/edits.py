"""The statistics of TER, equal to sacreBLEU's and some hundred times as fast.

sacreBLEU looks at one sentence, one move of a block and one cell of a table at a time. Here the sentences of about
the same length go through the same steps side by side in numpy (shifts.py), on tables of bits (edit_distance.py).
"""

import functools
import itertools
from collections import defaultdict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.edit_distance import Numbers
from nmtalign.scoring.shifts import edits

_CELLS = 16_000_000  # of the tables of one batch: bounds its memory
_PAIRS = 4096  # of one batch
_FEW = 500  # pairs that are no batch of their own


def ter_statistics(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> NDArray[np.float64]:
    """The least edits over the references and their mean length in words, (N, 2), as sacreBLEU's TER counts them.

    `references` holds one or more sequences of lines. Options are sacreBLEU's defaults: lower case, no tokenising.
    """
    texts: dict[tuple[str, str], int] = {}
    table = np.empty((len(hypotheses), len(references)), dtype=np.intp)
    for column, lines in enumerate(references):
        for row, pair in enumerate(zip(hypotheses, lines, strict=True)):
            table[row, column] = texts.setdefault(pair, len(texts))
    pairs = _numbered(list(texts))
    counts = np.array([_simple(*pair) for pair in pairs], dtype=np.intp)
    for batch in _batches([number for number, count in enumerate(counts) if count < 0], pairs):
        counts[batch] = edits(*_padded([pairs[number] for number in batch]))
    lengths = np.array([len(reference) for _, reference in pairs], dtype=np.intp)
    if not len(table):
        return np.zeros((0, 2))
    return np.stack((counts[table].min(axis=1), lengths[table].sum(axis=1) / len(references)), axis=1)


def _numbered(texts: Sequence[tuple[str, str]]) -> list[tuple[list[int], list[int]]]:
    """The words of hypotheses and references as numbers."""
    numbers: defaultdict[str, int] = defaultdict(itertools.count().__next__)

    @functools.cache  # the references of several systems are the same
    def words(text: str) -> list[int]:
        return [numbers[word] for word in text.rstrip().lower().split()]

    return [(words(hypothesis), words(reference)) for hypothesis, reference in texts]


def _simple(hypothesis: list[int], reference: list[int]) -> int:
    """The edits where they need no search, else -1."""
    if not hypothesis or not reference:
        return len(hypothesis) + len(reference)
    return 0 if hypothesis == reference else -1


def _batches(numbers: list[int], pairs: Sequence[tuple[list[int], list[int]]]) -> Iterator[list[int]]:
    """The pairs in batches of like lengths."""
    bounds = _bounds(np.array([len(pairs[number][1]) for number in numbers], dtype=np.intp))

    def size(number: int) -> tuple[int, int]:
        hypothesis, reference = pairs[number]
        return _up(len(reference), bounds), max(64, _up(len(hypothesis), bounds))

    numbers = sorted(numbers, key=size)
    begin = 0
    while begin < len(numbers):
        kind = size(numbers[begin])
        most = max(1, min(_PAIRS, _CELLS // (kind[0] * kind[1])))
        end = begin
        while end < len(numbers) and end - begin < most and size(numbers[end]) == kind:
            end += 1
        yield numbers[begin:end]
        begin = end


def _bounds(lengths: Numbers) -> list[int]:
    """The lengths that go together: up to 24 words the band holds all, and 32 and 64 are the bits of a number.

    A batch takes a time of its own, so that a few pairs sooner go with the longer ones.
    """
    bounds, below = [], 0
    for bound in (24, 32):
        count = int((lengths <= bound).sum())
        if count - below >= _FEW:
            bounds.append(bound)
            below = count
    return [*bounds, 64]


def _up(length: int, bounds: Sequence[int]) -> int:
    return next((bound for bound in bounds if length <= bound), 64 * -(-length // 64))


def _padded(
    pairs: Sequence[tuple[list[int], list[int]]],
) -> tuple[NDArray[np.int32], NDArray[np.int32], tuple[Numbers, Numbers]]:
    sides = [[pair[side] for pair in pairs] for side in (0, 1)]
    sizes = [np.array([len(words) for words in side], dtype=np.intp) for side in sides]
    tables = []
    for side, size, filler in zip(sides, sizes, (-1, -2), strict=True):
        table = np.full((len(side), int(size.max())), filler, dtype=np.int32)
        table[np.arange(table.shape[1]) < size[:, None]] = np.fromiter(itertools.chain.from_iterable(side), np.int32)
        tables.append(table)
    return tables[0], tables[1], (sizes[0], sizes[1])
