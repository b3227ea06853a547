"""The optimisers and clipping against PyTorch's own, and one update of groups of minibatches."""

import copy
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from helpers.trainings import sizes
from torch import nn
from torch.nn import functional as F

from nmtalign.core.numerics import Role
from nmtalign.data.batches import eligible
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.distributed import World
from nmtalign.training.optimizers import Adadelta, descend, make_optimizer
from nmtalign.training.updates import TrainingSetup


class Words(nn.Module):
    """A table of word vectors, a matrix and a bias, which is stacked as those of two directions."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = Role.BIAS.parameter(1, 3)
        self.table, self.matrix = nn.Parameter(torch.randn(20, 4)), nn.Parameter(torch.randn(4, 3))

    def backward(self, ids):
        (F.embedding(ids, self.table) @ self.matrix + self.bias).square().sum().backward()


def words():
    torch.manual_seed(1)
    return Words().double()


def batches(count):
    generator = torch.Generator().manual_seed(2)
    return [torch.randint(0, 20, (6,), generator=generator) for _ in range(count)]


@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_adadelta_is_pytorchs(clip):
    compare_adadelta(words(), clip, count=12)


def test_adadelta_of_a_large_matrix_by_pieces_is_pytorchs():
    model = words()
    model.matrix = nn.Parameter(torch.randn(4, 150_000).double())
    model.bias = nn.Parameter(torch.randn(150_000).double())
    compare_adadelta(model, clip=0.0, count=3)


def compare_with_pytorch(ours, theirs, optimizer, reference, clip, count, **tolerance):
    for ids in batches(count):
        ours.backward(ids)
        norm = descend(optimizer, reference.param_groups[0]["lr"], clip)
        theirs.backward(ids)
        assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(theirs.parameters(), clip or torch.inf)))
        reference.step()
        reference.zero_grad()
        assert all(weight.grad is None for weight in ours.parameters())
    for mine, yours in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine, yours, **tolerance)


def compare_adadelta(ours, clip, count):
    theirs = copy.deepcopy(ours)
    optimizer = Adadelta(ours.parameters(), rho=0.95, epsilon=1e-6)
    reference = torch.optim.Adadelta(theirs.parameters(), lr=0.5, rho=0.95, eps=1e-6)
    compare_with_pytorch(ours, theirs, optimizer, reference, clip, count, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["adam", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_adam_with_clipping_is_pytorchs(name, clip):
    decay = 0.1 if name == "adamw" else 0.0
    config = TrainingConfig(optimizer=name, weight_decay=decay, epsilon=1e-8, beta1=0.8, beta2=0.9)
    ours, theirs = words(), words()
    optimizer = make_optimizer(ours.parameters(), config)
    cls = torch.optim.AdamW if name == "adamw" else torch.optim.Adam
    groups = [{"params": [theirs.table, theirs.matrix]}, {"params": [theirs.bias], "weight_decay": 0.0}]
    reference = cls(groups, lr=0.01, betas=(0.8, 0.9), eps=1e-8, weight_decay=decay)
    compare_with_pytorch(ours, theirs, optimizer, reference, clip, count=8, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("name", ["adadelta", "adamw"])
@pytest.mark.parametrize("clip", [0.0, 0.7])
def test_a_step_that_does_not_wait_for_the_norm_is_the_same(name, clip):
    config = TrainingConfig(optimizer=name)
    models = [words().float(), words().float()]
    optimizers = [make_optimizer(model.parameters(), config) for model in models]
    for number, ids in enumerate(batches(6)):
        for on_device, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            model.backward(ids)
            if number == 3:
                model.matrix.grad[0, 0] = torch.inf
            descend(optimizer, 0.1, clip, on_device=bool(on_device))
        for waits, other in zip(*(model.parameters() for model in models), strict=True):
            torch.testing.assert_close(waits, other, rtol=1e-5, atol=1e-6)
            assert waits.isfinite().all()


@pytest.mark.parametrize("name", ["adadelta", "adamw"])
@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_a_gradient_that_is_not_finite_changes_nothing(name, bad):
    model = words()
    optimizer = make_optimizer(model.parameters(), TrainingConfig(optimizer=name))
    for ids in batches(2):
        model.backward(ids)
        descend(optimizer, 0.1, 1.0)
    before, state = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.values())
    model.backward(batches(1)[0])
    model.matrix.grad[0, 0] = bad
    assert not math.isfinite(descend(optimizer, 0.1, 1.0))
    torch.testing.assert_close(model.state_dict(), before, rtol=0, atol=0)
    torch.testing.assert_close(optimizer.values(), state, rtol=0, atol=0)


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
