"""The recurrent cells. A cell is one function, `step`, from the inputs of a step and the state to the next state.

The paper's hidden unit (appendix A.1.1) comes first. The others are the GRU of PyTorch and cuDNN, the LSTM (Hochreiter
& Schmidhuber 1997), the LRN of Zhang & Sennrich (2019), and the minGRU of Feng et al. (2024). `unroll` applies a cell
to all steps of a sequence.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core import fast
from nmtalign.core.functional import SharedWeight, product, shared
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import Cell

Weight = Tensor | SharedWeight


class GatedCell(Initialised, ABC):
    """The stacked weights (blocks * n, .) of a cell with n units, one set per direction if there are directions."""

    roles: ClassVar[Mapping[str, Role]] = {
        "input_weight": Role.STACKED,
        "recurrent_weight": Role.RECURRENT,
        "context_weight": Role.STACKED,
        "bias": Role.BIAS,
        "recurrent_bias": Role.BIAS,
    }
    blocks = 3
    recurrent_blocks = 3  # the blocks that have a recurrent weight
    bias_blocks = 3  # the blocks that have an input bias, counted from the last one
    state_parts = 1  # a state has S = state_parts * n numbers, of which the first n are the output
    fast_pass: ClassVar[type[fast.CellPass] | None] = None  # a hand-written pass that computes the same

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__()
        lead, width, recurrent = (directions,) if directions else (), self.blocks * size, self.recurrent_blocks * size
        self.size, self.state_size = size, self.state_parts * size
        self.input_weight = nn.Parameter(torch.empty(*lead, width, input_size))
        self.recurrent_weight = nn.Parameter(torch.empty(*lead, recurrent, size)) if recurrent else None
        self.context_weight = nn.Parameter(torch.empty(width, context_size)) if context_size else None
        self.bias = nn.Parameter(torch.zeros(*lead, self.bias_blocks * size))

    @staticmethod
    @abstractmethod
    def step(inputs: Tensor, state: Tensor, *weights: Weight) -> Tensor:
        """The next state (*D, B, S) from the inputs (*D, B, blocks * n), the state and the weights of `recurrent`.

        Products are in the dtype of the inputs, such as bf16; states and gates are float32 (float64 for float64).
        """

    def recurrent(self) -> tuple[Tensor, ...]:
        """The weights of `step`. They are cut once per sequence, because the gradient of a cut is a full matrix."""
        return () if self.recurrent_weight is None else (self.recurrent_weight,)

    def shared_recurrent(self) -> tuple[Weight, ...]:
        """`recurrent`, with matrices whose gradient is computed once for all steps."""
        matrix_dims = self.input_weight.dim()
        return tuple(shared(weight) if weight.dim() == matrix_dims else weight for weight in self.recurrent())

    def inputs(self, x: Tensor) -> Tensor:
        """W x + b for all steps: (..., m) to (..., blocks * n), or (U, D, B, m) to (U, D, B, blocks * n)."""
        bias = self.input_bias().to(x.dtype)
        if self.input_weight.dim() == 2:
            return F.linear(x, self.input_weight, bias)
        by_direction = x.transpose(0, 1)
        rows = product(by_direction.flatten(1, 2), self.input_weight, bias[:, None])
        return rows.view(len(rows), *by_direction.shape[1:3], -1).transpose(0, 1).contiguous()

    def input_bias(self) -> Tensor:
        """The bias (*D, blocks * n) of the inputs."""
        return F.pad(self.bias, ((self.blocks - self.bias_blocks) * self.size, 0))

    def add_context(self, inputs: Tensor, context: Tensor) -> Tensor:
        """inputs + C context (N, blocks * n), for contexts (N, D); the inputs if the cell gets no context."""
        return inputs if self.context_weight is None else product(context, self.context_weight, inputs)


class PaperCell(GatedCell):
    """The paper's hidden unit (appendix A.1.1): z and r without bias, the reset gate BEFORE the recurrent product.

    The blocks of the stacked weights are z, r, candidate. z = 1 takes the new state.
    """

    bias_blocks = 1
    fast_pass = fast.PaperCellPass

    @staticmethod
    def step(inputs: Tensor, state: Tensor, *weights: Weight) -> Tensor:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gates_weight, candidate_weight = weights
        gate_inputs, candidate_inputs = inputs.split([2 * state.shape[-1], state.shape[-1]], -1)
        z, r = _product(state, gates_weight, gate_inputs).sigmoid().chunk(2, -1)
        candidate = _product(r * state, candidate_weight, candidate_inputs).tanh()
        return torch.lerp(state, candidate, z)

    def recurrent(self) -> tuple[Tensor, ...]:
        """U_z and U_r (*D, 2n, n), and U (*D, n, n)."""
        return _halves(self.recurrent_weight)


class CudnnCell(GatedCell):
    """The GRU of PyTorch and cuDNN: z = 1 keeps the old state, reset after the product, biases everywhere.

    The blocks of the stacked weights are r, z, candidate.
    """

    fast_pass = fast.CudnnCellPass

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__(input_size, size, context_size, directions)
        self.recurrent_bias = nn.Parameter(torch.zeros(self.bias.shape))

    @staticmethod
    def step(inputs: Tensor, state: Tensor, *weights: Weight) -> Tensor:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        gates_weight, candidate_weight, bias = weights[0], weights[1], cast(Tensor, weights[2])
        gate_inputs, candidate_inputs = inputs.split([2 * state.shape[-1], state.shape[-1]], -1)
        r, z = _product(state, gates_weight, gate_inputs).sigmoid().chunk(2, -1)
        hidden = _product(state, candidate_weight, bias[..., None, :].to(inputs.dtype).expand_as(candidate_inputs))
        candidate = (candidate_inputs + r * hidden).tanh()
        return torch.lerp(candidate, state, z)

    def recurrent(self) -> tuple[Tensor, ...]:
        """U_r and U_z (*D, 2n, n), U (*D, n, n), and its bias b_U (*D, n); the inputs have those of the gates."""
        return *_halves(self.recurrent_weight), self.recurrent_bias[..., 2 * self.size :]

    def input_bias(self) -> Tensor:
        """The biases (*D, 3n) of the inputs, and of the recurrent products of the gates."""
        return self.bias + F.pad(self.recurrent_bias[..., : 2 * self.size], (0, self.size))


class LstmCell(GatedCell):
    """The LSTM: the blocks of the stacked weights are i, f, o, g; one bias. The state (2n) is [h, c]."""

    blocks = recurrent_blocks = bias_blocks = 4
    state_parts = 2

    @staticmethod
    def step(inputs: Tensor, state: Tensor, *weights: Weight) -> Tensor:
        """c_new = f * c + i * g; h_new = o * tanh(c_new)."""
        hidden, cell = state.chunk(2, -1)
        sums = _product(hidden, weights[0], inputs)
        size = cell.shape[-1]
        entry, forget, output = sums[..., : 3 * size].sigmoid().chunk(3, -1)
        cell = torch.addcmul(forget * cell, entry, sums[..., 3 * size :].tanh())
        return torch.cat([output * cell.tanh(), cell], -1)


class LightCell(GatedCell):
    """The LRN: no matrix multiplies the state; the blocks of the inputs are the key, the query and the value."""

    recurrent_blocks = 0

    @staticmethod
    def step(inputs: Tensor, state: Tensor, *_: Weight) -> Tensor:
        """i = sigmoid(key + s), f = sigmoid(query - s), s_new = tanh(i * value + f * s)."""
        key, query, value = inputs.chunk(3, -1)
        return torch.tanh((key + state).sigmoid() * value + (query - state).sigmoid() * state)


class MinimalCell(GatedCell):
    """The minGRU (Feng et al. 2024): the inputs are z and the candidate, which do not depend on the state."""

    blocks, recurrent_blocks, bias_blocks = 2, 0, 2

    @staticmethod
    def step(inputs: Tensor, state: Tensor, *_: Weight) -> Tensor:
        """s_new = (1 - z) * s + z * candidate."""
        z, candidate = inputs.to(state.dtype).chunk(2, -1)
        return torch.lerp(state, candidate, z.sigmoid())


CELLS: Mapping[Cell, type[GatedCell]] = {
    "paper": PaperCell,
    "cudnn": CudnnCell,
    "lstm": LstmCell,
    "light": LightCell,
    "minimal": MinimalCell,
}


def unroll(cell: GatedCell, inputs: Tensor, initial: Tensor, skip: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(outputs (U, *D, B, n), last state (*D, B, S)) of a cell over U steps.

    inputs (U, *D, B, blocks * n), initial (*D, B, S); skip (U, *D, B, 1) is True where a step leaves the state as it
    was, None = nowhere. The outputs have the dtype of the inputs.
    """
    if cell.fast_pass is not None:
        return fast.unroll(cell.fast_pass, inputs, initial, cell.recurrent(), skip)
    states, weights = [initial], cell.shared_recurrent()
    for step, step_inputs in enumerate(inputs):
        new = cell.step(step_inputs, states[-1], *weights)
        states.append(new if skip is None else torch.where(skip[step], states[-1], new))
    return torch.stack([state[..., : cell.size] for state in states[1:]]).to(inputs.dtype), states[-1]


def _product(state: Tensor, weight: Weight, addend: Tensor) -> Tensor:
    """W state + addend, a product in the dtype of the addend, as numbers in the dtype of the state."""
    return product(state.to(addend.dtype), weight, addend).to(state.dtype)


def _halves(weight: Tensor | None) -> tuple[Tensor, ...]:
    """The recurrent weights of two gates (*D, 2n, n) and of the candidate (*D, n, n)."""
    weight = cast(Tensor, weight)
    return tuple(weight.split([2 * weight.shape[-1], weight.shape[-1]], -2))
