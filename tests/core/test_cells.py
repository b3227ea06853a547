"""The two cells against PyTorch and the equations."""

import torch
from torch import nn

from nmtalign.core.cell_variants import CELLS
from nmtalign.core.cells import CudnnCell
from nmtalign.core.step import unroll


def filled(cell):
    torch.manual_seed(0)
    for parameter in cell.parameters():
        nn.init.normal_(parameter, 0, 0.5)
    return cell.double()


def update(cell, inputs, state):
    return unroll(cell, inputs[None], state)[0][1]


def test_cudnn_cell_is_pytorchs_gru_cell():
    cell = filled(CELLS["cudnn"](4, 5))
    assert isinstance(cell, CudnnCell)
    torchs = nn.GRUCell(4, 5).double()
    with torch.no_grad():
        torchs.weight_ih.copy_(cell.input_weight)
        torchs.weight_hh.copy_(cell.recurrent_weight)
        torchs.bias_ih.copy_(cell.bias)
        torchs.bias_hh.copy_(cell.recurrent_bias)
    x, s = torch.randn(3, 4).double(), torch.randn(3, 5).double()
    torch.testing.assert_close(update(cell, cell.inputs(x), s), torchs(x, s))


def test_the_papers_update_gate_takes_the_new_and_its_reset_acts_before_the_product():
    cell = filled(CELLS["paper"](4, 5))
    x, s = torch.zeros(1, 4).double(), torch.randn(1, 5).double()
    inputs = torch.zeros(1, 15).double()
    inputs[:, :5], inputs[:, 5:10] = 50, -50  # z = 1, r = 0
    new = update(cell, inputs, s)
    torch.testing.assert_close(new, torch.zeros_like(new), atol=1e-12, rtol=0)  # tanh(0): all new, nothing of the old
    inputs[:, :5] = -50  # z = 0: all old
    torch.testing.assert_close(update(cell, inputs, s), s)
    assert cell.inputs(x).shape == (1, 15)


def test_a_masked_step_leaves_the_state_exactly():
    for kind in ("paper", "cudnn"):
        cell = filled(CELLS[kind](4, 5))
        s = torch.randn(2, 5).double()
        skip = torch.tensor([[[True], [False]]])
        new = unroll(cell, torch.randn(1, 2, 15).double(), s, skip)[0][1]
        assert torch.equal(new[0], s[0])
        assert not torch.equal(new[1], s[1])
