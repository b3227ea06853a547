"""Tokenised texts as numbers: a text is tokenised once, and what is asked of its words is asked of each word once."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nmtalign.data.pipeline import WordIndex
from nmtalign.text.moses import MosesWords
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


class Tokenized:
    """Texts as numbers of words, each tokenised once by each tokeniser, however many ask for it.

    The texts must stay as they are while this lives.
    """

    def __init__(self) -> None:
        self._indices: dict[object, WordIndex] = {}  # of tokenisers
        self._texts: dict[tuple[object, int], tuple[Sequence[str], WordIds]] = {}

    def ids(self, lines: Sequence[str], tokenizer: Tokenizer, *, whole: bool = False) -> WordIds:
        """The tokens of a text; `whole` = the words that subword pieces make up."""
        cut = _identity(tokenizer, whole)
        key = cut, id(lines)
        if key not in self._texts:
            split = whole_words(tokenizer) if whole else tokenizer.tokenize
            # The lines are kept so that no other text gets their id.
            self._texts[key] = lines, WordIds.of(lines, split, self.index(tokenizer, whole=whole))
        return self._texts[key][1]

    def index(self, tokenizer: Tokenizer, *, whole: bool = False) -> WordIndex:
        """The different words met so far, with their numbers."""
        return self._indices.setdefault(_identity(tokenizer, whole), WordIndex())


@dataclass(frozen=True)
class WordPairs:
    """How often each word stands in each sentence."""

    keys: NDArray[np.int64]  # (P,) sentence * words + word, rising
    counts: NDArray[np.int64]  # (P,)
    of_token: NDArray[np.int64]  # (tokens,) which of them each token belongs to

    @classmethod
    def of(cls, text: WordIds, words: int) -> "WordPairs":
        """The pairs of a text of `words` different words."""
        keys, of_token, counts = np.unique(text.sentences * words + text.ids, return_inverse=True, return_counts=True)
        return cls(keys, counts, of_token)

    def shared(self, other: "WordPairs") -> NDArray[np.int64]:
        """(P,) how often the other text has the word in the same sentence too, at most as often as this one."""
        if not len(other.keys):
            return np.zeros(len(self.keys), np.int64)
        place = np.minimum(np.searchsorted(other.keys, self.keys), len(other.keys) - 1)
        return np.where(other.keys[place] == self.keys, np.minimum(self.counts, other.counts[place]), 0)


class TargetTexts:
    """References and translations by several systems in words of the target language, tokenised once.

    A system is held against one reference a sentence: against that which shares most with it (the highest F1 of its
    words; of equals the first). `tokenized` keeps what others ask for, too.
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
            lengths.append(np.stack([reference.lengths for reference in references])[chosen, np.arange(len(chosen))])
        return WordIds(np.concatenate(parts), np.cumsum(np.concatenate(lengths)))


def whole_words(tokenizer: Tokenizer) -> Callable[[str], Sequence[str]]:
    """What cuts a line into words: the tokeniser, with subword pieces joined."""
    if not isinstance(tokenizer, SentencePieces):
        return tokenizer.tokenize
    # The same as tokenizer.words, without a step a piece.
    return lambda line: [word for word in tokenizer.detokenize(tokenizer.tokenize(line)).split(" ") if word]


def _identity(tokenizer: Tokenizer, whole: bool) -> object:
    """Equal where text is cut alike."""
    if isinstance(tokenizer, SentencePieces):
        return tokenizer.kind, tokenizer.model, whole
    return tokenizer.kind, tokenizer.language if isinstance(tokenizer, MosesWords) else ""


def _windows(sentences: int) -> Iterator[tuple[int, int]]:
    for start in range(0, sentences, WINDOW):
        yield start, min(start + WINDOW, sentences)


def _f1(hypotheses: WordIds, references: WordIds, words: int) -> NDArray[np.float64]:
    pairs = WordPairs.of(hypotheses, words)
    matches = np.bincount(pairs.keys // max(words, 1), pairs.shared(WordPairs.of(references, words)), len(hypotheses))
    scores: NDArray[np.float64] = 2 * matches / np.maximum(hypotheses.lengths + references.lengths, 1)
    return scores


def _blocks(lines: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(lines)
    while block := list(itertools.islice(iterator, 1000)):
        yield block
