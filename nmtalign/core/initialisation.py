"""The roles of parameters, the matrices among them, and their initial values (appendix B.1 and two other rules)."""

import math
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import ClassVar

import torch
from torch import Tensor, nn

from nmtalign.settings.training_settings import Initialisation


class Role(Enum):
    """The kind of a parameter, which decides how it is initialised."""

    BIAS = "bias"
    RECURRENT = "recurrent"  # (*D, 3n, n), blocks that multiply the state
    STACKED = "stacked"  # (*D, 3n, in), blocks of a cell that multiply an input or a context
    EMBEDDING = "embedding"
    ATTENTION = "attention"  # a matrix of the alignment model
    ENERGY = "energy"  # v_a, the vector of the alignment model
    MATRIX = "matrix"
    SOFTMAX = "softmax"  # the matrix of the output words
    SCALE = "scale"  # of a normalisation


_VECTORS = (Role.BIAS, Role.ENERGY, Role.SCALE)  # one per direction may be stacked


class Initialised(nn.Module):
    """A module that names the role of each of its own parameters."""

    roles: ClassVar[Mapping[str, Role]]
    blocks = 1  # of a stacked weight


def matrices(model: nn.Module) -> Iterator[tuple[nn.Module, str, nn.Parameter]]:
    """Yields (module, name, parameter) of the matrices that multiply, and of the word vectors.

    Only they are narrower than float32 in bf16 and in eight bits. Vectors stay: biases, v_a, v_p, scales, and matrices
    with one row.
    """
    for module in model.modules():
        for name, parameter in list(module.named_parameters(recurse=False)):
            is_vector = isinstance(module, Initialised) and module.roles[name] in _VECTORS
            if not is_vector and parameter.dim() > 1 and parameter.shape[-2] > 1:
                yield module, name, parameter


def narrowed(model: nn.Module, dtype: torch.dtype) -> dict[str, Tensor]:
    """The names and values in `dtype`, with a gradient, of the `matrices` that a pass in `dtype` multiplies.

    Word vectors are narrowed after they are looked up, and the matrix of the softmax in its loss, so that the sums of
    their gradients stay float32.
    """
    narrow = {
        id(parameter): parameter.to(dtype)
        for module, name, parameter in matrices(model)
        if not (isinstance(module, Initialised) and module.roles[name] in (Role.EMBEDDING, Role.SOFTMAX))
    }
    return {name: narrow[id(each)] for name, each in model.named_parameters() if id(each) in narrow}


def initialise(model: nn.Module, kind: Initialisation) -> None:
    """Fills every parameter of `model` in place, from PyTorch's global generator.

    "paper": recurrent matrices random orthogonal; matrices of the alignment model Gaussian (0, 0.001); v_a and biases
    0; everything else Gaussian (0, 0.01). "lecun": recurrent matrices orthogonal, biases 0, everything else Gaussian
    (0, 1/sqrt(number of inputs)), so that sums start as large as their terms (LeCun et al. 1998, Efficient BackProp,
    4.6); an embedding of size m counts m inputs. "xavier": matrices uniform by Glorot's rule of inputs and outputs,
    v_a uniform, the rest as in "lecun"; the softmax of a large vocabulary then starts small.
    """
    with torch.no_grad():
        for module in model.modules():
            for name, parameter in module.named_parameters(recurse=False):
                if not isinstance(module, Initialised):
                    raise TypeError(f"{type(module).__name__} does not name the role of its parameter {name}")
                _fill(parameter, module.roles[name], kind, module.blocks)


def _fill(parameter: Tensor, role: Role, kind: Initialisation, stacked: int) -> None:
    if role is Role.BIAS or (role is Role.ENERGY and kind == "paper"):
        parameter.zero_()
    elif role is Role.SCALE:
        parameter.fill_(1)
    elif role is Role.RECURRENT:
        for block in parameter.view(-1, parameter.shape[-1], parameter.shape[-1]):
            nn.init.orthogonal_(block)
    elif kind == "lecun" or (kind == "xavier" and role is Role.EMBEDDING):
        parameter.normal_(0, 1 / math.sqrt(parameter.shape[-1]))
    elif kind == "paper":
        parameter.normal_(0, 0.001 if role is Role.ATTENTION else 0.01)
    elif role is Role.ENERGY:
        parameter.uniform_(-1 / math.sqrt(len(parameter)), 1 / math.sqrt(len(parameter)))
    else:
        blocks = stacked if role is Role.STACKED else 1
        for block in parameter.view(-1, parameter.shape[-2] // blocks, parameter.shape[-1]):
            nn.init.xavier_uniform_(block)
