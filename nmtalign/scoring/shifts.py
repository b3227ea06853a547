"""The shifts of TER: which block of a hypothesis to move where, for many pairs of sentences at once.

The search is Tercom's as sacreBLEU has it: blocks of up to ten words that occur in the reference as well, moved to
where the alignment puts their place there; the move that saves most edits is made, and the search begins again.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring import edit_distance
from nmtalign.scoring.edit_distance import (
    Alignment,
    Band,
    Bits,
    Numbers,
    Table,
    advance,
    align,
    band_of,
    count_bits,
    distance,
    fill_table,
    low_bits,
    pack,
    word_type,
)

LONGEST = 10  # words of a block
FARTHEST = 50  # words between the block's places in hypothesis and reference
MOST = 1000  # moves that are tried for one pair; the search ends where it has tried them
_BLOCK = 8192  # moves whose distances are computed side by side: what the processor's cache holds
_FEW = 2000  # moves that are sooner all tried than those of one word after the others
_MATCHES = 50_000  # pairs of equal words looked at side by side, so that memory stays small on any text


@dataclass(frozen=True)
class _Pairs:
    """Pairs of sentences, longest hypothesis first, in the state that the shifts have brought them to."""

    numbers: Numbers  # (P,): which pairs these are
    equal: Bits  # (W, M, P): the words of the reference equal to each word of the hypothesis
    lengths: Numbers  # (P,) of the hypotheses
    reference_lengths: Numbers  # (P,)
    band: Band | None  # None where the band holds every cell of every table
    tried: Numbers  # (P,): moves that were looked at
    shifts: Numbers  # (P,): moves that were made
    least: Numbers  # (P,): no order of the words has fewer edits

    @property
    def reference_bits(self) -> Bits:
        return low_bits(self.reference_lengths, len(self.equal), self.equal.dtype)

    def select(self, chosen: Numbers) -> "_Pairs":
        return _Pairs(
            self.numbers[chosen],
            self.equal.take(chosen, axis=2),
            self.lengths[chosen],
            self.reference_lengths[chosen],
            self.band and self.band.select(chosen),
            self.tried[chosen],
            self.shifts[chosen],
            self.least[chosen],
        )


@dataclass(frozen=True)
class _Moves:
    """Moves of a block of words; every field is (C,)."""

    pair: Numbers
    start: Numbers  # of the block in the hypothesis
    length: Numbers
    target: Numbers  # the word before which it is put
    first: Numbers  # words first..middle and middle..end change places
    middle: Numbers
    end: Numbers

    def select(self, chosen: Numbers) -> "_Moves":
        return _Moves(*(getattr(self, name)[chosen] for name in self.__dataclass_fields__))


def edits(hypotheses: NDArray[np.int32], references: NDArray[np.int32], sizes: tuple[Numbers, Numbers]) -> Numbers:
    """The least shifts and edits that the search finds, (P,).

    hypotheses, references: word numbers, (P, M) and (P, N), padded with -1 and -2; sizes: their lengths, (P,) each,
    all above nought.
    """
    order = np.argsort(-sizes[0], kind="stable")
    pairs = _prepare(hypotheses[order], references[order], sizes[0][order], sizes[1][order], order)
    result = np.zeros(len(order), dtype=np.intp)
    while len(pairs.numbers):
        reference_bits = pairs.reference_bits
        table = fill_table(pairs.equal, pairs.lengths, reference_bits, pairs.band)
        result[pairs.numbers] = pairs.shifts + table.distance
        chosen = np.flatnonzero(table.distance > pairs.least)
        pairs, table = pairs.select(chosen), table.select(chosen)
        if len(chosen):
            pairs = _shift(pairs, table)
    return result


def _prepare(
    hypotheses: NDArray[np.int32], references: NDArray[np.int32], lengths: Numbers, reference_lengths: Numbers,
    order: Numbers,
) -> _Pairs:  # fmt: skip
    longest = int(reference_lengths.max())
    kind = word_type(longest)
    words = -(-longest // (8 * kind.itemsize))
    equal = np.empty((words, hypotheses.shape[1], len(order)), dtype=kind)
    for row in range(hypotheses.shape[1]):
        equal[:, row] = pack(hypotheses[:, row, None] == references, words, kind)
    band = band_of(lengths, reference_lengths, words, kind)
    bits = low_bits(reference_lengths, words, kind)
    whole = not (bits[:, None] & ~band.diagonal)[:, np.arange(hypotheses.shape[1])[:, None] < lengths].any()
    zeros = np.zeros(len(order), dtype=np.intp)
    least = np.maximum(lengths, reference_lengths) - _common_words(hypotheses, equal)
    return _Pairs(order, equal, lengths, reference_lengths, None if whole else band, zeros, zeros, least)


def _common_words(hypotheses: NDArray[np.int32], equal: Bits) -> Numbers:
    """The number of words that hypothesis and reference share in any order, (P,)."""
    available = count_bits(equal)
    common = np.zeros(len(hypotheses), dtype=np.intp)
    for row in range(hypotheses.shape[1]):
        earlier = (hypotheses[:, :row] == hypotheses[:, row, None]).sum(axis=1)
        common += earlier < available[row]
    return common


def _shift(pairs: _Pairs, table: Table) -> _Pairs:
    """Make the best move of every pair; those without one are left out."""
    path = align(pairs.equal, table, pairs.lengths, pairs.reference_bits, pairs.band)
    tried = pairs.tried.copy()
    best = np.zeros(len(tried), dtype=np.int64)
    for blocks in _blocks(pairs, path):
        tried += _count_moves(path, blocks, len(tried))
        moves = _moves(pairs, path, blocks.take(np.flatnonzero(tried[blocks[0]] < MOST), axis=1))
        longer = moves.length > 1
        for part in (longer, ~longer) if len(longer) > _FEW else (longer | True,):
            _try(pairs, table, moves.select(np.flatnonzero(part)), best)
    chosen = np.flatnonzero((best > 0) & (tried < MOST))
    pairs = replace(pairs, tried=tried).select(chosen)
    return _move(pairs, best[chosen])


def _try(pairs: _Pairs, table: Table, moves: _Moves, best: NDArray[np.int64]) -> None:
    """Raise `best` (P,), the rank of the best move of each pair, by these moves.

    Many moves cannot win, and their distances are not needed: a word that goes takes away at most one edit where it
    was and one where it is put, and the words that a block passes may as well be taken to move. That is so where the
    band does not raise the distance; it does not where so few insertions and deletions are needed that no shortest
    path comes near its rim.
    """
    widest = table.distance + np.abs(pairs.reference_lengths - pairs.lengths)
    free = (widest <= 2 * edit_distance.BAND - 4) | (pairs.band is None)
    most = (table.distance - pairs.least)[moves.pair]
    exchanged = 2 * np.minimum(moves.middle - moves.first, moves.end - moves.middle)
    most = np.where(free[moves.pair], np.minimum(most, exchanged), most)
    moves = moves.select(np.flatnonzero(_rank(moves, most) > best[moves.pair]))
    order = np.argsort(moves.first - pairs.lengths[moves.pair], kind="stable")
    for begin in range(0, len(order), _BLOCK):
        window = moves.select(order[begin : begin + _BLOCK])
        saved = table.distance[window.pair] - _distances(pairs, table, window)
        better = np.flatnonzero(saved > 0)
        np.maximum.at(best, window.pair[better], _rank(window, saved)[better])


def _rank(moves: _Moves, saved: Numbers) -> NDArray[np.int64]:
    """One number a move: the most edits saved, then the longest block, the earliest block, the earliest target."""
    rest = (1 << 20) - 1
    return (((saved << 4 | moves.length) << 20 | (rest - moves.start)) << 20) | (rest - moves.target)


def _move(pairs: _Pairs, rank: NDArray[np.int64]) -> _Pairs:
    """Make the moves of these ranks, one a pair."""
    rest = (1 << 20) - 1
    target, start, length = rest - (rank & rest), rest - (rank >> 20 & rest), rank >> 40 & 15
    first, middle, end = _rotation(start, length, target, pairs.lengths)
    row = np.arange(pairs.equal.shape[1])[:, None]
    moved = np.where(row < first + end - middle, row + middle - first, row - end + middle)
    source = np.where((row >= first) & (row < end), moved, row)
    cells = source * len(rank) + np.arange(len(rank))
    equal = pairs.equal.reshape(len(pairs.equal), -1).take(cells, axis=1)
    return replace(pairs, equal=equal, shifts=pairs.shifts + 1)


def _rotation(start: Numbers, length: Numbers, target: Numbers, lengths: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """Which neighbouring stretches a move exchanges: first..middle and middle..end.

    A target inside the block moves it on by as many words as the target lies after its start, as in sacreBLEU.
    """
    back = target < start
    after = start + length
    onward = np.where(target > after, target, np.minimum(lengths, length + target))
    return np.where(back, target, start), np.where(back, start, after), np.where(back, after, onward)


def _blocks(pairs: _Pairs, path: Alignment) -> Iterator[Numbers]:
    """The blocks that may be moved, as rows pair, start, start in the reference, length: (4, C) a part of the pairs."""
    counts = count_bits(pairs.equal).sum(axis=0)
    part = (counts.cumsum() - counts) // _MATCHES
    for number in range(int(part[-1]) + 1):
        begin, end = np.searchsorted(part, [number, number + 1])
        if begin < end:
            yield _blocks_of(pairs, path, int(begin), int(end))


def _blocks_of(pairs: _Pairs, path: Alignment, begin: int, end: int) -> Numbers:
    same, rows, width = _octets(pairs.equal[:, :, begin:end])
    cells = _set_bits(_octets(path.free[:, :, begin:end])[0])
    wrong = _sums(path.wrong[begin:end])
    missed = _sums(path.missed[begin:end])
    rest, column = np.divmod(cells, width)
    pair, row = np.divmod(rest, rows)
    aligned = path.places[begin:end].ravel()[pair * path.places.shape[1] + column + 1] - 1
    keep = np.flatnonzero((aligned != row) & (np.abs(column - row) <= FARTHEST))
    blocks = np.stack((pair, row, column, aligned, cells)).take(keep, axis=1)
    found = []
    for length in range(1, LONGEST + 1):
        pair, row, column, aligned, cells = blocks
        errors = wrong[pair, row + length] > wrong[pair, row]
        errors &= missed[pair, column + length] > missed[pair, column]
        chosen = np.flatnonzero(errors)
        found.append(np.stack((pair[chosen], row[chosen], column[chosen], np.full(len(chosen), length))))
        inside = np.flatnonzero((row + length < rows) & (column + length < width) & (aligned != row + length))
        cells = cells[inside] + length * (width + 1)
        blocks = blocks.take(inside[(same[cells >> 3] >> (cells & 7) & 1) == 1], axis=1)
        if not blocks.size:
            break
    result = np.concatenate(found, axis=1)
    result[0] += begin
    return result


def _octets(values: Bits) -> tuple[NDArray[np.uint8], int, int]:
    """Words (W, M, P) as bytes in the order pair, row, column, and the numbers of rows and columns."""
    words, rows, _ = values.shape
    ordered = np.ascontiguousarray(values.transpose(2, 1, 0))
    return ordered.view(np.uint8).ravel(), rows, 8 * words * values.dtype.itemsize


def _set_bits(octets: NDArray[np.uint8]) -> Numbers:
    """The places of the bits that are set; most bytes are nought, which is what makes this fast."""
    filled = np.flatnonzero(octets != 0)
    bits = np.flatnonzero(np.unpackbits(octets[filled], bitorder="little"))
    places: Numbers = (filled[bits >> 3] << 3) + (bits & 7)
    return places


def _sums(flags: NDArray[np.bool_]) -> Numbers:
    """How many flags are set before each place: (P, N) to (P, N + 1)."""
    sums = np.zeros((flags.shape[0], flags.shape[1] + 1), dtype=np.intp)
    np.cumsum(flags, axis=1, out=sums[:, 1:])
    return sums


def _count_moves(path: Alignment, blocks: Numbers, pairs: int) -> Numbers:
    """The moves of each pair, (P,): a block goes to every place that the alignment gives its words in the reference."""
    pair, _, column, length = blocks
    new = _sums(path.places[:, 1:] != path.places[:, :-1])
    counts = 1 + new[pair, column + length] - new[pair, column]
    return np.bincount(pair, weights=counts, minlength=pairs).astype(np.intp)


def _moves(pairs: _Pairs, path: Alignment, blocks: Numbers) -> _Moves:
    """The moves of the blocks that change the hypothesis."""
    repeats = blocks[3] + 1
    pair, start, column, length = blocks.take(np.repeat(np.arange(len(repeats)), repeats), axis=1)
    offset = np.arange(len(pair)) - np.repeat(repeats.cumsum() - repeats, repeats)
    place = pair * path.places.shape[1] + column + offset
    places = path.places.ravel()
    target = places[place]
    new = (offset == 0) | (target != places[place - 1])
    first, middle, end = _rotation(start, length, target, pairs.lengths[pair])
    keep = np.flatnonzero(new & (first < middle) & (middle < end))
    return _Moves(*(values[keep] for values in (pair, start, length, target, first, middle, end)))


def _distances(pairs: _Pairs, table: Table, moves: _Moves) -> Numbers:
    """The edit distances after the moves; they are sorted by the number of words from `first` on, most first.

    The table before the first word that changes is the one there is.
    """
    words, rows, width = pairs.equal.shape
    equal = pairs.equal.reshape(words, rows * width)
    band = None if pairs.band is None else pairs.band.diagonal.reshape(words, rows * width)
    cell = moves.first * width + moves.pair
    up, down = (values.reshape(words, -1).take(cell, axis=1) for values in (table.up, table.down))
    level, longer, same = np.empty_like(up), np.empty_like(up), np.empty_like(up)
    scratch = np.empty((2, len(cell)), dtype=up.dtype)
    lengths = pairs.lengths[moves.pair]
    left = lengths - moves.first
    source = cell + (moves.middle - moves.first) * width
    jumps = _jumps(moves, width, int(left[0]))
    for step, count in enumerate(np.searchsorted(-left, -np.arange(int(left[0]))).tolist()):
        if step in jumps:
            where, by = jumps[step]
            source[where] += by
        for word in range(words):
            equal[word].take(source[:count], out=same[word, :count], mode="clip")  # "clip" is the fast one
            if band is not None:
                band[word].take(cell[:count], out=scratch[0, :count], mode="clip")
                same[word, :count] &= scratch[0, :count]
        here = np.s_[:, :count]
        state = up[here], down[here]
        advance(same[here], state, state, (level[here], longer[here]), scratch[here])
        source += width
        cell += width
    return distance(up, down, lengths, pairs.reference_bits.take(moves.pair, axis=1))


def _jumps(moves: _Moves, width: int, steps: int) -> dict[int, tuple[Numbers, Numbers]]:
    """Where the words of moved hypotheses stop following one another: step -> (moves, cells to go on by)."""
    before, after = moves.middle - moves.first, moves.end - moves.middle
    step = np.concatenate((after, before + after))
    by = np.concatenate((-(before + after) * width, after * width))
    move = np.tile(np.arange(len(before)), 2)
    order = np.argsort(step, kind="stable")
    bounds = np.searchsorted(step[order], np.arange(steps + 1))
    return {
        number: (move[order[begin:end]], by[order[begin:end]])
        for number, (begin, end) in enumerate(zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True))
        if begin < end
    }
