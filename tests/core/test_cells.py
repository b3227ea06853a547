"""The cells against PyTorch and the equations."""

import pytest
import torch
from torch import nn

from nmtalign.core.cells import CELLS, FAST_PASSES, CudnnCell, LstmCell, unroll


def filled(cell):
    torch.manual_seed(0)
    for parameter in cell.parameters():
        nn.init.normal_(parameter, 0, 0.5)
    return cell.double()


def test_cudnn_cell_is_pytorchs_gru_cell():
    cell, torchs = filled(CudnnCell(4, 5)), nn.GRUCell(4, 5).double()
    with torch.no_grad():
        torchs.weight_ih.copy_(cell.input_weight)
        torchs.weight_hh.copy_(cell.recurrent_weight)
        torchs.bias_ih.copy_(cell.bias)
        torchs.bias_hh.copy_(cell.recurrent_bias)
    x, s = torch.randn(3, 4).double(), torch.randn(3, 5).double()
    torch.testing.assert_close(cell.step(cell.inputs(x), s, *cell.recurrent()), torchs(x, s))


def test_lstm_cell_is_pytorchs():
    cell, torchs = filled(LstmCell(4, 5)), nn.LSTMCell(4, 5).double()
    blocks = [0, 1, 3, 2]  # PyTorch's order is i, f, g, o
    with torch.no_grad():
        for theirs, ours in ((torchs.weight_ih, cell.input_weight), (torchs.weight_hh, cell.recurrent_weight)):
            theirs.copy_(ours.unflatten(0, (4, 5))[blocks].flatten(0, 1))
        torchs.bias_ih.copy_(cell.bias.view(4, 5)[blocks].flatten())
        torchs.bias_hh.zero_()
    x, s = torch.randn(3, 4).double(), torch.randn(3, 10).double()
    found = cell.step(cell.inputs(x), s, *cell.recurrent())
    torch.testing.assert_close(found.split(5, -1), torchs(x, s.split(5, -1)))


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
