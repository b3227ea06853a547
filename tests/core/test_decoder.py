"""The decoder's stacks of layers, and a source that is read reversed."""

import dataclasses
import itertools
from types import SimpleNamespace

import pytest
import torch
from helpers import core_models as models
from torch.nn import functional as F

from nmtalign.core.attention import select_rows
from nmtalign.core.inference import Inference
from nmtalign.core.model import make_batch

PAIRS, TINY, ONE_WAY, LUONG = models.PAIRS, models.TINY, models.ONE_WAY, models.LUONG
make_model, named = models.make_model, models.named
SEARCHED = [TINY, dataclasses.replace(TINY, order="look-update-generate"), models.TRANSFORMER]


def arguments(pairs=PAIRS):
    return make_batch(pairs).inputs()


def test_dropout_between_fed_layers_has_the_gradient_of_its_own_mask():
    """The same generator gives the same masks, so that differences of the loss are those of the gradient."""
    model = make_model(dataclasses.replace(LUONG[0], dropout=0.4, layers=3, residual=True)).train()

    def objective():
        torch.manual_seed(5)
        return model.loss(*arguments()).objective

    models.check_gradients(model.decoder, objective)


def test_a_residual_connection_skips_dropout(monkeypatch):
    config = dataclasses.replace(models.SYSTEM_VARIANTS["sutskever"], dropout=0.5, layers=4, residual=True)
    model, (source, mask, *_) = make_model(config), arguments()
    memory = model.encode(source, mask)
    numbers = itertools.cycle(range(1, config.layers))  # of the layers that drop some of their inputs

    def dropout(x, share, training):
        """Drops all inputs of the layers that a residual connection skips."""
        return x if next(numbers) == 1 else torch.zeros_like(x)

    monkeypatch.setattr("nmtalign.core.decoder.F", SimpleNamespace(**{**vars(F), "dropout": dropout}))
    words = torch.randn(2, 3, len(source), config.embedding, dtype=torch.float64)
    one, other = (model.decoder.unroll(memory, each).states for each in words)
    assert not torch.allclose(one, other), "the outputs of the layers below reach the last one"


@pytest.mark.parametrize("config", [*SEARCHED, *LUONG], ids=named)
def test_selected_rows_of_a_search_continue_as_they_would_among_the_others(config):
    source, mask, *_ = arguments()
    inference = Inference(make_model(config))
    with torch.inference_mode():
        encoded = inference.encode(source, mask)
        state, *_ = inference.step(encoded, inference.start(encoded), None)
        words, keep = torch.tensor([3, 4, 5, 6]), torch.tensor([2, 0])
        _, features, weights, *_ = inference.step(encoded, state, words)
        kept = state.select(torch.tensor([3, 0, 2, 1])).select(torch.tensor([2, 1]))
        _, alone, alone_weights, *_ = inference.step(select_rows(encoded, keep), kept, words[keep])
    torch.testing.assert_close(features[keep], alone)
    torch.testing.assert_close(weights[keep], alone_weights)


@pytest.mark.parametrize("config", SEARCHED, ids=named)
def test_two_continuations_of_a_state_do_not_change_each_other(config):
    source, mask, *_ = arguments()
    inference = Inference(make_model(config))
    with torch.inference_mode():
        encoded, words = inference.encode(source, mask), torch.tensor([3, 4, 5, 6])
        state, *_ = inference.step(encoded, inference.start(encoded), None)
        one, *_ = inference.step(encoded, state, words)
        expected = inference.step(encoded, one, words)[1]
        inference.step(encoded, state, words.flip(0))
        torch.testing.assert_close(inference.step(encoded, one, words)[1], expected)


def test_a_readout_without_the_previous_word_has_no_weights_for_it():
    model = make_model(dataclasses.replace(TINY, readout_previous_word=False))
    assert "readout.word_weight" not in model.state_dict()
