"""The gated hidden unit (PAPER section 2), and PyTorch's and cuDNN's GRU, which is another cell.

What recurs is written out here, forward and backward, over buffers for all steps of a pass: no step leaves a graph
behind, every product writes where it is needed, and each weight's gradient is one product over all steps. The products
are in the activations' type (bf16, say); states and gates in float32 (float64 for float64).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import Cell
from nmtalign.core.elementwise import one_minus_square


class Steps(ABC):
    """One pass of a cell over U steps. Shapes (*D, U, B, .): D are the encoder's directions, absent in the decoder."""

    def __init__(
        self,
        initial: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        skip: Tensor | None,
        steps: int,
        differentiate: bool,
    ) -> None:
        """initial (*D, B, n) is the first state, weight (*D, 3n, n) the recurrent one, bias (*D, n) where there is one.

        skip (*D, U, B, 1) is True where a state stays as it was, None if nowhere. What only `backward` needs is kept
        only if `differentiate`.
        """
        *lead, batch, size = initial.shape
        self.size, self.count, self.skip, self.bias = size, steps, skip, bias
        self.dtype, self._kept = weight.dtype, differentiate
        # Contiguous, as products that are batched over the directions would copy them at every step.
        self.gates_weight, self.candidate_weight = (part.contiguous() for part in weight.split([2 * size, size], -2))
        self._shape = (*lead, steps, batch)
        self.states = initial.new_empty(*lead, steps + 1, batch, size)
        self.rows = self.states if self.dtype == initial.dtype else self._like(self.states)
        self._put(0, initial)
        self._make_room(weight)

    @abstractmethod
    def forward(self, step: int, inputs: Tensor) -> None:
        """Fills state `step` + 1 from state `step` and the inputs (*D, B, 3n) of the step."""

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        self.d_inputs = self._empty(3 * self.size, self.dtype)

    @abstractmethod
    def backward(self, step: int, d_state: Tensor) -> None:
        """Turns the gradient of state `step` + 1 into that of state `step`, in place; fills `d_inputs` of the step."""

    @abstractmethod
    def d_weight(self) -> Tensor:
        """The gradient (*D, 3n, n) of the recurrent weight, when all steps have gone back."""

    def d_bias(self) -> Tensor | None:
        """The gradient (*D, n) of the bias inside the recurrence; None where there is none."""
        return None

    def _make_room(self, weight: Tensor) -> None:
        """Buffers for what each step leaves behind, and whatever else a cell wants of the whole recurrent weight."""
        self.gates = self._buffer(2 * self.size, self.states.dtype)
        self.new = self._buffer(self.size, self.states.dtype)

    def _put(self, step: int, state: Tensor) -> None:
        self.states.select(-3, step).copy_(state)
        if self.rows is not self.states:
            self.rows.select(-3, step).copy_(state)

    def _slot(self, buffer: Tensor, step: int) -> Tensor:
        return buffer.select(-3, step if self._kept else 0)

    def _empty(self, size: int, dtype: torch.dtype) -> Tensor:
        return torch.empty(*self._shape, size, dtype=dtype, device=self.states.device)

    def _buffer(self, size: int, dtype: torch.dtype) -> Tensor:
        """Room for every step, or for one where nothing goes back."""
        if self._kept:
            return self._empty(size, dtype)
        return torch.empty(*self._shape[:-2], 1, self._shape[-1], size, dtype=dtype, device=self.states.device)

    def _like(self, tensor: Tensor) -> Tensor:
        return torch.empty_like(tensor, dtype=self.dtype)

    def _advance(self, step: int, old: Tensor, end: Tensor, share: Tensor) -> None:
        """State `step` + 1 = old + share * (end - old)."""
        state = self.states.select(-3, step + 1)
        torch.lerp(old, end, share, out=state)
        if self.rows is not self.states:
            self.rows.select(-3, step + 1).copy_(state)

    def _rows_before(self) -> Tensor:
        return self.rows.narrow(-3, 0, self.count)


