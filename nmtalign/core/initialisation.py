"""How the weights start (PAPER section 3)."""

import math

import torch
from torch import Tensor, nn

from nmtalign.config import Initialisation
from nmtalign.core.attention import Attention
from nmtalign.core.coverage import Coverage


def initialise(model: nn.Module, kind: Initialisation) -> None:
    """Fills every parameter of `model` in place, from PyTorch's global generator.

    "paper": recurrent matrices random orthogonal; the matrices of attention, W_a, U_a (and V_c, U_f of coverage),
    Gaussian (0, 0.001); v_a and biases 0; all else Gaussian (0, 0.01). "lecun": recurrent matrices orthogonal, biases
    0, all else Gaussian (0, 1/sqrt(its inputs)), so that sums start as large as what they sum (LeCun et al. 1998,
    Efficient BackProp, 4.6); an embedding of m counts m. "xavier": v_a uniform, matrices Glorot's uniform, of inputs
    and outputs: the softmax of a large vocabulary starts small. All else as "lecun".
    """
    attention = set[int]()
    for module in model.modules():
        if isinstance(module, Attention | Coverage):
            attention |= set(map(id, module.parameters()))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "bias" in name:
                parameter.zero_()
            elif name.endswith("recurrent_weight"):
                _orthogonal_blocks(parameter)
            elif kind == "lecun" or (kind == "xavier" and "embedding" in name):
                parameter.normal_(0, 1 / math.sqrt(parameter.shape[-1]))
            elif kind == "xavier":
                _xavier(name, parameter)
            elif name.endswith("vector"):
                parameter.zero_()
            else:
                parameter.normal_(0, 0.001 if id(parameter) in attention else 0.01)


def _orthogonal_blocks(weight: Tensor) -> None:
    """Every (n, n) block of a stacked recurrent weight (..., 3n, n) becomes a random orthogonal matrix."""
    size = weight.shape[-1]
    for block in weight.view(-1, size, size):
        nn.init.orthogonal_(block)


def _xavier(name: str, weight: Tensor) -> None:
    if name.endswith("vector"):
        weight.uniform_(-1 / math.sqrt(len(weight)), 1 / math.sqrt(len(weight)))
    elif name.endswith(("input_weight", "context_weight")) and weight.shape[-2] % 3 == 0:
        for block in weight.view(-1, weight.shape[-2] // 3, weight.shape[-1]):
            nn.init.xavier_uniform_(block)
    else:
        nn.init.xavier_uniform_(weight)
