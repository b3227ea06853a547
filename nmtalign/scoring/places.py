"""How well words are translated by where they stand in the sentence: does a model forget how it ends?

The places are the fifths of a sentence: of n words, each as wide as any other, word i (from 0) is where its middle
falls, in fifth floor(5 (i + 1/2) / n). A sentence of three words has words in the first, the third and the last.

Words match wherever they stand. If a sentence has a word c times, and m of those match (m is the smaller of the
counts in hypothesis and reference), nothing says which: each of the c counts m/c. So no place is favoured, and the
matches of all places add up to those of the sentence. Recall at a place is over the words that the reference has there
(`found` of them are in the hypothesis), precision over those that the hypothesis has there.
"""

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.word_ids import Pairs, TargetTexts, WordIds
from nmtalign.scoring.words import WordCounts, WordRow, WordTable

PLACES = ("first fifth", "second fifth", "third fifth", "fourth fifth", "last fifth")


def place_table(texts: TargetTexts) -> WordTable:
    """Words of references and systems by the fifth of the sentence in which they stand."""
    systems = [_counts(texts, system) for system in range(len(texts.systems))]
    rows = [
        WordRow(label, tuple(_word_counts(counts[:, number]) for counts in systems))
        for number, label in enumerate(PLACES)
    ]
    return WordTable("place", "words by place in the sentence", "place", tuple(rows))


def _counts(texts: TargetTexts, system: int) -> NDArray[np.float64]:
    """(4, places) words of the hypotheses, those that match, words of the references, those that match."""
    totals = np.zeros((4, len(PLACES)))
    for hypotheses, references in texts.windows(system):
        of_hypotheses, of_references = (Pairs.of(side, len(texts.words)) for side in (hypotheses, references))
        totals[:2] += _at_places(hypotheses, of_hypotheses, of_references)
        totals[2:] += _at_places(references, of_references, of_hypotheses)
    return totals


def _at_places(tokens: WordIds, pairs: Pairs, other: Pairs) -> NDArray[np.float64]:
    """(2, places) how many words stand there, and how many of them the other text has, too."""
    position = np.arange(len(tokens.ids)) - np.repeat(tokens.offsets[:-1], tokens.lengths)
    place = len(PLACES) * (2 * position + 1) // np.repeat(2 * tokens.lengths, tokens.lengths)
    shares = (pairs.shared(other) / pairs.counts)[pairs.of_token]
    return np.stack([np.bincount(place, weights, len(PLACES)) for weights in (np.ones(len(place)), shares)])


def _word_counts(column: NDArray[np.float64]) -> WordCounts:
    hypothesis, matches, reference, found = column.tolist()
    return WordCounts(round(reference), round(hypothesis), matches, found)
