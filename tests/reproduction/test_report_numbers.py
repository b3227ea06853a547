"""Numbers that a report computes itself: reordering by links, the sentences to draw, and the trend over buckets."""

import dataclasses

import numpy as np
import pytest

from nmtalign.alignment.links import AlignmentRecord
from nmtalign.reproduction.report_figures import trend
from nmtalign.reproduction.reproduction_results import metrics_of, most_reordered, reordering, sure_links


def record(order, number=0, weight=1.0, prefix="w") -> AlignmentRecord:
    """Target word j attends to source word order[j]."""
    size = len(order)
    weights = np.full((size + 1, size + 1), (1 - weight) / size, np.float32)
    for target, source in enumerate(order):
        weights[target, source] = weight
    weights[-1] = 0
    weights[-1, -1] = 1
    words = tuple(f"{prefix}{place}" for place in range(size))
    links = tuple((source, target) for target, source in enumerate(order))
    return AlignmentRecord(words, words, weights, 0.0, number, np.zeros(size + 1, np.float32), links)


@pytest.mark.parametrize(
    ("links", "share"),
    [
        ([], 0.0),
        ([(0, 0)], 0.0),
        ([(0, 0), (1, 1), (2, 2)], 0.0),
        ([(0, 2), (1, 1), (2, 0)], 1.0),
        ([(0, 0), (1, 2), (2, 1)], 1 / 3),
        ([(0, 0), (0, 1), (1, 0)], 1.0),  # two of three pairs of links share a word, and the third crosses
    ],
)
def test_reordering(links, share):
    assert reordering(links) == pytest.approx(share)


def test_the_most_reordered_come_first_and_twins_once():
    monotone, swapped, turned = range(6), [1, 0, 3, 2, 5, 4], [5, 4, 3, 2, 1, 0]
    records = [record(monotone, 0, prefix="a"), record(turned, 1, prefix="b"), record(swapped, 2, prefix="c")]
    records.append(record(turned, 3, prefix="b"))
    assert [one.sentence_id for one in most_reordered(records, 3)] == [1, 2, 0]
    assert [one.sentence_id for one in most_reordered(records, 1)] == [1]


def test_spread_looks_short_and_long_sentences_are_not_drawn():
    assert sure_links(record(range(6), weight=0.4)) == []
    few = record([5, 5, 4, 4, 0, 0])  # six links, but of three source words
    assert most_reordered([record(range(6), weight=0.4), record([1, 0]), record(range(31)), few], 5) == []


@pytest.mark.parametrize(
    ("values", "tau"),
    [
        ([1.0, 2.0, 3.0], 1.0),
        ([3.0, 2.0, 1.0], -1.0),
        ([2.0, 2.0], 0.0),
        ([1.0, 3.0, 2.0], 1 / 3),
        ([1.0, 2.0, 2.0, 3.0], 5 / 6),
    ],
)
def test_trend(values, tau):
    assert trend(values) == pytest.approx(tau)


def test_the_target_language_chooses_the_tokeniser_of_bleu(plan):
    made = plan(models="RNNsearch-50")
    for language, tokenize, metrics in (("fr", "13a", ("bleu", "multi-bleu")), ("zh", "zh", ("bleu",))):
        changed = dataclasses.replace(made, workspace=dataclasses.replace(made.workspace, target_language=language))
        found = metrics_of(changed, ["un chat"])
        assert (found.tokenize, found.metrics) == (tokenize, metrics)
    given = dataclasses.replace(changed, scoring=dataclasses.replace(made.scoring, tokenize="char"))
    assert metrics_of(given).tokenize == "char"
