"""Beam search compared with enumeration and with forced decoding, in any batch; prefixes, candidates, scores."""

import itertools
import math

import numpy as np
import pytest
import torch
from helpers import score_tables as tables
from helpers.score_tables import SENTENCES, WORDS, TableScorer, WatchedScorer, search, texts
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.errors import NmtalignError
from nmtalign.search import beam_search as search_module
from nmtalign.search.beam_search import Scoring, best_continuations
from nmtalign.search.sampling import Sampling
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.presets import SYSTEMS

PENALTIES = [
    {"length_penalty": 0.0},
    {},
    {"length_penalty": 2.0},
    {"word_penalty": 0.7},
    {"word_penalty": -3.0, "length_penalty": 0.5},
    {"coverage_penalty": 0.4},
    {"coverage_penalty": 2.0, "length_penalty": 0.0, "word_penalty": -1.0},
]


# The systems around the paper, with windows that are narrower than the sentences, and attention that is not soft.
AROUND = [SYSTEMS[name] for name in ("sutskever", "luong-global", "gnmt", "light")]
AROUND += [{**SYSTEMS[name], "attention_window": 2} for name in ("luong-local-m", "luong-local-p")]
AROUND += [{"attention_kind": "hard"}, {"attention_kind": "marginal", "order": "look-update-generate"}]
MARGINAL = {"attention_kind": "marginal", "attention_positions": 2}
AROUND += [MARGINAL, {**MARGINAL, "layers": 2, "order": "update-look-generate"}]
AROUND += [{**tables.TRANSFORMER, "alignment_layer": 1}, {**tables.TRANSFORMER, "norm": "post"}]
AROUND = [{"spread": 1.5, **kind} for kind in AROUND]


@pytest.mark.parametrize(
    ("kind", "allow_unk", "penalties"),
    [
        *((kind, False, {}) for kind in AROUND),
        *(({}, False, penalties) for penalties in PENALTIES),
        *(({}, True, penalties) for penalties in PENALTIES),
        *(({"copy": True}, True, penalties) for penalties in PENALTIES),
    ],
    ids=str,
)
def test_full_width_is_exhaustive_search(kind, allow_unk, penalties):
    model = tables.small_model(**kind)
    scorer, source, copies = tables.scorer_of(model), SENTENCES[0], tables.copies_of(model, SENTENCES[:1])
    words = [*([1] if allow_unk else []), 2, 3, 4, *([5] if "copy" in kind else [])]
    every = tables.every_translation(3, words)
    expected = tables.enumerated(scorer, source, every, Scoring(**penalties), copies=copies and copies[0])
    options = {"beam": 200, "n_best": 200, "allow_unk": allow_unk, "max_length_ratio": 1.0, **penalties}
    found = search(scorer, [source], copies=copies, **options)[0]
    assert texts(found) == [tokens for _, tokens in expected]
    assert [hypothesis.score for hypothesis in found] == pytest.approx([score for score, _ in expected], abs=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        *AROUND,
        {},
        {"attention": "none"},
        {"coverage": "linguistic"},
        {"attention": "dot"},
        {"attention": "general", "readout_previous_word": False},
        {"attention": "none", "bidirectional": False, "reverse_source": True},
        {"copy": True, "attention": "dot", "coverage": "none", "output_rank": 3},
        {"copy": True, "attention_kind": "marginal", "attention_positions": 2},
    ],
)
@pytest.mark.parametrize(
    ("order", "cell", "dtype"),
    [("look-generate-update", "paper", torch.float32), ("look-update-generate", "cudnn", torch.float64)],
)
def test_beam_score_is_forced_score(kind, order, cell, dtype, rounding):
    model = tables.small_model(**{"order": order, "cell": cell, **kind}).to(dtype)
    copies = tables.copies_of(model)
    found = search(tables.scorer_of(model), SENTENCES, copies=copies, beam=4, n_best=3, keep_weights=True)
    assert any(number >= WORDS for own in found for each in own for number in each.tokens) == model.config.copy
    for place, (source, hypotheses) in enumerate(zip(SENTENCES, found, strict=True)):
        for hypothesis in hypotheses:
            log_probs, weights = tables.forced(model, source, hypothesis.tokens, copies and copies[place])
            error = rounding.of_steps(model, len(source) + 1 + len(log_probs))
            assert list(hypothesis.token_log_probs) == pytest.approx(log_probs, rel=0, abs=error)
            assert hypothesis.score == pytest.approx(sum(log_probs) / len(log_probs), rel=0, abs=error)
            assert hypothesis.log_prob == pytest.approx(sum(hypothesis.token_log_probs), abs=1e-12)
            if weights is None:
                assert hypothesis.weights is None
            else:
                assert hypothesis.weights.dtype == np.float32
                error += rounding.of(1.0, weights.shape[1])  # weights are kept in float32
                assert hypothesis.weights == pytest.approx(weights, rel=0, abs=error)
                assert hypothesis.weights.sum(1) == pytest.approx(1, abs=error)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        *(({**kind, "hidden": 32, "attention_hidden": 32}, {"beam": 3}) for kind in AROUND),
        *itertools.product(
            ({"seed": 4}, {"seed": 4, "coverage": "linguistic"}, {"seed": 4, "copy": True}),
            ({"beam": 1}, {"beam": 3, "coverage_penalty": 0.5, "word_penalty": -0.5}, {"beam": 12}),
        ),
    ],
    ids=str,
)
def test_batch_composition_and_order_change_nothing(kind, options, rounding):
    options, model = {"n_best": min(options["beam"], 3), **options}, tables.small_model(**kind)
    scorer = tables.scorer_of(model)
    error = rounding.of_steps(model, 20)  # the longest source and its translation have fewer words together

    def found_by(places):
        sentences = [SENTENCES[place] for place in places]
        return search(scorer, sentences, copies=tables.copies_of(model, sentences), keep_weights=True, **options)

    alone = [found_by([place])[0] for place in range(6)]
    for order in (range(6), [5, 3, 1, 0, 2, 4], [2, 2, 4]):
        together = found_by(order)
        for i, found in zip(order, together, strict=True):
            assert tables.same(found, alone[i], error)
            for one, other in zip(found, alone[i], strict=True):
                if other.weights is None:
                    assert one.weights is None
                else:
                    assert one.weights == pytest.approx(other.weights, rel=0, abs=error)


