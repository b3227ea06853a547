"""Scorers: one model, and several as one."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from helpers import score_tables as tables
from helpers.score_tables import SENTENCES, WORDS, search

from nmtalign.search.beam_search import EnsembleSession


def models(count, **changes):
    return [tables.scorer_of(tables.small_model(seed=seed, **changes)) for seed in range(count)]


def together(scorers, average="probability"):
    return partial(EnsembleSession, scorers, average)


def averaged(scorers, source, tokens, average):
    """The log-probability of each word by hand: over all words at each place, word by word."""
    found = []
    for place, word in enumerate((*tokens, 0)):
        every_word = [(*tokens[:place], word) for word in range(WORDS)]
        each = np.array([[tables.walk(one, source, words)[0][place] for words in every_word] for one in scorers])
        mean = np.exp(each).mean(0) if average == "probability" else np.exp(each.mean(0))
        found.append(math.log(mean[word] / mean.sum()))
    return found


@pytest.mark.parametrize("average", ["probability", "log"])
@pytest.mark.parametrize("source", [[2, 3], []])
def test_averages_by_hand(average, source):
    scorers = [*models(1), *models(1, attention_kind="marginal"), *models(1, coverage="linguistic")]
    found = search(together(scorers, average), [source], beam=3, n_best=3)[0]
    for hypothesis in found:
        expected = averaged(scorers, source, hypothesis.tokens, average)
        assert list(hypothesis.token_log_probs) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("kind", [{}, {"attention_kind": "marginal", "attention_positions": 2}], ids=str)
def test_copying_models_together_and_with_candidates(kind):
    """Each sentence alone, of its own candidates and of the words that it copies, gives the same."""
    allowed, copies = [{2, 4}, {3}, {2, 3, 4}, set(), {4}, {2, 3}], list(tables.COPIES.values())
    for scorer in (*models(1, copy=True, **kind), together(models(2, copy=True, **kind))):
        for lists in (None, [own.union(more) for own, more in zip(allowed, copies, strict=True)]):
            candidates = lists and tables.candidates_of(*lists)
            found = search(scorer, SENTENCES, candidates, copies=copies, beam=4, n_best=2)
            for place, sentence in enumerate(SENTENCES):
                own = lists and tables.candidates_of(lists[place])
                alone = search(scorer, [sentence], own, copies=[copies[place]], beam=4, n_best=2)[0]
                assert tables.same(found[place], alone)
                expected = tables.walk(scorer, sentence, found[place][0].tokens, own, copies[place])[0]
                assert list(found[place][0].token_log_probs) == pytest.approx(expected, abs=1e-5)


def test_an_ensemble_in_batches_with_candidates_and_without_attention_in_one():
    several = together([*models(1), *models(1, attention="none", order="look-update-generate")])
    allowed = [{2, 4}, {3}, {2, 3, 4}, set(), {4}, {2, 3}]
    for candidates in (None, tables.candidates_of(*allowed)):
        found = search(several, SENTENCES, candidates, beam=3, n_best=2, keep_weights=True)
        for place, sentence in enumerate(SENTENCES):
            own = candidates and tables.candidates_of(allowed[place])
            alone = search(several, [sentence], own, beam=3, n_best=2, keep_weights=True)[0]
            assert tables.same(found[place], alone)
            assert found[place][0].weights == pytest.approx(alone[0].weights, abs=1e-5)
            # The weights are those of the one model that has attention.
            _, weights = tables.walk(models(1)[0], sentence, found[place][0].tokens)
            assert found[place][0].weights == pytest.approx(weights, abs=1e-5)


@pytest.mark.parametrize("kind", ["soft", "marginal", "hard"])
def test_an_improbable_word_has_its_true_log_probability(kind):
    model = tables.small_model(attention_kind=kind)
    with torch.no_grad():
        model.readout.output_bias[3] -= 400
    expected, _ = tables.forced(model, [2, 3], [4, 3])
    assert expected[1] < -380
    scorer = tables.scorer_of(model)
    for alone_or_together in (scorer, together([scorer] * 3), together([scorer] * 3, "log")):
        found, _ = tables.walk(alone_or_together, [2, 3], [4, 3])
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-5)


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
@pytest.mark.parametrize("restricted", [False, True])
@pytest.mark.parametrize("copy", [False, True])
@pytest.mark.parametrize("kind", ["soft", "marginal"])
def test_probabilities_add_up_to_one(dtype, restricted, copy, kind):
    model = tables.small_model(copy=copy, attention_kind=kind)
    scorer, copied = tables.scorer_of(model, dtype), tables.COPIES.values()
    candidates = tables.candidates_of(*({2, *own} for own in copied)) if restricted else None
    with torch.inference_mode():
        copies = tables.make_source(list(copied))[0] if copy else None
        session = scorer(tables.Sources(*tables.make_source(SENTENCES), candidates, copies=copies))
        session.step(None)
        found = session.log_probs(slice(0, 6)).clone()
        assert found.dtype == torch.float32
        assert found.exp().sum(1).tolist() == pytest.approx([1.0] * 6, abs=1e-5)
        assert session.shape == found.shape
        # The rounding of products may depend on the number of rows.
        tolerance = 0.02 if kind == "marginal" and dtype else 1e-5
        for row in range(6):
            alone = session.log_probs(slice(row, row + 1))[0]
            torch.testing.assert_close(alone, found[row], rtol=tolerance, atol=tolerance)
