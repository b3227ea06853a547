"""The statistics of BLEU, chrF and chrF++ for a block of sentences of several systems, and TER's by sacreBLEU itself.

N-grams are matched for many sentences at once by sorting. A sentence is a row of numbers, one per word or character.
Every position gives a key of 64 bits: the sentence, the n numbers from this position on, and the text that they come
from. In sorted keys equal n-grams are neighbours, and so are n-grams with the same beginning. One sort therefore serves
all orders: the key of a shorter n-gram is a key without its last bits. `measuring` compares samples with sacreBLEU.
"""

import string
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain, islice
from operator import or_
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.pipeline import WordIndex
from nmtalign.scoring.metrics import METRICS, MULTI_BLEU, MetricOptions, chrf_values, make_metric
from nmtalign.text.tokenizer import MosesWords

Rows = NDArray[Any]  # (N, D)
Lines = Sequence[str]
Words = list[str]  # of a line; the last one is END
Ints = NDArray[np.int64]
END = ""  # no word is empty: its number, 0, ends a sentence
_BLEU_ORDER, _CHARACTER_ORDER, _WORD_ORDER = 4, 6, 2
_MARKS = frozenset(string.punctuation)


@dataclass(frozen=True)
class Numbered:
    """The words or characters of N sentences as numbers from 1, with a 0 after each sentence."""

    codes: Ints  # (T,)
    lengths: Ints  # (N,) without the 0

    @classmethod
    def of(cls, codes: Ints) -> "Numbered":
        """The sentences whose ends the zeros in `codes` mark."""
        ends = np.concatenate([[-1], np.flatnonzero(codes == 0)])
        return cls(codes, ends[1:] - ends[:-1] - 1)

    def sentences(self) -> Ints:
        """(T,) the sentence of each position, its 0 included."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths + 1)

    def ngrams(self, order: int) -> Ints:
        """(N,) the number of n-grams of that order."""
        return np.maximum(self.lengths - order + 1, 0)


class Counting:
    """Counts blocks of sentences; the tokens of about `most_words` words at most are kept from block to block."""

    def __init__(self, options: MetricOptions, most_words: int = 300_000) -> None:
        self.options, self._most_words = options, most_words
        self._moses = MosesWords(options.language)
        self._ter = make_metric("ter", options)
        self._bleu = make_metric("bleu", options)
        self._forget()

    def _forget(self) -> None:
        self._index = WordIndex({END: 0})
        self._marks = _Pieces(self._index, words_and_marks)
        self._tokens = _Pieces(self._index, self._tokenized)

    def _number(self, lines: Iterable[Words]) -> Numbered:
        return Numbered.of(np.fromiter(map(self._index.__getitem__, chain.from_iterable(lines)), np.int64))

    def _tokenized(self, word: str) -> Sequence[str]:
        return [word] if word.isalnum() else self._bleu.tokenizer(word).split()  # 13a cuts only at marks

    def rows(self, systems: Sequence[Lines], references: Sequence[Lines]) -> list[dict[str, Rows]]:
        """For each system the rows of each metric: (N, D), equal to those of sacreBLEU's _extract_corpus_statistics."""
        if len(self._index) > self._most_words:
            self._forget()
        texts = [*systems, *references]
        words = [[split(line) for line in lines] for lines in texts]
        numbered = [self._number(lines) for lines in words]
        count, wanted = len(systems), self.options.metrics
        found: dict[str, Sequence[Rows]] = {}
        if "bleu" in wanted:
            found["bleu"] = _bleu_rows(self._bleu_tokens(texts, numbered), count)
        if "chrf" in wanted or "chrf++" in wanted:
            found.update(self._chrf_rows(words, numbered, count))
        if "ter" in wanted:
            found["ter"] = [np.array(self._ter._extract_corpus_statistics(lines, references)) for lines in systems]
        if MULTI_BLEU in wanted:
            tokens = words if self.options.tokenize == "none" else moses_tokens(self._moses, texts)
            if self.options.lowercase:
                tokens = [[split(" ".join(line).lower()) for line in lines] for lines in tokens]
            found[MULTI_BLEU] = _bleu_rows([self._number(lines) for lines in tokens], count)
        return [{name: found[name][number] for name in METRICS if name in found} for number in range(count)]

    def _bleu_tokens(self, texts: Sequence[Lines], words: Sequence[Numbered]) -> Sequence[Numbered]:
        """The tokens of sacreBLEU's tokeniser; those of 13a are made once for each different word."""
        kind = self.options.tokenize
        if self.options.lowercase:
            texts = [[line.lower() for line in lines] for lines in texts]
            words = [self._number([split(line) for line in lines]) for lines in texts]
        if kind == "none":
            return words
        # No rule of 13a looks beyond a blank, except at the end of a line inside the text.
        if kind == "13a" and not any("\n" in line for lines in texts for line in lines):
            return [self._tokens.of(text) for text in words]
        return [self._number([split(self._bleu.tokenizer(line.rstrip())) for line in lines]) for lines in texts]

    def _chrf_rows(
        self, lines: Sequence[Sequence[Words]], numbered: Sequence[Numbered], count: int
    ) -> dict[str, Sequence[Rows]]:
        """The rows of chrF and chrF++, whose character n-grams are the same."""
        characters = [_characters(text) for text in lines]
        parts = [_order_counts(characters[:count], text, _CHARACTER_ORDER) for text in characters[count:]]
        found: dict[str, Sequence[Rows]] = {}
        if "chrf" in self.options.metrics:
            found["chrf"] = [_of_best_reference(by_reference) for by_reference in zip(*parts, strict=True)]
        if "chrf++" in self.options.metrics:
            words = [self._marks.of(text) for text in numbered]
            more = [_order_counts(words[:count], text, _WORD_ORDER) for text in words[count:]]
            joined = [
                [np.concatenate(pair, axis=1) for pair in zip(one, other, strict=True)]
                for one, other in zip(parts, more, strict=True)
            ]
            found["chrf++"] = [_of_best_reference(by_reference) for by_reference in zip(*joined, strict=True)]
        return found