@settings(max_examples=40)
@given(
    st.integers(0, 10**6),
    st.integers(1, 8),
    st.permutations(range(6)),
    st.sampled_from(PENALTIES),
    st.sampled_from(["beam", "paper"]),
)
def test_tables_in_batches_give_what_they_give_one_by_one(seed, beam, order, penalties, stop):
    scorer = TableScorer.random(seed)
    options = {"beam": beam, "n_best": beam, "search": stop, "max_length_ratio": 2.0, **penalties}
    for place, found in zip(order, search(scorer, [SENTENCES[place] for place in order], **options), strict=True):
        alone = search(scorer, [SENTENCES[place]], **options)[0]
        assert tables.same(found, alone, 1e-12)  # equal bits on x86-64
        for one, other in zip(found, alone, strict=True):
            assert one.tokens == other.tokens
            assert one.token_log_probs == pytest.approx(other.token_log_probs, rel=0, abs=1e-12)


def test_a_search_keeps_no_graph_of_the_encoder():
    seen, phrases = [], [((2,),), *[()] * 5]
    scorer = WatchedScorer(TableScorer.random(1), lambda _: seen.append(torch.is_grad_enabled()))
    search(scorer, SENTENCES, beam=2)
    search(scorer, SENTENCES, phrases=phrases, beam=2)
    Sampling(tables.sources_of(SENTENCES), TranslateConfig(sample=True), [(0, 0)] * 6).run(scorer)
    assert seen == [False] * 3


@settings(max_examples=150)
@given(
    seed=st.integers(0, 10**6),
    spread=st.sampled_from([0.3, 2.0, 6.0]),
    beam=st.integers(1, 6),
    n_best=st.integers(1, 6),
    length_penalty=st.sampled_from([0.0, 0.5, 1.0, 2.0]),
    word_penalty=st.sampled_from([0.0, 0.0, 0.5, 3.0, -0.5, -3.0]),
    coverage_penalty=st.sampled_from([0.0, 0.3, 5.0]),
    least=st.sampled_from([0.0, 0.9]),
)
def test_stopping_early_never_changes_anything(seed, spread, beam, n_best, least, **penalties):
    scorer = TableScorer.random(seed, spread)
    options = {"beam": beam, "n_best": min(n_best, beam), "max_length_ratio": 2.0, "min_length_ratio": least}
    early = search(scorer, SENTENCES, **options, **penalties)
    assert early == search(scorer, SENTENCES, search="paper", **options, **penalties)


