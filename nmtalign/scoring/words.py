"""How well words are translated, by their frequency in the training text and by their place in the sentence.

The places are the fifths of a sentence. All fifths of a sentence of n words have the same width. Word i (from 0)
belongs to the fifth of its middle: floor(5 (i + 1/2) / n). A sentence of three words has words in fifths 1, 3 and 5.

Words match wherever they are in the sentence. If a sentence has a word c times, and m of them match (m is the smaller
of the counts in hypothesis and reference), each of the c counts m/c. No place is favoured, and the matches of all
places add up to those of the sentence. Recall at a place is over the words that the reference has there, precision over
the words that the hypothesis has there.
"""

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.word_ids import TargetTexts, WordIds, matched, whole_words
from nmtalign.text.lines import read_lines
from nmtalign.text.tokenizer import Subwords, Tokenizer
from nmtalign.text.vocabulary import EOS_ID, UNK_ID, Vocabulary, is_word

if TYPE_CHECKING:
    from nmtalign.data.corpus import Corpus

FREQUENCIES = (1, 2, 10, 100, 1000)  # the lowest counts of the buckets
PLACES = ("first fifth", "second fifth", "third fifth", "fourth fifth", "last fifth")
_TOKENS = 1 << 20  # counted at a time, because numpy copies them as 64-bit numbers
_NOT_A_WORD = "\n"  # no piece contains it: marks words with a character that has no piece


