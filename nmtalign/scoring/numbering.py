"""Words of many sentences as numbers, and the tokens that they are cut into, each different word once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice

import numpy as np
from sacrebleu.metrics import BLEU

from nmtalign.data.pipeline import WordIndex
from nmtalign.scoring.ngrams import Numbered

Words = list[str]  # of a line; the last one is END
END = ""  # no word is empty: its number, 0, ends a sentence


def split(line: str) -> Words:
    """The words of a line between blanks, and END."""
    words = line.split()
    words.append(END)
    return words


def number(index: WordIndex, lines: Sequence[Words]) -> Numbered:
    """Lines of words as their numbers in the index, which grows."""
    words = map(index.__getitem__, chain.from_iterable(lines))
    return Numbered.of(np.fromiter(words, np.int64, sum(map(len, lines))))


def new_index() -> WordIndex:
    """An index of nothing but END."""
    return WordIndex({END: 0})


class Cuts:
    """What the words of an index are cut into, as numbers in the same index."""

    def __init__(self, index: WordIndex, cut: Callable[[str], Iterable[str]]) -> None:
        self._index, self._cut = index, cut
        self._parts = np.zeros(1, dtype=np.int64)  # of all words, one after the other
        self._counts = np.ones(1, dtype=np.int64)  # a word
        self._starts = np.zeros(1, dtype=np.int64)

    def of(self, text: Numbered) -> Numbered:
        """The text, cut."""
        self._learn()
        counts = self._counts[text.codes]
        shifts = self._starts[text.codes] - np.cumsum(counts) + counts
        places = np.repeat(shifts, counts) + np.arange(int(counts.sum()))
        return Numbered.of(self._parts[places])

    def _learn(self) -> None:
        known = len(self._counts)
        if known == len(self._index):
            return
        parts, counts = list[int](), list[int]()
        for word in list(islice(self._index, known, None)):  # its parts may be new words
            found = [self._index[part] for part in self._cut(word)]
            parts += found
            counts.append(len(found))
        self._parts = np.concatenate([self._parts, np.array(parts, dtype=np.int64)])
        self._counts = np.concatenate([self._counts, np.array(counts, dtype=np.int64)])
        self._starts = np.cumsum(self._counts) - self._counts


class BleuTokens:
    """Lines as the tokens that a BLEU of sacreBLEU's counts, cut by its own tokeniser."""

    def __init__(self, metric: BLEU, index: WordIndex) -> None:
        self._tokenizer: Callable[[str], str] = metric.tokenizer
        self._lowercase = metric.lowercase
        self._kind: str = metric.tokenizer_signature
        self._index = index
        self._cuts = Cuts(index, self._cut)

    def of(self, texts: Sequence[Sequence[str]], words: Sequence[Numbered]) -> list[Numbered]:
        """The texts' tokens; `words` are those between blanks, of which they are made where the tokeniser allows it."""
        if self._lowercase:
            texts = [[line.lower() for line in lines] for lines in texts]
        # No rule of 13a looks beyond a blank, only at a line's end within the text.
        if self._kind != "none" and (self._kind != "13a" or any("\n" in line for lines in texts for line in lines)):
            return [self._number([self._tokenizer(line.rstrip()) for line in lines]) for lines in texts]
        if self._lowercase:
            words = [self._number(lines) for lines in texts]
        return list(words) if self._kind == "none" else [self._cuts.of(text) for text in words]

    def _number(self, lines: Sequence[str]) -> Numbered:
        return number(self._index, [split(line) for line in lines])

    def _cut(self, word: str) -> list[str]:
        return [word] if word.isalnum() else self._tokenizer(word).split()  # 13a cuts at marks only
