"""Search for translations that hold given phrases: against enumeration, and what must always be so."""

import numpy as np
import pytest
import torch
from helpers import score_tables as tables
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.search.hypotheses import Scoring
from nmtalign.search.phrases import bank_shares

SENTENCES, WORDS, TableScorer, search, texts = (
    tables.SENTENCES,
    tables.WORDS,
    tables.TableScorer,
    tables.search,
    tables.texts,
)
PENALTIES = [{}, {"length_penalty": 0.0}, {"word_penalty": -2.0, "coverage_penalty": 0.5}]
_PHRASE = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)
PHRASES = st.lists(_PHRASE, max_size=3).map(tuple)


def times(phrase, tokens):
    return sum(tokens[start : start + len(phrase)] == phrase for start in range(len(tokens)))


def holds(tokens, phrases):
    return all(times(phrase, tokens) >= phrases.count(phrase) for phrase in phrases)


@pytest.mark.parametrize("penalties", PENALTIES, ids=str)
@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize(
    "phrases", [((3,),), ((2, 3),), ((4, 4),), ((2, 3, 2),), ((2,), (3,)), ((2, 2), (3,)), ((4,), (2, 3))], ids=str
)
def test_against_enumeration(phrases, real, penalties):
    scorer = tables.scorer_of(tables.small_model(seed=2)) if real else TableScorer.random(3)
    source = [2, 3, 5, 4]
    translations = [each for each in tables.every_translation(5, [2, 3, 4]) if holds(each, phrases)]
    expected = tables.enumerated(scorer, source, translations, Scoring(**penalties))
    options = {"beam": 300, "n_best": 300, "max_length_ratio": 1.0, **penalties}
    found = search(scorer, [source], phrases=[phrases], **options)[0]
    assert texts(found) == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize(
    "phrases", [((2, 3), (3, 4)), ((2,), (2, 3)), ((2,), (2,)), ((2, 2), (2, 2)), ((3, 2, 3), (2, 3))], ids=str
)
def test_phrases_that_share_words_or_come_twice(phrases):
    scorer, source = TableScorer.random(11), [2, 3]
    translations = [each for each in tables.every_translation(4, [2, 3, 4]) if holds(each, phrases)]
    expected = tables.enumerated(scorer, source, translations)
    found = search(scorer, [source], phrases=[phrases], beam=2500, n_best=2500, max_length_ratio=8 / 3)[0]
    short = [hypothesis for hypothesis in found if len(hypothesis.tokens) < 4]
    assert texts(short) == [tokens for _, tokens in expected]
    assert all(holds(hypothesis.tokens, phrases) for hypothesis in found)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    beam=st.integers(1, 7),
    phrases=st.lists(PHRASES, min_size=6, max_size=6),
    prefixes=st.permutations([(), (), (2,), (3, 4), (2, 2, 2, 2), (1,)]),
    allow_unk=st.booleans(),
    options=st.sampled_from([*PENALTIES, {"safe_stop": False, "min_length_ratio": 0.5}, {"min_length_ratio": 1.0}]),
)
def test_they_always_stand_there_whatever_the_batch(seed, beam, phrases, prefixes, allow_unk, options):
    scorer = TableScorer.random(seed, spread=4.0, steps=24)
    options = {"beam": beam, "n_best": beam, "max_length_ratio": 1.0, "allow_unk": allow_unk, **options}
    together = search(scorer, SENTENCES, None, prefixes, phrases, **options)
    without = search(scorer, SENTENCES, None, prefixes, **options)
    for place, found in enumerate(together):
        check(found, phrases[place], prefixes[place], allow_unk)
        source = SENTENCES[place]
        assert found == search(scorer, [source], None, [prefixes[place]], [phrases[place]], **options)[0]
        for hypothesis in found:
            expected = tables.walk(scorer, source, hypothesis.tokens)[0]
            assert list(hypothesis.token_log_probs) == expected
            most = max(len(source) + 1, len(prefixes[place]) + sum(map(len, phrases[place])) + 1)
            assert len(hypothesis.tokens) < most
        if not phrases[place]:
            assert found == without[place]


