"""The maxout layer, and the softmax by blocks and chunks against PyTorch's, forward and backward."""

import pytest
import torch
from torch.nn import functional as F

from nmtalign.core.model import BLOCK_CELLS as WHOLE
from nmtalign.core.model import CHUNK_CELLS, Readout, linear_cross_entropy
from nmtalign.settings.training_settings import ModelConfig

WORDS = 17


def problem(dtype, rows=43):
    torch.manual_seed(0)
    shapes = ((rows, 5), (WORDS, 5), (WORDS,))
    tensors = [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]
    return tensors, torch.randint(0, WORDS, (rows,))


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("rows", "block"), [(43, WHOLE), (43, WORDS * 20), (2 * CHUNK_CELLS // WORDS + 9, WHOLE)])
def test_loss_and_gradients_are_pytorchs(smoothing, weighted, rows, block):
    """All rows at once, in several blocks, and in several chunks of a block; the last ones are short."""
    (features, weight, bias), targets = problem(torch.float64, rows)
    bias.data[3] -= 900  # an improbable word
    row_weights = torch.randint(0, 2, (rows,)).double() if weighted else None
    given = features, weight, bias, targets, smoothing, row_weights
    objective, nll, log_probs = linear_cross_entropy(*given, None, block)
    counted = torch.ones(rows).double() if row_weights is None else row_weights
    logits = F.linear(features, weight, bias)
    expected = (F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing) * counted).sum()
    torch.testing.assert_close(objective, expected)
    each_nll = F.cross_entropy(logits, targets, reduction="none")
    torch.testing.assert_close((nll, log_probs), ((each_nll * counted).sum(), -each_nll))
    ours = torch.autograd.grad(objective * 3, (features, weight, bias))
    theirs = torch.autograd.grad(expected * 3, (features, weight, bias))
    for found, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("count", "extra"), [(1, True), (3, False), (3, True)])
@pytest.mark.parametrize("block", [WHOLE, WORDS * 20, 1])
def test_mixtures_are_those_of_the_complete_softmaxes(smoothing, weighted, count, extra, block):
    """In one block, in several, and with one word in each, whose alternatives stay together."""
    torch.manual_seed(0)
    rows = 43
    features = torch.randn(rows, count, 5, dtype=torch.float64, requires_grad=True)
    (_, weight, bias), targets = problem(torch.float64, rows)
    log_terms = torch.randn(rows, count + extra, dtype=torch.float64).log_softmax(-1)
    log_terms[0, 0] = log_terms[1, -1] = -torch.inf
    log_terms.requires_grad_()
    row_weights = torch.randint(0, 2, (rows,)).double() if weighted else None
    found = linear_cross_entropy(features, weight, bias, targets, smoothing, row_weights, log_terms, block)
    logits = F.linear(features, weight, bias).log_softmax(-1)
    each = logits.gather(2, targets[:, None, None].expand(-1, count, 1))[..., 0]
    joint = torch.cat([each + log_terms[:, :count], log_terms[:, count:]], 1)
    log_probs, shares = joint.logsumexp(1), joint.softmax(1).detach()
    counted = torch.ones(rows).double() if row_weights is None else row_weights
    smooth = (shares[:, :count] * logits.mean(-1)).sum(1)
    objective = -(counted * ((1 - smoothing) * log_probs + smoothing * smooth)).sum()
    torch.testing.assert_close(found, (objective, -(counted * log_probs).sum(), log_probs))
    leaves = features, weight, bias, log_terms
    ours, theirs = (torch.autograd.grad(value * 3, leaves) for value in (found[0], objective))
    for one, wanted in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, wanted)


@pytest.mark.parametrize("block", [WHOLE, WORDS * 20])
def test_bf16_products_keep_the_sums_in_float32(block):
    (features, weight, bias), targets = problem(torch.float32, rows=400)
    objective, *_ = linear_cross_entropy(features.to(torch.bfloat16), weight, bias, targets, block_cells=block)
    expected = F.cross_entropy(F.linear(features, weight, bias), targets, reduction="sum")
    assert objective.dtype == torch.float32
    assert objective.item() == pytest.approx(expected.item(), rel=5e-3)
    ours, theirs = (torch.autograd.grad(value, (weight, bias)) for value in (objective, expected))
    for found, wanted in zip(ours, theirs, strict=True):
        assert found.dtype == torch.float32
        assert float((found - wanted).norm() / wanted.norm()) < 0.01


def test_no_rows_give_nothing():
    (features, weight, bias), targets = problem(torch.float64, rows=0)
    objective, nll, _ = linear_cross_entropy(features, weight, bias, targets, 0.1)
    objective.backward()
    assert objective.item() == nll.item() == 0
    assert not weight.grad.any()


@pytest.mark.parametrize("scale", [1 / 3, 0.9])
def test_the_weight_of_a_loss_is_not_rounded_to_bf16(scale):
    def gradients(factor):
        (features, weight, bias), targets = problem(torch.float32)
        narrow = features.detach().to(torch.bfloat16).requires_grad_()
        (linear_cross_entropy(narrow, weight, bias, targets)[0] * factor).backward()
        return narrow.grad, weight.grad, bias.grad

    for whole, scaled in zip(gradients(1.0), gradients(scale), strict=True):
        assert torch.equal(scaled, (whole.float() * scale).to(whole.dtype))


@pytest.fixture
def layer():
    torch.manual_seed(0)
    layer = Readout(ModelConfig(9, 17, embedding=4, hidden=6, maxout=5, output_rank=0), 8).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    return layer


def test_maxout_takes_the_larger_of_adjacent_pairs(layer):
    with torch.no_grad():
        for weight in (layer.state_weight, layer.word_weight, layer.context_weight):
            weight.zero_()
        layer.bias.copy_(torch.arange(10.0) * torch.tensor([1, -1] * 5))
    found = layer.features(*(torch.zeros(1, size).double() for size in (6, 4, 10)))
    assert found[0].tolist() == [0, 2, 4, 6, 8]
