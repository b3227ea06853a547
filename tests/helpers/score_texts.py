"""Scores of texts by `measure`, as tests compare them with sacreBLEU's."""

from nmtalign.scoring.metrics import measure


def corpus_scores(hypotheses, *references, options=None):
    """The scores of the complete corpus by each metric."""
    return [statistics.score() for statistics in measure(hypotheses, references, options)]
