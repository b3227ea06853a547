"""Edit distances and alignments of many pairs of sentences at once, in bits.

A column of the table of edit distances is two words of bits, one bit a word of the reference: where the distance
grows by one from a word to the next and where it falls by one. A word of the hypothesis then costs sixteen
operations on whole words of bits (Myers 1999, in the form of Hyyrö 2003), and numpy does them for all pairs.

Like Tercom and sacreBLEU, the table is only looked at in a band around its diagonal. A path that leaves the band
pays for every step outside it, and along the rim of the band there is a path that pays no more. It is therefore
enough to forbid equal words outside the band (`Band.diagonal`): distances inside are then those of the band.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

BAND = 25  # words of the reference on either side of the diagonal, as in Tercom

Bits = NDArray[np.unsignedinteger]
Numbers = NDArray[np.intp]


@dataclass(frozen=True)
class Band:
    """What the band leaves of the moves into the cells of a table; a bit is a word of the reference."""

    diagonal: Bits  # (W, M, P): the cell and the one before it in both sentences are in the band
    deletion: Bits  # (W, M, P): the cell before it in the hypothesis is in the band

    def select(self, pairs: NDArray[np.intp]) -> "Band":
        return Band(self.diagonal.take(pairs, axis=2), self.deletion.take(pairs, axis=2))


@dataclass(frozen=True)
class Table:
    """The tables of edit distances of P pairs, a row a word of the hypothesis, as bits in W words a row."""

    up: Bits  # (W, M + 1, P): the distance grows by one from a word of the reference to the next
    down: Bits  # (W, M + 1, P): it falls by one
    level: Bits  # (W, M, P): it is that of the cell before in both sentences
    longer: Bits  # (W, M, P): it is one more than that of the cell before in the hypothesis
    distance: Numbers  # (P,)

    def select(self, pairs: Numbers) -> "Table":
        up, down, level, longer = (
            values.take(pairs, axis=2) for values in (self.up, self.down, self.level, self.longer)
        )
        return Table(up, down, level, longer, self.distance[pairs])


@dataclass(frozen=True)
class Alignment:
    """The path that sacreBLEU takes through a table."""

    wrong: NDArray[np.bool_]  # (P, M): words of the hypothesis that the path does not keep
    missed: NDArray[np.bool_]  # (P, N): words of the reference that it does not reach by a kept word
    places: Numbers  # (P, N + 1): words of the hypothesis passed when 0..N words of the reference are
    free: Bits  # (W, M, P): the words of the reference equal to each word of the hypothesis, but for the kept one


def word_type(length: int) -> np.dtype[np.unsignedinteger]:
    """The unsigned integers that hold a reference of so many words; little-endian, as their bytes are looked at."""
    return np.dtype("<u4") if length <= 32 else np.dtype("<u8")


def count_bits(values: Bits) -> Numbers:
    """The number of bits set in (W, ...) words, over the W words of each; (...)."""
    if hasattr(np, "bitwise_count"):
        counts = np.bitwise_count(values)
    else:  # numpy 1
        octets = np.ascontiguousarray(values)[..., None].view(np.uint8)
        counts = np.unpackbits(octets, axis=-1).sum(axis=-1)
    result: Numbers = np.sum(counts, axis=0, dtype=np.intp)
    return result


def low_bits(counts: Numbers, words: int, kind: np.dtype[np.unsignedinteger]) -> Bits:
    """Words of bits with the lowest `counts` (...) bits set; (W, ...)."""
    size = 8 * kind.itemsize
    table = np.array([(1 << count) - 1 for count in range(size + 1)], dtype=kind)
    return np.stack([table[np.clip(counts - size * word, 0, size)] for word in range(words)])


def unpack(values: Bits) -> NDArray[np.uint8]:
    """The bits of (W, ...) words as 0 and 1: (..., W * bits of a word)."""
    octets = np.ascontiguousarray(np.moveaxis(values, 0, -1)).view(np.uint8)
    return np.unpackbits(octets, axis=-1, bitorder="little")


def pack(flags: NDArray[np.bool_], words: int, kind: np.dtype[np.unsignedinteger]) -> Bits:
    """Flags (..., N) as words of bits, (W, ...)."""
    octets = np.packbits(flags, axis=-1, bitorder="little")
    whole = np.zeros((*octets.shape[:-1], words * kind.itemsize), dtype=np.uint8)
    whole[..., : octets.shape[-1]] = octets
    return np.ascontiguousarray(np.moveaxis(whole.view(kind), -1, 0))


def band_of(lengths: Numbers, reference_lengths: Numbers, words: int, kind: np.dtype[np.unsignedinteger]) -> Band:
    """The band of sacreBLEU's tables for hypotheses and references of these lengths, all above nought."""
    rows = np.arange(lengths.max(initial=0) + 1)[:, None]
    ratio = reference_lengths / lengths
    width = np.where(ratio / 2 > BAND, np.ceil(ratio / 2 + BAND), BAND).astype(np.intp)
    middle = np.floor(rows * ratio).astype(np.intp)
    first = np.maximum(0, middle - width)
    end = np.minimum(reference_lengths + 1, middle + width)
    end = np.where((rows == 0) | (rows == lengths), reference_lengths + 1, end)
    first[0] = 0
    # Bit j - 1 stands for column j of the table.
    from_column = np.maximum(first[1:], first[:-1] + 1) - 1
    to_column = np.maximum(np.minimum(end[1:], end[:-1] + 1) - 1, from_column)
    diagonal = low_bits(to_column, words, kind) & ~low_bits(from_column, words, kind)
    deletion = low_bits(end[:-1] - 1, words, kind) & ~low_bits(np.maximum(first[:-1] - 1, 0), words, kind)
    return Band(diagonal, deletion)


