"""The recurrent cells. A cell is one function, `step`, from the inputs of a step and the state to the next state.

The paper's hidden unit (appendix A.1.1) comes first. The others are the GRU of PyTorch and cuDNN, the LSTM (Hochreiter
& Schmidhuber 1997), the LRN of Zhang & Sennrich (2019), and the minGRU of Feng et al. (2024). `unroll` applies a cell
to all steps of a sequence.

The paper's cell and cuDNN's also have hand-written passes, which only save time: the steps of a pass are one node of
the autograd graph, run in preallocated buffers, and the gradient of each weight is one product over all steps. Tests
compare them with `step`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from nmtalign.core.numerics import (
    Initialised,
    Role,
    SharedWeight,
    add_product,
    aligned,
    check_wanted,
    fused,
    over_steps,
    product,
    shared,
    split_product,
    take_once,
)
from nmtalign.settings.training_settings import Cell

Weight = Tensor | SharedWeight


class GatedCell(Initialised, ABC):
    """The stacked weights (blocks * n, .) of a cell with n units, one set per direction if there are directions."""

    blocks = 3
    recurrent_blocks = 3  # the blocks that have a recurrent weight
    bias_blocks = 3  # the blocks that have an input bias, counted from the last one
    state_parts = 1  # a state has S = state_parts * n numbers, of which the first n are the output

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__()
        lead, width, recurrent = (directions,) if directions else (), self.blocks * size, self.recurrent_blocks * size
        self.size, self.state_size = size, self.state_parts * size
        self.input_weight = Role.STACKED.parameter(*lead, width, input_size)
        self.recurrent_weight = Role.RECURRENT.parameter(*lead, recurrent, size) if recurrent else None
        self.context_weight = Role.STACKED.parameter(width, context_size) if context_size else None
        self.bias = Role.BIAS.parameter(*lead, self.bias_blocks * size)

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
            return F.linear(*aligned(x, self.input_weight), bias)
        by_direction = x.transpose(0, 1)
        rows = product(*aligned(by_direction.flatten(1, 2), self.input_weight), bias[:, None])
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
        gates, candidate = cast(Tensor, self.recurrent_weight).split([2 * self.size, self.size], -2)
        return gates, candidate


class CudnnCell(GatedCell):
    """The GRU of PyTorch and cuDNN: z = 1 keeps the old state, reset after the product, biases everywhere.

    The blocks of the stacked weights are r, z, candidate.
    """

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__(input_size, size, context_size, directions)
        self.recurrent_bias = Role.BIAS.parameter(*self.bias.shape)

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
        gates, candidate = cast(Tensor, self.recurrent_weight).split([2 * self.size, self.size], -2)
        return gates, candidate, self.recurrent_bias[..., 2 * self.size :]

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
    if (pass_class := FAST_PASSES.get(type(cell))) is not None:
        constants = pass_class, skip, torch.is_grad_enabled()
        return cast(tuple[Tensor, Tensor], _Unroll.apply(*constants, inputs, initial, *cell.recurrent()))
    states, weights = [initial], cell.shared_recurrent()
    for step, step_inputs in enumerate(inputs):
        new = cell.step(step_inputs, states[-1], *weights)
        states.append(new if skip is None else torch.where(skip[step], states[-1], new))
    return torch.stack([state[..., : cell.size] for state in states[1:]]).to(inputs.dtype), states[-1]


def _product(state: Tensor, weight: Weight, addend: Tensor) -> Tensor:
    """W state + addend, a product in the dtype of the addend, as numbers in the dtype of the state."""
    return product(state.to(addend.dtype), weight, addend).to(state.dtype)


class Steps:
    """The tensors of each step, which are filled one after the other; a single one serves each step in its turn.

    On a CPU they are parts of one tensor. On a GPU each has its own memory, because PyTorch's compiler would
    make another kernel for another place within a tensor.
    """

    def __init__(self, steps: int, like: Tensor, shape: Sequence[int], dtype: torch.dtype) -> None:
        self._parts: Tensor | list[Tensor]
        if like.is_cuda:
            self._parts = [like.new_empty(shape, dtype=dtype) for _ in range(steps)]
        else:
            self._parts = like.new_empty(steps, *shape, dtype=dtype)

    def __getitem__(self, step: int) -> Tensor:
        return self._parts[step % len(self._parts)]

    @cached_property
    def all(self) -> Tensor:
        """The tensors of all steps (U, ...), after the last one is filled."""
        return self._parts if isinstance(self._parts, Tensor) else torch.stack(self._parts)


class CellPass(ABC):
    """One pass of a cell over U steps. Shapes are (U, *D, B, .): the encoder has D directions, the decoder has none.

    With two gates, a new state is between the old one and a candidate.
    """

    keeps: tuple[int, float]  # the block of the gate that can keep a state, and the input with which it does

    def __init__(self, initial: Tensor, weights: Sequence[Tensor], steps: int, differentiate: bool) -> None:
        """initial (*D, B, n) is the first state; `weights` are those of `GatedCell.recurrent`.

        With `differentiate` the buffers keep the inputs of `backward`.
        """
        # Contiguous, because a product that is batched over the directions would copy them at every step.
        self.gates_weight, self.candidate_weight = (weight.contiguous() for weight in weights[:2])
        self.size, self.steps, self.dtype = initial.shape[-1], steps, weights[0].dtype
        self._kept_steps = steps if differentiate else 1
        self._initial = initial
        self.states = Steps(steps + 1, initial, initial.shape, initial.dtype)
        self.states[0].copy_(initial)
        self.rows = self.states  # in the dtype of the products
        if self.dtype != initial.dtype:
            self.rows = Steps(steps + 1, initial, initial.shape, self.dtype)
            self.rows[0].copy_(initial)
        self.updates, self.resets, self.candidates = (self._buffer(self.size, initial.dtype) for _ in range(3))
        self.allocate(weights)

    @abstractmethod
    def allocate(self, weights: Sequence[Tensor]) -> None:
        """Allocates the other buffers."""

    @abstractmethod
    def forward(self, step: int, inputs: Tensor) -> None:
        """Computes state `step` + 1 from state `step` and the inputs (*D, B, 3n) of the step."""

    def start_backward(self) -> None:
        self.d_inputs = self._buffer(3 * self.size, self.dtype)

    @abstractmethod
    def backward(self, step: int, d_state: Tensor, parts: list[Tensor]) -> list[Tensor]:
        """Turns the gradient of state `step` + 1 into that of state `step`, in place; fills `d_inputs` of the step.

        A gradient is the sum of `d_state` and of parts that are still to be added; returns those of state `step`.
        """

    @abstractmethod
    def d_weights(self) -> tuple[Tensor, ...]:
        """The gradients of the weights, after all backward steps."""

    def _buffer(self, size: int, dtype: torch.dtype) -> Steps:
        """Room for every step, or for one step if there is no backward pass."""
        return Steps(self._kept_steps, self._initial, (*self._initial.shape[:-1], size), dtype)

    def _next(self, step: int) -> tuple[Tensor, Tensor | None]:
        """State `step` + 1, and the same in the dtype of the products if that is another."""
        return self.states[step + 1], None if self.rows is self.states else self.rows[step + 1]


@fused
def _paper_products(sums: Tensor, addend: Tensor | None, state: Tensor, reset: Tensor, products: Tensor) -> None:
    reset.copy_((sums if addend is None else sums + addend).chunk(2, -1)[1]).sigmoid_()
    torch.mul(reset, state, out=products)


@fused
def _paper_state(
    gate_sums: Tensor,
    gate_addend: Tensor | None,
    sums: Tensor,
    addend: Tensor | None,
    state: Tensor,
    update: Tensor,
    candidate: Tensor,
    new: Tensor,
    row: Tensor | None,
) -> None:
    update.copy_((gate_sums if gate_addend is None else gate_sums + gate_addend).chunk(2, -1)[0]).sigmoid_()
    candidate.copy_(sums if addend is None else sums + addend).tanh_()
    torch.lerp(state, candidate, update, out=new)
    if row is not None:
        row.copy_(new)


@fused
def _paper_candidate_gradient(
    d_state: Tensor, parts: list[Tensor], update: Tensor, candidate: Tensor, d_candidate: Tensor
) -> Tensor:
    for part in parts:
        d_state.add_(part)
    taken = d_state * update
    d_candidate.copy_(_one_minus_square(candidate).mul_(taken))
    return taken


@fused
def _paper_gates_gradient(
    d_product: Tensor,
    taken: Tensor,
    d_state: Tensor,
    state: Tensor,
    candidate: Tensor,
    update: Tensor,
    reset: Tensor,
    d_gates: Tensor,
) -> None:
    d_update, d_reset = d_gates.chunk(2, -1)
    d_product = d_product.to(state.dtype).mul_(reset)
    d_update.copy_(_through_sigmoid((candidate - state).mul_(taken), update))
    d_reset.copy_(_through_sigmoid(d_product * state, reset))
    d_state.sub_(taken).add_(d_product)


class PaperCellPass(CellPass):
    """The paper's hidden unit; `products` contains r * state, the input of the candidate."""

    keeps = 0, -torch.inf

    def allocate(self, weights: Sequence[Tensor]) -> None:
        self.products = self._buffer(self.size, self.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, products = self.states[step], self.products[step]
        gates = split_product(self.rows[step], self.gates_weight, gate_inputs)
        _paper_products(*gates, state, self.resets[step], products)
        candidate = split_product(products, self.candidate_weight, candidate_inputs)
        _paper_state(*gates, *candidate, state, self.updates[step], self.candidates[step], *self._next(step))

    def backward(self, step: int, d_state: Tensor, parts: list[Tensor]) -> list[Tensor]:
        """With d the gradient of s_new: d_candidate = d z (1 - candidate^2), d_z = d (candidate - s) z (1 - z)."""
        state, candidate, update, reset = (x[step] for x in (self.states, self.candidates, self.updates, self.resets))
        d_gates, d_candidate = self.d_inputs[step].split([2 * self.size, self.size], -1)
        taken = _paper_candidate_gradient(d_state, parts, update, candidate, d_candidate)
        d_product = d_candidate @ self.candidate_weight
        _paper_gates_gradient(d_product, taken, d_state, state, candidate, update, reset, d_gates)
        return add_product(d_state, d_gates, self.gates_weight)

    def d_weights(self) -> tuple[Tensor, ...]:
        """The gates multiply the state, the candidate multiplies r * state."""
        d_gates, d_candidate = self.d_inputs.all.split([2 * self.size, self.size], -1)
        return over_steps(d_gates, self.rows.all[:-1]), over_steps(d_candidate, self.products.all)


@fused
def _cudnn_state(
    gate_sums: Tensor,
    gate_inputs: Tensor | None,
    hidden_sums: Tensor,
    bias: Tensor | None,
    candidate_inputs: Tensor,
    state: Tensor,
    keep: Tensor,
    reset: Tensor,
    hidden: Tensor,
    candidate: Tensor,
    new: Tensor,
    row: Tensor | None,
) -> None:
    sums = gate_sums if gate_inputs is None else gate_sums + gate_inputs
    for gate, part in zip((reset, keep), sums.chunk(2, -1), strict=True):
        gate.copy_(part).sigmoid_()
    hidden.copy_(hidden_sums if bias is None else hidden_sums + bias)
    candidate.copy_(candidate_inputs).addcmul_(reset, hidden).tanh_()
    torch.lerp(candidate, state, keep, out=new)
    if row is not None:
        row.copy_(new)


@fused
def _cudnn_gradient(
    d_state: Tensor,
    parts: list[Tensor],
    state: Tensor,
    candidate: Tensor,
    hidden: Tensor,
    keep: Tensor,
    reset: Tensor,
    d_inputs: Tensor,
    d_hidden: Tensor,
) -> None:
    d_reset, d_keep, d_candidate = d_inputs.chunk(3, -1)
    for part in parts:
        d_state.add_(part)
    kept = d_state * keep
    d_new = d_state.sub_(kept).mul_(_one_minus_square(candidate))
    d_candidate.copy_(d_new)
    d_keep.copy_(_through_sigmoid((state - candidate).mul_(kept), keep))
    d_hidden.copy_(d_new.mul_(reset))
    d_reset.copy_(_through_sigmoid(d_new * hidden, reset))
    d_state.copy_(kept)


class CudnnCellPass(CellPass):
    """PyTorch's GRU; `hidden` contains U s + b_U, which the reset gate multiplies."""

    keeps = 1, torch.inf

    def allocate(self, weights: Sequence[Tensor]) -> None:
        self.hidden = self._buffer(self.size, self._initial.dtype)
        self._bias = weights[2][..., None, :].to(self.dtype).expand_as(self.rows[0])

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        gates = split_product(self.rows[step], self.gates_weight, gate_inputs)
        hidden = split_product(self.rows[step], self.candidate_weight, self._bias)
        buffers = self.updates[step], self.resets[step], self.hidden[step], self.candidates[step]
        _cudnn_state(*gates, *hidden, candidate_inputs, self.states[step], *buffers, *self._next(step))

    def start_backward(self) -> None:
        super().start_backward()
        self.d_hidden = self._buffer(self.size, self.dtype)

    def backward(self, step: int, d_state: Tensor, parts: list[Tensor]) -> list[Tensor]:
        """With d the gradient of s_new: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z), d_r likewise."""
        state, candidate, hidden = self.states[step], self.candidates[step], self.hidden[step]
        gates, d_inputs, d_hidden = (self.updates[step], self.resets[step]), self.d_inputs[step], self.d_hidden[step]
        _cudnn_gradient(d_state, parts, state, candidate, hidden, *gates, d_inputs, d_hidden)
        parts = add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)
        return parts + add_product(d_state, d_hidden, self.candidate_weight)

    def d_weights(self) -> tuple[Tensor, ...]:
        """Gates and candidate both multiply the state; b_U is added to the product of the candidate."""
        d_gates, rows, d_hidden = self.d_inputs.all[..., : 2 * self.size], self.rows.all[:-1], self.d_hidden.all
        d_bias = d_hidden.movedim(0, -3).flatten(-3, -2).sum(-2, dtype=self._initial.dtype)
        return over_steps(d_gates, rows), over_steps(d_hidden, rows), d_bias


