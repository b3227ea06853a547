"""Budgets, intervals and the learning rate's course."""

import pytest

from nmtalign.config import TrainingConfig
from nmtalign.training.budget import Budget, Every
from nmtalign.training.optimizers import learning_rate


def test_the_nearest_limit_counts():
    budget = Budget.of(TrainingConfig(max_updates=100, epochs=2.0, max_time="1m"))
    assert budget.done(50, 0.1, 1.0) == 0.5
    assert budget.done(1, 1.5, 1.0) == 0.75
    assert budget.reached(99, 1.9, 59.0) is None
    assert budget.reached(100, 0.0, 0.0) == "100 updates"
    assert budget.reached(0, 2.0, 0.0) == "2 epochs"
    assert budget.reached(0, 0.0, 60.0) == "60 s"


def test_without_limits_nothing_is_ever_reached():
    budget = Budget.of(TrainingConfig())
    assert budget.done(10**9, 1e6, 1e9) == 0
    assert budget.reached(10**9, 1e6, 1e9) is None


@pytest.mark.parametrize(
    ("text", "moments", "expected"),
    [
        ("3", [(1, 0, False), (3, 1, False), (4, 2, True), (6, 3, False)], [False, True, False, True]),
        ("10s", [(1, 9, False), (2, 10, False), (3, 11, True)], [False, True, False]),
        ("epoch", [(1, 99, False), (2, 99, True)], [False, True]),
    ],
)
def test_every(text, moments, expected):
    every = Every("validate_every", text, 0.0)
    assert [every.due(*moment) for moment in moments] == expected


def test_the_rate_rises_over_the_warm_up_and_falls_with_the_budget():
    config = TrainingConfig(learning_rate=2.0, warmup=10, schedule="linear")
    assert learning_rate(config, 5, 0.0) == 1.0
    assert learning_rate(config, 10, 0.0) == 2.0
    assert learning_rate(config, 50, 0.5) == 1.0
    assert learning_rate(config, 100, 1.0) == 0.0
    inverse = TrainingConfig(learning_rate=2.0, warmup=10, schedule="inverse-sqrt")
    assert learning_rate(inverse, 10, 0.0) == 2.0
    assert learning_rate(inverse, 40, 0.9) == 1.0
    assert learning_rate(TrainingConfig(), 1, 0.7) == 1.0
