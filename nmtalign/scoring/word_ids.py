"""Tokenised texts as numbers: a text is tokenised once, and what is asked of its words is asked of each word once."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.pipeline import WordIndex
from nmtalign.text.tokenizer import SentencePieces, Tokenizer

WINDOW = 20_000  # sentences at a time, so that memory does not grow with the text


@dataclass(frozen=True)
class WordIds:
    """A text as numbers of words; sentence i is ids[offsets[i]:offsets[i + 1]]."""

    ids: NDArray[np.int32]  # (tokens,)
    offsets: NDArray[np.int64]  # (N + 1,)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(N,) tokens of each sentence."""
        return np.diff(self.offsets)

    @property
    def sentences(self) -> NDArray[np.int64]:
        """(tokens,) the sentence that each token stands in."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def sentence(self, number: int) -> NDArray[np.int32]:
        """The words of one sentence."""
        return self.ids[self.offsets[number] : self.offsets[number + 1]]

    def window(self, start: int, stop: int) -> "WordIds":
        """Some of the sentences, as a view."""
        offsets = self.offsets[start : stop + 1]
        return WordIds(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])

    @classmethod
    def of(cls, lines: Iterable[str], split: Callable[[str], Sequence[str]], index: WordIndex) -> "WordIds":
        """The lines as `split` cuts them; words that are new get the next numbers of `index`."""
        ids, lengths = [np.zeros(0, np.int32)], [0]
        for block in _blocks(lines):
            sentences = [split(line) for line in block]
            lengths.extend(map(len, sentences))
            ids.append(np.fromiter(map(index.__getitem__, itertools.chain.from_iterable(sentences)), np.int32))
        return cls(np.concatenate(ids), np.cumsum(lengths, dtype=np.int64))


@dataclass(frozen=True)
class Pairs:
    """How often each word stands in each sentence."""

    keys: NDArray[np.int64]  # (P,) sentence * words + word, rising
    counts: NDArray[np.int64]  # (P,)
    of_token: NDArray[np.int64]  # (tokens,) which of them each token belongs to

    @classmethod
    def of(cls, text: WordIds, words: int) -> "Pairs":
        """The pairs of a text of `words` different words."""
        keys, of_token, counts = np.unique(text.sentences * words + text.ids, return_inverse=True, return_counts=True)
        return cls(keys, counts, of_token)

    def shared(self, other: "Pairs") -> NDArray[np.int64]:
        """(P,) how often the other text has the word in the same sentence too, at most as often as this one."""
        if not len(other.keys):
            return np.zeros(len(self.keys), np.int64)
        place = np.minimum(np.searchsorted(other.keys, self.keys), len(other.keys) - 1)
        return np.where(other.keys[place] == self.keys, np.minimum(self.counts, other.counts[place]), 0)


class TargetTexts:
    """References and translations by several systems in words of the target language, tokenised once.

    A system is held against one reference a sentence: against that which shares most with it (the highest F1 of its
    words; of equals the first).
    """

    def __init__(
        self, references: Sequence[Sequence[str]], systems: Sequence[Sequence[str]], tokenizer: Tokenizer
    ) -> None:
        split, index = whole_words(tokenizer), WordIndex()
        self.references = tuple(WordIds.of(lines, split, index) for lines in references)
        self.systems = tuple(WordIds.of(lines, split, index) for lines in systems)
        self.words = tuple(index)  # the different words, by number

    @cached_property
    def against(self) -> tuple[WordIds, ...]:
        """For each system the reference of each sentence that it is held against."""
        if len(self.references) == 1:
            return self.references * len(self.systems)
        return tuple(self._nearest(system) for system in self.systems)

    def windows(self, system: int) -> Iterator[tuple[WordIds, WordIds]]:
        """(hypotheses, references) of a system, some sentences at a time."""
        for start, stop in _windows(len(self.systems[system])):
            yield self.systems[system].window(start, stop), self.against[system].window(start, stop)

    def _nearest(self, system: WordIds) -> WordIds:
        parts, lengths = [np.zeros(0, np.int32)], [np.zeros(1, np.int64)]
        for start, stop in _windows(len(system)):
            references = [reference.window(start, stop) for reference in self.references]
            scores = [_f1(system.window(start, stop), reference, len(self.words)) for reference in references]
            chosen = np.argmax(scores, axis=0)  # the first of equals
            parts += [references[best].sentence(number) for number, best in enumerate(chosen)]
            lengths.append(np.choose(chosen, [reference.lengths for reference in references]))
        return WordIds(np.concatenate(parts), np.cumsum(np.concatenate(lengths)))


def whole_words(tokenizer: Tokenizer) -> Callable[[str], Sequence[str]]:
    """What cuts a line into words: the tokeniser, with subword pieces joined."""
    if not isinstance(tokenizer, SentencePieces):
        return tokenizer.tokenize
    # The same as tokenizer.words, without a step a piece.
    return lambda line: [word for word in tokenizer.detokenize(tokenizer.tokenize(line)).split(" ") if word]


def _windows(sentences: int) -> Iterator[tuple[int, int]]:
    for start in range(0, sentences, WINDOW):
        yield start, min(start + WINDOW, sentences)


def _f1(hypotheses: WordIds, references: WordIds, words: int) -> NDArray[np.float64]:
    pairs = Pairs.of(hypotheses, words)
    matches = np.bincount(pairs.keys // max(words, 1), pairs.shared(Pairs.of(references, words)), len(hypotheses))
    scores: NDArray[np.float64] = 2 * matches / np.maximum(hypotheses.lengths + references.lengths, 1)
    return scores


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(lines)
    while block := list(itertools.islice(iterator, 1000)):
        yield block
