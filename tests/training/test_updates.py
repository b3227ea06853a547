"""One update: groups of minibatches have the result of their union, and a loss that is not finite changes nothing."""

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.trainings import sizes

from nmtalign.data.batches import eligible
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.distributed import World
from nmtalign.training.updates import TrainingSetup


def make(corpus, config):
    setup = TrainingSetup(corpus, Path("model"), sizes(corpus), config, World(torch.device("cpu")))
    setup.build(print)
    setup.model.double()
    return setup


def gradients_of(corpus, plan, config):
    """The gradient that one update over all of the plan leaves on the parameters."""
    setup = make(corpus, config)
    setup.gradient(plan, setup.batches(plan))
    return [parameter.grad for parameter in setup.model.parameters()]


@pytest.mark.parametrize("normalization", ["sentences", "tokens", "sum"])
def test_a_group_has_the_gradient_of_its_union(reversal, normalization):
    config = TrainingConfig(loss_normalization=normalization)
    chosen = eligible(reversal.splits["train"], 0)[:40]
    parts = np.split(chosen, [7, 30])
    one = gradients_of(reversal, [chosen], config)
    several = gradients_of(reversal, parts, config)
    for gradient, other in zip(one, several, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_is_skipped_even_where_its_gradient_is(reversal, monkeypatch, value):
    config = TrainingConfig()
    setup = make(reversal, config)
    model = setup.model
    whole = model.loss

    def broken(*arguments, **options):
        loss = whole(*arguments, **options)
        return replace(loss, objective=loss.objective + value)  # a constant: the gradient does not see it

    monkeypatch.setattr(model, "loss", broken)
    before = [parameter.clone() for parameter in model.parameters()]
    plan = [np.arange(5)]
    norm, _ = setup.update(plan, setup.batches(plan), 1.0)
    assert not math.isfinite(norm)
    assert all(torch.equal(parameter, old) for parameter, old in zip(model.parameters(), before, strict=True))
    assert all(parameter.grad is None for parameter in model.parameters())
