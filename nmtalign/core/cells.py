"""The gated recurrent cells: the paper's hidden unit (appendix A.1.1) and the GRU of PyTorch and cuDNN.

A cell is two classes. The `GatedCell` has the parameters. Its `CellPass` runs the recurrence over the steps of one
pass, forward and backward, in preallocated buffers: no step builds an autograd graph, and the gradient of each weight
is one product over all steps. Products are in the dtype of the activations (for example bf16); states and gates are in
float32 (float64 for float64). The other cells are in `cell_variants`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.functional import add_product, one_minus_square, over_steps, product, sigmoid_
from nmtalign.core.initialisation import Initialised, Role


class CellPass(ABC):
    """One pass of a cell over U steps. Shapes are (U, *D, B, .): the encoder has D directions, the decoder has none.

    A state (*D, B, S) has S = n units, or S = 2n if the cell keeps n more beside its n outputs, which come first.
    """

    blocks: ClassVar[int] = 3  # the inputs of a step have blocks * n columns

    def __init__(
        self,
        initial: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        skip: Tensor | None,
        steps: int,
        differentiate: bool,
    ) -> None:
        """initial (*D, B, S) is the first state, weight (*D, 3n, n) the recurrent one, bias (*D, n) or None.

        skip (U, *D, B, 1) is True where a step leaves the state as it was; None = nowhere. With `differentiate` the
        buffers keep the inputs of `backward`.
        """
        self.size, self.steps, self.skip = weight.shape[-1], steps, skip
        self.weight, self.bias = weight, bias
        self._kept_steps = steps if differentiate else 1
        self.states = initial.new_empty(steps + 1, *initial.shape)
        self.states[0] = initial
        # The outputs (U + 1, *D, B, n) in the dtype of the products: part of the states unless they are narrower.
        self.rows = self.outputs = self.states[..., : self.size]
        if weight.dtype != initial.dtype:
            self.rows = torch.empty_like(self.outputs, dtype=weight.dtype, memory_format=torch.contiguous_format)
            self.rows[0] = self.outputs[0]
        self._allocate()

    @abstractmethod
    def _allocate(self) -> None:
        """Allocates the buffers that forward steps fill."""

    @abstractmethod
    def forward(self, step: int, inputs: Tensor) -> None:
        """Computes state `step` + 1 from state `step` and the inputs (*D, B, blocks * n) of the step."""

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_inputs = self._buffer(self.blocks * self.size, self.weight.dtype)

    @abstractmethod
    def backward(self, step: int, d_state: Tensor) -> None:
        """Turns the gradient of state `step` + 1 into that of state `step`, in place; fills `d_inputs` of the step."""

    @abstractmethod
    def d_weight(self) -> Tensor:
        """The gradient (*D, 3n, n) of the recurrent weight, after all backward steps."""

    def d_bias(self) -> Tensor | None:
        """The gradient (*D, n) of the bias inside the recurrence; None if there is no such bias."""
        return None

    def _buffer(self, size: int, dtype: torch.dtype) -> Tensor:
        """Room for every step, or for one step if there is no backward pass."""
        return self.states.new_empty(self._kept_steps, *self.states.shape[1:-1], size, dtype=dtype)

    def _slot(self, buffer: Tensor, step: int) -> Tensor:
        """The part of a buffer that a step fills."""
        return buffer[step % self._kept_steps]

    def _narrow(self, step: int) -> None:
        """Copies the outputs of a new state to `rows`, unless they are the same tensor."""
        if self.rows is not self.outputs:
            self.rows[step + 1] = self.outputs[step + 1]


class GatedCell(Initialised):
    """The stacked weights (3n, .) of a cell, one set per direction if there are directions."""

    roles: ClassVar[Mapping[str, Role]] = {
        "input_weight": Role.STACKED,
        "recurrent_weight": Role.RECURRENT,
        "context_weight": Role.STACKED,
        "bias": Role.BIAS,
        "recurrent_bias": Role.BIAS,
    }
    bias_blocks = 3  # how many of the blocks, counted from the last, have an input bias
    state_parts = 1  # S / n
    pass_class: type[CellPass]

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__()
        lead = (directions,) if directions else ()
        self.blocks = self.pass_class.blocks
        width = self.blocks * size
        self.size, self.state_size = size, self.state_parts * size
        self.input_weight = nn.Parameter(torch.empty(*lead, width, input_size))
        self.add_recurrent_weight(lead)
        self.context_weight = nn.Parameter(torch.empty(width, context_size)) if context_size else None
        self.bias = nn.Parameter(torch.zeros(*lead, self.bias_blocks * size))

    def add_recurrent_weight(self, lead: tuple[int, ...]) -> None:
        """Adds the weight (*D, 3n, n) that multiplies the outputs of the step before."""
        self.recurrent_weight = nn.Parameter(torch.empty(*lead, self.blocks * self.size, self.size))

    def inputs(self, x: Tensor) -> Tensor:
        """The input products of all steps: (..., m) to (..., 3n), or (U, D, B, m) to (U, D, B, 3n)."""
        weight, bias = self.input_weight.to(x.dtype), self.input_bias().to(x.dtype)
        if weight.dim() == 2:
            return F.linear(x, weight, bias)
        by_direction = x.transpose(0, 1)
        flat = product(by_direction.flatten(1, 2), weight, bias[:, None])
        return flat.view(*by_direction.shape[:-1], flat.shape[-1]).transpose(0, 1).contiguous()

    def context_inputs(self, contexts: Tensor) -> Tensor:
        """The products with contexts (..., D), which are added to `inputs`: (..., 3n)."""
        if self.context_weight is None:
            raise ValueError("the encoder's cell has no context")
        return F.linear(contexts, self.context_weight.to(contexts.dtype))

    def input_bias(self) -> Tensor:
        """The bias (*D, 3n) of the inputs."""
        return F.pad(self.bias, ((self.blocks - self.bias_blocks) * self.size, 0))

    def inner_bias(self) -> Tensor | None:
        """The bias (*D, n) inside the recurrence, of the candidate; None if there is none."""
        return None

    def recurrent(self, dtype: torch.dtype) -> tuple[Tensor, Tensor | None]:
        """(weight (*D, 3n, n), bias (*D, n) or None) of the recurrence, in a dtype."""
        bias = self.inner_bias()
        return self.recurrent_weight.to(dtype), None if bias is None else bias.to(dtype)


class GruPass(CellPass):
    """Shared by the paper's hidden unit and PyTorch's GRU: two gates, and a new state between the old and a candidate.

    The state is the output: S = n.
    """

    def _allocate(self) -> None:
        # Contiguous, because a product that is batched over the directions would copy them at every step.
        self.gates_weight, self.candidate_weight = (
            part.contiguous() for part in self.weight.split([2 * self.size, self.size], -2)
        )
        self.gates = self._buffer(2 * self.size, self.states.dtype)
        self.candidates = self._buffer(self.size, self.states.dtype)

    def _interpolate(self, step: int, start: Tensor, end: Tensor, share: Tensor) -> None:
        """State `step` + 1 = start + share * (end - start)."""
        torch.lerp(start, end, share, out=self.states[step + 1])
        self._narrow(step)


class PaperCellPass(GruPass):
    """The paper's hidden unit: `gates` contains z and r, `products` contains r * state, the input of the candidate."""

    def _allocate(self) -> None:
        super()._allocate()
        self.products = self._buffer(self.size, self.weight.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states[step], self.rows[step]
        gates = sigmoid_(self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)))
        update, reset = gates.chunk(2, -1)
        products = torch.mul(reset, state, out=self._slot(self.products, step))
        sums = product(products, self.candidate_weight, candidate_inputs)
        candidate = self._slot(self.candidates, step).copy_(sums).tanh_()
        if self.skip is not None:
            update.masked_fill_(self.skip[step], 0)
        self._interpolate(step, state, candidate, update)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the gradient of s_new: d_candidate = d z (1 - candidate^2), d_z = d (candidate - s) z (1 - z)."""
        state, candidate = self.states[step], self.candidates[step]
        update, reset = self.gates[step].chunk(2, -1)
        d_inputs = self.d_inputs[step]
        d_update, d_reset, d_candidate = d_inputs.chunk(3, -1)
        taken = d_state * update
        torch.mul(taken, one_minus_square(candidate), out=d_candidate)
        d_product = (d_candidate @ self.candidate_weight).to(state.dtype).mul_(reset)
        through = (candidate - state).mul_(taken)
        torch.addcmul(through, through, update, value=-1, out=d_update)
        torch.mul(d_product, state, out=through)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.sub_(taken).add_(d_product)
        add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)

    def d_weight(self) -> Tensor:
        """The gates multiply the state, the candidate multiplies r * state."""
        d_gates, d_candidate = self.d_inputs.split([2 * self.size, self.size], -1)
        return torch.cat([over_steps(d_gates, self.rows[:-1]), over_steps(d_candidate, self.products)], -2)


class PaperCell(GatedCell):
    """The paper's hidden unit (appendix A.1.1): z and r without bias, the reset gate BEFORE the recurrent product.

    The blocks of the stacked weights are z, r, candidate. z = 1 takes the new state.
    """

    bias_blocks = 1
    pass_class = PaperCellPass


class CudnnCellPass(GruPass):
    """PyTorch's GRU: `gates` contains r and z, `hidden` is U s + b_U, which the reset gate multiplies."""

    def _allocate(self) -> None:
        super()._allocate()
        self.hidden = self._buffer(self.size, self.states.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states[step], self.rows[step]
        bias = None if self.bias is None else self.bias[..., None, :].expand(row.shape)
        gates = sigmoid_(self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)))
        hidden = self._slot(self.hidden, step).copy_(product(row, self.candidate_weight, bias))
        reset, keep = gates.chunk(2, -1)
        candidate = self._slot(self.candidates, step).copy_(candidate_inputs).addcmul_(reset, hidden).tanh_()
        if self.skip is not None:
            keep.masked_fill_(self.skip[step], 1)
        self._interpolate(step, candidate, state, keep)

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self.d_hidden = self._buffer(self.size, self.weight.dtype)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the gradient of s_new: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z), d_r likewise."""
        state, candidate, hidden = self.states[step], self.candidates[step], self.hidden[step]
        reset, keep = self.gates[step].chunk(2, -1)
        d_inputs, d_hidden = self.d_inputs[step], self.d_hidden[step]
        d_reset, d_keep, d_candidate = d_inputs.chunk(3, -1)
        kept = d_state * keep
        d_new = d_state.sub_(kept).mul_(one_minus_square(candidate))
        d_candidate.copy_(d_new)
        through = (state - candidate).mul_(kept)
        torch.addcmul(through, through, keep, value=-1, out=d_keep)
        torch.mul(d_new.mul_(reset), hidden, out=through)
        d_hidden.copy_(d_new)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.copy_(kept)
        self._through_products(step, d_state)

    def _through_products(self, step: int, d_state: Tensor) -> None:
        """Adds what comes through the recurrent products to the gradient of state `step`."""
        add_product(d_state, self.d_inputs[step][..., : 2 * self.size], self.gates_weight)
        add_product(d_state, self.d_hidden[step], self.candidate_weight)

    def d_weight(self) -> Tensor:
        """Gates and candidate both multiply the state."""
        d_gates, rows = self.d_inputs[..., : 2 * self.size], self.rows[:-1]
        return torch.cat([over_steps(d_gates, rows), over_steps(self.d_hidden, rows)], -2)

    def d_bias(self) -> Tensor | None:
        """The gradient of the candidate's b_U."""
        return sum_over_rows(self.d_hidden, self.states.dtype)


class CudnnCell(GatedCell):
    """The GRU of PyTorch and cuDNN: z = 1 keeps the old state, reset after the product, biases everywhere.

    The blocks of the stacked weights are r, z, candidate.
    """

    pass_class = CudnnCellPass

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__(input_size, size, context_size, directions)
        self.recurrent_bias = nn.Parameter(torch.zeros(self.bias.shape))

    def inner_bias(self) -> Tensor | None:
        """The candidate's b_U, which the reset gate multiplies; those of the gates are added to the inputs."""
        return self.recurrent_bias.narrow(-1, 2 * self.size, self.size)

    def input_bias(self) -> Tensor:
        """The biases (*D, 3n) of the inputs, and of the recurrent products of the gates."""
        gates = self.recurrent_bias[..., : 2 * self.size]
        return self.bias + F.pad(gates, (0, self.size))


def sum_over_rows(gradient: Tensor, dtype: torch.dtype) -> Tensor:
    """The sum (*D, n) of a gradient (U, *D, B, n) over steps and rows."""
    return gradient.movedim(0, -3).flatten(-3, -2).sum(-2, dtype=dtype)
