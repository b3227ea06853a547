"""Products in eight bits: exact sums, rows that do not depend on others, and models of every kind near float32."""

import dataclasses
from functools import partial

import pytest
import torch
from helpers import core_models as models
from helpers import score_tables as tables
from torch.nn import functional as F

from nmtalign.core import numerics as module
from nmtalign.core.inference import Inference
from nmtalign.core.numerics import Int8Weight, in_int8, joined, product, weight_steps
from nmtalign.errors import ResourceError
from nmtalign.search.beam_search import ModelSession, force

pytestmark = pytest.mark.usefixtures("int8")
ERROR = {127: 0.01, 63: 0.018}  # of a product, relative to its norm, by the steps of a weight


def rows_and_weight(outputs: int = 300, inputs: int = 200) -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(outputs)
    return torch.randn(33, inputs) * torch.rand(33, 1) * 5, torch.randn(outputs, inputs)


def test_a_product_is_near_that_of_float32():
    rows, weight = rows_and_weight()
    bias, exact = torch.randn(300), rows @ weight.t()
    for found in (product(rows, Int8Weight.of(weight)), F.linear(rows, Int8Weight.of(weight), bias) - bias):
        assert 0 < (found - exact).norm() / exact.norm() < ERROR[weight_steps()]
    assert torch.equal(F.linear(rows, Int8Weight.of(weight), bias=bias), F.linear(rows, Int8Weight.of(weight), bias))


@pytest.mark.parametrize("inputs", [3, 64, 1000])
def test_sums_are_exact_for_the_largest_numbers(inputs):
    """Sums of eight bits in sixteen, as some processors have them, would be too small."""
    for signs in (1, -1):
        weight = torch.full((70, inputs), float(signs))
        for count in (1, 2, 12, 60):
            found = product(torch.ones(count, inputs), Int8Weight.of(weight))
            torch.testing.assert_close(found, torch.full_like(found, signs * inputs), rtol=1e-6, atol=0)


@pytest.mark.parametrize("outputs", [1, 5, 300, 2048 + 1])
@pytest.mark.parametrize("threads", [1, 2])
def test_a_row_depends_neither_on_other_rows_nor_on_threads(outputs, threads):
    rows, weight = rows_and_weight(outputs)
    narrow = Int8Weight.of(weight)
    expected = product(rows, narrow)
    torch.set_num_threads(threads)
    for count in (1, 2, 7, 33):
        assert torch.equal(product(rows[:count], narrow), expected[:count])
    order = torch.randperm(33)
    assert torch.equal(product(rows[order], narrow), expected[order])


def test_some_outputs_several_weights_and_directions_are_those_of_one_product():
    rows, weight = rows_and_weight()
    narrow, both = Int8Weight.of(weight), torch.stack([weight, weight.flip(0)])
    expected = product(rows, narrow)
    chosen = torch.tensor([7, 0, 299])
    assert torch.equal(product(rows, Int8Weight.of(narrow[chosen])), expected[:, chosen])
    parts = narrow.split([100, 200], -2)
    assert torch.equal(torch.cat([product(rows, part.contiguous()) for part in parts], 1), expected)
    assert torch.equal(product(rows, joined([parts[0], weight[100:]], torch.float32)), expected)
    assert type(joined([weight[:100], weight[100:]], torch.float32)) is torch.Tensor
    of_both = product(torch.stack([rows, rows]), Int8Weight.of(both), torch.ones(2, 1, 300))
    assert torch.equal(of_both, torch.stack([expected, expected.flip(1)]) + 1)
    assert torch.equal(F.linear(rows, Int8Weight.of(both).flatten(0, 1)), torch.cat([expected, expected.flip(1)], 1))
    room = torch.empty(33, 300)
    product(rows, narrow, out=room)
    assert torch.equal(room, expected)


def test_a_gradient_is_that_of_float32():
    rows, weight = rows_and_weight()
    rows.requires_grad_()
    for multiply in (F.linear, product):
        (gradient,) = torch.autograd.grad(multiply(rows, Int8Weight.of(weight)).sum(), rows)
        torch.testing.assert_close(gradient, weight.sum(0).expand_as(rows), rtol=0, atol=1e-4)


