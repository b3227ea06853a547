"""tanh by oneDNN, where it is used, against PyTorch's in float64."""

import pytest
import torch

from nmtalign.core.functional import one_minus_square, tanh


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("size", [7, (1 << 15) + 3])  # below and above where oneDNN is used
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
def test_tanh(dtype, size, scale):
    torch.manual_seed(0)
    x = (torch.randn(size, dtype=torch.float64) * scale).to(dtype)
    found = tanh(x.clone())
    assert found.dtype == dtype
    expected = x.double().tanh()
    relative = ((found.double() - expected) / expected).abs().max()
    assert relative < {torch.float32: 1e-6, torch.bfloat16: 4e-3, torch.float64: 1e-12}[dtype]


def test_tanh_of_the_extremes():
    x = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, 1e4]).repeat(1 << 14)
    expected = x.tanh()
    torch.testing.assert_close(tanh(x.clone()), expected, equal_nan=True)


def test_one_minus_square():
    torch.testing.assert_close(one_minus_square(torch.tensor([0.5, -1.0])), torch.tensor([0.75, 0.0]))
