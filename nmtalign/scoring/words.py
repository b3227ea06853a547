"""How well words are translated, by how often training saw them and by their place in the sentence.

The places are the fifths of a sentence. All fifths of a sentence of n words have the same width. Word i (from 0)
belongs to the fifth of its middle: floor(5 (i + 1/2) / n). A sentence of three words has words in fifths 1, 3 and 5.

Words match wherever they are in the sentence. If a sentence has a word c times, and m of them match (m is the smaller
of the counts in hypothesis and reference), each of the c counts m/c. No place is favoured, and the matches of all
places add up to those of the sentence. Recall at a place is over the words that the reference has there, precision over
the words that the hypothesis has there.
"""

import itertools
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import UsageError
from nmtalign.scoring.word_ids import TargetTexts, WordIds, WordPairs, whole_words
from nmtalign.text.lines import read_lines
from nmtalign.text.tokenizer import WORD_START, SentencePieces, Tokenizer
from nmtalign.text.vocabulary import EOS_ID, UNK_ID, Vocabulary

if TYPE_CHECKING:
    from nmtalign.data.corpus import Corpus

FREQUENCIES = "1,2,10,100,1000"  # once, a handful, ...: the lowest counts of the buckets
UNKNOWN = "unknown"
_LINES = 1000  # at a time
_TOKENS = 1 << 20  # at a time
_NOT_A_WORD = "\n"  # no piece holds it: marks words of which a character has no piece
PLACES = ("first fifth", "second fifth", "third fifth", "fourth fifth", "last fifth")


@dataclass(frozen=True)
class WordCounts:
    """Words of the references and of one system's hypotheses, and how many of them match, clipped a sentence.

    By place in the sentence a match may stand at one place in the hypothesis and at another in the reference: `found`
    counts it where the reference has it, `matches` where the hypothesis has it. Both have fractions there (see places).
    """

    reference: int
    hypothesis: int
    matches: float  # whole where words are cut by frequency
    found: float | None = None  # words of the references that match; None = `matches`

    @property
    def precision(self) -> float | None:
        """Matches over words of the hypotheses, in percent; None where there are none."""
        return 100 * self.matches / self.hypothesis if self.hypothesis else None

    @property
    def recall(self) -> float | None:
        """Matches over words of the references, in percent; None where there are none."""
        found = self.matches if self.found is None else self.found
        return 100 * found / self.reference if self.reference else None

    @property
    def f1(self) -> float | None:
        """The harmonic mean of both, in percent; None where there is no word on either side."""
        if self.found is None:
            words = self.hypothesis + self.reference
            return 200 * self.matches / words if words else None
        precision, recall = self.precision or 0.0, self.recall or 0.0
        if self.precision is None and self.recall is None:
            return None
        return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


@dataclass(frozen=True)
class WordRow:
    """The words of one bucket: counts of each system."""

    label: str  # `unknown`, `1`, `2-9`; `first fifth`
    counts: tuple[WordCounts, ...]


@dataclass(frozen=True)
class WordTable:
    """Words cut by one property of them."""

    by: Literal["frequency", "place"]
    title: str  # `words by frequency in training`
    heading: str  # of the column of labels: `times seen`
    rows: tuple[WordRow, ...]


@dataclass(frozen=True)
class UnknownRates:
    """The share of words that are not in the vocabulary, from 0 to 1."""

    source: float | None  # None where no source was given
    reference: float
    systems: tuple[float, ...]


