"""Scores by hand, the bound that stops a search, and hypotheses that back-pointers reconstruct."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.search.beam_search import BackPointers, Scoring


@pytest.mark.parametrize(
    ("scoring", "expected"),
    [
        (Scoring(), -6.0 / 4),
        (Scoring(length_penalty=0.0), -6.0),
        (Scoring(length_penalty=0.5), -6.0 / 2),
        (Scoring(length_penalty=2.0), -6.0 / 16),
        (Scoring(word_penalty=0.5), (-6.0 - 2.0) / 4),
        (Scoring(word_penalty=-0.5, length_penalty=0.0), -6.0 + 2.0),
        (Scoring(coverage_penalty=2.0), -6.0 / 4 + 2.0 * (math.log(0.5) + math.log(0.25))),
        (Scoring(0.0, 1.0, 1.0), -6.0 - 4.0 + math.log(0.5) + math.log(0.25)),
    ],
    ids=str,
)
def test_score_by_hand(scoring, expected):
    coverage = np.array([0.5, 1.0, 3.0, 0.25])
    assert scoring.score(-6.0, 4, coverage) == pytest.approx(expected)


def test_a_word_that_was_not_read_costs_a_finite_amount():
    assert math.isfinite(Scoring(coverage_penalty=1.0).score(-1.0, 2, np.array([0.0, 1.0])))
    assert Scoring(coverage_penalty=1.0).score(-1.0, 2) == -0.5


@settings(max_examples=200, deadline=None)
@given(
    log_prob=st.floats(-50, 0),
    shortest=st.integers(1, 8),
    more=st.integers(0, 12),
    length_penalty=st.sampled_from([0.0, 0.3, 1.0, 2.0]),
    word_penalty=st.floats(-4, 4),
)
def test_bound_is_the_best_score_of_all_lengths(log_prob, shortest, more, length_penalty, word_penalty):
    scoring = Scoring(length_penalty, word_penalty)
    best = max(scoring.score(log_prob, length) for length in range(shortest, shortest + more + 1))
    bound = scoring.bound(np.array([log_prob, -np.inf]), shortest, np.array([shortest + more, shortest]))
    assert bound[0] == pytest.approx(best, rel=1e-12, abs=1e-300)
    assert bound[1] == -np.inf


def test_a_hypothesis_is_reconstructed_from_its_rows():
    pointers = BackPointers(keep_weights=True, scoring=Scoring(coverage_penalty=1.0))
    pointers.add_weights(torch.tensor([[0.9, 0.1]]))
    pointers.add(np.array([0, 0]), np.array([5, 6]), np.array([-1.0, -2.0]))
    pointers.add_weights(torch.tensor([[0.8, 0.2], [0.3, 0.7]]))
    pointers.add(np.array([1, 0]), np.array([7, 8]), np.array([-0.5, -0.25]))
    pointers.add_weights(torch.tensor([[0.0, 1.0], [0.6, 0.4]]))
    ending = pointers.ending(0, -0.125, -2.625, source_length=2)
    # Row 0 of the last step comes from row 1, which came from row 0: it read 0.9 + 0.3 + 0 of the first word.
    assert ending.score == pytest.approx(-2.625 / 3)
    assert pointers.ending(1, 0.0, -1.0, 2).score == pytest.approx(-1 / 3)
    found = pointers.hypothesis(ending, 2)
    assert found.tokens == (6, 7)
    assert found.token_log_probs == (-2.0, -0.5, -0.125)
    assert found.weights == pytest.approx(np.array([[0.9, 0.1], [0.3, 0.7], [0.0, 1.0]]))
    assert pointers.hypothesis(ending, 1).weights.shape == (3, 1)


def test_coverage_follows_the_rows():
    pointers = BackPointers(keep_weights=False, scoring=Scoring(length_penalty=0.0, coverage_penalty=1.0))
    pointers.add_weights(torch.tensor([[0.25, 0.75], [0.125, 0.875]]))
    pointers.add(np.array([1, 0, 1]), np.array([5, 6, 7]), np.zeros(3))
    pointers.add_weights(torch.tensor([[0.125, 0.875], [0.25, 0.75], [0.5, 0.5]]))
    scores = [pointers.ending(row, 0.0, 0.0, source_length=2).score for row in range(3)]
    assert scores == pytest.approx([math.log(0.25), math.log(0.5), math.log(0.625)])
    assert pointers.hypothesis(pointers.ending(2, 0.0, 0.0, 2), 2).weights is None
