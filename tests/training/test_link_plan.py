"""How `nmtalign link` chooses settings and divides a time limit."""

import math

import pytest

from nmtalign.settings.alignment_settings import LinkConfig
from nmtalign.training.link_plan import LinkPlan, link_settings, passes, prep_settings


def test_a_larger_corpus_is_seen_less_often_but_trains_longer() -> None:
    counts = [10_000, 100_000, 1_000_000, 30_000_000]
    rounds = [passes(words) for words in counts]
    assert [len(one) for one in rounds] == [2] * 4
    assert sorted(rounds, reverse=True) == rounds
    trained = [words * sum(one) for words, one in zip(counts, rounds, strict=True)]
    assert sorted(trained) == trained
    for words, one in zip(counts, rounds, strict=True):
        (quick,) = passes(words, quick=True)
        assert quick < one[0]
    assert all(map(math.isfinite, passes(0)))


@pytest.mark.parametrize("pairs", [1, 1_999, 2_000, 30_000, 10**7])
def test_settings_fit_each_other_for_each_size(pairs: int) -> None:
    words = 10 * pairs
    model, training = link_settings(LinkConfig(seed=5), pairs, words, 3.0, max_time="60s")
    assert (training.seed, training.max_time, training.agreement) == (5, "60s", True)
    assert model.hidden == model.embedding
    assert prep_settings(pairs).vocabulary == "bpe"


def test_sizes_grow_with_the_corpus() -> None:
    counts = [1_000, 5_000, 20_000, 100_000]
    assert sorted(pieces := [int(prep_settings(pairs).size) for pairs in counts]) == pieces
    units = [link_settings(LinkConfig(), pairs, 10 * pairs, 1.0)[0].hidden for pairs in counts]
    assert sorted(units) == units


@pytest.mark.parametrize("rounds", [[3.0], [3.0, 1.0]])
@pytest.mark.parametrize("pace", [1.0, 0.7])
def test_a_sufficient_limit_is_used_up_and_kept(rounds: list[float], pace: float) -> None:
    """`pace` is the time of aligning, in units of the time that the plan expects."""
    plan = LinkPlan(rounds, budget=1000.0, epoch=300.0)
    spent = 20.0
    for number in range(1, len(rounds) + 1):
        limit = plan.limit(2 * number, spent)
        assert limit is not None
        spent += limit
        plan.aligning = pace * 150
        spent += plan.aligning
    assert spent <= 1000
    assert spent >= 1000 - 150 * (1 - pace) * len(rounds)


def test_a_short_limit_gives_one_round_and_some_training() -> None:
    plan = LinkPlan([3.0, 1.0], budget=100.0, epoch=300.0)
    short = plan.shortened(spent=10.0)
    assert (short.rounds, short.budget) == ([3.0], 100.0)
    assert short.limit(2, 10.0) == 25
    long = LinkPlan([3.0, 1.0], budget=1000.0, epoch=300.0)
    assert long.shortened(spent=10.0) is long


def test_the_time_of_later_steps() -> None:
    plan = LinkPlan([3.0, 1.0])
    assert plan.limit(2, 0.0) is None
    assert plan.shortened(0.0) is plan
    assert plan.later(1) is None
    plan.epoch, plan.aligning = 100.0, 40.0
    assert [plan.later(step) for step in (1, 2, 3, 4, 5)] == [480, 180, 140, 40, 0]
