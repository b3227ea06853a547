"""How well words are translated, by how often training saw them and by where they stand in the sentence."""

from dataclasses import dataclass
from typing import Literal


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
