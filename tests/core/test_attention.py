"""Scores, coverage and local attention: their parts, sizes and refused settings."""

import dataclasses

import pytest
import torch
from helpers import core_models as models

from nmtalign.core.attention import DotAttention
from nmtalign.core.model import TranslationModel, make_batch
from nmtalign.settings.definition import SettingError
from nmtalign.settings.training_settings import ModelConfig

PAIRS, TINY, LUONG, make_model, named = models.PAIRS, models.TINY, models.LUONG, models.make_model, models.named


def arguments(pairs=PAIRS):
    return make_batch(pairs).inputs()


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [({"coverage": "linguistic"}, 0.05), ({"attention": "dot"}, 0.1), ({"attention": "general"}, 0.1)],
)
def test_weights_in_bf16_have_a_gradient_near_that_of_float32(changes, tolerance):
    sizes = {"hidden": 32, "embedding": 16, "maxout": 16, "attention_hidden": 32}
    model = make_model(dataclasses.replace(TINY, **sizes, **changes), torch.float32)
    found = []
    for dtype in (None, torch.bfloat16):
        model.zero_grad()
        # Only the weights: rounding may change which unit of a maxout pair is the larger one.
        weights = model.loss(*arguments(), dtype=dtype).weights
        assert weights.dtype == torch.float32
        weights.square().sum().backward()
        found.append(torch.cat([p.grad.flatten() for p in model.decoder.parameters() if p.grad is not None]))
    exact, rough = found
    assert (rough - exact).norm() <= tolerance * exact.norm()


def test_coverage_starts_as_the_papers_alignment_model_does():
    torch.manual_seed(0)
    config = ModelConfig(9, 9, embedding=2, hidden=300, attention_hidden=400, maxout=2, coverage="linguistic")
    attention = TranslationModel(config).decoder.attention
    for weight in (attention.coverage_weight, attention.fertility_weight):
        assert float(weight.detach().std()) == pytest.approx(0.001, rel=0.2)


def test_general_attention_starts_uniform_and_a_dot_has_no_parameters():
    torch.manual_seed(0)
    sizes = {"embedding": 20, "hidden": 30, "maxout": 8, "output_rank": 0}
    model = TranslationModel(ModelConfig(11, 13, attention="general", **sizes))
    weight = model.decoder.attention.key_weight.detach()
    assert weight.shape == (30, 60)
    assert float(weight.std()) == pytest.approx(0.001, rel=0.1)
    weights = model.force(*arguments(PAIRS[:1])).weights
    torch.testing.assert_close(weights, torch.full_like(weights, 1 / 5), rtol=1e-4, atol=0)
    assert not list(DotAttention(TINY, 12).parameters())


def test_local_m_attends_around_the_number_of_the_target_word():
    model = make_model(dataclasses.replace(LUONG[1], attention_window=1))
    weights = model.force(*arguments([([3, 4, 5, 6, 7], [2] * 9)])).weights[0]  # (10, 6)
    for step, row in enumerate(weights):
        center = min(step, 5)
        assert torch.equal(row > 0, (torch.arange(6) - center).abs() <= 1)
    torch.testing.assert_close(weights.sum(-1), torch.ones(10).double())


def test_local_p_weights_are_normalised_and_contexts_are_not():
    model = make_model(dataclasses.replace(LUONG[2], attention_window=2))
    source, mask, target, _ = arguments([([3, 4, 5, 6, 7, 8, 9], [2, 3, 4])])
    memory = model.encode(source, mask)
    run = model.decoder.unroll(memory, model.target_embedding(target.t()))
    torch.testing.assert_close(run.weights.sum(-1), torch.ones(4, 1).double())
    assert (run.weights == 0).any()
    plain = torch.einsum("tbj,bjd->tbd", run.weights, memory.values)
    shares = run.contexts / plain  # the mass that the Gaussian leaves
    torch.testing.assert_close(shares, shares[..., :1].expand_as(shares))
    assert ((shares > 0.1) & (shares < 0.999)).all()


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (TINY, {"attention_span": "local-m", "attention": "none"}, "needs attention = "),
        (TINY, {"attention_span": "local-p", "coverage": "linguistic"}, "needs coverage = none"),
        (TINY, {"attention_window": 0, "attention_span": "local-m"}, "must be at least 1"),
        (TINY, {"input_feeding": "attentional"}, "needs readout = attentional"),
        (TINY, {"input_feeding": "attentional", "readout": "attentional"}, "needs order = "),
        (LUONG[0], {"attention_layer": "first"}, "where the last layer attends"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_refused(config, changes, message):
    with pytest.raises(SettingError, match=message):
        dataclasses.replace(config, **changes)