@dataclass(frozen=True)
class WordCounts:
    """Words of the references and of one system's hypotheses, and how many of them match within their sentence.

    By place, a match can be at one place in the hypothesis and at another in the reference: `found` counts it where the
    reference has it, `matches` where the hypothesis has it. Both have fractions there.
    """

    reference: int
    hypothesis: int
    matches: float
    found: float | None = None  # words of the references that match; None = `matches`

    @property
    def precision(self) -> float | None:
        """Matches over words of the hypotheses, in percent; None if there are none."""
        return 100 * self.matches / self.hypothesis if self.hypothesis else None

    @property
    def recall(self) -> float | None:
        """Matches over words of the references, in percent; None if there are none."""
        found = self.matches if self.found is None else self.found
        return 100 * found / self.reference if self.reference else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall, in percent; None if there is no word on either side."""
        if self.found is None:
            words = self.hypothesis + self.reference
            return 200 * self.matches / words if words else None
        if self.precision is None and self.recall is None:
            return None
        precision, recall = self.precision or 0.0, self.recall or 0.0
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True)
class WordRow:
    """The words of one bucket: the counts of each system."""

    label: str  # `unknown`, `1`, `2-9`; `first fifth`
    counts: tuple[WordCounts, ...]


@dataclass(frozen=True)
class WordBreakdown:
    """All words, divided by one property."""

    by: Literal["frequency", "place"]
    title: str  # `words by frequency in training`
    heading: str  # of the column of labels: `times seen`
    rows: tuple[WordRow, ...]


@dataclass(frozen=True)
class UnknownRates:
    """The share of words that are not in the vocabulary, from 0 to 1."""

    source: float | None  # None without a source
    reference: float
    systems: tuple[float, ...]


@dataclass(frozen=True)
class Frequencies:
    """The count of each word of the target language in the training text; all other words are unknown."""

    counts: Mapping[str, int]
    tokenizer: Tokenizer  # defines the words

    @classmethod
    def from_corpus(cls, folder: Path) -> "Frequencies":
        """Counts the words of the training part of a prepared corpus.

        A word outside the shortlist is unknown, even if the text contained it. Words of a subword corpus are whole
        words. Raises FormatError if there is no corpus.
        """
        from nmtalign.data.corpus import Corpus

        corpus = Corpus.open(folder)
        tokenizer = corpus.tokenizers.target
        counts = _count_joined(corpus, tokenizer) if isinstance(tokenizer, Subwords) else _count_ids(corpus)
        return cls(counts, tokenizer)

    @classmethod
    def from_text(
        cls,
        path: Path,
        tokenizer: Tokenizer,
        *,
        vocabulary: Vocabulary | None = None,
        only: Collection[str] | None = None,
    ) -> "Frequencies":
        """Counts the words of a training text, plain or compressed.

        With a vocabulary of words, all others are unknown. With `only` (a set), other words are not counted, so that
        memory does not grow with the text. Raises InputError if the text is missing or not UTF-8.
        """
        words = itertools.chain.from_iterable(map(whole_words(tokenizer), read_lines(path)))
        counts = Counter(words if only is None else filter(only.__contains__, words))
        if vocabulary is None or isinstance(tokenizer, Subwords):
            return cls(counts, tokenizer)
        return cls({word: count for word, count in counts.items() if word in vocabulary}, tokenizer)

    def of(self, words: Sequence[str]) -> NDArray[np.int64]:
        """(len(words),) the count of each word; 0 = unknown."""
        return np.fromiter((self.counts.get(word, 0) for word in words), np.int64, len(words))

    def unknown_rates(self, texts: TargetTexts) -> UnknownRates:
        """The share of unknown words in references and systems; the source is not counted."""
        unknown = self.of(texts.words) == 0
        words = np.fromiter(map(is_word, texts.words), np.bool_, len(texts.words))
        references = np.concatenate([reference.ids for reference in texts.references])
        shares = (share_of(unknown[ids], words[ids]) for ids in (references, *(system.ids for system in texts.systems)))
        return UnknownRates(None, next(shares), tuple(shares))


def share_of(unknown: NDArray[np.bool_], words: NDArray[np.bool_]) -> float:
    """The share of the words among some tokens that are unknown; 0 if there are no words."""
    return float(unknown[words].mean()) if words.any() else 0.0


def _count_ids(corpus: "Corpus") -> dict[str, int]:
    ids = corpus.splits["train"].target.ids
    size = len(corpus.target_vocabulary)
    blocks = (ids[start : start + _TOKENS] for start in range(0, len(ids), _TOKENS))
    counts = sum((np.bincount(block, minlength=size) for block in blocks), np.zeros(size, np.int64))
    first = max(EOS_ID, UNK_ID) + 1
    return dict(zip(corpus.target_vocabulary.words[first:], counts[first:].tolist(), strict=True))


def _count_joined(corpus: "Corpus", tokenizer: Subwords) -> dict[str, int]:
    """The words that the tokens of each sentence form; a word with an unknown character is left out."""
    target = corpus.splits["train"].target
    pieces = list(corpus.target_vocabulary.words)
    pieces[UNK_ID] = _NOT_A_WORD
    counts: Counter[str] = Counter()
    for start, stop in itertools.pairwise(target.offsets):
        counts.update(tokenizer.detokenize([pieces[number] for number in target.ids[start:stop].tolist()]).split(" "))
    return {word: count for word, count in counts.items() if word and _NOT_A_WORD not in word}


def word_table(texts: TargetTexts, frequencies: Frequencies, lowest: Sequence[int] = FREQUENCIES) -> WordBreakdown:
    """Divides words by their training frequency; `lowest` are the lowest counts of the buckets, from 1 and rising.

    A match is a word that hypothesis and reference of a sentence share, counted as often as both have it. With one
    reference the figures are those of compare-mt, given the same words and counts.
    """
    bucket = np.searchsorted(lowest, frequencies.of(texts.words), side="right")  # (words,) 0 = unknown
    ends = [(first, following - 1) for first, following in itertools.pairwise(lowest)]
    labels = [str(first) if first == last else f"{first}-{last}" for first, last in ends]
    labels = ["unknown", *labels, f">={lowest[-1]}"]
    numbers = range(len(texts.systems))
    systems = [_counts(texts, number, lambda text: bucket[text.ids], len(labels)) for number in numbers]
    whole = ([replace(one, matches=round(one.matches), found=None) for one in counts] for counts in systems)
    rows = [WordRow(label, counts) for label, counts in zip(labels, zip(*whole, strict=True), strict=True)]
    return WordBreakdown("frequency", "words from unknown and rare to frequent in training", "times seen", tuple(rows))


def place_table(texts: TargetTexts) -> WordBreakdown:
    """Divides words by the fifth of their sentence."""
    systems = [_counts(texts, system, _fifth, len(PLACES)) for system in range(len(texts.systems))]
    rows = [WordRow(label, counts) for label, counts in zip(PLACES, zip(*systems, strict=True), strict=True)]
    return WordBreakdown("place", "words by place in the sentence", "place", tuple(rows))


def _fifth(text: WordIds) -> NDArray[np.int64]:
    """(tokens,) the fifth of the sentence to which each word belongs, from 0."""
    position = np.arange(len(text.ids)) - np.repeat(text.offsets[:-1], text.lengths)
    fifths: NDArray[np.int64] = len(PLACES) * (2 * position + 1) // np.repeat(2 * text.lengths, text.lengths)
    return fifths


def _counts(
    texts: TargetTexts, system: int, bucket_of: Callable[[WordIds], NDArray[np.int64]], buckets: int
) -> list[WordCounts]:
    """The counts of each bucket; `bucket_of` returns the bucket of each token."""
    totals = np.zeros((4, buckets))  # words of the references, of the hypotheses, and those of each side that match
    for hypotheses, references in texts.windows(system):
        for side, (text, other) in enumerate(((references, hypotheses), (hypotheses, references))):
            bucket = bucket_of(text)
            totals[side] += np.bincount(bucket, minlength=buckets)
            totals[2 + side] += np.bincount(bucket, matched(text, other, len(texts.words)), buckets)
    columns = totals.T.tolist()
    return [
        WordCounts(int(reference), int(hypothesis), matches, found) for reference, hypothesis, found, matches in columns
    ]