def test_only_large_matrices_of_a_copy_are_in_eight_bits(monkeypatch):
    monkeypatch.setattr(module, "_SMALLEST", 2000)
    model = models.make_model(dataclasses.replace(models.TINY, **models.LARGER), torch.float32)
    before = {name: weight.clone() for name, weight in model.named_parameters()}
    narrow = in_int8(model)
    assert isinstance(narrow.encoder.cell.recurrent_weight, Int8Weight)
    assert narrow.encoder.cell.recurrent_weight.data_ptr() == model.encoder.cell.recurrent_weight.data_ptr()
    assert isinstance(narrow.readout.output_weight, torch.nn.Parameter)  # too small
    assert dict(model.named_parameters()).keys() == before.keys()
    for name, weight in model.named_parameters():
        assert torch.equal(weight, before[name])


@pytest.mark.parametrize("name", models.SYSTEM_VARIANTS)
def test_search_stays_near_float32_in_every_system(name, monkeypatch):
    config = dataclasses.replace(models.SYSTEM_VARIANTS[name], **models.LARGER)
    model = models.make_model(config, torch.float32)
    narrow, sources = in_int8(model), [source * 3 for source, _ in models.pairs_of(config)]
    copied = [own * 3 for own in models.COPIES] if config.copy else None
    products = list[int]()
    multiply = Int8Weight.product
    monkeypatch.setattr(Int8Weight, "product", lambda *arguments: products.append(1) or multiply(*arguments))
    scorer = partial(ModelSession, Inference(narrow))
    found = tables.search(scorer, sources, copies=copied, beam=3, keep_weights=True, max_length_ratio=1.0)
    assert products
    errors = []
    for place, (source, (best, *_)) in enumerate(zip(sources, found, strict=True)):
        own = copied and copied[place]
        exact, weights = tables.forced(model, source, best.tokens, own)
        errors.extend(torch.tensor(exact) - torch.tensor(best.token_log_probs))
        target = torch.tensor([[*best.tokens, 0]])
        with torch.inference_mode():
            again, _ = force(scorer, tables.sources_of([source], copies=own and [own]), target, [target.shape[1]])
        # The rounding of another batch may move an input to the next of its 127 steps.
        assert again[0] == pytest.approx(best.token_log_probs, abs=0.02)
        several, _ = tables.forced(narrow, source, best.tokens, own)  # the pass of `align`
        assert several == pytest.approx(exact, abs=0.06)
        if weights is not None:
            assert best.weights == pytest.approx(weights, rel=0, abs=0.005)
            assert best.weights.sum(1) == pytest.approx(1, abs=1e-5)
    assert 0 < torch.stack(errors).square().mean().sqrt() < ERROR[weight_steps()]


@pytest.mark.parametrize("shape", [(300,), (5, 300)])
def test_an_addend_is_added_and_keeps_its_gradient(shape):
    torch.manual_seed(0)
    weight, rows, addend = Int8Weight.of(torch.randn(300, 128)), torch.randn(5, 128), torch.randn(shape)
    expected, wide = weight.product(rows) + addend, torch.zeros(5, 310)
    torch.testing.assert_close(product(rows, weight, addend), expected)
    product(rows, weight, addend, out=wide[:, :300])
    torch.testing.assert_close(wide[:, :300], expected)
    assert not wide[:, 300:].any()
    found = product(rows, weight, addend.requires_grad_())
    found.sum().backward()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(addend.grad, torch.full(shape, 5.0 if len(shape) == 1 else 1.0))


def test_a_pytorch_without_such_products_is_reported(monkeypatch):
    def missing(*_: object) -> None:
        raise RuntimeError("not implemented")

    monkeypatch.setattr(module, "_packed_product", missing)
    weight_steps.cache_clear()
    try:
        with pytest.raises(ResourceError, match=r"^precision int8: this PyTorch has no products in eight bits here; "):
            weight_steps()
    finally:
        weight_steps.cache_clear()
