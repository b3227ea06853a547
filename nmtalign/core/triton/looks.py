"""The looks of one pass on a GPU: those of `nmtalign.core.additive`, with the kernels of `attention`."""

import torch
from torch import Tensor

from nmtalign.core.additive import AdditiveLooks
from nmtalign.core.attention import Looks
from nmtalign.core.cells import over_steps
from nmtalign.core.triton.attention import attend_backward, attend_forward, keys_gradient


class FusedLooks(AdditiveLooks):
    """Two kernels a look and direction; the gradient of the keys waits until all looks have gone back."""

    def forward(self, step: int, row: Tensor) -> Tensor:
        """The context (B, D) that the state row (B, n) sees."""
        query = torch.mm(row, self._query_weight.t(), out=self.queries[step])
        out = (self.contexts[step], self.weights[step])
        attend_forward(query, self.keys, self.annotations, self.vector, self.padding, out)
        return self.contexts[step]

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        self.d_contexts = torch.empty_like(self.contexts)
        self._d_queries = torch.empty_like(self.queries)
        self._all_d_energies = torch.empty_like(self.weights)
        self._found: tuple[Tensor, Tensor] | None = None

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state's row, once `d_contexts[step]` is there."""
        out = (self._d_queries[step], self._all_d_energies[step])
        arguments = (self.queries[step], self.keys, self.annotations, self.vector, self.weights[step])
        d_query, _ = attend_backward(self.d_contexts[step], d_weights, *arguments, out)
        return d_query @ self._query_weight

    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, n')."""
        return self._over_looks()[0]

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Those of W_a (n', n) and v_a (n',)."""
        return over_steps(self._d_queries, rows), self._over_looks()[1].to(self.vector.dtype)

    def _over_looks(self) -> tuple[Tensor, Tensor]:
        """Both, which one kernel finds."""
        if self._found is None:
            self._found = keys_gradient(self.queries, self._all_d_energies, self.keys, self.vector)
        return self._found


FUSED: dict[type[Looks], type[Looks]] = {AdditiveLooks: FusedLooks}  # the other scores' products need no kernel
