"""Alternatives of a word: their shares, and what drawn positions teach the weights."""

import dataclasses
import itertools

import pytest
import torch
from helpers import core_models as models
from torch.nn import functional as F

from nmtalign.core.latent_alignment import Alternatives, Latent
from nmtalign.core.model import make_batch
from nmtalign.settings.definition import SettingError

WEIGHTS = torch.tensor([[[0.1, 0.5, 0.0, 0.25, 0.15], [0.25, 0.15, 0.6, 0.0, 0.0]]], dtype=torch.float64)


def latent(kind, positions=8):
    return Latent(dataclasses.replace(models.TINY, attention_kind=kind, attention_positions=positions))


@pytest.mark.parametrize("positions", [1, 2, 4, 5, 9])
def test_alternatives_are_the_most_probable_positions_and_the_mean_of_the_others(positions):
    found = latent("marginal", positions).alternatives(WEIGHTS)
    assert found.log_weights.shape == (1, 2, min(5, positions + 1))
    torch.testing.assert_close(found.log_weights.exp().sum(-1), torch.ones(1, 2).double())
    torch.testing.assert_close((found.log_weights.exp()[..., None] * found.shares).sum(2), WEIGHTS)
    for row, weights in zip(found.shares[0], WEIGHTS[0], strict=True):
        best = weights.argsort(descending=True)[: min(positions, int((weights > 0).sum()))]
        assert row[: len(best), best].equal(torch.eye(len(best)).double())
        assert not row[positions:, best].any()


def test_nothing_remains_where_all_weight_is_among_the_most_probable():
    weights = WEIGHTS.clone().requires_grad_()
    found = latent("marginal", 3).alternatives(weights)
    assert found.log_weights[0, 1, -1] == -torch.inf
    assert not found.shares[0, 1, -1].any()
    (found.sums(torch.randn(1, 5, 2).double()).sum() + found.log_weights[:, :, :2].sum()).backward()
    assert weights.grad.isfinite().all()


def test_draws_follow_the_weights():
    torch.manual_seed(0)
    found = latent("hard").alternatives(WEIGHTS.expand(20_000, -1, -1), draw=True)
    torch.testing.assert_close(found.shares.mean((0, 2)), WEIGHTS[0], atol=0.015, rtol=0)
    assert not found.shares[:, 0, 0, 2].any()
    assert not found.log_weights.any()


def test_the_expected_gradient_of_draws_is_that_of_the_expected_reward():
    """Every combination of draws of three words, of which padding hides a fourth."""
    torch.manual_seed(0)
    energies = torch.randn(1, 4, 3, dtype=torch.float64, requires_grad=True)
    weights, rewards = energies.softmax(-1), torch.randn(4, 3, dtype=torch.float64)
    mask = torch.tensor([[True, True, True, False]])
    cost = torch.zeros(()).double()
    for draws in itertools.product(range(3), repeat=3):
        places = torch.tensor([[*draws, 0]])
        chance = weights[0, range(3), draws].prod().detach()
        found = rewards.gather(1, places[0, :, None]).t()
        drawn = Alternatives(F.one_hot(places, 3)[..., None, :].double(), torch.zeros(1, 4, 1).double(), drawn=True)
        cost = cost + chance * drawn.cost_of_draws(weights, found, mask)
    expected = -(weights[0, :3] * rewards[:3]).sum()
    (ours,), (theirs,) = (torch.autograd.grad(value, energies, retain_graph=True) for value in (cost, expected))
    torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("static", [False, True])
def test_training_of_hard_attention_draws_and_teaches_the_weights(static):
    config = dataclasses.replace(models.TINY, attention_kind="hard")
    model, batch = models.make_model(config), make_batch(models.PAIRS)

    def loss(training, seed=0):
        torch.manual_seed(seed)
        return model.train(training).loss(*batch.inputs(), static_shapes=static)

    assert loss(True).nll == loss(True).nll
    assert loss(True).nll != loss(True, 1).nll
    assert loss(False).nll == loss(False, 1).nll
    loss(True).objective.backward()
    run = model._run(model.encode(batch.source, batch.source_mask), batch.target)
    torch.manual_seed(0)
    weights = run.weights.transpose(0, 1)
    drawn = model.latent.alternatives(weights, draw=True)
    (features, targets, _), readout = model._outputs(run, batch.target, drawn), model.readout
    logits = F.linear(features[:, 0], readout.output_weight, readout.output_bias)
    log_probs = -F.cross_entropy(logits, targets, reduction="none").view(run.weights.shape[:2]).t()
    objective = -(log_probs * batch.target_mask).sum()
    objective = objective + drawn.cost_of_draws(weights, log_probs.detach(), batch.target_mask)
    expected = torch.autograd.grad(objective, list(model.decoder.attention.parameters()))
    for parameter, gradient in zip(model.decoder.attention.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)


@pytest.mark.parametrize("kind", ["marginal", "hard"])
@pytest.mark.parametrize(
    "changes",
    [{"attention": "none"}, {"attention_span": "local-m"}, {"readout": "direct"}, {"architecture": "transformer"}],
    ids=str,
)
def test_models_without_latent_positions_are_refused(kind, changes):
    with pytest.raises(SettingError, match=f"attention_kind = .{kind}.* needs "):
        dataclasses.replace(models.TINY, attention_kind=kind, **changes)
