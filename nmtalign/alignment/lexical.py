"""Probabilities of word translations in both directions, counted in a bitext and smoothed by the spelling of the words.

Rare words have few counts, so a translation probability is a mixture of three sources:

    t(f | e) = (count(e, f) + BACK_OFF * b(f | e)) / (count(e) + BACK_OFF)
    b(f | e) = (1 - COGNATES) * (count'(stem of e, stem of f) * p(f | stem of f) + EVEN / number of words)
                              / (count'(stem of e) + EVEN)
               + COGNATES * [f is a cognate of e] / number of the cognates of e

The stem of a word is its beginning, and count' is the count of the stem without that of e and f: a rare word does not
confirm itself. Two words are cognates if they are equal, or long and with the same beginning; only words that occur in
the same sentence pair are counted. Names, numbers and technical terms are often cognates.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from nmtalign.text.tokenizer import normalized

# All values were chosen on the gold links of a development set (tests/bench/README.md).
BACK_OFF = 5.0  # the counts that the spelling is worth
COGNATES = 0.3  # the share of cognates in what the spelling says
EVEN = 2.0  # the counts of a stem that all words share evenly
STEM = 4  # characters of a stem; an ideograph is one by itself
BEGINNING = 4  # characters that longer cognates have in common
_NULL_COUNT = 0.1  # added to the counts of NULL

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]
Counts = NDArray[np.float64]
Numbers = NDArray[np.int64]
Whole = TypeVar("Whole", np.int32, np.int64)

# A pattern of classes of characters: a letter, 0 digit, "," in numbers, "-" in words, ' apostrophe, "." any other.
# English apostrophes belong to the letters behind them (speaker 's), French ones to those before (l' avion).
_PIECE = re.compile(r"[a0]{3,}(?='a{1,2}$)|'a{1,2}$|0+(?:,0+)*(?![a0])|[a0]+(?:-[a0]+)*'?|.")
_CLASSES = {"L": "a", "M": "a", "C": "a", "N": "0"}


def pieces_of(word: str) -> list[str]:
    """Splits what is between spaces into words, numbers and marks: "L'été." gives L', été and "."."""
    if word.isalpha():
        return [word]
    return [word[found.start() : found.end()] for found in _PIECE.finditer("".join(map(_class_of, word)))]


def folded(piece: str) -> str:
    """Returns what all spellings of a piece have in common: no upper case, and composed accents (NFC)."""
    return normalized("NFC", piece.casefold())


def _class_of(character: str) -> str:
    if character in ".,:":
        return ","
    if character in "'’-":
        return "-" if character == "-" else "'"
    return _CLASSES.get(unicodedata.category(character)[0], ".")


@dataclass(frozen=True)
class Words:
    """The data of some words of one side that the model needs: arrays by the place of the word."""

    numbers: Ids  # in the training text; -1 for a word that it does not have
    occurrences: Counts
    stems: Ids  # the number of the stem; -1 for a stem that the training text does not have
    spellings: Ids  # equal for equal words of both sides
    beginnings: Ids  # equal for long words of both sides with the same beginning; -1 for short words

    def __len__(self) -> int:
        return len(self.stems)


class Cells(NamedTuple):
    """Pairs of a source and a target word (N,): their places in `Words`, and those of their counts (-1: none)."""

    source: Ids
    target: Ids
    places: Numbers
    stem_places: Numbers


class Table(NamedTuple):
    """The translation probabilities of one direction, and what they consist of. The last place of each is for padding.

    t(f | e) = counts[cell of e and f] / totals[e], both smoothed.
    """

    counts: Floats  # of each cell, then 0
    totals: Floats  # of each word that is given, then 1
    null: Floats  # p(word | NULL) of each word that is written, then 1


Tables = tuple[Table, Table]  # source to target, and back