class _Unroll(torch.autograd.Function):
    """All steps of a cell as one node of the graph."""

    @staticmethod
    def forward(
        ctx: Any,
        pass_class: type[CellPass],
        skip: Tensor | None,
        differentiate: bool,
        inputs: Tensor,
        initial: Tensor,
        *weights: Tensor,
    ) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        cells = ctx.cells = pass_class(initial, weights, len(inputs), differentiate)
        if skip is not None:  # for all steps at once
            block, value = pass_class.keeps
            inputs = inputs.clone()
            inputs.chunk(3, -1)[block].masked_fill_(skip, value)
        for step, step_inputs in enumerate(inputs):
            check_wanted()
            cells.forward(step, step_inputs)
        return cells.rows.all[1:], cells.states[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_rows: Tensor | None, d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        cells: CellPass = take_once(ctx, "cells")
        cells.start_backward()
        d_state = torch.zeros_like(cells.states[0]) if d_last is None else d_last.clone()
        parts = list[Tensor]()
        for step in reversed(range(cells.steps)):
            parts = cells.backward(step, d_state, parts if d_rows is None else [*parts, d_rows[step]])
        d_state = sum(parts, d_state)
        return None, None, None, cells.d_inputs.all, d_state, *cells.d_weights()


def _through_sigmoid(through: Tensor, gate: Tensor) -> Tensor:
    """`through` (1 - gate), in place: the rest of a gate's derivative, whose factor `gate` is in `through` already."""
    return through.addcmul_(through, gate, value=-1)


def _one_minus_square(x: Tensor) -> Tensor:
    """The derivative of tanh at the point where tanh has the value x."""
    return torch.addcmul(x.new_ones(()), x, x, value=-1)


FAST_PASSES: Mapping[type[GatedCell], type[CellPass]] = {PaperCell: PaperCellPass, CudnnCell: CudnnCellPass}
