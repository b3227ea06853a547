"""Probabilities of word translations in both directions, counted in a bitext and smoothed by the spelling of the words.

Rare words have few counts, so a translation probability is a mixture of three sources:

    t(f | e) = (count(e, f) + BACK_OFF * b(f | e)) / (count(e) + BACK_OFF)
    b(f | e) = (1 - COGNATES - REST) * p(stem of f | stem of e) * p(f | stem of f)
               + COGNATES * [f is a cognate of e] / number of the cognates of e + REST / number of words

The stem of a word is its beginning. Two words are cognates if they are equal, or long and with the same beginning;
only words that occur in the same sentence pair are counted. Names, numbers and technical terms are often cognates.
"""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

# All values were chosen on the gold links of a development set (tests/bench/README.md).
BACK_OFF = 10.0  # the counts that the spelling is worth
COGNATES, REST = 0.3, 0.1  # the shares of cognates and of all words in what the spelling says
STEM = 5  # characters of a stem
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
    """Splits what is between spaces into words, numbers and marks, in lower case: "L'été." gives l', été and "."."""
    folded = word.casefold()
    if folded.isalpha():
        return [folded]
    return [folded[found.start() : found.end()] for found in _PIECE.finditer("".join(map(_class_of, folded)))]


def spelled(word: str, pieces: Sequence[str]) -> list[str]:
    """Returns the pieces of a word (`pieces_of`) as it writes them; in lower case if that has another length."""
    ends = list(accumulate(map(len, pieces), initial=0))
    return [word[begin:end] for begin, end in pairwise(ends)] if ends[-1] == len(word) else list(pieces)


def _class_of(character: str) -> str:
    if character in ".,:":
        return ","
    if character in "'’-":
        return "-" if character == "-" else "'"
    return _CLASSES.get(unicodedata.category(character)[0], ".")


@dataclass(frozen=True)
class Words:
    """What the model needs of the words of one side: arrays by the number of the word."""

    occurrences: Counts
    stems: Ids  # the number of the stem; -1 for a stem that the training text does not have
    spellings: Ids  # equal for equal words of both sides
    beginnings: Ids  # equal for long words of both sides with the same beginning; -1 for short words

    def __len__(self) -> int:
        return len(self.stems)

    def __add__(self, more: "Words") -> "Words":
        return Words(*map(np.concatenate, zip(vars(self).values(), vars(more).values(), strict=True)))


class Cells(NamedTuple):
    """Pairs of a source and a target word (N,): their numbers, and the places of their counts (-1: they have none)."""

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

    @classmethod
    def of(cls, counts: Counts, totals: Counts, null: Counts) -> "Table":
        """Adds the places of padding."""
        return cls(*(np.append(own, end).astype(np.float32) for own, end in ((counts, 0), (totals, 1), (null, 1))))