@dataclass(eq=False)
class LexicalCounts:
    """What was counted in a bitext, and the translation probabilities in both directions that follow from it.

    All arrays may be mapped files. The last place of an array by word, by key or by stem is for those that the bitext
    does not have. Direction 0 is source to target.
    """

    keys: Numbers  # of pairs of words, source * number of target words + target, rising
    stem_keys: Numbers  # of pairs of their stems
    occurrences: Sequence[NDArray[Any]]  # by side and word
    stems: Sequence[Ids]  # by side and word
    cognates: Sequence[NDArray[Any]]  # how many cognates a word has, by direction and word that is given
    counts: Sequence[NDArray[Any]]  # expected, by direction: of keys
    stem_counts: Sequence[Counts]  # of pairs of stems
    totals: Sequence[Counts]  # of words that are given
    null_counts: Sequence[NDArray[Any]]  # [0] of the target words that come from no source word, [1] the reverse

    def __post_init__(self) -> None:
        self.sizes = [len(side) - 1 for side in self.stems]
        self.stem_sizes = [int(side.max()) + 1 for side in self.stems]
        self.null_counts = [own.astype(np.float64) for own in self.null_counts]
        self._null_totals = [max((own[:-1] + _NULL_COUNT).sum(), _NULL_COUNT) for own in self.null_counts]
        sides = list(zip(self.stems, self.occurrences, self.totals, self.stem_sizes, strict=True))
        # An untrusted file may have only zeros.
        self._stem_occurrences = [np.maximum(_sums(own[:-1], found[:-1], size), 1) for own, found, _, size in sides]
        self._stem_totals = [_sums(own[:-1], given[:-1], size) for own, _, given, size in sides]

    def tables(self, cells: Cells, words: Sequence[Words]) -> Tables:
        """Returns the probabilities of both directions, for each cell and each of the words of both sides."""
        return self._table(0, cells, words), self._table(1, cells, words)

    def _table(self, direction: int, cells: Cells, words: Sequence[Words]) -> Table:
        given, other = words[direction], words[1 - direction]
        ids, others = cells[direction], cells[1 - direction]
        counts, totals = self.counts[direction][cells.places], self.totals[direction][given.numbers]
        share = other.occurrences / self._stem_occurrences[1 - direction][other.stems]
        # Without the counts of the pair itself; rounding of stored counts may leave less than nothing.
        spelled = np.maximum(self.stem_counts[direction][cells.stem_places] - counts, 0)
        spelled *= share[others]
        spelled += EVEN / max(self.sizes[1 - direction], 1)
        spelled *= (1 - COGNATES) / (np.maximum(self._stem_totals[direction][given.stems][ids] - counts, 0) + EVEN)
        spelled += COGNATES * _alike(words, cells) / self.cognates[direction][given.numbers][ids]
        null = (self.null_counts[direction][other.numbers] + _NULL_COUNT) / self._null_totals[direction]
        parts = (counts + BACK_OFF * spelled, 0), (totals + BACK_OFF, 1), (null, 1)
        return Table(*(np.append(own, end).astype(np.float32) for own, end in parts))

    def find(self, words: Sequence[Words], source: Numbers, target: Numbers) -> Cells:
        """Returns the cells of pairs of `words`; searching is fast if their numbers rise."""
        numbers = [side.numbers[ids] for side, ids in zip(words, (source, target), strict=True)]
        stems = [side.stems[ids] for side, ids in zip(words, (source, target), strict=True)]
        return Cells(
            source.astype(np.int32),
            target.astype(np.int32),
            _places(self.keys, numbers, self.sizes[1]),
            _places(self.stem_keys, stems, self.stem_sizes[1]),
        )


