"""The paper's alignment model (equation 6, appendix A.1.2), and the same model with coverage (Tu et al. 2016).

energies[i, j] = v_a . tanh(W_a s_{i-1} + U_a annotations[j]), without bias. With linguistic coverage
energies[t, j] = v_a . tanh(W_a s + U_a annotations[j] + V_c coverage[t, j]), where coverage[0] = 0 and
coverage[t + 1, j] = coverage[t, j] + weights[t, j] / Phi_j. Phi_j = N sigmoid(U_f annotations[j]) is the fertility of
a source word: how many target words it becomes, at most N = 2 as in that paper. Coverage 1 means: all is translated.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.attention import Attention, AttentionPass, Memory
from nmtalign.core.functional import over_steps, tanh, wide
from nmtalign.core.gpu import missing
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig

FERTILITY_LIMIT = 2.0  # N
_PARTIAL_SUMS = 16
CACHED_CELLS = 1 << 19  # elements whose tanh is computed together, so that they stay in the processor's cache
KEPT_BYTES = 96 << 20  # of tanh, B Tx T n' elements; where there are more, the backward pass computes tanh again


class AdditiveAttentionPass(AttentionPass):
    """Each step computes tanh for n' units at every source position."""

    def __init__(
        self,
        memory: Memory,
        rows: int,
        steps: int,
        differentiate: bool,
        coverage: Tensor | None,
        query_weight: Tensor,
        vector: Tensor,
    ) -> None:
        """query_weight W_a (n', n), vector v_a (n',) over the temperature; the rest as in `AttentionPass`."""
        super().__init__(memory, rows, steps, differentiate)
        self._query_weight, self.vector = query_weight, vector
        self._partial_vectors = _in_partial_sums(vector)
        self.queries = self.keys.new_empty(steps, rows, self.keys.shape[2])
        self._keep = differentiate and steps * self.keys.nbytes <= KEPT_BYTES
        self._kept: dict[int, Tensor] = {}

    def energies(self, step: int, row: Tensor) -> Tensor:
        """v_a . tanh(W_a s + keys); without a backward pass on a CPU a few sentences at a time."""
        torch.mm(row, self._query_weight.t(), out=self.queries[step])
        energies = self.weights.new_empty(self.batch, self.rows_each, self.length)
        for sentences, rows in self._portions():
            there = energies[sentences, rows]
            hidden = self._tanh(step, sentences, rows)
            if self._keep:
                self._kept[step] = hidden
            sums = hidden.view(-1, hidden.shape[-1]) @ self._partial_vectors
            there.copy_(sums.sum(-1, dtype=there.dtype).view(there.shape))
        return energies

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_queries = torch.empty_like(self.queries)
        self._d_energies = torch.zeros_like(self.weights[0])
        self._weighted_squares = torch.zeros_like(self.keys, dtype=self.weights.dtype)
        self._wide_squares = torch.empty_like(self._weighted_squares)
        self._d_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """Through tanh and the query's product."""
        narrow = d_energies.to(self.queries.dtype)
        hidden = self._kept.pop(step) if self._keep else self._tanh(step, slice(None), slice(None))
        hidden = hidden.view(self.keys.shape)
        self._d_vector += (narrow.view(1, -1) @ hidden.view(-1, hidden.shape[-1]))[0]
        squares = hidden.square_()
        # The query's gradient sums d_energy * (1 - tanh^2) * v_a over the source. The d_energies of a softmax sum to
        # 0, so the 1 cancels; left in, rounding in bf16 would cost a tenth of the gradient.
        d_query = torch.bmm(narrow[:, None], squares, out=self._d_queries[step][:, None]).squeeze(1)
        d_query.mul_(self.vector).neg_()
        # That of the keys is v_a * (sum of d_energy - sum of d_energy * tanh^2), the sums over the steps.
        self._d_energies += d_energies
        self._weighted_squares.addcmul_(self._wide_squares.copy_(squares), d_energies[..., None])
        self._coverage_backward(step, d_energies, squares)
        return d_query @ self._query_weight

    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, n')."""
        total = self._weighted_squares.neg_().add_(self._d_energies[..., None]).mul_(self.vector)
        return total.to(self.keys.dtype)

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_a (n', n) and v_a (n',)."""
        return over_steps(self._d_queries, rows), self._d_vector.to(self.vector.dtype)

    def _portions(self) -> Iterator[tuple[slice, slice]]:
        """(sentences, rows of each) that are computed together, about CACHED_CELLS elements."""
        if self.differentiate or self.keys.device.type != "cpu":
            yield slice(None), slice(None)
            return
        most_rows = max(1, CACHED_CELLS // (self.length * self.keys.shape[2]))
        sentences = max(1, most_rows // self.rows_each)  # each with all its rows, if they fit
        rows = min(self.rows_each, most_rows)
        for start in range(0, self.batch, sentences):
            for row in range(0, self.rows_each, rows):
                yield slice(start, start + sentences), slice(row, row + rows)

    def _tanh(self, step: int, sentences: slice, rows: slice) -> Tensor:
        """tanh(W_a s + keys) of some sentences and rows, (b, r, Tx, n')."""
        return tanh(self._sums(step, sentences, rows), smallest=1)

    def _sums(self, step: int, sentences: slice, rows: slice) -> Tensor:
        queries = self.queries[step].view(self.batch, self.rows_each, -1)
        return self.keys[sentences, None] + queries[sentences, rows, None]

    def _coverage_backward(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """Takes the gradient of the coverage from those of the energies (B, Tx) and tanh^2 (B, Tx, n')."""


class CoverageAttentionPass(AdditiveAttentionPass):
    """Attention steps that depend on the coverage (N, Tx) that the steps before have left; PyTorch on a GPU too."""

    def __init__(
        self,
        memory: Memory,
        rows: int,
        steps: int,
        differentiate: bool,
        coverage: Tensor | None,
        query_weight: Tensor,
        vector: Tensor,
        coverage_vector: Tensor,
        shares: Tensor,
    ) -> None:
        """coverage_vector V_c (n',), shares 1 / Phi (B, Tx); the rest as in `AdditiveAttentionPass`."""
        super().__init__(memory, rows, steps, differentiate, coverage, query_weight, vector)
        self._coverage_vector = coverage_vector
        self._shares = shares if self.rows_each == 1 else shares.repeat_interleave(self.rows_each, 0)
        self._coverage = self.weights.new_zeros(steps + 1, *self._shares.shape)
        if coverage is not None:
            self._coverage[0] = coverage

    def forward(self, step: int, row: Tensor) -> None:
        """As in `AttentionPass`; the coverage grows by the weights, each product rounded before it is added."""
        super().forward(step, row)
        torch.add(self._coverage[step], self.weights[step] * self._shares, out=self._coverage[step + 1])

    def new_coverage(self, step: int) -> Tensor | None:
        """The coverage (N, Tx) after a step."""
        return self._coverage[step + 1]

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_coverage = torch.zeros_like(self._shares)  # of the coverage after a step
        self._d_shares = torch.zeros_like(self._shares)
        self._both_vectors = self.vector * self._coverage_vector
        self._d_coverage_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        self._d_shares.addcmul_(self._d_coverage, self.weights[step])
        through = self._d_coverage * self._shares
        return super().backward(step, through if d_weights is None else through.add_(d_weights))

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_a and v_a, of V_c (n',) and of the shares (B, Tx).

        V_c's is v_a times the sum of d_energy * coverage * (1 - tanh^2) over steps and positions.
        """
        d_coverage_vector = (self._d_coverage_vector * self.vector).to(self.vector.dtype)
        return *super().d_parameters(rows), d_coverage_vector, self._d_shares

    def _sums(self, step: int, sentences: slice, rows: slice) -> Tensor:
        total = super()._sums(step, sentences, rows)
        coverage = self._coverage[step].view(self.batch, self.rows_each, -1)[sentences, rows, :, None]
        # Two operations: fused into one, the last elements of a tensor may be rounded differently from the others.
        return total.add_(coverage.to(total.dtype) * self._coverage_vector)

    def _coverage_backward(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """The coverage before the step has the gradient d_energy * sum of v_a * V_c * (1 - tanh^2), added up."""
        flat = squares.view(-1, squares.shape[-1])
        slopes = (self._both_vectors.sum() - flat @ self._both_vectors).view(d_energies.shape)
        self._d_coverage.addcmul_(d_energies, slopes.to(d_energies.dtype))
        covered = d_energies * self._coverage[step]
        self._d_coverage_vector += covered.sum() - (covered.to(squares.dtype).view(1, -1) @ flat)[0]


class AdditiveAttention(Attention):
    """W_a, U_a and v_a with n' units, and V_c and U_f where there is coverage."""

    pass_class = AdditiveAttentionPass

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config.attention_temperature)
        size = config.attention_hidden
        self.query_weight = nn.Parameter(torch.empty(size, config.hidden))  # W_a
        self.key_weight = nn.Parameter(torch.empty(size, annotation_size))  # U_a
        self.vector = nn.Parameter(torch.empty(size))  # v_a

    def keys(self, annotations: Tensor) -> Tensor:
        """U_a annotations: (B, Tx, 2n) to (B, Tx, n')."""
        return F.linear(annotations, self.key_weight.to(annotations.dtype))

    def parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """W_a, and v_a over the temperature: so no energy has to be divided."""
        vector = self.vector if self._temperature == 1 else self.vector / self._temperature
        return self.query_weight.to(dtype), vector.to(dtype)

    def begin(
        self,
        memory: Memory,
        rows: int,
        steps: int,
        differentiate: bool,
        coverage: Tensor | None,
        parameters: tuple[Tensor, ...],
    ) -> AttentionPass:
        """As in `Attention`; with fused kernels on a GPU that runs them, for one row per sentence."""
        if memory.shares is not None:
            return CoverageAttentionPass(memory, rows, steps, differentiate, coverage, *parameters)
        if rows == len(memory.values) and not missing(memory.values.device):
            from nmtalign.core.gpu.attention import FusedAttentionPass

            return FusedAttentionPass(memory, rows, steps, differentiate, coverage, *parameters)
        return AdditiveAttentionPass(memory, rows, steps, differentiate, coverage, *parameters)


class Coverage(Initialised):
    """The parameters of linguistic coverage: V_c turns coverage into energies, U_f gives the fertility."""

    roles: ClassVar[Mapping[str, Role]] = {"coverage_weight": Role.ATTENTION, "fertility_weight": Role.ATTENTION}

    def __init__(self, annotation_size: int, size: int) -> None:
        super().__init__()
        self.coverage_weight = nn.Parameter(torch.empty(size, 1))  # V_c
        self.fertility_weight = nn.Parameter(torch.empty(1, annotation_size))  # U_f

    def shares(self, annotations: Tensor) -> Tensor:
        """1 / Phi_j, what a weight of 1 adds to a word's coverage: (B, Tx, 2n) to (B, Tx), float32 or float64."""
        weight = self.fertility_weight.to(annotations.dtype)
        products = (annotations.flatten(0, 1) @ weight.t()).to(wide(annotations.dtype))
        return (1 + products.neg().exp()).div(FERTILITY_LIMIT).view(annotations.shape[:2])

    def vector(self, dtype: torch.dtype) -> Tensor:
        """V_c (n',) in a dtype."""
        return self.coverage_weight.to(dtype).squeeze(1)


def _in_partial_sums(vector: Tensor) -> Tensor:
    """v_a (n',) as (n', P), whose product with a row gives P partial sums of an energy; P = 1 unless it is narrow.

    An energy that is rounded to bf16 only once, at the end, was the larger half of the error of bf16 in the
    log-probability of a translation.
    """
    if vector.dtype == wide(vector.dtype):
        return vector[:, None]
    units = torch.arange(len(vector), device=vector.device)
    return vector[:, None] * (units[:, None] % _PARTIAL_SUMS == units[:_PARTIAL_SUMS])
