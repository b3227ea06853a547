"""Masked steps of the cells, and the functions that layers share."""

import pytest
import torch
from torch import nn

from nmtalign.core.cells import CELLS, FAST_PASSES, unroll
from nmtalign.core.numerics import additive_energies, product, shared, tanh_


def filled(cell):
    torch.manual_seed(0)
    for parameter in cell.parameters():
        nn.init.normal_(parameter, 0, 0.5)
    return cell.double()


@pytest.mark.parametrize("fast", [False, True])
@pytest.mark.parametrize("kind", CELLS)
def test_a_masked_step_leaves_the_state_exactly(kind, fast, monkeypatch):
    cell = filled(CELLS[kind](4, 5))
    if not fast:
        monkeypatch.delitem(FAST_PASSES, type(cell), raising=False)
    s = torch.randn(2, cell.state_size).double()
    skip = torch.tensor([[[True], [False]]])
    outputs, new = unroll(cell, cell.inputs(torch.randn(1, 2, 4).double()), s, skip)
    assert torch.equal(outputs[0], new[:, :5])
    assert torch.equal(new[0], s[0])
    assert not torch.equal(new[1], s[1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [7, (1 << 15) + 3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_tanh(dtype, size, scale):
    torch.manual_seed(0)
    x = (torch.randn(size, dtype=torch.float64) * scale).to(dtype)
    found = tanh_(x.clone())
    assert found.dtype == dtype
    expected = x.double().tanh()
    rtol, atol = {torch.float32: (1e-6, 2e-7), torch.bfloat16: (4e-3, 0), torch.float64: (1e-12, 0)}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=atol)


def test_tanh_of_the_extremes():
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, 1e4]).repeat(1 << 14)
    expected = x.tanh()
    torch.testing.assert_close(tanh_(x.clone()), expected, equal_nan=True)


@pytest.mark.parametrize("rows", [1, 60])
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_energies_by_portions_are_those_of_all_rows(rows, dtype):
    """Beams of long sentences: the elements of tanh fill several portions, within and between sentences."""
    torch.manual_seed(0)
    queries, keys, vector = torch.randn(3, rows, 64), torch.randn(3, 160, 64), torch.randn(64)
    queries, keys, vector = (part.to(dtype) for part in (queries, keys, vector))
    expected = ((queries.double()[:, :, None] + keys.double()[:, None]).tanh() * vector.double()).sum(-1)
    found = additive_energies(queries, keys, vector)
    assert found.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    error = (found - expected).norm() / expected.norm()
    assert error < (1e-12 if dtype == torch.float64 else 0.01)


@pytest.mark.parametrize("lead", [(), (2,)])
def test_the_gradient_of_a_shared_weight_is_the_sum_over_its_products(lead):
    torch.manual_seed(0)
    weight, first, addend = (torch.randn(*lead, *shape).double().requires_grad_() for shape in ((5, 5), (3, 5), (3, 5)))

    def objective(used):
        rows, total = first, torch.zeros(()).double()
        for step in range(4):
            rows = product(rows, used, addend if step % 2 else None).tanh()
            total = total + rows.square().sum()
        return total

    leaves = weight, first, addend
    expected, found = (torch.autograd.grad(objective(used), leaves) for used in (weight, shared(weight)))
    torch.testing.assert_close(found, expected)
    with torch.no_grad():
        assert shared(weight) is weight
