"""Words of many sentences as numbers, cut by sacreBLEU's own tokenisers, each different word once."""

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np
from sacrebleu.metrics import BLEU

from nmtalign.data.pipeline import WordIndex
from nmtalign.scoring.ngrams import Numbered

_MOST_WORDS = 300_000  # kept from one block of sentences to the next


class Tokens(dict[str, tuple[int, ...]]):
    """The numbers, from 1, of the tokens of a word between blanks, found once."""

    def __init__(self, cut: Callable[[str], Iterable[str]]) -> None:
        self._cut = cut
        self.index = WordIndex({"": 0})  # no token is empty: 0 stays for the end of a sentence

    def __missing__(self, word: str) -> tuple[int, ...]:
        self[word] = numbers = tuple(map(self.index.__getitem__, self._cut(word)))
        return numbers

    def cut(self, lines: Iterable[Sequence[str]]) -> Numbered:
        """Lines of words, cut."""
        return _numbered(chain.from_iterable(map(self.__getitem__, words)) for words in lines)

    def whole(self, lines: Iterable[Sequence[str]]) -> Numbered:
        """Lines of tokens."""
        return _numbered(map(self.index.__getitem__, tokens) for tokens in lines)

    def bound(self) -> None:
        """Forgets all words where they have become many; those numbered before and after must not be compared."""
        if len(self) > _MOST_WORDS or len(self.index) > _MOST_WORDS:
            self.clear()
            self.index = WordIndex({"": 0})


class BleuTokens:
    """Lines as the tokens that a BLEU of sacreBLEU's counts."""

    def __init__(self, metric: BLEU) -> None:
        self._tokenizer: Any = metric.tokenizer
        self._lowercase = metric.lowercase
        self._kind: str = metric.tokenizer_signature
        self._tokens = Tokens(self._cut)

    def numbered(self, texts: Sequence[Sequence[str]], split: Sequence[Sequence[Sequence[str]]]) -> list[Numbered]:
        """The texts' tokens; `split` are their lines' words between blanks."""
        self._tokens.bound()
        if self._lowercase:
            texts = [[line.lower() for line in lines] for lines in texts]
            split = [[line.split() for line in lines] for lines in texts]
        if self._kind == "none":
            return [self._tokens.whole(lines) for lines in split]
        if self._kind == "13a" and not any("\n" in line for lines in texts for line in lines):
            # No rule of 13a looks beyond a blank, only at a line's end within the text.
            return [self._tokens.cut(lines) for lines in split]
        tokenized = [[self._tokenizer(line.rstrip()).split() for line in lines] for lines in texts]
        return [self._tokens.whole(lines) for lines in tokenized]

    def _cut(self, word: str) -> list[str]:
        if word.isalnum():  # 13a cuts at marks only
            return [word]
        tokens: list[str] = self._tokenizer(word).split()
        return tokens


def _numbered(lines: Iterable[Iterable[int]]) -> Numbered:
    codes: list[int] = []
    ends: list[int] = []
    for numbers in lines:
        codes.extend(numbers)
        ends.append(len(codes))
        codes.append(0)
    lasts = np.array([-1, *ends], dtype=np.int64)
    return Numbered(np.array(codes, dtype=np.int64), lasts[1:] - lasts[:-1] - 1)