class PaperSteps(Steps):
    """z and r in the gates, `products` = r * state, which the candidate's recurrent product reads."""

    def _make_room(self, weight: Tensor) -> None:
        super()._make_room(weight)
        self.products = self._buffer(self.size, self.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states.select(-3, step), self.rows.select(-3, step)
        gates = self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)).sigmoid_()
        update, reset = gates.chunk(2, -1)
        products = torch.mul(reset, state, out=self._slot(self.products, step))
        new = self._slot(self.new, step).copy_(product(products, self.candidate_weight, candidate_inputs)).tanh_()
        if self.skip is not None:
            update.masked_fill_(self.skip.select(-3, step), 0)
        self._advance(step, state, new, update)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the state's gradient: d_candidate = d z (1 - new^2), d_z = d (new - s) z (1 - z), d_r likewise."""
        state, new = self.states.select(-3, step), self.new.select(-3, step)
        update, reset = self.gates.select(-3, step).chunk(2, -1)
        d_inputs = self.d_inputs.select(-3, step)
        d_update, d_reset, d_candidate = d_inputs.chunk(3, -1)
        taken = d_state * update
        torch.mul(taken, one_minus_square(new), out=d_candidate)
        d_product = (d_candidate @ self.candidate_weight).to(state.dtype).mul_(reset)
        through = (new - state).mul_(taken)
        torch.addcmul(through, through, update, value=-1, out=d_update)
        torch.mul(d_product, state, out=through)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.sub_(taken).add_(d_product)
        add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)

    def d_weight(self) -> Tensor:
        """Gates and candidate read different rows: the state, and r * state."""
        d_gates, d_candidate = self.d_inputs.split([2 * self.size, self.size], -1)
        parts = [over_steps(d_gates, self._rows_before()), over_steps(d_candidate, self.products)]
        return torch.cat(parts, -2)


class CudnnSteps(Steps):
    """r and z in the gates, `hidden` = U s + b_U, which the reset gate multiplies."""

    def _make_room(self, weight: Tensor) -> None:
        super()._make_room(weight)
        self.hidden = self._buffer(self.size, self.states.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * tanh(W x + C c + b + r * (U s + b_U)) + z * s."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states.select(-3, step), self.rows.select(-3, step)
        bias = None if self.bias is None else self.bias[..., None, :].expand(row.shape)
        gates = self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)).sigmoid_()
        hidden = self._slot(self.hidden, step).copy_(product(row, self.candidate_weight, bias))
        reset, keep = gates.chunk(2, -1)
        new = self._slot(self.new, step).copy_(candidate_inputs).addcmul_(reset, hidden).tanh_()
        if self.skip is not None:
            keep.masked_fill_(self.skip.select(-3, step), 1)
        self._advance(step, new, state, keep)

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        super().start_backward()
        self.d_hidden = self._empty(self.size, self.dtype)

    def backward(self, step: int, d_state: Tensor) -> None:
        """With d the state's gradient: d_new = d (1 - z) (1 - new^2), d_z = d (s - new) z (1 - z), d_r likewise."""
        state, new, hidden = (buffer.select(-3, step) for buffer in (self.states, self.new, self.hidden))
        reset, keep = self.gates.select(-3, step).chunk(2, -1)
        d_inputs, d_hidden = self.d_inputs.select(-3, step), self.d_hidden.select(-3, step)
        d_reset, d_keep, d_candidate = d_inputs.chunk(3, -1)
        kept = d_state * keep
        d_new = d_state.sub_(kept).mul_(one_minus_square(new))
        d_candidate.copy_(d_new)
        through = (state - new).mul_(kept)
        torch.addcmul(through, through, keep, value=-1, out=d_keep)
        torch.mul(d_new.mul_(reset), hidden, out=through)
        d_hidden.copy_(d_new)
        torch.addcmul(through, through, reset, value=-1, out=d_reset)
        d_state.copy_(kept)
        add_product(d_state, d_inputs[..., : 2 * self.size], self.gates_weight)
        add_product(d_state, d_hidden, self.candidate_weight)

    def d_weight(self) -> Tensor:
        """Both parts read the state."""
        rows = self._rows_before()
        return torch.cat([over_steps(self.d_inputs[..., : 2 * self.size], rows), over_steps(self.d_hidden, rows)], -2)

    def d_bias(self) -> Tensor | None:
        """b_U of the candidate."""
        return self.d_hidden.flatten(-3, -2).sum(-2, dtype=self.states.dtype)


def product(rows: Tensor, weight: Tensor, addend: Tensor | None = None) -> Tensor:
    """`rows W^T (+ addend)`: rows (B, in) with weight (out, in), or (D, B, in) with (D, out, in)."""
    if addend is None:
        return rows @ weight.mT
    return torch.addmm(addend, rows, weight.t()) if weight.dim() == 2 else torch.baddbmm(addend, rows, weight.mT)


