"""Tokenised texts as numbers of words: each text is tokenised once, and each different word is examined once."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.pipeline import WordIndex
from nmtalign.text.tokenizer import MosesWords, SentencePieces, Subwords, Tokenizer

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
        """(N,) the number of tokens of each sentence."""
        return np.diff(self.offsets)

    @property
    def sentences(self) -> NDArray[np.int64]:
        """(tokens,) the sentence of each token."""
        return np.repeat(np.arange(len(self)), self.lengths)

    def sentence(self, number: int) -> NDArray[np.int32]:
        """The words of one sentence."""
        return self.ids[self.offsets[number] : self.offsets[number + 1]]

    def window(self, start: int, stop: int) -> "WordIds":
        """Some of the sentences, as a view."""
        offsets = self.offsets[start : stop + 1]
        return WordIds(self.ids[offsets[0] : offsets[-1]], offsets - offsets[0])

    @classmethod
    def of(cls, lines: Sequence[str], split: Callable[[str], Sequence[str]], index: WordIndex) -> "WordIds":
        """The words of the lines as `split` finds them; new words get the next numbers of `index`."""
        lengths = [0]

        def sentences() -> Iterator[Sequence[str]]:
            for line in lines:
                words = split(line)
                lengths.append(len(words))
                yield words

        ids = np.fromiter(map(index.__getitem__, itertools.chain.from_iterable(sentences())), np.int32)
        return cls(ids, np.cumsum(lengths, dtype=np.int64))


class Tokenized:
    """Texts as numbers of words, each tokenised only once by each tokeniser.

    The texts must not change as long as this object exists.
    """

    def __init__(self) -> None:
        self._indices: dict[object, WordIndex] = {}  # one per tokeniser
        self._texts: dict[tuple[object, int], tuple[Sequence[str], WordIds]] = {}

    def ids(self, lines: Sequence[str], tokenizer: Tokenizer, *, whole: bool = False) -> WordIds:
        """The tokens of a text; with `whole`, subword pieces are joined to words."""
        key = _identity(tokenizer, whole), id(lines)
        if key not in self._texts:
            split = whole_words(tokenizer) if whole else tokenizer.tokenize
            # The lines are kept so that no other text gets their id.
            self._texts[key] = lines, WordIds.of(lines, split, self.index(tokenizer, whole=whole))
        return self._texts[key][1]

    def index(self, tokenizer: Tokenizer, *, whole: bool = False) -> WordIndex:
        """The different words of all texts so far, with their numbers."""
        return self._indices.setdefault(_identity(tokenizer, whole), WordIndex())


def _identity(tokenizer: Tokenizer, whole: bool) -> object:
    """Equal for tokenisers with equal results."""
    if isinstance(tokenizer, Subwords):
        return tokenizer.kind, tokenizer.model if isinstance(tokenizer, SentencePieces) else b"", whole
    return tokenizer.kind, *((tokenizer.language, tokenizer.joins_marks) if isinstance(tokenizer, MosesWords) else ())


def whole_words(tokenizer: Tokenizer) -> Callable[[str], Sequence[str]]:
    """The function that splits a line into words: the tokeniser, with subword pieces joined."""
    if not isinstance(tokenizer, Subwords):
        return tokenizer.tokenize
    # Equal to tokenizer.words, but faster.
    return lambda line: [word for word in tokenizer.detokenize(tokenizer.tokenize(line)).split(" ") if word]


class TargetTexts:
    """References and translations by several systems as words of the target language.

    Each sentence of a system is compared with the reference that shares most words with it (the highest F1; of equal
    ones the first).
    """

    def __init__(
        self,
        references: Sequence[Sequence[str]],
        systems: Sequence[Sequence[str]],
        tokenizer: Tokenizer,
        tokenized: Tokenized | None = None,
    ) -> None:
        tokenized = tokenized or Tokenized()
        self.references = tuple(tokenized.ids(lines, tokenizer, whole=True) for lines in references)
        self.systems = tuple(tokenized.ids(lines, tokenizer, whole=True) for lines in systems)
        self.words = tuple(tokenized.index(tokenizer, whole=True))  # the different words, by number

    def windows(self, system: int) -> Iterator[tuple[WordIds, WordIds]]:
        """(hypotheses of a system, their references), some sentences at a time."""
        for start in range(0, len(self.systems[system]), WINDOW):
            hypotheses, *references = (
                text.window(start, start + WINDOW) for text in (self.systems[system], *self.references)
            )
            yield hypotheses, _nearest(hypotheses, references, len(self.words))


def _nearest(hypotheses: WordIds, references: Sequence[WordIds], words: int) -> WordIds:
    """For each hypothesis the reference with the highest F1 of words."""
    if len(references) == 1:
        return references[0]
    scores = []
    for reference in references:
        matches = np.bincount(hypotheses.sentences, matched(hypotheses, reference, words), len(hypotheses))
        scores.append(2 * np.rint(matches) / np.maximum(hypotheses.lengths + reference.lengths, 1))
    nearest = np.argmax(scores, axis=0)
    sentences = [references[chosen].sentence(number) for number, chosen in enumerate(nearest)]
    return WordIds(np.concatenate(sentences), np.cumsum([0, *map(len, sentences)]))


def matched(text: WordIds, other: WordIds, words: int) -> NDArray[np.float64]:
    """(tokens,) how much of each token matches a word of the other text in the same sentence, from 0 to 1.

    If a sentence has a word c times and the other text has it d times, each of the c tokens gets min(c, d) / c.
    `words` is the number of different words.
    """
    keys, of_token, counts = np.unique(text.sentences * words + text.ids, return_inverse=True, return_counts=True)
    others, other_counts = np.unique(other.sentences * words + other.ids, return_counts=True)
    others, other_counts = np.append(others, -1), np.append(other_counts, 0)  # searchsorted can point behind the last
    place = np.searchsorted(others[:-1], keys)
    shared = np.where(others[place] == keys, np.minimum(counts, other_counts[place]), 0)
    shares: NDArray[np.float64] = (shared / counts)[of_token]
    return shares
