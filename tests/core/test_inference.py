"""The decoder of the search compared with the forced pass, for any number of rows, and products in bf16."""

import dataclasses
from functools import partial

import pytest
import torch
from helpers import core_models as models
from helpers import score_tables as tables
from torch.nn import functional as F

from nmtalign.core.inference import Inference, WordTable, in_dtype
from nmtalign.core.model import TranslationModel, make_source
from nmtalign.search.beam_search import ModelSession

PAIRS, TINY, VARIANTS = models.PAIRS, models.TINY, models.VARIANTS
make_model, named = models.make_model, models.named


def scores(inference: Inference, features: torch.Tensor) -> torch.Tensor:
    logits = features @ inference.output_weight.t()
    return (logits.to(inference.output_bias.dtype) + inference.output_bias).log_softmax(-1)


def with_copies(found: torch.Tensor, gate: torch.Tensor, weights: torch.Tensor, copies: torch.Tensor) -> torch.Tensor:
    """Log-probabilities (N, 13) as those of the mixture with copies (B, Tx), word by word."""
    generated = gate.sigmoid()[:, None] * F.pad(found.exp(), (0, 9))
    copies = copies.repeat_interleave(len(gate) // len(copies), 0)
    return generated.scatter_add(1, copies, (1 - gate.sigmoid())[:, None] * weights).log()


@pytest.mark.parametrize("config", VARIANTS, ids=named)
def test_steps_equal_the_forced_pass_for_any_rows_per_sentence(config):
    model, batch, rows = make_model(config), models.batch_of(config), 3
    forced = model.force(*batch.inputs())
    inference = Inference(model)
    with torch.inference_mode():
        encoded = inference.encode(batch.source, batch.source_mask, batch.copies)
        state = inference.start(encoded).select(torch.arange(len(PAIRS)).repeat_interleave(rows))
        previous = None
        for step in range(batch.target.shape[1]):
            state, features, weights, gate, log_weights = inference.step(encoded, state, previous)
            previous = batch.target[:, step].repeat_interleave(rows)
            found = scores(inference, features)
            if log_weights is not None:
                found = (found + log_weights[..., None]).logsumexp(1)
            if gate is not None:
                found = with_copies(found, gate, weights, encoded.copies)
            found = found.gather(1, previous[:, None]).view(-1, rows)
            real = batch.target_mask[:, step]
            for copy in range(rows):
                torch.testing.assert_close(found[real, copy], forced.log_probs[real, step])
            if weights is not None:
                seen = weights.view(len(PAIRS), rows, -1)
                torch.testing.assert_close(seen[real], forced.weights[real, step, None].expand(-1, rows, -1))
            else:
                assert forced.weights is None


@pytest.mark.parametrize("name", models.SYSTEM_VARIANTS)
def test_search_in_bf16_stays_near_float32_in_every_system_and_leaves_the_model_alone(name):
    config = dataclasses.replace(models.SYSTEM_VARIANTS[name], **models.LARGER)
    model = make_model(config, torch.float32)
    sources = [source * 3 for source, _ in models.pairs_of(config)]
    copies = [own * 3 for own in models.COPIES] if config.copy else None
    inference = Inference(model, torch.bfloat16)
    with torch.inference_mode():
        memory = inference.encode(*make_source(sources))
        state, features, *_ = inference.step(memory, inference.start(memory), None)
    assert features.dtype == inference.output_weight.dtype == torch.bfloat16
    assert config.architecture == "transformer" or state.hidden.dtype == torch.float32  # its state is keys and values
    found = tables.search(partial(ModelSession, inference), sources, copies=copies, beam=3, keep_weights=True)
    scores = [], []
    for place, (best, *_) in enumerate(found):
        log_probs, weights = tables.forced(model, sources[place], best.tokens, copies and copies[place])
        scores[0].extend(log_probs)
        scores[1].extend(best.token_log_probs)
        if weights is None:
            assert best.weights is None
        else:
            assert best.weights == pytest.approx(weights, rel=0, abs=0.005)
            assert best.weights.sum(1) == pytest.approx(1, abs=1e-5)
    exact, rough = map(torch.tensor, scores)
    assert 0 < (rough - exact).square().mean().sqrt() < 0.006
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def make_table() -> tuple[WordTable, TranslationModel, torch.Tensor, torch.Tensor]:
    model = make_model(dataclasses.replace(TINY, target_vocabulary_size=3000))
    weight, bias = torch.randn(4, TINY.embedding, dtype=torch.float64), torch.randn(4, dtype=torch.float64)
    return WordTable(model.target_embedding, weight, bias), model, weight, bias


def test_rows_of_words_are_those_of_the_product_as_soon_as_they_are_known(monkeypatch):
    """Another thread may read the known rows at any time."""
    table, model, weight, bias = make_table()
    expected = (model.target_embedding.weight + model.target_embedding.bias) @ weight.t() + bias
    linear, generator = F.linear, torch.Generator().manual_seed(0)

    def multiply(*given):
        assert torch.allclose(table._rows[table._known], expected[table._known])
        return linear(*given)

    monkeypatch.setattr(F, "linear", multiply)
    with torch.inference_mode():
        for _ in range(60):
            ids = torch.randint(0, 3000, (40,), generator=generator)
            assert torch.allclose(table(ids), expected[ids])


@pytest.mark.parametrize("config", models.DIFFERENT, ids=models.named)
def test_narrow_weights_give_the_probabilities_of_training_in_bf16(config):
    sizes = {**models.LARGER, "hidden": 32, "output_rank": 32 if config.output_rank else 0}
    config = dataclasses.replace(config, **sizes)
    trained = make_model(config, torch.float32).eval()
    with torch.no_grad():
        for name, parameter in trained.named_parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.1)
            if name.endswith("embedding.weight"):  # else the sum with its bias would be rounded twice
                parameter.copy_(parameter.bfloat16())
        trained.readout.output_bias.copy_(torch.linspace(-9, 9, len(trained.readout.output_bias)))
    arguments = models.batch_of(config).inputs()
    narrow = in_dtype(trained, torch.bfloat16)
    with torch.no_grad():
        found, loss = narrow.force(*arguments), trained.loss(*arguments, dtype=torch.bfloat16)
    assert found.weights is None or torch.equal(found.weights.transpose(0, 1), loss.weights)
    assert float(loss.nll) == pytest.approx(-float(found.log_probs.sum()), rel=1e-5)
    types = {name: parameter.dtype for name, parameter in narrow.named_parameters()}
    assert types["target_embedding.weight"] == torch.bfloat16
    assert all(types[name] == torch.float32 for name in types if name.endswith(("bias", "vector", "gain", "scale")))
    assert all(parameter.dtype == torch.float32 for parameter in trained.parameters())