def check(found, phrases, prefix, allow_unk):
    """What holds of every hypothesis: prefix, phrases, their places, no unknown word of nobody."""
    assert found
    for hypothesis in found:
        tokens, places = hypothesis.tokens, hypothesis.phrase_at
        assert tokens[: len(prefix)] == prefix
        assert holds(tokens, phrases)
        assert len(places) == len(phrases)
        owned = {}
        for number, (phrase, place) in enumerate(zip(phrases, places, strict=True)):
            assert tokens[place : place + len(phrase)] == phrase
            for offset, word in enumerate(phrase):
                if word == 1:
                    assert owned.setdefault(place + offset, (number, offset)) == (number, offset)
                    assert place + offset >= len(prefix)
        if not allow_unk:
            assert {place for place, word in enumerate(tokens) if word == 1} - set(range(len(prefix))) == set(owned)


@pytest.mark.parametrize("beam", [1, 2, 5])
def test_improbable_phrases_stand_there_all_the_same(beam):
    table = torch.zeros(1, 40, WORDS, WORDS)
    table[..., [1, 3, 4]] = -300.0
    phrases = ((3, 1, 4), (4,), (4, 4, 4), (1, 1))
    (found,) = search(TableScorer(table), [[2]], phrases=[phrases], beam=beam, max_length_ratio=1.0)
    check(found, phrases, (), allow_unk=False)


def test_a_phrase_in_the_prefix_is_there():
    scorer = TableScorer.random(2)
    with_it = search(scorer, [[2, 3]], prefixes=[(3, 4)], phrases=[((3, 4),)], beam=3)
    assert texts(with_it[0]) == texts(search(scorer, [[2, 3]], prefixes=[(3, 4)], beam=3)[0])
    rest = [(3, 4, *words) for words in tables.every_translation(3, [2, 3, 4])]
    expected = tables.enumerated(scorer, [2, 3], [tokens for tokens in rest if holds(tokens, ((4, 2),))])
    begun = search(scorer, [[2, 3]], prefixes=[(3, 4)], phrases=[((4, 2),)], beam=50, n_best=50, max_length_ratio=1.0)
    assert texts(begun[0]) == [tokens for _, tokens in expected]


def test_with_candidates():
    scorer, phrases = TableScorer.random(6), [((4, 4),), ((3,),), (), ((2,), (3, 2)), (), ((1, 4),)]
    allowed = [{2, 4}, {3, 4}, {2, 3, 4}, {2, 3}, {4}, {2, 4}]
    together = search(scorer, SENTENCES, tables.candidates_of(*allowed), None, phrases, beam=3)
    for place, found in enumerate(together):
        own = tables.candidates_of(allowed[place])
        alone = search(scorer, [SENTENCES[place]], own, None, [phrases[place]], beam=3)[0]
        assert tables.same(found, alone)
        check(found, phrases[place], (), allow_unk=False)
        assert set(found[0].tokens) <= allowed[place] | {1}


def test_a_real_model_in_batches():
    scorer = tables.scorer_of(tables.small_model(seed=5))
    phrases = [((4, 4),), (), ((2, 3), (4,)), ((1,),), (), ((3, 3, 3),)]
    together = search(scorer, SENTENCES, None, None, phrases, beam=4, n_best=2, keep_weights=True)
    for place, found in enumerate(together):
        check(found, phrases[place], (), allow_unk=False)
        alone = search(scorer, [SENTENCES[place]], None, None, [phrases[place]], beam=4, n_best=2, keep_weights=True)[0]
        assert tables.same(found, alone)
        assert found[0].weights == pytest.approx(alone[0].weights, abs=1e-5)


def test_empty_phrases_are_no_phrases():
    scorer = TableScorer.random(6)
    assert search(scorer, SENTENCES, phrases=[((),)] * 6, beam=3) == search(scorer, SENTENCES, beam=3)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=8), st.integers(1, 20))
def test_half_the_beam_is_shared_the_fuller_banks_first(counts, width):
    shares = bank_shares(np.array(counts), width)
    assert shares.sum() <= width
    assert (shares <= counts).all()
    filled = [bank for bank, count in enumerate(counts) if count]
    share = max(1, width // max(1, 2 * len(filled)))
    expected = [min(share, counts[bank]) for bank in filled]
    if len(filled) <= width:
        assert [shares[bank] for bank in filled] == expected
    else:
        assert [shares[bank] for bank in filled] == [0] * (len(filled) - width) + expected[len(filled) - width :]
