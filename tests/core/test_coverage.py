"""Coverage: its gradient through every output of the decoder, and independence of unrelated inputs."""

import dataclasses

import numpy as np
import pytest
import torch
from helpers import core_models as models

from nmtalign.core.attention import KEPT_BYTES
from nmtalign.core.attention_variants import Coverage
from nmtalign.core.model import Activations, TranslationModel
from nmtalign.data.batches import make_batch
from nmtalign.settings.training_settings import ModelConfig

PAIRS, make_model, named = models.PAIRS, models.make_model, models.named
COVERED = dataclasses.replace(models.TINY, coverage="linguistic")
ORDERS = [COVERED, dataclasses.replace(COVERED, order="look-update-generate", cell="cudnn")]


def arguments(pairs=PAIRS):
    batch = make_batch(pairs)
    return batch.source, batch.source_mask, batch.target, batch.target_mask


@pytest.mark.parametrize("kept_bytes", [KEPT_BYTES, 0])
@pytest.mark.parametrize("config", ORDERS, ids=named)
def test_gradients_of_states_contexts_and_weights(config, kept_bytes):
    models.check_gradients_of_unrolling(config, kept_bytes)


@pytest.mark.parametrize("config", ORDERS, ids=named)
def test_a_batch_has_the_gradient_of_its_pairs(config):
    model = make_model(config)
    model.loss(*arguments()).objective.backward()
    together = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    for pair in PAIRS:
        model.loss(*arguments([pair])).objective.backward()
    for parameter, expected in zip(model.parameters(), together, strict=True):
        torch.testing.assert_close(parameter.grad, expected)


def test_what_is_not_read_by_weight_changes_nothing():
    plain = make_model(models.TINY)
    covered = TranslationModel(COVERED).double()
    covered.load_state_dict(plain.state_dict(), strict=False)
    with torch.no_grad():
        covered.decoder.coverage.coverage_weight.zero_()
    assert torch.equal(covered.force(*arguments()).log_probs, plain.force(*arguments()).log_probs)


def test_bf16_stays_near_float32():
    sizes = {"hidden": 32, "embedding": 16, "maxout": 16, "attention_hidden": 32}
    model = make_model(dataclasses.replace(COVERED, **sizes), torch.float32)
    found = []
    for on in (False, True):
        how = Activations(torch.bfloat16 if on else None)
        model.zero_grad()
        # Only the weights: rounding may change which unit of a maxout pair is the larger one.
        model.loss(*arguments(), how=how).weights.square().sum().backward()
        found.append([p.grad.clone() for p in model.decoder.parameters() if p.grad is not None])
    exact, rough = (torch.cat([gradient.flatten() for gradient in gradients]) for gradients in found)
    assert (rough - exact).norm() <= 0.05 * exact.norm()


def test_shares_do_not_depend_on_what_stands_beside_them(rounding):
    torch.manual_seed(1)
    coverage = Coverage(20, 6)
    with torch.no_grad():
        for parameter in coverage.parameters():
            parameter.normal_()
        annotations = torch.randn(64, 7, 20)
        weight = coverage.fertility_weight[0]
        # A product that is off by some number makes the share, which has its exponential, as much larger.
        tolerance = rounding.of(float((annotations.abs() @ weight.abs()).max()), 2 * 20)
        together = coverage.shares(annotations)
        for start, stop in ((first, last) for first in (0, 3, 12) for last in range(first + 1, 64, 3)):
            part = coverage.shares(annotations[start:stop])
            rounding.assert_same(part / together[start:stop], np.ones(part.shape), tolerance)
        few = coverage.shares(annotations[:1, :3])
        rounding.assert_same(few / together[:1, :3], np.ones(few.shape), tolerance)
        expected = 1 / (2 * (annotations.double() @ weight.double()).sigmoid())
        torch.testing.assert_close(together.double(), expected, rtol=tolerance, atol=0)


def test_coverage_starts_as_the_papers_alignment_model_does():
    torch.manual_seed(0)
    config = ModelConfig(9, 9, embedding=2, hidden=300, attention_hidden=400, maxout=2, coverage="linguistic")
    coverage = TranslationModel(config).decoder.coverage
    for weight in (coverage.coverage_weight, coverage.fertility_weight):
        assert float(weight.detach().std()) == pytest.approx(0.001, rel=0.2)