def test_it_stops_as_soon_as_no_open_hypothesis_can_win():
    # After `</s>` at once, the rest of the beam has log-probability -10 or less, far under the first ending's.
    table = torch.zeros(50, WORDS, WORDS)
    table[0, :, 0] = 10.0
    scorer = TableScorer(table)
    assert search(scorer, [[2] * 9], beam=3, length_penalty=0.0)[0][0].tokens == ()
    assert scorer.steps == 1
    assert search(scorer, [[2] * 9], beam=3, length_penalty=0.0, search="paper")[0][0].tokens == ()
    assert scorer.steps > 2


def test_a_limit_is_each_sentences_own_and_ends_what_is_open():
    table = torch.zeros(50, WORDS, WORDS)
    table[:, :, 3] = 9.0  # the model would say the same word for ever
    scorer = TableScorer(table)
    found = search(scorer, [[2], [2] * 5, []], beam=2, max_length_ratio=1.5)
    assert [best[0].tokens for best in found] == [(3,) * 2, (3,) * 8, ()]
    log_probs = table.log_softmax(-1)[0, 0]
    assert found[1][0].log_prob == pytest.approx(8 * log_probs[3].item() + log_probs[0].item())
    assert search(scorer, [[2]], beam=2, max_length_ratio=0.01)[0][0].tokens == ()


def test_a_least_length_leaves_room_for_the_end():
    found = search(TableScorer.random(0), [[2] * 3], beam=2, min_length_ratio=1.0, max_length_ratio=1.0)
    assert [len(best[0].tokens) for best in found] == [3]


@pytest.mark.parametrize("beam", [3, 8, 12])
def test_a_hypothesis_without_a_continuation_never_continues_the_row_of_a_neighbour(monkeypatch, beam):
    scorer = TableScorer.random(beam)
    prefixes = [*[()] * (len(SENTENCES) - 1), (3, 2)]  # the last sentence has one continuation, the others many
    expected = search(scorer, SENTENCES, prefixes=prefixes, beam=beam, n_best=beam)
    impossible = 0

    def of_the_neighbour(*arguments):
        nonlocal impossible
        totals, hypotheses, columns, gains = best_continuations(*arguments)
        without = totals == -torch.inf
        impossible += int(without.sum())
        return totals, torch.where(without, arguments[1].shape[1], hypotheses), columns, gains

    monkeypatch.setattr(search_module, "best_continuations", of_the_neighbour)
    assert search(scorer, SENTENCES, prefixes=prefixes, beam=beam, n_best=beam) == expected
    assert impossible


def test_a_model_of_no_numbers_is_refused():
    with pytest.raises(NmtalignError, match="no finite probability"):
        search(TableScorer(torch.full((9, WORDS, WORDS), math.nan)), [[2]], beam=2)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("beam", [1, 2, 10])
def test_the_papers_search_is_that_of_the_released_code(seed, beam):
    scorer = TableScorer.random(seed)
    paper = {"search": "paper", "length_penalty": 0.0, "min_length_ratio": 0.5, "n_best": beam, "beam": beam}
    for source, found in zip(SENTENCES, search(scorer, SENTENCES, **paper), strict=True):
        words = len(source) + 1
        expected = tables.searched_by_hand(scorer, source, beam, shortest=words // 2, most_steps=3 * words)
        expected.sort(key=lambda each: -each[0])
        assert texts(found) == [tokens for _, tokens in expected]
        assert [hypothesis.score for hypothesis in found] == pytest.approx([log_prob for log_prob, _ in expected])


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


@settings(max_examples=20)
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
    free = [place for place, prefix in enumerate(prefixes) if not prefix]
    assert [together[place] for place in free] == [plain[place] for place in free]


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


@settings(max_examples=200)
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