@dataclass(frozen=True)
class Frequencies:
    """How often training saw each word of the target language; a word that is not there is unknown."""

    counts: Mapping[str, int]
    tokenizer: Tokenizer  # what a word is

    @classmethod
    def from_corpus(cls, folder: Path) -> "Frequencies":
        """The words of the training part of a prepared corpus.

        A word outside the shortlist is unknown, however often the text had it. Words of a subword corpus are whole
        words, unknown where the training part does not have them. Raises FormatError where there is no corpus.
        """
        from nmtalign.data.corpus import Corpus

        corpus = Corpus.open(folder)
        tokenizer = corpus.tokenizers.target
        return cls(_joined(corpus) if isinstance(tokenizer, SentencePieces) else _listed(corpus), tokenizer)

    @classmethod
    def from_text(
        cls,
        path: Path,
        tokenizer: Tokenizer,
        *,
        vocabulary: Vocabulary | None = None,
        only: Collection[str] | None = None,
        advance: Callable[[int], None] | None = None,
    ) -> "Frequencies":
        """The words of a training text, plain or .gz, as `tokenizer` cuts them.

        With a vocabulary of words, those outside it are unknown; with `only` (a set), other words are not counted, so
        that memory does not grow with the text. `advance` is called with the number of lines read. Raises InputError
        where the text is missing or not UTF-8.
        """
        split, counts, lines = whole_words(tokenizer), Counter[str](), read_lines(path)
        while block := list(itertools.islice(lines, _LINES)):
            words = itertools.chain.from_iterable(map(split, block))
            counts.update(words if only is None else filter(only.__contains__, words))
            if advance:
                advance(len(block))
        if vocabulary is None or isinstance(tokenizer, SentencePieces):
            return cls(counts, tokenizer)
        return cls({word: count for word, count in counts.items() if word in vocabulary}, tokenizer)

    def of(self, words: Sequence[str]) -> NDArray[np.int64]:
        """(len(words),) how often training saw each word; 0 = unknown."""
        counts = self.counts
        return np.fromiter((counts.get(word, 0) for word in words), np.int64, len(words))

    def unknown_rates(self, texts: TargetTexts) -> UnknownRates:
        """The share of words of references and systems that are unknown; nothing is said of the source."""
        unknown = self.of(texts.words) == 0
        references = np.concatenate([reference.ids for reference in texts.references])
        return UnknownRates(None, _share(unknown[references]), tuple(_share(unknown[s.ids]) for s in texts.systems))


def parse_frequencies(text: str = FREQUENCIES) -> tuple[int, ...]:
    """The lowest counts of the buckets: "1,10,100" is 1-9, 10-99 and >=100; unknown words are always apart.

    Together they hold every count once. Raises UsageError unless they are whole numbers that rise, the first above 0.
    """
    parts = [part.strip() for part in text.split(",")]
    lowest = [int(part) for part in parts if re.fullmatch(r"[0-9]{1,12}", part)]
    rising = all(first < second for first, second in itertools.pairwise([0, *lowest]))
    if len(lowest) < len(parts) or not rising:
        raise UsageError(
            f"frequencies = {text!r}: give the lowest counts of the rows, whole numbers from 1 that rise, "
            f"as in {FREQUENCIES}"
        )
    return tuple(lowest if lowest[0] == 1 else [1, *lowest])


def word_table(texts: TargetTexts, frequencies: Frequencies, lowest: Sequence[int] = ()) -> WordTable:
    """Words of references and systems by how often training saw them; `lowest` is what `parse_frequencies` gives.

    A match is a word that hypothesis and reference of a sentence share, counted as often as both have it. With one
    reference the figures are those of compare-mt, given the same words and counts.
    """
    lowest = tuple(lowest) or parse_frequencies()
    bucket = np.searchsorted(lowest, frequencies.of(texts.words), side="right")  # (words,) 0 = unknown
    systems = [_frequency_counts(texts, system, bucket, len(lowest) + 1) for system in range(len(texts.systems))]
    rows = [
        WordRow(label, tuple(WordCounts(*map(int, counts[number])) for counts in systems))
        for number, label in enumerate(_labels(lowest))
    ]
    return WordTable("frequency", "words from unknown and rare to frequent in training", "times seen", tuple(rows))


def _frequency_counts(texts: TargetTexts, system: int, bucket: NDArray[np.int64], buckets: int) -> NDArray[np.int64]:
    """(buckets, 3) words of reference, of hypothesis, matches."""
    totals = np.zeros((buckets, 3), np.int64)
    for hypotheses, references in texts.windows(system):
        pairs = WordPairs.of(references, len(texts.words))
        shared = pairs.shared(WordPairs.of(hypotheses, len(texts.words)))
        matches = np.bincount(bucket[pairs.keys % len(texts.words)], shared, buckets) if len(shared) else 0
        totals[:, 0] += np.bincount(bucket[references.ids], minlength=buckets)
        totals[:, 1] += np.bincount(bucket[hypotheses.ids], minlength=buckets)
        totals[:, 2] += np.asarray(matches).astype(np.int64)
    return totals