class LexicalModel:
    """The translation probabilities of a bitext in both directions.

    `names` are the different words of both sides, `occurrences` how often they occur. `keys` are the pairs of words
    that occur in a sentence pair, source * number of target words + target, rising. `count` gives their counts.
    """

    def __init__(self, names: Sequence[Sequence[str]], occurrences: Sequence[Counts], keys: Numbers) -> None:
        self.names, self.keys = names, keys
        self._stems: tuple[dict[str, int], dict[str, int]] = {}, {}
        for stems, side in zip(self._stems, names, strict=True):
            for name in side:
                stems.setdefault(name[:STEM], len(stems))
        self._spellings: dict[str, int] = {}
        self._beginnings: dict[str, int] = {}
        self.words = self.words_of(names, occurrences, learn=True)
        self._stem_occurrences = [np.bincount(side.stems, side.occurrences) for side in self.words]
        source, target = (ids.astype(np.int32) for ids in np.divmod(keys, max(len(names[1]), 1)))
        stem_keys = self._stem_keys_of(self.words, source, target)
        self._stem_keys = different(stem_keys.copy())
        self.cells = Cells(source, target, np.arange(len(keys)), np.searchsorted(self._stem_keys, stem_keys))
        self.alike = _alike(self.words, self.cells)
        self._cognates = [
            np.append(np.bincount(ids[self.alike], minlength=len(side)).clip(1), 1)
            for ids, side in zip(self.cells[:2], names, strict=True)
        ]

    def count(self, counts: Sequence[Counts], null_counts: Sequence[Counts]) -> None:
        """Takes expected counts of the keys, by direction (0: source to target), and of NULL.

        `null_counts[0]` counts the target words that come from no source word, `null_counts[1]` the reverse.
        """
        self.counts, self.null_counts = [np.append(own, 0) for own in counts], null_counts
        self._totals, self._stem_counts, self._stem_totals = [], [], []
        for direction, own in enumerate(counts):
            ids, words = self.cells[direction], self.words[direction]
            self._totals.append(_sums(ids, own, len(words)))
            self._stem_counts.append(_sums(self.cells.stem_places, own, len(self._stem_keys)))
            self._stem_totals.append(_sums(words.stems[ids], own, len(self._stems[direction])))

    def tables(self, cells: Cells, words: Sequence[Words] | None = None) -> tuple["Table", "Table"]:
        """Returns the probabilities of both directions, for each cell and each word.

        `words` are those of both sides if there are others than those of the training text, which come first.
        """
        words = self.words if words is None else words
        return self._table(0, cells, words), self._table(1, cells, words)

    def _table(self, direction: int, cells: Cells, words: Sequence[Words]) -> "Table":
        given, other = words[direction], words[1 - direction]
        ids, others = cells[direction], cells[1 - direction]
        known = np.minimum(np.arange(len(given)), len(self.names[direction]))  # the last place is for all other words
        occurrences = np.maximum(self._stem_occurrences[1 - direction], 1)  # a hostile file may have only zeros
        share = other.occurrences / np.append(occurrences, 1)[other.stems]
        spelled = self._stem_counts[direction][cells.stem_places]
        spelled /= np.maximum(self._stem_totals[direction], 1e-9)[given.stems][ids]
        spelled *= (1 - COGNATES - REST) * share[others]
        spelled += COGNATES * _alike(words, cells) / self._cognates[direction][known][ids]
        spelled += REST / max(len(self.names[1 - direction]), 1)
        counted = self.null_counts[direction]
        null = np.full(len(other), _NULL_COUNT)
        null[: len(counted)] += counted
        return Table.of(
            self.counts[direction][cells.places] + BACK_OFF * spelled,
            self._totals[direction][known] + BACK_OFF,
            null / max(null[: len(counted)].sum(), _NULL_COUNT),
        )

    def find(self, words: Sequence[Words], source: Numbers, target: Numbers) -> Cells:
        """Returns the cells of pairs of `words`; searching is fast if they are sorted."""
        known = (source < len(self.names[0])) & (target < len(self.names[1]))
        keys = source.astype(np.int64) * len(self.names[1]) + target
        stem_keys = self._stem_keys_of(words, source, target)
        stems = (words[0].stems[source] >= 0) & (words[1].stems[target] >= 0)
        return Cells(
            source.astype(np.int32),
            target.astype(np.int32),
            _places(self.keys, keys, known),
            _places(self._stem_keys, stem_keys, stems),
        )

    def words_of(
        self, names: Sequence[Sequence[str]], occurrences: Sequence[Counts], learn: bool = False
    ) -> list[Words]:
        """Numbers the stems, spellings and beginnings of the words of both sides; keeps the new ones with `learn`."""
        spellings, beginnings = (self._spellings, self._beginnings) if learn else ({}, {})
        return [
            Words(
                own,
                np.array([stems.get(name[:STEM], -1) for name in side], np.int32),
                np.array([_number(name, self._spellings, spellings) for name in side], np.int32),
                np.array(
                    [
                        _number(name[:BEGINNING], self._beginnings, beginnings) if len(name) > BEGINNING else -1
                        for name in side
                    ],
                    np.int32,
                ),
            )
            for side, own, stems in zip(names, occurrences, self._stems, strict=True)
        ]

    def _stem_keys_of(self, words: Sequence[Words], source: NDArray[Any], target: NDArray[Any]) -> Numbers:
        return np.asarray(words[0].stems[source].astype(np.int64) * len(self._stems[1]) + words[1].stems[target])


def _number(name: str, known: dict[str, int], new: dict[str, int]) -> int:
    """Returns the number of a name; a name without one gets the next number."""
    return known[name] if name in known else new.setdefault(name, len(known) + (len(new) if new is not known else 0))


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


def _places(known: Numbers, keys: Numbers, wanted: NDArray[np.bool_]) -> Numbers:
    """Returns the places of keys in a rising array, -1 for those that are not there or not wanted."""
    places = np.searchsorted(known, keys)
    found = np.append(known, -1)[places] == keys
    return np.where(found & wanted, places, -1)


def different(values: NDArray[Whole]) -> NDArray[Whole]:
    """Returns the distinct numbers from 0, sorted, and sorts `values`; several times as fast as NumPy's `unique`."""
    values.sort()
    return values[np.diff(values, prepend=-1) > 0]
