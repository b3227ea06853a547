"""Hard links, merged pieces, the Pharaoh format."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.link_files import parse_links
from nmtalign.alignment.links import argmax_links, format_links, merge_log_probs, merge_pieces, word_starts
from nmtalign.errors import InputError


def test_a_column_of_scores_is_ignored_and_other_columns_are_not() -> None:
    assert parse_links("0-0 2-1\t0.9800 0.7143", "").sure == {(0, 0), (2, 1)}
    assert parse_links("\t", "").sure == set()
    assert parse_links("0-0\t2-1", "").sure == {(0, 0), (2, 1)}
    with pytest.raises(InputError, match="'x' is not a link"):
        parse_links("0-0\tx", "links: line 1")


def test_each_target_word_has_one_link_or_none() -> None:
    weights = np.array(
        [
            [0.1, 0.7, 0.2],  # word 1
            [0.1, 0.2, 0.7],  # NULL: </s> has the largest weight
            [0.4, 0.4, 0.2],  # a tie: the first
            [0.4, 0.2, 0.4],  # a tie with </s>: the word
            [0.9, 0.1, 0.0],  # the row of </s> has no link
        ]
    )
    assert argmax_links(weights) == [(1, 0), (0, 2), (0, 3)]


def test_pairs_without_words_have_no_links() -> None:
    assert argmax_links(np.zeros((3, 1))) == []
    assert argmax_links(np.ones((1, 4))) == []
    assert argmax_links(np.zeros((3, 4))) == []
    assert argmax_links(np.full((3, 4), np.nan)) == []


def test_pieces_are_summed_over_the_source_and_averaged_over_the_target() -> None:
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.5, 0.0], [0.6, 0.1, 0.1, 0.2], [0.0, 0.0, 0.0, 1.0]])
    merged = merge_pieces(weights, word_starts([0, 0, 1]), word_starts([0, 1, 1]))
    expected = [[0.3, 0.3, 0.4], [(0.5 + 0.7) / 2, (0.5 + 0.1) / 2, 0.1], [0.0, 0.0, 1.0]]
    np.testing.assert_allclose(merged, expected, atol=1e-7)
    np.testing.assert_allclose(merged.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(merge_log_probs([-1, -2, -3, -0.5], word_starts([0, 1, 1])), [-1, -5, -0.5])


@given(source=st.lists(st.integers(1, 3), max_size=5), target=st.lists(st.integers(1, 3), max_size=5))
def test_merged_rows_still_sum_to_one(source: list[int], target: list[int]) -> None:
    generator = np.random.default_rng(len(source))
    weights = generator.dirichlet(np.ones(sum(source) + 1), sum(target) + 1).astype(np.float32)
    indices = [[word for word, pieces in enumerate(side) for _ in range(pieces)] for side in (source, target)]
    merged = merge_pieces(weights, *map(word_starts, indices))
    assert merged.shape == (len(target) + 1, len(source) + 1)
    np.testing.assert_allclose(merged.sum(axis=1), 1, atol=1e-5)
    if set(source + target) <= {1}:
        np.testing.assert_allclose(merged, weights, atol=1e-7)


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999))))
def test_pharaoh_round_trip(links: list[tuple[int, int]]) -> None:
    assert parse_links(format_links(links), "x: line 1").sure == set(links)
