"""Prefixes and candidates in the search, compared with enumeration of the allowed translations."""

import pytest
from helpers import score_tables as tables
from helpers.score_tables import SENTENCES, TableScorer, search, texts
from hypothesis import given, settings
from hypothesis import strategies as st

PREFIXES = [(3,), (), (2, 1, 4), (4, 4), (1,), (2, 3)]


@pytest.mark.parametrize("allow_unk", [False, True])
@pytest.mark.parametrize("prefix", [(), (3,), (1, 4), (4, 2)])
def test_prefix_against_enumeration(prefix, allow_unk):
    scorer, source = tables.scorer_of(tables.small_model(seed=2)), [2, 3, 5]
    rest = tables.every_translation(4 - len(prefix), [1, 2, 3, 4] if allow_unk else [2, 3, 4])
    expected = tables.enumerated(scorer, source, [(*prefix, *words) for words in rest])
    options = {"beam": 200, "n_best": 200, "allow_unk": allow_unk, "max_length_ratio": 1.0}
    found = search(scorer, [source], prefixes=[prefix], **options)[0]
    assert texts(found) == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 6), st.permutations(PREFIXES), st.sampled_from([0.0, 0.9]))
def test_prefixes_of_all_lengths_in_a_batch(seed, beam, prefixes, least):
    scorer = TableScorer.random(seed)
    options = {"beam": beam, "n_best": beam, "max_length_ratio": 2.0, "min_length_ratio": least}
    together = search(scorer, SENTENCES, prefixes=prefixes, **options)
    for sentence, prefix, found in zip(SENTENCES, prefixes, together, strict=True):
        assert found == search(scorer, [sentence], prefixes=[prefix], **options)[0]
        for hypothesis in found:
            assert hypothesis.tokens[: len(prefix)] == prefix
            assert 1 not in hypothesis.tokens[len(prefix) :]
            assert list(hypothesis.token_log_probs) == tables.walk(scorer, sentence, hypothesis.tokens)[0]
    plain = search(scorer, SENTENCES, **options)
    assert [found for found, prefix in zip(together, prefixes, strict=True) if not prefix] == [
        found for found, prefix in zip(plain, prefixes, strict=True) if not prefix
    ]


ALLOWED = [{2, 4}, {3}, {2, 3, 4}, set(), {4}, {2, 3}]


@pytest.mark.parametrize("real", [False, True])
@pytest.mark.parametrize("place", range(6))
def test_candidates_against_enumeration_over_their_words(real, place):
    scorer = tables.scorer_of(tables.small_model(seed=2)) if real else TableScorer.random(3)
    source, own = SENTENCES[place], ALLOWED[place]
    candidates, words = tables.candidates_of(own), sorted(own)
    translations = tables.every_translation(len(source) + 1, words)
    expected = tables.enumerated(scorer, source, translations, candidates=candidates)
    options = {"beam": 500, "n_best": 500, "max_length_ratio": 1.0}
    alone = search(scorer, [source], candidates, **options)[0]
    assert texts(alone) == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in alone] == pytest.approx([score for score, _ in expected], abs=1e-5)
    together = search(scorer, SENTENCES, tables.candidates_of(*ALLOWED), **options)[place]
    assert tables.same(together, alone)


def test_candidates_with_prefixes():
    scorer, prefixes = TableScorer.random(5), [(4,), (3, 3), (), (), (4, 4), (1, 2)]
    together = search(scorer, SENTENCES, tables.candidates_of(*ALLOWED), prefixes, beam=3)
    for place, found in enumerate(together):
        own = tables.candidates_of(ALLOWED[place])
        assert tables.same(found, search(scorer, [SENTENCES[place]], own, [prefixes[place]], beam=3)[0])
        assert found[0].tokens[: len(prefixes[place])] == prefixes[place]
        assert set(found[0].tokens) <= ALLOWED[place] | set(prefixes[place])
