"""What every gated cell has; each cell is a file of its own with two classes, its `Steps` and its `GatedCell`.

`nmtalign.core.kinds` names it. What recurs is written out, forward and backward, over buffers for all steps of a pass:
no step leaves a graph behind, every product writes where it is needed, and each weight's gradient is one product over
all steps. The products are in the activations' type (bf16, say); states and gates in float32 (float64 for float64).
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F


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
    """Stacked weights (3n, .), one a direction where there are directions, and what uses them."""

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
