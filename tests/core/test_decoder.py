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
from nmtalign.core.model import RecurrentEncoder, make_batch

PAIRS, TINY, ONE_WAY, LUONG = models.PAIRS, models.TINY, models.ONE_WAY, models.LUONG
make_model, named = models.make_model, models.named


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


@pytest.mark.parametrize("config", [TINY, dataclasses.replace(TINY, order="look-update-generate"), *LUONG], ids=named)
def test_selected_rows_of_a_search_continue_as_they_would_among_the_others(config):
    source, mask, *_ = arguments()
    inference = Inference(make_model(config))
    with torch.inference_mode():
        encoded = inference.encode(source, mask)
        state, *_ = inference.step(encoded, inference.start(encoded), None)
        words, keep = torch.tensor([3, 4, 5, 6]), torch.tensor([2, 0])
        _, features, weights, *_ = inference.step(encoded, state, words)
        _, alone, alone_weights, *_ = inference.step(select_rows(encoded, keep), state.select(keep), words[keep])
    torch.testing.assert_close(features[keep], alone)
    torch.testing.assert_close(weights[keep], alone_weights)


@pytest.mark.parametrize("cell", ["paper", "cudnn"])
def test_a_reversed_source_is_read_as_the_backward_direction_reads_it(cell):
    both = RecurrentEncoder(dataclasses.replace(TINY, cell=cell))
    alone = RecurrentEncoder(dataclasses.replace(ONE_WAY, cell=cell, reverse_source=True))
    torch.manual_seed(2)
    with torch.no_grad():
        for ours, theirs in zip(alone.parameters(), both.parameters(), strict=True):
            theirs.normal_(0, 0.5)
            ours.copy_(theirs[1:])
    embedded = torch.randn(2, 5, TINY.embedding)
    padding = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
    expected = both(embedded, padding)[0][..., TINY.hidden :]
    found = alone(embedded, padding)[0]
    torch.testing.assert_close(found, expected)
    assert not found[1, 3:].any()  # no word has been read yet: the state is that before `</s>`


def test_a_decoder_takes_up_the_state_after_the_first_word_of_a_reversed_source():
    model = make_model(dataclasses.replace(ONE_WAY, attention="none", reverse_source=True))
    source, mask, *_ = arguments()
    memory = model.encode(source, mask)
    for row, (words, _) in enumerate(PAIRS):
        alone = model.encode(torch.tensor([[*words, 0]]), torch.ones(1, len(words) + 1, dtype=torch.bool))
        torch.testing.assert_close(memory.values[row], alone.values[0])


def test_a_readout_without_the_previous_word_still_hears_of_it_through_the_state():
    model = make_model(dataclasses.replace(TINY, readout_previous_word=False))
    assert "readout.word_weight" not in model.state_dict()
    one, other = (model.force(*arguments([([3, 4], [first, 3, 4])])).log_probs[0] for first in (2, 5))
    assert one[1] != other[1]
    state, products = torch.randn(3, TINY.hidden).double(), torch.randn(3, 2 * TINY.maxout).double()
    words = torch.randn(2, 3, TINY.embedding).double()
    assert torch.equal(*(model.readout.features(state, word, products) for word in words))
