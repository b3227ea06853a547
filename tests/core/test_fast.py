"""The hand-written passes against the definitions of cells and attention, in values and gradients."""

import dataclasses

import pytest
import torch
from helpers import core_models as models

from nmtalign.core import attention
from nmtalign.core.cells import CELLS, FAST_PASSES, unroll
from nmtalign.core.inference import in_dtype
from nmtalign.core.numerics import Fusion, wide

# Relative and absolute errors.
TOLERANCES = {torch.float64: (1e-9, 1e-12), torch.float32: (1e-4, 1e-5), torch.bfloat16: (0.1, 0.1)}
ALL = [slice(None), slice(1), slice(1, 2), slice(2, 3)]  # of the results, and each of them alone
FAST = [
    models.TINY,
    dataclasses.replace(models.TINY, cell="cudnn", bidirectional=False),
    dataclasses.replace(models.TINY, attention="concat", copy=True),
    models.SYSTEM_VARIANTS["marginal"],
]


def values_and_gradients(run, leaves, chosen):
    """The results of a pass, those of a pass without gradients, and the gradients through the chosen results.

    A result that is not chosen has no gradient.
    """
    results = run()
    with torch.no_grad():
        without = run()
    torch.manual_seed(5)
    shares = [torch.randn(result.shape, dtype=torch.float64) for result in results]
    total = sum((result.double() * share).sum() for result, share in list(zip(results, shares, strict=True))[chosen])
    gradients = torch.autograd.grad(total, leaves, allow_unused=True, materialize_grads=True)
    return *results, *without, *gradients


def assert_equal(found, expected, dtype):
    rtol, atol = TOLERANCES[dtype]
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=rtol, atol=atol)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("directions", [0, 2])
@pytest.mark.parametrize("skips", [False, True])
@pytest.mark.parametrize("chosen", ALL[:3], ids=str)
@pytest.mark.parametrize("kind", ["paper", "cudnn"])
@pytest.mark.parametrize("on_gpu", [False, True])  # as a GPU computes it: a CPU runs the same functions
def test_a_pass_of_a_cell_is_the_cell_step_by_step(on_gpu, kind, chosen, skips, directions, dtype, monkeypatch):
    monkeypatch.setattr(Fusion, "wanted", False)
    monkeypatch.setattr(torch.Tensor, "is_cuda", property(lambda _: on_gpu))
    torch.manual_seed(0)
    cell = CELLS[kind](4, 5, directions=directions)
    for parameter in cell.parameters():
        torch.nn.init.normal_(parameter, 0, 0.5)
    cell = in_dtype(cell.to(wide(dtype)), dtype)
    shape = [directions, 3] if directions else [3]
    x = torch.randn(6, *shape, 4, dtype=dtype, requires_grad=True)
    initial = torch.randn(*shape, 5, dtype=wide(dtype), requires_grad=True)
    skip = torch.rand(6, *shape, 1) < 0.4 if skips else None
    found = []
    for fast in (True, False):
        if not fast:
            monkeypatch.delitem(FAST_PASSES, type(cell))
        leaves = [x, initial, *cell.parameters()]
        found.append(values_and_gradients(lambda: unroll(cell, cell.inputs(x), initial, skip), leaves, chosen))
    assert_equal(*found, dtype)


def run_of(model, chosen=slice(None)):
    """The results and gradients of a decoder over sentences of two lengths."""
    torch.manual_seed(1)
    decoder, mask = model.decoder, torch.tensor([[True] * 4, [True, True, False, False]])
    dtype = model.readout.output_weight.dtype
    annotations = torch.randn(2, 4, model.encoder.output_size, dtype=dtype, requires_grad=True)
    words = torch.randn(5, 2, model.config.embedding, dtype=dtype, requires_grad=True)

    def run():
        output = decoder.unroll(decoder.remember(annotations, (), mask, ~mask), words)
        return output.states, output.contexts, output.weights

    return values_and_gradients(run, [annotations, words, *decoder.parameters()], chosen)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("chosen", ALL, ids=str)
@pytest.mark.parametrize("config", FAST, ids=models.named)
def test_a_pass_of_a_decoder_is_the_decoder_step_by_step(config, chosen, dtype, monkeypatch):
    model = models.make_model(config, dtype)
    assert model.decoder._fast
    found = run_of(model, chosen)
    monkeypatch.setattr(model.decoder, "_fast", False)
    assert_equal(found, run_of(model, chosen), dtype)


@pytest.mark.parametrize("kept_steps", [0, 2])
def test_a_gradient_is_the_same_whether_tanh_is_kept_or_computed_again(kept_steps, monkeypatch):
    model = models.make_model(models.TINY)
    kept = run_of(model)
    keys = 2 * 4 * models.TINY.attention_hidden * 8  # bytes of a step: B Tx n' numbers
    monkeypatch.setattr(attention, "KEPT_BYTES", kept_steps * keys)
    assert_equal(run_of(model), kept, torch.float64)


def test_a_gradient_is_taken_once():
    model = models.make_model(models.TINY)
    objective = model.loss(*models.batch_of(models.TINY).inputs()).objective
    objective.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="compute the loss again"):
        objective.backward()