def _labels(lowest: Sequence[int]) -> Iterator[str]:
    yield UNKNOWN
    for first, following in itertools.pairwise(lowest):
        yield str(first) if following == first + 1 else f"{first}-{following - 1}"
    yield f">={lowest[-1]}"


def _listed(corpus: "Corpus") -> dict[str, int]:
    """Counts of the words of a shortlist."""
    ids, _ = corpus.splits["train"].flat()[1]
    counts = np.zeros(len(corpus.target_vocabulary), np.int64)
    for start in range(0, len(ids), _TOKENS):
        counts += np.bincount(ids[start : start + _TOKENS], minlength=len(counts))
    first = max(EOS_ID, UNK_ID) + 1
    return dict(zip(corpus.target_vocabulary.words[first:], counts[first:].tolist(), strict=True))


def _joined(corpus: "Corpus") -> Counter[str]:
    """Counts of the words that the pieces of each sentence make up; a word with an unknown character has no name."""
    ids, offsets = corpus.splits["train"].flat()[1]
    pieces = np.array([*corpus.target_vocabulary.words, " "], dtype=object)
    pieces[UNK_ID] = _NOT_A_WORD
    pieces = np.array([piece.replace(WORD_START, " ") for piece in pieces], dtype=object)
    counts: Counter[str] = Counter()
    for start, stop in _sentences(offsets):
        inside = offsets[start:stop] - offsets[start]
        part = np.insert(ids[offsets[start] : offsets[stop]].astype(np.int64), inside, len(pieces) - 1)
        counts.update("".join(pieces[part]).split(" "))
    return Counter({word: count for word, count in counts.items() if word and _NOT_A_WORD not in word})


def _sentences(offsets: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    """(start, stop) of sentences with about as many tokens as are taken at a time."""
    start, last = 0, len(offsets) - 1
    while start < last:
        stop = min(max(int(np.searchsorted(offsets, offsets[start] + _TOKENS)), start + 1), last)
        yield start, stop
        start = stop


def _share(unknown: NDArray[Any]) -> float:
    return float(unknown.mean()) if len(unknown) else 0.0


def place_table(texts: TargetTexts) -> WordTable:
    """Words of references and systems by the fifth of the sentence in which they stand."""
    systems = [_place_counts(texts, system) for system in range(len(texts.systems))]
    rows = [
        WordRow(label, tuple(_word_counts(counts[:, number]) for counts in systems))
        for number, label in enumerate(PLACES)
    ]
    return WordTable("place", "words by place in the sentence", "place", tuple(rows))


def _place_counts(texts: TargetTexts, system: int) -> NDArray[np.float64]:
    """(4, places) words of the hypotheses, those that match, words of the references, those that match."""
    totals = np.zeros((4, len(PLACES)))
    for hypotheses, references in texts.windows(system):
        of_hypotheses, of_references = (WordPairs.of(side, len(texts.words)) for side in (hypotheses, references))
        totals[:2] += _at_places(hypotheses, of_hypotheses, of_references)
        totals[2:] += _at_places(references, of_references, of_hypotheses)
    return totals


def _at_places(tokens: WordIds, pairs: WordPairs, other: WordPairs) -> NDArray[np.float64]:
    """(2, places) how many words stand there, and how many of them the other text has, too."""
    position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], tokens.lengths)
    place = len(PLACES) * (2 * position + 1) // np.repeat(2 * tokens.lengths, tokens.lengths)
    shares = (pairs.shared(other) / pairs.counts)[pairs.of_token]
    return np.stack([np.bincount(place, weights, len(PLACES)) for weights in (np.ones(len(place)), shares)])


def _word_counts(column: NDArray[np.float64]) -> WordCounts:
    hypothesis, matches, reference, found = column.tolist()
    return WordCounts(round(reference), round(hypothesis), matches, found)