class _Pieces:
    """The pieces of the words of an index, as numbers in the same index; each different word is cut once."""

    def __init__(self, index: WordIndex, cut: Callable[[str], Iterable[str]]) -> None:
        self._index, self._cut = index, cut
        self._pieces, self._starts, self._counts = array("q", [0]), array("q", [0]), array("q", [1])  # of END

    def of(self, text: Numbered) -> Numbered:
        """The text, cut."""
        new = len(self._index) - len(self._counts)
        for word in [*islice(reversed(self._index), new)][::-1]:  # a list, because its pieces may be new words
            pieces = [self._index[piece] for piece in self._cut(word)]
            self._starts.append(len(self._pieces))
            self._counts.append(len(pieces))
            self._pieces.extend(pieces)
        counts = np.frombuffer(self._counts, np.int64)[text.codes]
        shifts = np.frombuffer(self._starts, np.int64)[text.codes] - np.cumsum(counts) + counts
        places = np.repeat(shifts, counts) + np.arange(int(counts.sum()))
        return Numbered.of(np.frombuffer(self._pieces, np.int64)[places])


def split(line: str) -> Words:
    """The words of a line between blanks, and END."""
    words = line.split()
    words.append(END)
    return words


def moses_tokens(moses: MosesWords, texts: Sequence[Lines]) -> list[list[Words]]:
    """The words of Moses's tokeniser, and END, for each line of each text."""
    return [[[*moses.tokenize(line), END] for line in lines] for lines in texts]


def words_and_marks(word: str) -> list[str]:
    """A word, cut at one ASCII mark at its end or else at its beginning, as chrF++ does."""
    if len(word) > 1 and word[-1] in _MARKS:
        return [word[:-1], word[-1]]
    if len(word) > 1 and word[0] in _MARKS:
        return [word[0], word[1:]]
    return [word]


def _characters(lines: Sequence[Words]) -> Numbered:
    """The characters of lines of words as code point + 1; white space does not count."""
    joined = ["".join(words) for words in lines]
    lengths = np.fromiter(map(len, joined), np.int64, len(joined))
    text = "\0".join([*joined, ""]).encode("utf-32-le", "surrogatepass")
    codes = np.frombuffer(text, np.uint32).astype(np.int64) + 1
    codes[np.cumsum(lengths + 1) - 1] = 0
    return Numbered(codes, lengths)


def _order_counts(systems: Sequence[Numbered], reference: Numbered, order: int) -> list[Ints]:
    """For each system (N, 3 order): n-grams of hypothesis and reference and their matches, for orders 1 to `order`."""
    wanted = np.stack([reference.ngrams(number) for number in range(1, order + 1)], axis=1)
    table = []
    for system, found in zip(systems, matches(systems, [reference], order), strict=True):
        counted = np.stack([system.ngrams(number) for number in range(1, order + 1)], axis=1)
        counted[wanted == 0] = 0  # if the reference has no n-gram of an order, those of the hypothesis do not count
        table.append(np.stack([counted, wanted, found], axis=2).reshape(len(wanted), -1))
    return table


def _of_best_reference(candidates: Sequence[Ints]) -> Ints:
    """(N, D) of the counts against each reference those with the best F of the sentence, the first of equal ones."""
    if len(candidates) == 1:
        return candidates[0]
    scores = np.stack([chrf_values(counts) for counts in candidates])
    best: Ints = np.stack(candidates)[scores.argmax(axis=0), np.arange(scores.shape[1])]
    return best


def _bleu_rows(texts: Sequence[Numbered], count: int) -> list[Rows]:
    """Lengths of hypothesis and closest reference, matches, and n-grams of the hypothesis, of `count` systems."""
    systems, references = texts[:count], texts[count:]
    lengths = np.sort([text.lengths for text in references], axis=0)  # the shorter of two equally close ones counts
    rows = []
    for system, found in zip(systems, matches(systems, references, _BLEU_ORDER), strict=True):
        closest = np.take_along_axis(lengths, np.abs(lengths - system.lengths).argmin(axis=0)[None], axis=0)[0]
        totals = [system.ngrams(order) for order in range(1, _BLEU_ORDER + 1)]
        rows.append(np.column_stack([system.lengths, closest, found, *totals]))
    return rows


