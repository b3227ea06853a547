"""N-grams that hypotheses share with references, counted for many sentences at once by sorting.

A sentence is a row of numbers, one a word or a character. Every position makes a key of 64 bits: the sentence, the
numbers of the n positions from there on, and whose text it is. In sorted keys equal n-grams lie side by side, and so do
those that begin alike, so that one sort serves all orders: a shorter n-gram is a key with its last bits cut off.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Keys = NDArray[np.uint64]
_KEY_BITS = 64


@dataclass(frozen=True)
class Numbered:
    """The words or characters of N sentences as numbers from 1, with a 0 after each sentence."""

    codes: Ints  # (T,)
    lengths: Ints  # (N,) without the 0

    @classmethod
    def of(cls, codes: Ints) -> "Numbered":
        """The sentences of numbers that hold a 0 after each."""
        ends = np.concatenate([[-1], np.flatnonzero(codes == 0)])
        return cls(codes, ends[1:] - ends[:-1] - 1)

    def sentences(self) -> Ints:
        """(T,) the sentence of each position, its 0 included."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths + 1)

    def part(self, start: int, end: int) -> "Numbered":
        """Some of the sentences."""
        ends = np.concatenate([[0], np.cumsum(self.lengths + 1)])
        return Numbered(self.codes[ends[start] : ends[end]], self.lengths[start:end])

    def ngrams(self, order: int) -> Ints:
        """(N,) n-grams of that order."""
        return np.maximum(self.lengths - order + 1, 0)


def matches(systems: Sequence[Numbered], references: Sequence[Numbered], order: int) -> list[Ints]:
    """For each system (N, order): n-grams of orders 1 to `order` found in the references, clipped.

    An n-gram counts as often as the reference has it that has it most often.
    """
    count = len(references[0].lengths)
    texts = [*systems, *references]
    largest = max((int(text.codes.max(initial=0)) for text in texts), default=0)
    room = _KEY_BITS - (count - 1).bit_length() - len(references).bit_length()
    if not _fits(largest, order, room):
        texts, largest = _renumbered(texts)
    if _fits(largest, order, room):
        return _sorted_matches(texts[: len(systems)], texts[len(systems) :], order, (largest + 1).bit_length())
    if count > 1:
        halves = [
            matches([text.part(*span) for text in systems], [text.part(*span) for text in references], order)
            for span in ((0, count // 2), (count // 2, count))
        ]
        return [np.concatenate(parts) for parts in zip(*halves, strict=True)]
    found = [_one_sentence(system, references, order) for system in systems]
    return [np.array([row], dtype=np.int64) for row in found]


def _fits(largest: int, order: int, room: int) -> bool:
    return order * (largest + 1).bit_length() <= room


def _renumbered(texts: Sequence[Numbered]) -> tuple[list[Numbered], int]:
    """The texts with the numbers of each sentence made small, alike in all texts, and the largest number."""
    codes = np.concatenate([text.codes for text in texts])
    sentences = np.concatenate([text.sentences() for text in texts])
    width = int(codes.max(initial=0)).bit_length()
    keys = (sentences << width) | codes
    places = np.argsort(keys)
    keys = keys[places]
    numbers = np.zeros(len(keys), dtype=np.int64)
    np.cumsum(keys[1:] != keys[:-1], out=numbers[1:])
    # Every sentence has a 0, which is its least number and stays 0.
    firsts = numbers[_starts(keys >> width)]
    numbers -= firsts[keys >> width]
    small = np.empty_like(numbers)
    small[places] = numbers
    ends = np.cumsum([len(text.codes) for text in texts])[:-1]
    parts = zip(np.split(small, ends), texts, strict=True)
    return [Numbered(part, text.lengths) for part, text in parts], int(numbers.max(initial=0))


def _sorted_matches(systems: Sequence[Numbered], references: Sequence[Numbered], order: int, width: int) -> list[Ints]:
    owner = len(references).bit_length()
    wanted = [_keys(text, order, width, owner, number) for number, text in enumerate(references, 1)]
    return [
        _clipped(np.concatenate([_keys(text, order, width, owner, 0), *wanted]), order, width, len(references))
        for text in systems
    ]


def _keys(text: Numbered, order: int, width: int, owner: int, number: int) -> Keys:
    """(T,) keys; `number` says whose text it is, in `owner` bits."""
    # What stands after a hypothesis is 0 and after a reference 1: n-grams over the end of a sentence match nothing.
    codes = text.codes + 1
    codes[text.codes == 0] = 1 if number else 0
    codes = np.concatenate([codes, np.zeros(order, np.int64)]).view(np.uint64)
    keys = text.sentences().view(np.uint64)
    for place in range(order):
        keys <<= np.uint64(width)
        keys |= codes[place : place + len(keys)]
    keys <<= np.uint64(owner)
    keys |= np.uint64(number)
    return keys


def _clipped(keys: Keys, order: int, width: int, references: int) -> Ints:
    """(N, order) clipped matches of the keys of one system with those of all references."""
    keys.sort()
    owner = references.bit_length()
    owners = (keys & np.uint64((1 << owner) - 1)).astype(np.uint8)
    keys >>= np.uint64(owner)
    # How many keys each text has before each place: of a run, the difference of two of them.
    before = [np.concatenate([[0], np.cumsum(owners == number, dtype=np.int32)]) for number in range(references + 1)]
    bounds = np.arange(len(keys) + 1)
    found = []
    for shorter in range(order):
        if shorter:
            keys = keys >> np.uint64(width)
        runs = _starts(keys)
        keys, bounds = keys[runs], np.append(bounds[runs], bounds[-1])
        counts = [np.diff(total[bounds]) for total in before]
        most = counts[1]
        for count in counts[2:]:
            most = np.maximum(most, count)
        sentences = _starts(keys >> np.uint64(width * (order - shorter)))  # every one has the key of its end
        found.append(np.add.reduceat(np.minimum(counts[0], most), sentences))
    return np.stack(found[::-1], axis=1).astype(np.int64)


def _starts(keys: NDArray[np.uint64] | Ints) -> Ints:
    """Where runs of equal keys start."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))


def _one_sentence(system: Numbered, references: Sequence[Numbered], order: int) -> list[int]:
    """The same for a sentence with so many different words that no key holds n of them."""
    row = []
    for length in range(1, order + 1):
        counted, *wanted = (
            Counter(zip(*(text.codes[:-1].tolist()[start:] for start in range(length)), strict=False))
            for text in (system, *references)
        )
        most: Counter[tuple[int, ...]] = Counter()
        for counter in wanted:
            most |= counter
        row.append((counted & most).total())
    return row
