"""Samples: frequencies compared with the probabilities, and the numbers on which a draw may depend."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from helpers import score_tables as tables
from helpers.score_tables import SENTENCES, WORDS, TableScorer, search, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.errors import NmtalignError
from nmtalign.search.sampling import Sampling, draw
from nmtalign.settings.command_settings import TranslateConfig

NUMBERS = [(place, 0) for place in range(len(SENTENCES))]


def config_of(n_best=1, temperature=1.0, top_k=0, seed=1234, **settings):
    draws = {"n_best": n_best, "temperature": temperature, "top_k": top_k, "seed": seed}
    return TranslateConfig(**{"max_length_ratio": 2.0, **settings}, **draws, sample=True)


def drawn(
    scorer,
    sentences,
    numbers=None,
    candidates=None,
    prefixes=None,
    draws=(),
    copies=None,
    keep_weights=False,
    **settings,
):
    sources = tables.sources_of(sentences, candidates, prefixes, copies)
    numbers = numbers or [(place, 0) for place in range(len(sentences))]
    return Sampling(sources, config_of(*draws, **settings), numbers, keep_weights).run(scorer)


def chi_square(counts, expected):
    return sum((counts[key] - value) ** 2 / value for key, value in expected.items())


@pytest.mark.parametrize(("temperature", "top_k"), [(1.0, 0), (0.5, 0), (2.0, 3)])
def test_frequencies_are_the_probabilities(temperature, top_k):
    log_probs = torch.tensor([[0.4, 0.05, 0.3, 0.05, 0.2]]).log()
    count = 20_000
    draws = config_of(1, temperature, top_k)
    chances = torch.from_numpy(np.random.default_rng(5).random(count))
    counts = Counter(draw(log_probs.expand(count, -1), chances, draws).tolist())
    kept = (log_probs[0].double() / temperature).exp()
    kept[kept.argsort(descending=True)[top_k or 5 :]] = 0.0
    expected = {word: count * p / float(kept.sum()) for word, p in enumerate(kept.tolist()) if p}
    assert counts.keys() == expected.keys()
    assert chi_square(counts, expected) < 18.5  # of 4 degrees of freedom or fewer: 1 in 1000


def test_frequencies_of_whole_translations():
    scorer, count = TableScorer.random(3, spread=1.0), 4000
    found = drawn(scorer, [[2]], draws=(count,), max_length_ratio=1.0, allow_unk=True)[0]
    assert len(found) == count
    counts = Counter(texts(found))
    # At the limit `</s>` comes without regard to its probability.
    expected = {}
    for tokens in tables.every_translation(2, [1, 2, 3, 4]):
        log_probs = tables.walk(scorer, [2], tokens)[0]
        expected[tokens] = count * math.exp(log_probs[0])
        own = next(hypothesis for hypothesis in found if hypothesis.tokens == tokens)
        assert list(own.token_log_probs) == log_probs
        assert own.log_prob == pytest.approx(sum(log_probs))
        assert own.score == pytest.approx(sum(log_probs) / len(log_probs))
    assert sum(expected.values()) == pytest.approx(count)
    assert chi_square(counts, expected) < 18.5


@pytest.mark.parametrize("kind", [{}, {"coverage": "linguistic"}, {"copy": True}], ids=str)
def test_log_prob_is_the_models_own_whatever_the_temperature(kind):
    model = tables.small_model(**kind)
    copies, options = tables.copies_of(model), {"draws": (5, 2.5, 3), "keep_weights": True, "allow_unk": True}
    found = drawn(tables.scorer_of(model), SENTENCES, copies=copies, **options)
    for place, (source, samples) in enumerate(zip(SENTENCES, found, strict=True)):
        for hypothesis in samples:
            log_probs, weights = tables.forced(model, source, hypothesis.tokens, copies and copies[place])
            assert list(hypothesis.token_log_probs) == pytest.approx(log_probs, abs=1e-5)
            assert hypothesis.log_prob == pytest.approx(sum(log_probs), rel=1e-6, abs=1e-5)
            assert hypothesis.weights == pytest.approx(weights, abs=1e-5)


@pytest.mark.parametrize("draws", [(2, 1.0, 1), (2, 5e-324)])
@pytest.mark.parametrize("prefixes", [None, [(3,), (), (2, 1, 4), (4, 4), (1,), (2, 3)]])
def test_no_chance_is_greedy_search(draws, prefixes):
    scorer = tables.scorer_of(tables.small_model(seed=6))
    greedy = search(scorer, SENTENCES, None, prefixes, beam=1)
    found = drawn(scorer, SENTENCES, None, None, prefixes, draws, max_length_ratio=3.0)
    for samples, (best,) in zip(found, greedy, strict=True):
        assert [hypothesis.tokens for hypothesis in samples] == [best.tokens] * 2
        assert samples[0].log_prob == pytest.approx(best.log_prob, abs=1e-5)


@settings(max_examples=40)
@given(st.integers(-(2**63), 2**63 - 1), st.permutations(range(6)), st.integers(1, 4), st.sampled_from([0, 2]))
def test_draws_depend_only_on_seed_and_number(seed, order, count, top_k):
    scorer, draws = TableScorer.random(8), (count, 1.5, top_k, seed)
    together = drawn(scorer, SENTENCES, NUMBERS, draws=draws)
    moved = drawn(scorer, [SENTENCES[i] for i in order], [NUMBERS[i] for i in order], draws=draws)
    assert moved == [together[i] for i in order]
    alone = drawn(scorer, [SENTENCES[order[0]]], [NUMBERS[order[0]]], draws=draws)
    assert alone == [together[order[0]]]
    more = drawn(scorer, SENTENCES, NUMBERS, draws=(count + 3, 1.5, top_k, seed))
    assert [samples[:count] for samples in more] == together


def test_other_seeds_numbers_and_parts_give_other_samples():
    scorer, source = TableScorer.random(8, spread=0.5), [[2, 3, 4]]
    cases = [(seed, (0, 0)) for seed in range(20)]
    cases += [(1234, numbers) for number in range(1, 20) for numbers in ((number, 0), (0, number))]
    found = [drawn(scorer, source, [number], draws=(1, 1.0, 0, seed))[0][0].tokens for seed, number in cases]
    assert len(set(found)) > 30
    samples = drawn(scorer, source, draws=(40,))[0]
    assert len(set(texts(samples))) > 10


def test_samples_keep_the_restrictions():
    scorer, prefixes = TableScorer.random(5, spread=0.5), [(4,), (3, 3), (), (), (4, 4), (1, 2, 2, 2)]
    allowed = [{2, 4}, {3}, {2, 3, 4}, set(), {4}, {2}]
    options = {"draws": (30,), "min_length_ratio": 0.6, "max_length_ratio": 1.0}
    found = drawn(scorer, SENTENCES, None, tables.candidates_of(*allowed), prefixes, **options)
    for place, samples in enumerate(found):
        length = len(SENTENCES[place]) + 1
        for hypothesis in samples:
            assert hypothesis.tokens[: len(prefixes[place])] == prefixes[place]
            assert set(hypothesis.tokens[len(prefixes[place]) :]) <= allowed[place]
            assert len(hypothesis.tokens) < max(length, len(prefixes[place]) + 1)
            # Where a sentence has no word that it may use, it cannot be long.
            assert len(hypothesis.tokens) >= min(int(0.6 * length), length - 1)
    alone = drawn(scorer, [SENTENCES[4]], [(4, 0)], tables.candidates_of(allowed[4]), [(4, 4)], **options)
    assert alone == found[4:5]


def test_a_model_of_no_numbers_is_refused():
    with pytest.raises(NmtalignError, match="no finite probability"):
        drawn(TableScorer(torch.full((9, WORDS, WORDS), math.nan)), [[2]])


def test_the_last_chance_is_never_a_banned_word():
    log_probs = torch.tensor([[-torch.inf, -0.7, -0.7, -torch.inf]])
    chances = torch.tensor([1.0 - 2**-53, 0.0, 0.5], dtype=torch.float64)
    assert draw(log_probs.expand(3, -1), chances, config_of()).tolist() == [2, 1, 2]
