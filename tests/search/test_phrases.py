"""How far a translation is with its phrases, against counting."""

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.search.phrases import Phrases

WORDS = st.integers(2, 4)
PHRASES = st.lists(st.lists(WORDS, min_size=1, max_size=4), min_size=1, max_size=4)


def times(phrase, tokens):
    """How often a phrase stands in a translation, overlaps counted."""
    size = len(phrase)
    return sum(list(tokens[start : start + size]) == list(phrase) for start in range(len(tokens) - size + 1))


def after(phrases, tokens):
    progress = phrases.start
    for token in tokens:
        progress = progress.after(token)
    return progress


def complete(phrases, tokens):
    return all(times(phrase, tokens) >= phrases.count(phrase) for phrase in phrases)


@settings(max_examples=300, deadline=None)
@given(PHRASES, st.lists(WORDS, max_size=14))
def test_nothing_is_missing_when_all_are_there(given_phrases, tokens):
    phrases = Phrases(given_phrases)
    assert phrases.words == sum(map(len, given_phrases))
    for length in range(len(tokens) + 1):
        assert (after(phrases, tokens[:length]).missing == 0) == complete(given_phrases, tokens[:length])


@settings(max_examples=300, deadline=None)
@given(PHRASES, st.lists(WORDS, max_size=8))
def test_so_many_words_bring_what_is_missing(given_phrases, tokens):
    phrases = Phrases(given_phrases)
    progress, tokens = after(phrases, tokens), list(tokens)
    assert progress.missing <= phrases.words
    for _ in range(progress.missing):
        if not progress.missing:
            assert progress.wanted == ()
            break
        best = min(progress.wanted, key=lambda symbol: progress.after(symbol).missing)
        assert progress.after(best).missing < progress.missing
        progress = progress.after(best)
        tokens.append(best)
    assert complete(given_phrases, tokens)


@settings(max_examples=200, deadline=None)
@given(PHRASES, st.lists(WORDS, max_size=8))
def test_every_phrase_has_its_place(given_phrases, tokens):
    phrases, tokens = Phrases(given_phrases), tuple(tokens) + tuple(itertools.chain(*given_phrases))
    places = phrases.places(tokens)
    for phrase, place in zip(given_phrases, places, strict=True):
        assert tokens[place : place + len(phrase)] == tuple(phrase)
    # Phrases that are alike have places of their own.
    assert len({(tuple(phrase), place) for phrase, place in zip(given_phrases, places, strict=True)}) == len(places)


@pytest.mark.parametrize(
    ("phrases", "tokens", "missing"),
    [
        ([[2, 3]], [2], 1),
        ([[2, 3]], [2, 4], 2),
        ([[2, 3]], [2, 2], 1),
        ([[2, 3]], [2, 3, 4], 0),
        ([[2, 2, 3]], [2, 2, 2], 1),
        ([[2, 3, 2, 4]], [2, 3, 2, 3, 2], 1),
        ([[2], [2, 3]], [2], 1),
        ([[2, 3], [3, 4]], [2, 3], 1),
        ([[2, 3], [3, 4]], [2, 3, 4], 0),
        ([[2], [2]], [2], 1),
        ([[2, 2], [2, 2]], [2, 2], 1),
        ([[2, 2], [2, 2]], [2, 2, 2], 0),
        ([[2, 3], [4]], [2], 2),
        ([[], [4]], [], 1),
        ([[]], [], 0),
    ],
)
def test_examples(phrases, tokens, missing):
    assert after(Phrases(phrases), tokens).missing == missing


def test_while_a_phrase_is_under_way_the_others_wait():
    phrases = Phrases([[2, 3], [4, 4], [2, 4]])
    assert phrases.start.wanted == (2, 4)
    assert phrases.start.after(2).wanted == (3, 4)
    assert phrases.start.after(4).wanted == (4,)
    assert phrases.start.after(None).wanted == (2, 4)


def test_each_unknown_word_is_its_own():
    phrases = Phrases([[1], [2, 1], [1]])
    assert len(phrases.alphabet) == 4
    first, (_, second), third = (list(each) for each in phrases.phrases)
    assert len({first[0], second, third[0]}) == 3
    assert after(phrases, [1, 2, 1, 1]).missing == 4
    tokens = (2, second, third[0], first[0])
    assert after(phrases, tokens).missing == 0
    assert phrases.places(tokens) == (3, 0, 2)


def test_a_phrase_is_gone_on_with_after_its_unknown_word():
    phrases = Phrases([[2, 1, 2, 3], [2, 4]])
    unknown = phrases.phrases[0][1]
    progress = phrases.start.after(2)
    assert (progress.wanted, progress.bound) == ((unknown, 4), False)
    for symbol, wanted in ((unknown, (2,)), (2, (3,))):
        progress = progress.after(symbol)
        assert (progress.wanted, progress.bound) == (wanted, True)
    progress = progress.after(3)
    assert (progress.wanted, progress.bound) == ((2,), False)


def test_no_phrase_is_nowhere():
    assert Phrases([[], [3]]).places((2, 3)) == (-1, 1)
    assert Phrases([]).places((2, 3)) == ()
