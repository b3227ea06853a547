"""The paper's gated hidden unit (section 2): its reset gate acts before the recurrent product."""

import torch
from torch import Tensor

from nmtalign.core.cells import GatedCell, Steps, add_product, over_steps, product
from nmtalign.core.elementwise import one_minus_square, sigmoid_


class PaperSteps(Steps):
    """z and r in the gates, `products` = r * state, which the candidate's recurrent product reads."""

    def _make_room(self, weight: Tensor) -> None:
        super()._make_room(weight)
        self.products = self._buffer(self.size, self.dtype)

    def forward(self, step: int, inputs: Tensor) -> None:
        """s_new = (1 - z) * s + z * tanh(W x + U (r * s) + C c + b)."""
        gate_inputs, candidate_inputs = inputs.split([2 * self.size, self.size], -1)
        state, row = self.states.select(-3, step), self.rows.select(-3, step)
        gates = sigmoid_(self._slot(self.gates, step).copy_(product(row, self.gates_weight, gate_inputs)))
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


class PaperCell(GatedCell):
    """z and r without bias, the reset gate BEFORE the recurrent product (PAPER section 2); blocks z, r, candidate."""

    bias_blocks = 1
    steps_class = PaperSteps
