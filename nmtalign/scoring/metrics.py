"""BLEU, chrF, chrF++ and TER as sacreBLEU gives them, and multi-bleu, from statistics that are counted once a sentence.

A corpus score is a function of the sum of the sentences' statistics, so that every bucket, subset and resample costs
one sum. The statistics equal sacreBLEU's, sentence by sentence, and its own code turns their sum into the score.
"""

from collections.abc import Sequence

from nmtalign.scoring.measuring import measure, measure_systems, steps
from nmtalign.scoring.options import METRICS, SACREBLEU, TOKENIZE, MetricOptions
from nmtalign.scoring.statistics import Score, Statistics

__all__ = [
    "METRICS",
    "SACREBLEU",
    "TOKENIZE",
    "MetricOptions",
    "Score",
    "Statistics",
    "bleu",
    "corpus_scores",
    "looks_tokenized",
    "measure",
    "measure_systems",
    "steps",
]


def corpus_scores(
    hypotheses: Sequence[str], *references: Sequence[str], options: MetricOptions | None = None
) -> list[Score]:
    """The scores of the whole corpus against one or more references, with signatures."""
    return [statistics.score() for statistics in measure(hypotheses, references, options)]


def bleu(hypotheses: Sequence[str], references: Sequence[str], lowercase: bool = False, tokenize: str = "13a") -> Score:
    """sacreBLEU's BLEU of the whole corpus against one reference, counted in this process (training uses the cores)."""
    return measure(hypotheses, [references], MetricOptions(("bleu",), lowercase, tokenize), processes=1)[0].score()


def looks_tokenized(hypotheses: Sequence[str]) -> int:
    """The number of lines that end in a period set apart, where there are 100 or more of them; else 0."""
    count = sum(line.endswith(" .") for line in hypotheses)
    return count if count >= 100 else 0  # sacreBLEU's own threshold
