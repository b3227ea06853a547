"""The functions that passes share, compared with PyTorch's in float64."""

import pytest
import torch

from nmtalign.core.functional import one_minus_square, sigmoid_, tanh


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [7, (1 << 15) + 3])
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_tanh(dtype, size, scale):
    torch.manual_seed(0)
    x = (torch.randn(size, dtype=torch.float64) * scale).to(dtype)
    found = tanh(x.clone())
    assert found.dtype == dtype
    expected = x.double().tanh()
    rtol, atol = {torch.float32: (1e-6, 2e-7), torch.bfloat16: (4e-3, 0), torch.float64: (1e-12, 0)}[dtype]
    torch.testing.assert_close(found.double(), expected, rtol=rtol, atol=atol)


def test_tanh_of_the_extremes():
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, 1e4]).repeat(1 << 14)
    expected = x.tanh()
    torch.testing.assert_close(tanh(x.clone()), expected, equal_nan=True)


def test_one_minus_square():
    torch.testing.assert_close(one_minus_square(torch.tensor([0.5, -1.0])), torch.tensor([0.75, 0.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_sigmoid(dtype, rounding):
    x = torch.linspace(-120, 120, 5001, dtype=dtype)
    found = sigmoid_(x.clone())
    torch.testing.assert_close(
        found.double(), x.double().sigmoid(), rtol=rounding.of(1.0, 8, dtype), atol=torch.finfo(torch.float32).tiny
    )
    assert torch.equal(sigmoid_(torch.tensor([torch.inf, -torch.inf, 0.0])), torch.tensor([1.0, 0.0, 0.5]))
    assert sigmoid_(torch.tensor([torch.nan])).isnan().all()


@pytest.mark.parametrize("function", [sigmoid_, torch.tanh, tanh], ids=["sigmoid", "PyTorch's tanh", "tanh"])
def test_no_number_depends_on_how_many_others_there_are(function, rounding):
    x = torch.randn(4096)
    whole = function(x.clone())
    for size in (*range(1, 70), 1000, 4001):
        rounding.assert_same(function(x[:size].clone()), whole[:size], rounding.of(1.0, 8))


@pytest.mark.parametrize("size", [1, 33])
def test_a_row_of_a_product_does_not_depend_on_the_others_where_that_is_reported(size, rounding):
    rows, weight = torch.randn(200, 100), torch.randn(size, 100)
    whole = rows @ weight.t()
    tolerance = rounding.of(float((rows.abs() @ weight.abs().t()).max()), 2 * 100)
    for count in (*range(1, 30), 100):
        rounding.assert_same(rows[:count] @ weight.t(), whole[:count], tolerance)
