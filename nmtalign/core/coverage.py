"""Linguistic coverage (Tu et al. 2016): each look sees how much of every source word has been read before.

energies[t, j] = v_a . tanh(W_a s + U_a annotations[j] + V_c coverage[t, j]), with coverage[0] = 0 and
coverage[t + 1, j] = coverage[t, j] + weights[t, j] / Phi_j, where Phi_j = N sigmoid(U_f annotations[j]) is the
fertility of a source word: how many target words it becomes, below N = 2 as in the paper. A coverage of 1 says that all
of the word is translated.
"""

import torch
from torch import Tensor, nn

from nmtalign.core.additive import AdditiveLooks
from nmtalign.core.elementwise import tanh, wide

MOST = 2.0  # N, what no fertility reaches


class Coverage(nn.Module):
    """The weights that read coverage, and those that tell a source word's fertility."""

    def __init__(self, annotation_size: int, size: int) -> None:
        super().__init__()
        self.coverage_weight = nn.Parameter(torch.empty(size, 1))  # V_c
        self.fertility_weight = nn.Parameter(torch.empty(1, annotation_size))  # U_f

    def shares(self, annotations: Tensor) -> Tensor:
        """1 / Phi_j, what a weight of 1 adds to a word's coverage: (B, Tx, 2n) to (B, Tx), float32 or float64."""
        weight = self.fertility_weight.to(annotations.dtype)
        products = (annotations.flatten(0, 1) @ weight.t()).to(wide(annotations.dtype))
        return (1 + products.neg().exp()).div(MOST).view(annotations.shape[:2])

    def vector(self, dtype: torch.dtype) -> Tensor:
        """V_c (n',) in a type."""
        return self.coverage_weight.to(dtype).squeeze(1)


class CoveredLooks(AdditiveLooks):
    """Looks that see the coverage (B, Tx) that those before them have left; of PyTorch's operations on a GPU too."""

    def __init__(
        self,
        keys: Tensor,
        annotations: Tensor,
        padding: Tensor | None,
        steps: int,
        differentiate: bool,
        query_weight: Tensor,
        vector: Tensor,
        coverage_vector: Tensor,
        shares: Tensor,
    ) -> None:
        """coverage_vector V_c (n',), shares 1 / Phi (B, Tx); the rest as in `AdditiveLooks`."""
        super().__init__(keys, annotations, padding, steps, differentiate, query_weight, vector)
        self._coverage_vector, self._shares = coverage_vector, shares
        self._coverage = self.weights.new_zeros(steps + 1, *shares.shape)

    def forward(self, step: int, row: Tensor) -> Tensor:
        """The context (B, D) that the state row (B, n) sees."""
        context = super().forward(step, row)
        torch.addcmul(self._coverage[step], self.weights[step], self._shares, out=self._coverage[step + 1])
        return context

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        super().start_backward()
        self._d_coverage = torch.zeros_like(self._shares)  # of the coverage that a look leaves
        self._d_shares = torch.zeros_like(self._shares)
        self._both_vectors = self.vector * self._coverage_vector
        self._d_coverage_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state's row, once `d_contexts[step]` is there."""
        self._d_shares.addcmul_(self._d_coverage, self.weights[step])
        through = self._d_coverage * self._shares
        return super().backward(step, through if d_weights is None else through.add_(d_weights))

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Those of W_a and v_a, of V_c (n',) and of the shares (B, Tx).

        V_c's is v_a times the sum over steps and positions of d_energy * coverage * (1 - tanh^2).
        """
        d_coverage_vector = (self._d_coverage_vector * self.vector).to(self.vector.dtype)
        return *super().d_parameters(rows), d_coverage_vector, self._d_shares

    def _tanh(self, step: int) -> Tensor:
        total = self._sum_of(step)
        return tanh(total.addcmul_(self._coverage[step].to(total.dtype)[..., None], self._coverage_vector))

    def _take_back(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """That of the coverage which the look has seen is d_energy * sum of v_a * V_c * (1 - tanh^2), and goes on."""
        flat = squares.view(-1, squares.shape[-1])
        slopes = (self._both_vectors.sum() - flat @ self._both_vectors).view(d_energies.shape)
        self._d_coverage.addcmul_(d_energies, slopes.to(d_energies.dtype))
        covered = d_energies * self._coverage[step]
        self._d_coverage_vector += covered.sum() - (covered.to(squares.dtype).view(1, -1) @ flat)[0]