def advance(
    equal: Bits, before: tuple[Bits, Bits], after: tuple[Bits, Bits], moves: tuple[Bits, Bits], scratch: Bits
) -> None:
    """One more word of the hypotheses: from `before` (up, down) to `after`, which may be the same; all (W, C).

    `equal` has the bits of the equal words of the reference; `moves` (level, longer) is filled; `scratch` is (2, C).
    """
    spare, shifted = scratch
    one = equal.dtype.type(1)
    top = equal.dtype.type(8 * equal.dtype.itemsize - 1)
    carry: Bits | None = None
    longer_in: Bits | np.unsignedinteger = one
    shorter_in: Bits | None = None
    for word in range(len(equal)):
        same, up, down = equal[word], before[0][word], before[1][word]
        level, longer = moves[0][word], moves[1][word]
        np.bitwise_and(same, up, out=level)
        np.add(level, up, out=level)
        if len(equal) > 1:
            carry = _carried(level, up, carry)
        np.bitwise_xor(level, up, out=level)
        np.bitwise_or(level, same, out=level)
        np.bitwise_or(level, down, out=level)
        np.bitwise_or(level, up, out=longer)
        np.invert(longer, out=longer)
        np.bitwise_or(longer, down, out=longer)
        np.bitwise_and(level, up, out=spare)
        out_longer, out_shorter = (longer >> top, spare >> top) if len(equal) > 1 else (one, None)
        np.left_shift(longer, one, out=shifted)
        np.bitwise_or(shifted, longer_in, out=shifted)
        np.left_shift(spare, one, out=spare)
        if shorter_in is not None:
            np.bitwise_or(spare, shorter_in, out=spare)
        np.bitwise_and(shifted, level, out=after[1][word])
        np.bitwise_or(shifted, level, out=shifted)
        np.invert(shifted, out=shifted)
        np.bitwise_or(shifted, spare, out=after[0][word])
        longer_in, shorter_in = out_longer, out_shorter


def _carried(total: Bits, term: Bits, carry: Bits | None) -> Bits:
    """Add the carry of the word before to `total`, a sum with `term`, in place; return the carry to the next."""
    over = total < term
    if carry is not None:
        np.add(total, carry, out=total)
        over |= total < carry
    return over.astype(total.dtype)