class LexicalModel:
    """The words of a bitext that is learned from; `counted` gives their translation probabilities.

    `names` are the different words of both sides, and `keys` their pairs that occur in a sentence pair.
    """

    def __init__(self, names: Sequence[Sequence[str]], occurrences: Sequence[Counts], keys: Numbers) -> None:
        self.names, self.keys = names, keys
        stems = [_numbered(name[: stem_size(name)] for name in side) for side in names]
        numbers = [np.arange(len(side), dtype=np.int32) for side in names]
        self.words = words_of(names, numbers, occurrences, stems)
        source, target = (ids.astype(np.int32) for ids in np.divmod(keys, max(len(names[1]), 1)))
        stem_keys = _keys([stems[0][source], stems[1][target]], int(stems[1].max(initial=-1)) + 1)
        self.stem_keys = different(stem_keys.copy())
        self.cells = Cells(source, target, np.arange(len(keys)), np.searchsorted(self.stem_keys, stem_keys))
        self.alike = _alike(self.words, self.cells)
        self._cognates = [
            np.append(np.bincount(ids[self.alike], minlength=len(side)).clip(1), 1)
            for ids, side in zip(self.cells[:2], names, strict=True)
        ]
        self._occurrences = [np.append(own, 1) for own in occurrences]
        self._stems = [np.append(own, np.int32(-1)) for own in stems]

    def counted(self, counts: Sequence[Counts], null_counts: Sequence[NDArray[Any]]) -> LexicalCounts:
        """Returns what follows from expected counts of the keys, by direction, and of NULL (see `LexicalCounts`)."""
        return LexicalCounts(
            self.keys,
            self.stem_keys,
            self._occurrences,
            self._stems,
            self._cognates,
            counts=[np.append(own, 0) for own in counts],
            stem_counts=[_sums(self.cells.stem_places, own, len(self.stem_keys)) for own in counts],
            totals=[_sums(self.cells[side], own, len(self.names[side])) for side, own in enumerate(counts)],
            null_counts=[np.append(own, 0) for own in null_counts],
        )


def stem_size(word: str) -> int:
    """Returns the characters of a stem that begins as a word does."""
    return 1 if "\N{CJK UNIFIED IDEOGRAPH-4E00}" <= word[:1] <= "\N{CJK UNIFIED IDEOGRAPH-9FFF}" else STEM


def words_of(
    names: Sequence[Sequence[str]], numbers: Sequence[Ids], occurrences: Sequence[Counts], stems: Sequence[Ids]
) -> list[Words]:
    """Returns the data of words of both sides that the model needs; numbers their spellings and beginnings."""
    sizes = np.cumsum([len(side) for side in names])[:-1]
    both = [name for side in names for name in side]
    spellings, beginnings = _numbered(both), _numbered(name[:BEGINNING] for name in both)
    beginnings[[len(name) <= BEGINNING for name in both]] = -1
    parts = numbers, occurrences, stems, np.split(spellings, sizes), np.split(beginnings, sizes)
    return [Words(*side) for side in zip(*parts, strict=True)]


def _numbered(names: Iterable[str]) -> Ids:
    """Returns a number for each name, equal for equal names."""
    known: dict[str, int] = {}
    return np.array([known.setdefault(name, len(known)) for name in names], np.int32)


def _keys(numbers: Sequence[NDArray[Any]], size: int) -> Numbers:
    """Returns the keys of pairs of a source and a target number, which is less than `size`."""
    return np.asarray(numbers[0].astype(np.int64) * size + numbers[1])


def _sums(places: NDArray[Any], counts: Counts, size: int) -> Counts:
    """Returns the sum of the counts at each place (size + 1,); the last one, for what has no place, is 0."""
    return np.append(np.bincount(places, counts, size).astype(np.float64), 0)


def _alike(words: Sequence[Words], cells: Cells) -> NDArray[np.bool_]:
    """Returns which cells are cognates."""
    source, target = words[0], words[1]
    beginning = source.beginnings[cells.source]
    same = (beginning >= 0) & (beginning == target.beginnings[cells.target])
    equal = source.spellings[cells.source] == target.spellings[cells.target]
    return np.asarray(same | equal)


def _places(known: Numbers, numbers: Sequence[NDArray[Any]], size: int) -> Numbers:
    """Returns the places of pairs of numbers in the rising keys of known pairs, -1 for other and negative numbers."""
    keys = _keys(numbers, size)
    places = np.searchsorted(known, keys)
    found = known.take(places, mode="clip") == keys if len(known) else np.zeros(len(keys), bool)
    return np.where(found & (numbers[0] >= 0) & (numbers[1] >= 0), places, -1)


def different(values: NDArray[Whole]) -> NDArray[Whole]:
    """Returns the distinct numbers from 0, sorted, and sorts `values`; several times as fast as NumPy's `unique`."""
    values.sort()
    return values[np.diff(values, prepend=-1) > 0]
