"""The maxout layer, and probabilities of single words against those of the whole softmax."""

import pytest
import torch

from nmtalign.config import ModelConfig
from nmtalign.core import readout
from nmtalign.core.readout import Readout


@pytest.fixture
def layer(monkeypatch):
    monkeypatch.setattr(readout, "CHUNK_CELLS", 17 * 20)  # several chunks, the last one short
    torch.manual_seed(0)
    layer = Readout(ModelConfig(9, 17, embedding=4, hidden=6, maxout=5, output_rank=0), 8).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def test_token_log_probs_are_those_of_the_whole_softmax(layer):
    features, targets = torch.randn(43, 5, dtype=torch.float64), torch.randint(0, 17, (43,))
    whole = layer.log_probs(features).gather(1, targets[:, None]).squeeze(1)
    torch.testing.assert_close(layer.token_log_probs(features, targets), whole)
    assert layer.token_log_probs(features[:0], targets[:0]).shape == (0,)


def test_maxout_takes_the_larger_of_adjacent_pairs(layer):
    with torch.no_grad():
        for weight in (layer.state_weight, layer.word_weight, layer.context_weight):
            weight.zero_()
        layer.bias.copy_(torch.arange(10.0) * torch.tensor([1, -1] * 5))
    found = layer.features(torch.zeros(1, 6).double(), torch.zeros(1, 4).double(), torch.zeros(1, 8).double())
    assert found[0].tolist() == [0, 2, 4, 6, 8]