def fill_table(equal: Bits, lengths: Numbers, reference_bits: Bits, band: Band | None) -> Table:
    """The tables of hypotheses of `lengths` (P,), longest first; equal: (W, M, P); reference_bits: (W, P)."""
    words, rows, pairs = equal.shape
    up = np.empty((words, rows + 1, pairs), dtype=equal.dtype)
    down = np.empty_like(up)
    up[:, 0], down[:, 0] = ~equal.dtype.type(0), 0
    level, longer = np.empty_like(equal), np.empty_like(equal)
    scratch = np.empty((2, pairs), dtype=equal.dtype)
    allowed = equal if band is None else equal & band.diagonal
    for row, count in enumerate(_longer_than(lengths, rows)):
        here = np.s_[:, row, :count]
        following = np.s_[:, row + 1, :count]
        advance(
            allowed[here], (up[here], down[here]), (up[following], down[following]), (level[here], longer[here]),
            scratch[:, :count],
        )  # fmt: skip
    column = np.arange(pairs)
    ends = up[:, lengths, column], down[:, lengths, column]
    return Table(up, down, level, longer, distance(ends[0], ends[1], lengths, reference_bits))


def distance(up: Bits, down: Bits, lengths: Numbers, reference_bits: Bits) -> Numbers:
    """The edit distances from the last rows of tables, (W, C) each; lengths: (C,) of the hypotheses."""
    return lengths + count_bits(up & reference_bits) - count_bits(down & reference_bits)


def align(equal: Bits, table: Table, lengths: Numbers, reference_bits: Bits, band: Band | None) -> Alignment:
    """The path through each table from its end: kept or replaced word first, then deletion, then insertion.

    Insertions in a row are passed in one step: the next word of the reference that is not inserted is the highest
    bit of those that are still to come.
    """
    words, rows, pairs = equal.shape
    kept = equal if band is None else equal & band.diagonal
    replaced = ~table.level if band is None else ~table.level & band.diagonal
    diagonal = kept | replaced
    stops = diagonal | (table.longer if band is None else table.longer & band.deletion)
    left = np.zeros((words, rows + 1, pairs), dtype=equal.dtype)  # what of the reference is left on entering a row
    left[:, lengths, np.arange(pairs)] = reference_bits
    found = np.zeros_like(equal)
    counts = _longer_than(lengths, rows)
    for row in range(rows - 1, -1, -1):
        count = counts[row]
        here = np.s_[:, row, :count]
        below, last = _highest(stops[here] & left[:, row + 1, :count])
        np.bitwise_and(kept[here], last, out=found[here])
        np.bitwise_xor(below, diagonal[here] & last, out=left[here])
    places = _places(count_bits(left), lengths, 8 * words * equal.dtype.itemsize)
    kept_words = np.bitwise_or.reduce(found, axis=0).T != 0
    return Alignment(~kept_words, unpack(np.bitwise_or.reduce(found, axis=1)) == 0, places, equal ^ found)


def _places(columns: Numbers, lengths: Numbers, width: int) -> Numbers:
    """From the words of the reference passed after each row (M + 1, P), the row that passes each of them first."""
    rows, pairs = columns.shape
    inside = np.arange(rows)[:, None] <= lengths
    keys = (np.arange(pairs) * (width + 2) + columns + 1)[inside]
    return np.bincount(keys, minlength=pairs * (width + 2)).reshape(pairs, width + 2).cumsum(axis=1)[:, : width + 1]


def _longer_than(lengths: Numbers, rows: int) -> list[int]:
    """How many of the lengths, longest first, are above 0, 1, ... rows - 1."""
    counts: list[int] = (len(lengths) - np.searchsorted(lengths[::-1], np.arange(rows), side="right")).tolist()
    return counts


def _highest(values: Bits) -> tuple[Bits, Bits]:
    """All bits up to the highest set one, and that one alone, of numbers in (W, C) words; zeros give zeros."""
    below = values.copy()
    step = 1
    while step < 8 * values.dtype.itemsize:
        below |= below >> values.dtype.type(step)
        step *= 2
    last = below ^ (below >> values.dtype.type(1))
    for word in range(len(values) - 2, -1, -1):
        above = below[word + 1] != 0
        below[word][above] = ~values.dtype.type(0)
        last[word][above] = 0
    return below, last
