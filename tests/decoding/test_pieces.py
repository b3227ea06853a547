"""Cutting long lines, and joining what their pieces became."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.decoding.pieces import cut, join
from nmtalign.decoding.trace import Hypothesis, Scoring


@settings(max_examples=80, deadline=None)
@given(st.lists(st.sampled_from(["▁a", "b", "▁.", ".", "▁cd"]), min_size=1, max_size=60), st.integers(1, 12))
def test_pieces_cover_the_line_in_order_and_keep_the_limit(tokens: list[str], limit: int) -> None:
    index = np.cumsum([token.startswith("▁") for token in tokens]).tolist()
    pieces = cut(tokens, index, limit)
    assert [token for piece in pieces for token in tokens[piece]] == tokens
    assert all(0 < len(tokens[piece]) <= limit for piece in pieces)


def test_a_piece_ends_at_the_end_of_a_sentence_or_of_a_word() -> None:
    tokens = ["a", "b", ".", "c", "d", "e", "f", ".", "g", "h", "i", "j", "k"]
    assert [" ".join(tokens[piece]) for piece in cut(tokens, range(13), 5)] == ["a b .", "c d e f .", "g h i j k"]
    assert [" ".join(tokens[piece]) for piece in cut(tokens, range(13), 7)] == ["a b . c d e f", ". g h i j k"]
    pieces = ["▁a", "▁bb", "b", "b", "▁c"]
    assert cut(pieces, [0, 1, 1, 1, 2], 4) == [slice(0, 4), slice(4, 5)]
    assert cut(pieces, [0, 1, 1, 1, 2], 3) == [slice(0, 3), slice(3, 5)]  # one word is longer than half a piece
    assert cut(["▁a", "▁b", "▁c", "c"], [0, 1, 2, 2], 3) == [slice(0, 2), slice(2, 4)]


def hypothesis(tokens: list[int], log_probs: list[float], weights: list[list[float]]) -> Hypothesis:
    return Hypothesis(tuple(tokens), sum(log_probs), 0.0, tuple(log_probs), np.array(weights, np.float32))


def test_joined_pieces() -> None:
    first = hypothesis([5, 6], [-1, -2, -4], [[0.5, 0.25, 0.25], [0.1, 0.7, 0.2], [0, 0, 1]])
    empty = hypothesis([], [-8], [[0.25, 0.75]])
    last = hypothesis([7], [-16, -32], [[0.75, 0.25], [0.5, 0.5]])
    joined = join([first, empty, last], Scoring())
    assert joined.tokens == (5, 6, 7)
    assert joined.token_log_probs == (-1, -2, -28, -32)
    assert joined.log_prob == -63
    assert joined.score == pytest.approx(-63 / 4)
    expected = [[0.5, 0.25, 0, 0, 0.25], [0.1, 0.7, 0, 0, 0.2], [0, 0, 0, 0.75, 0.25], [0, 0, 0, 0.5, 0.5]]
    assert joined.weights == pytest.approx(np.array(expected))
    assert join([first], Scoring(1.0)) is first


def test_pieces_without_weights() -> None:
    bare = Hypothesis((3,), -1.0, -0.5, (-0.5, -0.5))
    assert join([bare, bare], Scoring(0.0)).weights is None
    assert join([bare, bare], Scoring(0.0)).score == -2.0
