"""The paper's score (section 2): energies[i, j] = v_a . tanh(W_a s_{i-1} + U_a annotations[j]), no bias."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.attention import Attention, Looks
from nmtalign.core.cells import over_steps
from nmtalign.core.elementwise import tanh, wide

_PARTS = 16
LOOK_CELLS = 1 << 19  # numbers whose tanh is taken at a time
KEPT_BYTES = 96 << 20  # of tanh, B Tx T n' numbers; where it is more, the backward pass computes it again


class AdditiveLooks(Looks):
    """Each look takes tanh of all its source positions' n' numbers."""

    def __init__(
        self,
        keys: Tensor,
        annotations: Tensor,
        padding: Tensor | None,
        steps: int,
        differentiate: bool,
        query_weight: Tensor,
        vector: Tensor,
    ) -> None:
        """keys (B, Tx, n'), query_weight (n', n), vector (n',) over the temperature; the rest as in `Looks`."""
        super().__init__(keys, annotations, padding, steps, differentiate)
        self._query_weight, self.vector = query_weight, vector
        self.queries = keys.new_empty(steps, keys.shape[0], keys.shape[2])
        self._sum = torch.empty_like(keys)
        self._keep = differentiate and steps * keys.nbytes <= KEPT_BYTES
        self._hidden: dict[int, Tensor] = {}

    def energies(self, step: int, row: Tensor) -> Tensor:
        """v_a . tanh(W_a s + keys)."""
        query = torch.mm(row, self._query_weight.t(), out=self.queries[step])
        hidden = self._tanh(step)
        if self._keep:
            self._hidden[step] = hidden
        return (hidden.view(-1, query.shape[-1]) @ self.vector[:, None]).view(self.weights[step].shape)

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        super().start_backward()
        self._d_queries = torch.empty_like(self.queries)
        self._d_energies = torch.zeros_like(self.weights[0])
        self._weighted_squares = torch.zeros_like(self.keys, dtype=self.weights.dtype)
        self._wide_squares = torch.empty_like(self._weighted_squares)
        self._d_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """Through tanh and the query's product."""
        query = self.queries[step]
        narrow = d_energies.to(query.dtype)
        hidden = self._hidden.pop(step) if self._keep else self._tanh(step)
        self._d_vector += (narrow.view(1, -1) @ hidden.view(-1, query.shape[-1]))[0]
        squares = hidden.square_()
        # The query's gradient is the sum over the source of d_energy * (1 - tanh^2) * v_a. The d_energies of a softmax
        # sum to 0, so the 1 falls out; left in, it would cancel in bf16 at the cost of a tenth of the gradient.
        d_query = torch.bmm(narrow[:, None], squares, out=self._d_queries[step][:, None]).squeeze(1)
        d_query.mul_(self.vector).neg_()
        # That of the keys is v_a * (sum of d_energy - sum of d_energy * tanh^2), the sums over the steps.
        self._d_energies += d_energies
        self._weighted_squares.addcmul_(self._wide_squares.copy_(squares), d_energies[..., None])
        self._take_back(step, d_energies, squares)
        return d_query @ self._query_weight

    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, n')."""
        total = self._weighted_squares.neg_().add_(self._d_energies[..., None]).mul_(self.vector)
        return total.to(self.keys.dtype)

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Those of W_a (n', n) and v_a (n',)."""
        return over_steps(self._d_queries, rows), self._d_vector.to(self.vector.dtype)

    def _tanh(self, step: int) -> Tensor:
        """A tensor of its own wherever it may be kept."""
        return tanh(self._sum_of(step))

    def _sum_of(self, step: int) -> Tensor:
        """What of queries and keys is in the tanh."""
        return torch.add(self.keys, self.queries[step, :, None], out=None if self._keep else self._sum)

    def _take_back(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """What else a look has read takes its gradient, from those of the energies (B, Tx) and tanh^2 (B, Tx, n')."""


class AdditiveAttention(Attention):
    """W_a, U_a and v_a, n' units."""

    looks_class = AdditiveLooks

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config.attention_temperature)
        size = config.attention_hidden
        self.query_weight = nn.Parameter(torch.empty(size, config.hidden))  # W_a
        self.key_weight = nn.Parameter(torch.empty(size, annotation_size))  # U_a
        self.vector = nn.Parameter(torch.empty(size))  # v_a

    def keys(self, annotations: Tensor) -> Tensor:
        """U_a annotations: (B, Tx, 2n) to (B, Tx, n')."""
        return F.linear(annotations, self.key_weight.to(annotations.dtype))

    def queries(self, states: Tensor) -> Tensor:
        """W_a s: (rows, n) to (rows, n')."""
        return F.linear(states, self.query_weight.to(states.dtype))

    def looks_parameters(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """W_a and v_a over the temperature."""
        return self.query_weight.to(dtype), self._energy_vector().to(dtype)

    def energies(self, queries: Tensor, keys: Tensor, covered: tuple[Tensor, Tensor] | None) -> Tensor:
        """On a CPU a few sentences at a time, so that what tanh reads and writes stays in the processor's cache."""
        _, length, size = keys.shape
        vector = _in_parts(self._energy_vector().to(keys.dtype))
        energies = queries.new_empty(*queries.shape[:2], length, dtype=wide(keys.dtype))
        for part, rows in _portions(energies.shape, size, keys.device.type == "cpu"):
            there = energies[part, rows]
            total = keys[part, None] + queries[part, rows, None]
            if covered is not None:
                coverage = covered[0].view(energies.shape)[part, rows, :, None]
                total += coverage.to(total.dtype) * covered[1]
            hidden = tanh(total, least=1).view(-1, size)
            there.copy_((hidden @ vector).sum(-1, dtype=there.dtype).view(there.shape))
        return energies

    def _energy_vector(self) -> Tensor:
        """v_a (n',) over the temperature: so no energy has to be divided."""
        return self.vector if self._temperature == 1 else self.vector / self._temperature


def _portions(shape: torch.Size, size: int, on_cpu: bool) -> Iterator[tuple[slice, slice]]:
    """(sentences, rows) of looks (B, rows, Tx), which together have about LOOK_CELLS numbers a portion."""
    sentences, rows, length = shape
    if not on_cpu:
        yield slice(None), slice(None)
        return
    most_rows = max(1, LOOK_CELLS // (length * size))
    step = max(1, most_rows // rows)  # sentences, each with all its rows, if they fit
    for start in range(0, sentences, step):
        for row in range(0, rows, min(rows, most_rows)):
            yield slice(start, start + step), slice(row, row + min(rows, most_rows))


def _in_parts(vector: Tensor) -> Tensor:
    """v_a (n',) as (n', P), whose product with a row gives P parts of an energy: of a narrow type they lose less.

    An energy rounded to bf16 at once was the larger half of bf16's error in a translation's log-probability.
    """
    if vector.dtype == wide(vector.dtype):
        return vector[:, None]
    numbers = torch.arange(len(vector), device=vector.device)
    return vector[:, None] * (numbers[:, None] % _PARTS == numbers[:_PARTS])
