"""Input feeding and local attention: gradients through every output, the window, and batches."""

import dataclasses
from types import SimpleNamespace

import pytest
import torch
from helpers import core_models as models
from torch.nn import functional as F

from nmtalign.data.batches import make_batch
from nmtalign.settings.definition import SettingError

PAIRS, LUONG, TINY, make_model, named = models.PAIRS, models.LUONG, models.TINY, models.make_model, models.named
SMALL = {"hidden": 32, "embedding": 16, "attention_hidden": 32}


def arguments(pairs=PAIRS):
    batch = make_batch(pairs)
    return batch.source, batch.source_mask, batch.target, batch.target_mask


@pytest.mark.parametrize("score", ["concat", "dot"])
@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("config", LUONG, ids=named)
def test_gradients_of_vectors_contexts_and_weights(config, layers, score):
    narrow = {} if config.attention_span == "global" else {"attention_window": 1}
    config = dataclasses.replace(config, layers=layers, attention=score, residual=layers > 1, **narrow)
    models.check_gradients_of_unrolling(config)
    models.check_gradients_of_unrolling(dataclasses.replace(config, input_feeding="none"))


def test_dropout_between_fed_layers_has_the_gradient_of_its_own_mask():
    """The same generator gives the same masks, so that differences of the loss are those of the gradient."""
    config = dataclasses.replace(LUONG[0], dropout=0.4, layers=3, residual=True)
    model = make_model(config).train()

    def objective():
        torch.manual_seed(5)
        return model.loss(*arguments()).objective

    models.check_gradients(model.decoder, objective)


def test_a_residual_connection_skips_dropout(monkeypatch):
    config = dataclasses.replace(models.SYSTEM_VARIANTS["sutskever"], dropout=0.5, layers=4, residual=True)
    model, (source, mask, *_) = make_model(config), arguments()
    memory = model.encode(source, mask)
    all_dropped = {**vars(F), "dropout": lambda x, share, training: torch.zeros_like(x)}
    monkeypatch.setattr("nmtalign.core.decoder.F", SimpleNamespace(**all_dropped))
    words = torch.randn(2, 3, len(source), config.embedding, dtype=torch.float64)
    one, other = (model.decoder.unroll(memory, each).states for each in words)
    assert not torch.allclose(one, other), "the outputs of the layers below reach the last one"


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
    words = model.target_embedding(target.t())
    memory = model.encode(source, mask)
    run = model.decoder.unroll(memory, words)
    torch.testing.assert_close(run.weights.sum(-1), torch.ones(4, 1).double())
    assert (run.weights == 0).any()
    plain = torch.einsum("tbj,bjd->tbd", run.weights, memory.values)
    shares = run.contexts / plain  # the mass that the Gaussian leaves
    torch.testing.assert_close(shares, shares[..., :1].expand_as(shares))
    assert ((shares > 0.1) & (shares < 0.999)).all()


@pytest.mark.parametrize("config", LUONG, ids=named)
def test_selected_rows_continue_as_before(config):
    models.check_selected_rows(dataclasses.replace(config, **SMALL))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attention_span": "local-m", "attention": "none"}, "local attention needs attention without coverage"),
        ({"attention_span": "local-p", "coverage": "linguistic"}, "local attention needs attention without coverage"),
        ({"attention_window": 5}, "global attention has no window"),
        ({"attention_window": 0, "attention_span": "local-m"}, "must be at least 1"),
        ({"input_feeding": "attentional"}, "only the attentional readout"),
        ({"input_feeding": "attentional", "readout": "attentional"}, "attentional vectors are fed in Luong's order"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_refused(changes, message):
    with pytest.raises(SettingError, match=message):
        dataclasses.replace(TINY, **changes)


def test_feeding_needs_attention_in_the_last_layer():
    with pytest.raises(SettingError, match="where the last layer attends"):
        dataclasses.replace(LUONG[0], attention_layer="first")
