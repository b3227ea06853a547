"""Weights given the word, against the naive model's gradients and against the exact posterior."""

import dataclasses

import pytest
import torch
from helpers import core_models as models

from nmtalign.core import reference
from nmtalign.core.model import Activations
from nmtalign.data.batches import make_batch
from nmtalign.text.vocabulary import COPY_SHIFT, EOS_ID, WORD_BITS

ATTENDING = [
    config
    for config in models.VARIANTS
    if models.make_model(config).has_posterior and not config.copy and config.attention_kind == "soft"
]


def test_a_stack_of_layers_has_no_posterior_and_gives_its_weights():
    model = models.make_model(models.SYSTEM_VARIANTS["gnmt"])
    batch = make_batch(models.PAIRS)
    arguments = batch.source, batch.source_mask, batch.target, batch.target_mask
    assert torch.equal(model.force_posterior(*arguments).weights, model.force(*arguments).weights)


@pytest.mark.parametrize("config", ATTENDING, ids=models.named)
def test_posterior_is_that_of_the_naive_model(config):
    model = models.make_model(config)
    batch = make_batch(models.PAIRS)
    forced = model.force_posterior(batch.source, batch.source_mask, batch.target, batch.target_mask)
    for row, (source, target) in enumerate(models.PAIRS):
        source, target = [*source, EOS_ID], [*target, EOS_ID]
        contexts = []
        log_probs, weights = reference.log_probs_and_weights(
            model, source, target, lambda _, c, seen=contexts: seen.append(c) or c
        )
        h = annotations_of(model, source)
        for t, word_log_prob in enumerate(log_probs):
            (gradient,) = torch.autograd.grad(word_log_prob, contexts[t], retain_graph=True)
            expected = (weights[t].log() + h @ gradient).softmax(0)
            torch.testing.assert_close(forced.weights[row, t, : len(source)], expected, rtol=1e-8, atol=1e-10)
        assert not forced.weights[row, :, len(source) :].any()
        torch.testing.assert_close(forced.log_probs[row, : len(target)], log_probs, rtol=1e-9, atol=1e-10)
        assert not forced.log_probs[row, len(target) :].any()


@pytest.mark.parametrize("config", models.LATENT, ids=models.named)
def test_posterior_of_a_latent_position_is_that_of_bayes_rule(config, monkeypatch):
    model, pairs = models.make_model(config), models.pairs_of(config)
    batch = make_batch(pairs)
    arguments = batch.source, batch.source_mask, batch.target, batch.target_mask
    forced, prior = model.force_posterior(*arguments), model.force(*arguments)
    torch.testing.assert_close(forced.log_probs, prior.log_probs)
    assert (forced.weights - prior.weights)[batch.target_mask].abs().max() > 0.01
    for row, (source, target) in enumerate(pairs):
        expected = naive_posterior(model, [*source, EOS_ID], [*target, EOS_ID], monkeypatch)
        torch.testing.assert_close(expected.sum(1), torch.ones_like(expected[:, 0]))
        found = forced.weights[row, : len(target) + 1]
        torch.testing.assert_close(found[:, : len(source) + 1], expected, rtol=1e-8, atol=1e-10)
        assert not found[:, len(source) + 1 :].any()


@torch.no_grad()
def naive_posterior(model, source, target, monkeypatch):
    """(Ty, Tx): of each position, p(position, word) / p(word); positions with one context in proportion to weights."""
    config = dataclasses.replace(model.config, attention_kind="marginal")
    _, weights = reference.log_probs_and_weights(model, source, target)
    joint, contexts, word_log_prob = torch.zeros_like(weights), reference.contexts, reference.word_log_prob
    # No word can be copied from a source whose words to copy have an id that the target lacks.
    without_copies = [number & WORD_BITS | 99 << COPY_SHIFT for number in source] if config.copy else source
    for number in range(min(len(source), config.attention_positions + 1)):
        chosen = []

        def only(_, *given, number=number, chosen=chosen):
            chosen.append(contexts(config, *given)[number])
            return chosen[-1:]

        def of_one_context(*given, only=only):
            """Only the word depends on one context: the next step may receive the mean by the posteriors."""
            with monkeypatch.context() as patch:
                patch.setattr(reference, "contexts", only)
                return word_log_prob(*given)

        monkeypatch.setattr(reference, "word_log_prob", of_one_context)
        log_probs, _ = reference.log_probs_and_weights(model, without_copies, target)
        for t, (_, _, places) in enumerate(chosen):
            joint[t, places] += log_probs[t].exp() * weights[t, places] / weights[t, places].sum()
    monkeypatch.setattr(reference, "word_log_prob", word_log_prob)
    if config.copy:
        marginal = models.make_model(config)
        marginal.load_state_dict(model.state_dict())
        log_probs, _ = reference.log_probs_and_weights(marginal, source, target)
        for t, word in enumerate(target):
            equal = torch.tensor([number >> COPY_SHIFT == word for number in source])
            copied = log_probs[t].exp() - joint[t].sum()
            joint[t] += (copied / (weights[t] * equal).sum() * weights[t] * equal).nan_to_num()
    return joint / joint.sum(1, keepdim=True)


@pytest.mark.parametrize("order", ["look-generate-update", "look-update-generate"])
def test_what_is_left_out_is_of_second_order(order):
    """Where the context counts a tenth, the error against Bayes' rule itself is a hundredth."""
    config = dataclasses.replace(models.TINY, order=order)
    source, target = [3, 4, 5, EOS_ID], [2, 3, EOS_ID]
    batch = make_batch([(source[:-1], target[:-1])])
    errors = []
    for scale in (1e-2, 1e-3):
        model = models.make_model(config)
        with torch.no_grad():
            model.readout.context_weight.mul_(scale)
            model.decoder.cell.context_weight.mul_(scale)
        found = model.force_posterior(batch.source, batch.source_mask, batch.target, batch.target_mask).weights[0]
        errors.append(float((found - exact_posterior(model, source, target)).abs().max()))
    assert errors[1] < errors[0] / 50


@torch.no_grad()
def exact_posterior(model, source, target):
    """(Ty, Tx): alpha[t, j] * p(y_t | context = annotations[j]), rows summing to 1."""
    _, weights = reference.log_probs_and_weights(model, source, target)
    rows = []
    for t in range(len(target)):
        log_probs = []
        for h in annotations_of(model, source):
            found, _ = reference.log_probs_and_weights(
                model, source, target, lambda step, c, h=h, t=t: h if step == t else c
            )
            log_probs.append(found[t])
        rows.append((weights[t].log() + torch.stack(log_probs)).softmax(0))
    return torch.stack(rows)


def annotations_of(model, source):
    return model.encode(torch.tensor([source]), torch.ones(1, len(source), dtype=torch.bool)).values[0].detach()


def test_posterior_in_bf16_is_near_that_in_float32():
    model = models.make_model(models.TINY, torch.float32)
    batch = make_batch(models.PAIRS)
    arguments = (batch.source, batch.source_mask, batch.target, batch.target_mask)
    exact = model.force_posterior(*arguments)
    near = model.force_posterior(*arguments, Activations(torch.bfloat16))
    torch.testing.assert_close(near.weights, exact.weights, rtol=0.05, atol=0.02)
    assert near.weights.dtype == torch.float32


def test_a_model_without_attention_has_no_posterior():
    model = models.make_model(dataclasses.replace(models.TINY, attention="none"))
    batch = make_batch(models.PAIRS)
    forced = model.force_posterior(batch.source, batch.source_mask, batch.target, batch.target_mask)
    assert forced.weights is None
