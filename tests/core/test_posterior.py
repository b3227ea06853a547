"""Weights given the word, against the naive model's gradients and Bayes' rule."""

import dataclasses

import pytest
import torch
from helpers import core_models as models
from helpers import naive_recurrent as naive

from nmtalign.core.inference import in_dtype
from nmtalign.core.model import make_batch
from nmtalign.text.tokenizer import EOS_ID

SOFT = [config for config in models.VARIANTS if config.attention_kind == "soft" and not config.copy]
ATTENDING = [config for config in SOFT if models.make_model(config).has_posterior]


OTHERS = [
    models.SYSTEM_VARIANTS["gnmt"],
    dataclasses.replace(models.TINY, readout="direct"),  # no word depends on the context of its step
    dataclasses.replace(models.TINY, readout="attentional"),
    dataclasses.replace(models.TINY, readout="attentional", order="look-update-generate"),
    dataclasses.replace(models.TINY, attention="none"),
]


@pytest.mark.parametrize("config", OTHERS, ids=lambda config: f"{config.order}-{config.readout}")
def test_decoders_other_than_the_papers_have_no_posterior_and_give_their_weights(config):
    model = models.make_model(config)
    arguments = make_batch(models.PAIRS).inputs()
    found, expected = model.force_posterior(*arguments).weights, model.force(*arguments).weights
    assert found is expected is None or torch.equal(found, expected)


@pytest.mark.parametrize("config", ATTENDING, ids=models.named)
def test_posterior_is_that_of_the_naive_model(config):
    model = models.make_model(config)
    forced = model.force_posterior(*make_batch(models.PAIRS).inputs())
    for row, (source, target) in enumerate(models.PAIRS):
        source, target = [*source, EOS_ID], [*target, EOS_ID]
        contexts = []
        change = lambda _, context, seen=contexts: seen.append(context) or context  # noqa: E731
        log_probs, weights = naive.log_probs_and_weights(model, source, target, change=change)
        h = model.encode(torch.tensor([source]), torch.ones(1, len(source), dtype=torch.bool)).values[0].detach()
        for t, word_log_prob in enumerate(log_probs):
            (gradient,) = torch.autograd.grad(word_log_prob, contexts[t], retain_graph=True)
            expected = (weights[t].log() + h @ gradient).softmax(0)
            torch.testing.assert_close(forced.weights[row, t, : len(source)], expected, rtol=1e-8, atol=1e-10)
        assert not forced.weights[row, :, len(source) :].any()
        torch.testing.assert_close(forced.log_probs[row, : len(target)], log_probs, rtol=1e-9, atol=1e-10)
        assert not forced.log_probs[row, len(target) :].any()


@pytest.mark.parametrize("config", models.LATENT, ids=models.named)
def test_posterior_of_a_latent_position_is_that_of_bayes_rule(config, monkeypatch):
    model, batch = models.make_model(config), models.batch_of(config)
    forced, prior = model.force_posterior(*batch.inputs()), model.force(*batch.inputs())
    torch.testing.assert_close(forced.log_probs, prior.log_probs)
    assert (forced.weights - prior.weights)[batch.target_mask].abs().max() > 0.01
    for row in range(len(models.PAIRS)):
        source, target, copies = models.naive_arguments(config, row)
        expected = naive_posterior(model, source, target, copies, monkeypatch)
        torch.testing.assert_close(expected.sum(1), torch.ones_like(expected[:, 0]))
        found = forced.weights[row, : len(target)]
        torch.testing.assert_close(found[:, : len(source)], expected, rtol=1e-8, atol=1e-10)
        assert not found[:, len(source) :].any()


@torch.no_grad()
def naive_posterior(model, source, target, copies, monkeypatch):
    """(Ty, Tx): of each position, p(position, word) / p(word); positions with one context in proportion to weights."""
    config = dataclasses.replace(model.config, attention_kind="marginal")
    _, weights = naive.log_probs_and_weights(model, source, target)
    joint, contexts, word_log_prob = torch.zeros_like(weights), naive.contexts, naive.word_log_prob
    without_copies = copies and [-1] * len(source)  # -1 equals no target word
    for number in range(min(len(source), config.attention_positions + 1)):
        chosen = []

        def only(_, *given, number=number, chosen=chosen):
            chosen.append(contexts(config, *given)[number])
            return chosen[-1:]

        def of_one_context(*given, only=only):
            """Only the word depends on one context: the next step may receive the mean by the posteriors."""
            with monkeypatch.context() as patch:
                patch.setattr(naive, "contexts", only)
                return word_log_prob(*given)

        monkeypatch.setattr(naive, "word_log_prob", of_one_context)
        log_probs, _ = naive.log_probs_and_weights(model, source, target, without_copies)
        for t, (_, _, places) in enumerate(chosen):
            joint[t, places] += log_probs[t].exp() * weights[t, places] / weights[t, places].sum()
    monkeypatch.setattr(naive, "word_log_prob", word_log_prob)
    if config.copy:
        marginal = models.make_model(config)
        marginal.load_state_dict(model.state_dict())
        log_probs, _ = naive.log_probs_and_weights(marginal, source, target, copies)
        for t, word in enumerate(target):
            equal = torch.tensor([number == word for number in copies])
            copied = log_probs[t].exp() - joint[t].sum()
            joint[t] += (copied / (weights[t] * equal).sum() * weights[t] * equal).nan_to_num()
    return joint / joint.sum(1, keepdim=True)


def test_posterior_in_bf16_is_near_that_in_float32():
    model = models.make_model(models.TINY, torch.float32)
    arguments = make_batch(models.PAIRS).inputs()
    exact, near = model.force_posterior(*arguments), in_dtype(model, torch.bfloat16).force_posterior(*arguments)
    torch.testing.assert_close(near.weights, exact.weights, rtol=0.05, atol=0.02)
    assert near.weights.dtype == torch.float32
