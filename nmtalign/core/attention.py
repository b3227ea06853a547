"""The alignment model: additive attention (PAPER section 2), one look at the source a step."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.cells import over_steps
from nmtalign.core.elementwise import tanh, wide


class AdditiveAttention(nn.Module):
    """energies[i, j] = v_a . tanh(W_a s_{i-1} + U_a annotations[j]), no bias; weights = softmax over j.

    With a temperature other than 1 the energies are divided by it first: below 1 the weights are sharper.
    """

    def __init__(self, state_size: int, annotation_size: int, size: int, temperature: float = 1.0) -> None:
        super().__init__()
        self._temperature = temperature
        self.query_weight = nn.Parameter(torch.empty(size, state_size))  # W_a
        self.key_weight = nn.Parameter(torch.empty(size, annotation_size))  # U_a
        self.vector = nn.Parameter(torch.empty(size))  # v_a

    def keys(self, annotations: Tensor) -> Tensor:
        """U_a annotations, which no step changes: (B, Tx, 2n) to (B, Tx, n')."""
        return F.linear(annotations, self.key_weight.to(annotations.dtype))

    def energy_vector(self) -> Tensor:
        """v_a (n',) over the temperature: so no energy has to be divided."""
        return self.vector if self._temperature == 1 else self.vector / self._temperature

    def look(
        self,
        query: Tensor,
        keys: Tensor,
        values: Tensor,
        padding: Tensor | None,
        covered: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(sums (rows, D) of values by weight, weights (rows, Tx)) of queries W_a s (rows, n'), without a gradient.

        Any number of adjacent rows share a sentence: keys (B, Tx, n'), values (B, Tx, D), padding (B, Tx). `covered`
        are the rows' coverage (rows, Tx) and V_c (n',) of a model that has it. On a CPU a few sentences at a time, so
        that what tanh reads and writes stays in the processor's cache.
        """
        sentences, length, size = keys.shape
        query = query.view(sentences, -1, size)
        vector = _in_parts(self.energy_vector().to(keys.dtype))
        energies = query.new_empty(*query.shape[:2], length, dtype=wide(keys.dtype))
        for part, rows in _portions(energies.shape, size, keys.device.type == "cpu"):
            there = energies[part, rows]
            total = keys[part, None] + query[part, rows, None]
            if covered is not None:  # in two operations: in one, the last numbers of a row may be rounded otherwise
                coverage = covered[0].view(energies.shape)[part, rows, :, None]
                total += coverage.to(total.dtype) * covered[1]
            hidden = tanh(total, least=1).view(-1, size)
            there.copy_(steady_product(hidden, vector).sum(-1, dtype=there.dtype).view(there.shape))
        if padding is not None:
            energies.masked_fill_(padding[:, None], -torch.inf)
        weights = F.pad(energies, (0, max(0, _SOFTMAX_WIDTH - length)), value=-torch.inf).softmax(-1)[..., :length]
        few = -query.shape[1] % ROWS if query.shape[1] < ROWS else 0
        sums = torch.bmm(F.pad(weights.to(values.dtype), (0, 0, 0, few)), values)[:, : query.shape[1]]
        return sums.flatten(0, 1), weights.flatten(0, 1)


def steady_product(rows: Tensor, weight: Tensor) -> Tensor:
    """rows (N, in) times weight (in, out); no row's result depends, to the last bit, on how many others there are.

    Fewer rows than four are multiplied otherwise than more, and so is what four does not divide of a column's product.
    """
    full = len(rows) - len(rows) % ROWS
    if full == len(rows):
        return rows @ weight
    rest = F.pad(rows[full:], (0, 0, 0, full + ROWS - len(rows))) @ weight
    return torch.cat([rows[:full] @ weight, rest[: len(rows) - full]]) if full else rest[: len(rows)]


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


_PARTS = 16
ROWS = 4  # of products, see `steady_product`
_SOFTMAX_WIDTH = 16  # a softmax over fewer is summed otherwise
LOOK_CELLS = 1 << 19  # numbers whose tanh is taken at a time
KEPT_BYTES = 96 << 20  # of tanh, B Tx T n' numbers; where it is more, the backward pass computes it again


class Looks:
    """The looks of one pass over T steps, forward and backward, over buffers for all of them."""

    def __init__(
        self,
        keys: Tensor,
        annotations: Tensor,
        vector: Tensor,
        query_weight: Tensor,
        padding: Tensor | None,
        steps: int,
        differentiate: bool = True,
    ) -> None:
        """keys (B, Tx, n'), annotations (B, Tx, D), vector (n',), query_weight (n', n), padding (B, Tx) or None."""
        batch, length, size = keys.shape
        self.keys, self.annotations, self.vector, self.padding = keys, annotations, vector, padding
        self._query_weight = query_weight
        self.queries = keys.new_empty(steps, batch, size)
        self.contexts = annotations.new_empty(steps, batch, annotations.shape[-1])
        self.weights = keys.new_empty(steps, batch, length, dtype=wide(keys.dtype))
        self._sum = torch.empty_like(keys)
        self._keep = differentiate and steps * keys.nbytes <= KEPT_BYTES
        self._hidden: dict[int, Tensor] = {}

    def forward(self, step: int, row: Tensor) -> Tensor:
        """The context (B, D) that the state row (B, n) sees."""
        query = torch.mm(row, self._query_weight.t(), out=self.queries[step])
        hidden = self._tanh(step)
        if self._keep:
            self._hidden[step] = hidden
        energies = (hidden.view(-1, query.shape[-1]) @ self.vector[:, None]).view(self.weights[step].shape)
        weights = self.weights[step].copy_(softmax(energies, self.padding))
        context = self.contexts[step]
        torch.bmm(weights.to(self.annotations.dtype)[:, None], self.annotations, out=context[:, None])
        return context

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        self.d_contexts = torch.empty_like(self.contexts)
        self._d_queries = torch.empty_like(self.queries)
        self._d_energies = torch.zeros_like(self.weights[0])
        self._weighted_squares = torch.zeros_like(self.keys, dtype=self.weights.dtype)
        self._wide_squares = torch.empty_like(self._weighted_squares)
        self._d_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state's row, once `d_contexts[step]` is there."""
        weights, d_context, query = self.weights[step], self.d_contexts[step], self.queries[step]
        total = torch.bmm(self.annotations, d_context[:, :, None]).squeeze(2).to(weights.dtype)
        if d_weights is not None:
            total += d_weights
        d_energies = weights * (total - (weights * total).sum(-1, keepdim=True))
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

    def d_keys(self) -> Tensor:
        """The gradient of the keys (B, Tx, n')."""
        total = self._weighted_squares.neg_().add_(self._d_energies[..., None]).mul_(self.vector)
        return total.to(self.keys.dtype)

    def d_annotations(self) -> Tensor:
        """That of the annotations (B, Tx, D), as the contexts read them: one product over all steps."""
        weights = self.weights.permute(1, 2, 0).to(self.d_contexts.dtype)
        return torch.bmm(weights, self.d_contexts.transpose(0, 1))

    def d_vector(self) -> Tensor:
        """That of v_a (n',)."""
        return self._d_vector.to(self.vector.dtype)

    def d_query_weight(self, rows: Tensor) -> Tensor:
        """That of W_a (n', n), from the rows (T, B, n) that looked."""
        return over_steps(self._d_queries, rows)

    def _tanh(self, step: int) -> Tensor:
        """A tensor of its own wherever it may be kept."""
        return tanh(self._sum_of(step))

    def _sum_of(self, step: int) -> Tensor:
        """What of queries and keys is in the tanh."""
        return torch.add(self.keys, self.queries[step, :, None], out=None if self._keep else self._sum)

    def _take_back(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """What else a look has read takes its gradient, from those of the energies (B, Tx) and tanh^2 (B, Tx, n')."""


def softmax(energies: Tensor, padding: Tensor | None) -> Tensor:
    """Weights over the last axis in float32 (float64 for float64), exactly 0 at padding."""
    energies = energies.to(wide(energies.dtype))
    return (energies if padding is None else energies.masked_fill(padding, -torch.inf)).softmax(-1)
