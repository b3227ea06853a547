"""Scores by hand, and the bound that stops a search."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.search.beam_search import Scoring


@pytest.mark.parametrize(
    ("scoring", "expected"),
    [
        (Scoring(), -6.0 / 4),
        (Scoring(length_penalty=0.0), -6.0),
        (Scoring(length_penalty=2.0), -6.0 / 16),
        (Scoring(word_penalty=0.5), (-6.0 - 2.0) / 4),
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