def add_product(total: Tensor, gradient: Tensor, weight: Tensor) -> None:
    """`total += gradient W`, added in total's own type."""
    if total.dtype == torch.bfloat16 or weight.dim() > 2:  # bf16 products into a sum are twice as slow as two steps
        total.add_(gradient @ weight)
    elif total.dtype == weight.dtype:
        total.addmm_(gradient, weight)
    else:
        total.add_((gradient @ weight).to(total.dtype))


def over_steps(gradient: Tensor, rows: Tensor) -> Tensor:
    """A weight's gradient (*D, out, in) by one product over all steps: (*D, U, B, out) and (*D, U, B, in)."""
    if gradient.dim() == 3:
        return gradient.flatten(0, 1).t() @ rows.flatten(0, 1)
    return torch.stack([over_steps(*direction) for direction in zip(gradient, rows, strict=True)])


class GatedCell(nn.Module):
    """What both cells have: stacked weights (3n, .), one a direction where there are directions, and what uses them."""

    bias_blocks = 3  # of the three blocks, how many have a bias, counted from the last
    steps_class: type[Steps]

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__()
        lead = (directions,) if directions else ()
        self.size = size
        self.input_weight = nn.Parameter(torch.empty(*lead, 3 * size, input_size))
        self.recurrent_weight = nn.Parameter(torch.empty(*lead, 3 * size, size))
        self.context_weight = nn.Parameter(torch.empty(3 * size, context_size)) if context_size else None
        self.bias = nn.Parameter(torch.zeros(*lead, self.bias_blocks * size))

    def inputs(self, x: Tensor) -> Tensor:
        """What the cell takes from its inputs at all steps: (..., m) to (..., 3n), or (D, U, B, m) to (D, U, B, 3n)."""
        weight, bias = self.input_weight.to(x.dtype), self.input_bias().to(x.dtype)
        if weight.dim() == 2:
            return F.linear(x, weight, bias)
        flat = torch.baddbmm(bias[:, None], x.flatten(1, 2), weight.mT)
        return flat.view(*x.shape[:-1], flat.shape[-1])

    def inner_bias(self) -> Tensor | None:
        """The bias (*D, n) inside the recurrence, of the candidate; None where there is none."""
        return None

    def steps(
        self, initial: Tensor, steps: int, dtype: torch.dtype, skip: Tensor | None = None, differentiate: bool = False
    ) -> Steps:
        """A pass over `steps` steps from the state initial (*D, B, n), with products in `dtype`, without a graph."""
        bias = self.inner_bias()
        narrow = None if bias is None else bias.to(dtype)
        return self.steps_class(initial, self.recurrent_weight.to(dtype), narrow, skip, steps, differentiate)

    @torch.no_grad()
    def update(self, inputs: Tensor, state: Tensor) -> Tensor:
        """The next state (B, n) from inputs (B, 3n), without a gradient."""
        steps = self.steps(state, 1, inputs.dtype)
        steps.forward(0, inputs)
        return steps.states.select(-3, 1)

    def input_bias(self) -> Tensor:
        """The bias (*D, 3n) of the inputs."""
        return F.pad(self.bias, ((3 - self.bias_blocks) * self.size, 0))


class PaperCell(GatedCell):
    """z and r without bias, the reset gate BEFORE the recurrent product (PAPER section 2); blocks z, r, candidate."""

    bias_blocks = 1
    steps_class = PaperSteps


class CudnnCell(GatedCell):
    """PyTorch's and cuDNN's GRU: z flipped, reset after the product, biases everywhere; blocks in order r, z, new."""

    steps_class = CudnnSteps

    def __init__(self, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> None:
        super().__init__(input_size, size, context_size, directions)
        self.recurrent_bias = nn.Parameter(torch.zeros(self.bias.shape))

    def inner_bias(self) -> Tensor | None:
        """b_U of the candidate, which the reset gate multiplies; those of the gates are added to the inputs."""
        return self.recurrent_bias.narrow(-1, 2 * self.size, self.size)

    def input_bias(self) -> Tensor:
        """The biases (*D, 3n) of the inputs, and of the recurrent products of the gates."""
        gates = self.recurrent_bias[..., : 2 * self.size]
        return self.bias + F.pad(gates, (0, self.size))


def make_cell(kind: Cell, input_size: int, size: int, context_size: int = 0, directions: int = 0) -> GatedCell:
    """The cell named `kind`."""
    cls = PaperCell if kind == "paper" else CudnnCell
    return cls(input_size, size, context_size, directions)