def matches(systems: Sequence[Numbered], references: Sequence[Numbered], order: int, key_bits: int = 64) -> list[Ints]:
    """For each system (N, order): n-grams of orders 1 to `order` found in the references, clipped.

    An n-gram counts at most as often as in the reference that contains it most often. If keys would need more than
    `key_bits`, the n-grams are counted without keys.
    """
    count, texts = len(references[0].lengths), [*systems, *references]
    room = key_bits - (count - 1).bit_length() - len(references).bit_length()
    for renumber in (_numbered_by_text, _numbered_by_sentence):  # the second takes longer and needs fewer bits
        numbered = renumber(texts)
        width = (max(int(text.codes.max(initial=0)) for text in numbered) + 1).bit_length()
        if order * width <= room:
            return _sorted_matches(numbered[: len(systems)], numbered[len(systems) :], order, width)
    return [_counted_matches(system, references, order) for system in systems]


def _numbered_by_text(texts: Sequence[Numbered]) -> list[Numbered]:
    """The texts with their different codes numbered from 1."""
    seen = np.zeros(max(int(text.codes.max(initial=0)) for text in texts) + 1, np.bool_)
    for text in texts:
        seen[text.codes] = True
    numbers = np.cumsum(seen) - 1
    return [Numbered(numbers[text.codes], text.lengths) for text in texts]


def _numbered_by_sentence(texts: Sequence[Numbered]) -> list[Numbered]:
    """The texts with the different codes of each sentence numbered from 1, in the same way in all texts."""
    codes = np.concatenate([text.codes for text in texts])
    sentences = np.concatenate([text.sentences() for text in texts])
    width = int(codes.max(initial=0)).bit_length()
    keys, numbers = np.unique((sentences << width) | codes, return_inverse=True)
    firsts = np.searchsorted(keys, np.arange(len(texts[0].lengths)) << width)  # the code 0 at the end of each sentence
    parts = np.split(numbers - firsts[sentences], np.cumsum([len(text.codes) for text in texts])[:-1])
    return [Numbered(part, text.lengths) for part, text in zip(parts, texts, strict=True)]


def _sorted_matches(systems: Sequence[Numbered], references: Sequence[Numbered], order: int, width: int) -> list[Ints]:
    owner = len(references).bit_length()
    wanted = [_keys(text, order, width, owner, number) for number, text in enumerate(references, 1)]
    return [
        _clipped(np.concatenate([_keys(text, order, width, owner, 0), *wanted]), order, width, len(references))
        for text in systems
    ]


def _keys(text: Numbered, order: int, width: int, owner: int, number: int) -> NDArray[np.uint64]:
    """(T,) keys; `number`, in `owner` bits, is the number of their text."""
    # After a hypothesis comes 0, after a reference 1: n-grams across the end of a sentence match nothing.
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


def _clipped(keys: NDArray[np.uint64], order: int, width: int, references: int) -> Ints:
    """(N, order) clipped matches of the keys of one system with those of all references."""
    keys.sort()
    owner = references.bit_length()
    owners = (keys & np.uint64((1 << owner) - 1)).astype(np.uint8)
    keys >>= np.uint64(owner)
    # The number of keys of each text before each place: the count in a run is the difference of two of them.
    before = [np.concatenate([[0], np.cumsum(owners == number, dtype=np.int32)]) for number in range(references + 1)]
    bounds = np.arange(len(keys) + 1)
    found = []
    for shorter in range(order):
        if shorter:
            keys = keys >> np.uint64(width)
        runs = _starts(keys)
        keys, bounds = keys[runs], np.append(bounds[runs], bounds[-1])
        counts = [np.diff(total[bounds]) for total in before]
        clipped = np.minimum(counts[0], reduce(np.maximum, counts[1:]))
        sentences = _starts(keys >> np.uint64(width * (order - shorter)))  # every sentence has the key of its end
        found.append(np.add.reduceat(clipped, sentences))
    return np.stack(found[::-1], axis=1).astype(np.int64)


def _starts(keys: NDArray[np.uint64] | Ints) -> Ints:
    """The positions at which runs of equal keys start."""
    return np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]]))


def _counted_matches(system: Numbered, references: Sequence[Numbered], order: int) -> Ints:
    """The same as `matches` for one system, slowly, for sentences with too many different codes for a key."""

    def ngrams(codes: Ints, length: int) -> Counter[tuple[int, ...]]:
        return Counter(zip(*(codes[:-1].tolist()[start:] for start in range(length)), strict=False))

    texts = [np.split(text.codes, np.cumsum(text.lengths + 1)[:-1]) for text in (system, *references)]
    rows = []
    for sentence, *wanted in zip(*texts, strict=True):
        most = [reduce(or_, (ngrams(codes, length) for codes in wanted)) for length in range(1, order + 1)]
        rows.append([(ngrams(sentence, length) & counts).total() for length, counts in enumerate(most, 1)])
    return np.array(rows, dtype=np.int64)
