"""Pieces: cutting long lines, and joining the translations of their pieces."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.search.beam_search import Hypothesis, Scoring
from nmtalign.text.tokenizer import SpacedWords, TextBytes
from nmtalign.translating.requests import cut
from nmtalign.translating.translator import combine, join

EVERY, MARKED = SpacedWords().starts_word, TextBytes().starts_word  # which tokens start a word


@settings(max_examples=80)
@given(st.lists(st.sampled_from(["▁a", "b", "▁.", ".", "▁cd"]), min_size=1, max_size=60), st.integers(1, 12))
def test_pieces_cover_the_line_in_order_and_keep_the_limit(tokens: list[str], limit: int) -> None:
    pieces = cut(tokens, MARKED, limit)
    assert [token for piece in pieces for token in tokens[piece]] == tokens
    assert all(0 < len(tokens[piece]) <= limit for piece in pieces)


def test_a_piece_ends_at_the_end_of_a_sentence_or_of_a_word() -> None:
    tokens = ["a", "b", ".", "c", "d", "e", "f", ".", "g", "h", "i", "j", "k"]
    assert [" ".join(tokens[piece]) for piece in cut(tokens, EVERY, 5)] == ["a b .", "c d e f .", "g h i j k"]
    assert [" ".join(tokens[piece]) for piece in cut(tokens, EVERY, 7)] == ["a b . c d e f", ". g h i j k"]
    for end in "।؟۔։።":
        assert cut(["है", end, "वह", "क्या", "हाँ"], EVERY, 3) == [slice(0, 2), slice(2, 5)]
    pieces = ["▁a", "▁bb", "b", "b", "▁c"]
    assert cut(pieces, MARKED, 4) == [slice(0, 4), slice(4, 5)]
    assert cut(pieces, MARKED, 3) == [slice(0, 3), slice(3, 5)]  # one word is longer than half a piece
    assert cut(["▁a", "▁b", "▁c", "c"], MARKED, 3) == [slice(0, 2), slice(2, 4)]


def test_a_piece_does_not_begin_with_a_mark() -> None:
    pieces = ["▁ใ", "ช", "้", "ใ", "ช", "้"]
    assert cut(pieces, MARKED, 5) == [slice(0, 4), slice(4, 6)]


@pytest.mark.parametrize(
    ("line", "limit", "texts"),
    [
        ("He has 3.5. It ok x", 16, ["He has 3.5.", "It ok x"]),
        ("He does 3.5 too", 12, ["He does 3.5", "too"]),
        ("你好。再见吗", 13, ["你好。", "再见吗"]),
        ("نعم؟ لا لا", 14, ["نعم؟", "لا لا"]),
        ("你好再见吗", 8, ["你好", "再见", "吗"]),
        ("😀😀😀", 6, ["😀", "😀", "😀"]),
        ("abe\u0301io", 5, ["ab", "e\u0301io"]),
        ("ใช้ใช้", 12, ["ใช้", "ใช้"]),
    ],
)
def test_pieces_of_bytes_end_between_characters(line: str, limit: int, texts: list[str]) -> None:
    tokens = TextBytes().tokenize(line)
    pieces = cut(tokens, MARKED, limit)
    assert [TextBytes().detokenize(tokens[piece]) for piece in pieces] == texts


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


def test_the_score_of_joined_pieces_has_the_coverage_of_all() -> None:
    scoring = Scoring(length_penalty=0.6, word_penalty=0.3, coverage_penalty=0.5)
    coverages = [np.array([0.5, 1.5]), np.array([0.25, 0.75, 0.5])]
    parts = [
        Hypothesis((5, 6), -3.0, scoring.score(-3.0, 3, coverages[0]), (-1.0, -1.0, -1.0)),
        Hypothesis((7,), -2.0, scoring.score(-2.0, 2, coverages[1]), (-1.0, -1.0)),
    ]
    assert join(parts, scoring).score == pytest.approx(scoring.score(-5.0, 4, np.concatenate(coverages)))


def test_unknown_words_of_phrases_keep_their_places_in_joined_pieces() -> None:
    parts = [
        Hypothesis((5, 6), -1.0, -1.0, (0.0, 0.0, -1.0), given={1: "a"}),
        Hypothesis((7, 8, 9), -1.0, -1.0, (0.0, 0.0, 0.0, -1.0)),
        Hypothesis((4, 3), -1.0, -1.0, (0.0, 0.0, -1.0), given={0: "b", 1: "c"}),
    ]
    assert join(parts, Scoring()).given == {1: "a", 5: "b", 6: "c"}


@given(st.lists(st.lists(st.integers(-20, 0), min_size=1, max_size=3), min_size=1, max_size=4), st.integers(1, 5))
def test_combined_translations_have_the_largest_sums(scores: list[list[int]], count: int) -> None:
    found = [
        [Hypothesis((place,), float(score), float(score), (0.0, float(score))) for place, score in enumerate(piece)]
        for piece in (sorted(piece, reverse=True)[:count] for piece in scores)
    ]
    combined = combine(found, count, sampled=False)
    every = sorted((sum(each.score for each in chosen) for chosen in itertools.product(*found)), reverse=True)
    assert [sum(each.score for each in chosen) for chosen in combined] == every[:count]
    assert combined[0] == [piece[0] for piece in found]
    assert len({tuple(each.tokens for each in chosen) for chosen in combined}) == len(combined)


def test_samples_are_combined_in_the_order_in_which_they_were_drawn() -> None:
    first, second = ([hypothesis([word], [-word, 0], [[1, 0]] * 2) for word in words] for words in ((3, 5), (8, 7)))
    assert combine([first, second], 2, sampled=True) == [[first[0], second[0]], [first[1], second[1]]]


def test_pieces_without_weights() -> None:
    bare = Hypothesis((3,), -1.0, -0.5, (-0.5, -0.5))
    assert join([bare, bare], Scoring(0.0)).weights is None
    assert join([bare, bare], Scoring(0.0)).score == -2.0
