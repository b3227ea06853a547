"""Attention over the annotations (section 3.1), and the paper's alignment model (appendix A.1.2).

An alignment model computes energies from the decoder's state and the annotations. Their softmax are the weights
(equation 6), and the context is the sum of the annotations by their weights (equation 5). The paper's energies are
v_a . tanh(W_a s_{i-1} + U_a annotations[j]), without bias.

An alignment model is two classes. The `Attention` has the parameters, and computes the keys once per sentence. Its
`AttentionPass` runs the attention steps of one pass, forward and, in training, backward. Other alignment models are in
`attention_variants`.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.functional import dots, over_steps, product, tanh, wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig

# MKL's strict reproducibility does not include batched products: those of fewer rows or positions are rounded
# differently, and so is a softmax over fewer positions.
MIN_ROWS, MIN_POSITIONS = 4, 16
KEPT_BYTES = 192 << 20  # of tanh, B Tx n' elements per step; the backward pass computes that of the other steps again
_CACHED_ELEMENTS = 1 << 19  # whose tanh is computed together, so that they stay in the processor's cache
_PARTIAL_SUMS = 16

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)


@dataclass(frozen=True)
class Encoded:
    """The results of an encoder for B sentences."""

    annotations: Tensor  # (B, Tx, D)
    finals: tuple[
        Tensor, ...
    ]  # (B, S), the last state of each layer; of a bidirectional layer that of its backward net


@dataclass(frozen=True)
class Memory:
    """What the decoder reads of B encoded sentences.

    `values` are summed up to contexts: the annotations (B, Tx, 2n), or, folded for search, the products (B, Tx, 3n +
    2l) of each annotation with the weights of the cell and of the readout. Without attention they are the fixed
    context (B, c) of each sentence, or its products (B, 3n + 2l).
    """

    values: Tensor
    keys: Tensor | None  # (B, Tx, n') U_a annotations (equation 6); (B, Tx, n) for other scores; None without attention
    padding: Tensor | None  # (B, Tx), True = padding; None if there is none
    initial: Tensor  # (B, n), the first decoder state; (B, L S) of a stack of layers
    shares: Tensor | None = None  # (B, Tx), what a weight of 1 adds to a word's coverage; None without coverage
    copies: Tensor | None = None  # (B, Tx), the id that a copying model copies from each place; None without copying

    def select(self, sentences: Tensor | slice) -> "Memory":
        """The memory of some of the sentences (indices)."""
        return select_rows(self, sentences)


def select_rows(record: "R", rows: Tensor | slice) -> "R":
    """Selects some of the rows of every tensor of a dataclass; the fields are tensors or None."""
    parts = {field.name: getattr(record, field.name) for field in fields(record)}
    return replace(record, **{name: part[rows] for name, part in parts.items() if part is not None})


def extended(x: Tensor, least: int) -> Tensor:
    """x (..., R, d) with zeros after the last row, if there are fewer than `least`; see MIN_ROWS."""
    return F.pad(x, (0, 0, 0, least - x.shape[-2])) if x.shape[-2] < least else x


@dataclass(frozen=True)
class AttentionInputs:
    """The arguments of an `AttentionPass` over T steps.

    There are N = B * R rows: R adjacent rows share a sentence, such as the hypotheses of a beam. The backward pass
    needs R = 1.
    """

    memory: Memory
    parameters: tuple[Tensor, ...]  # the tensors of `Attention.parameters_in`
    rows: int  # N
    steps: int = 1  # T
    differentiate: bool = False  # whether a backward pass follows
    coverage: Tensor | None = None  # (N, Tx) before the first step; None = zero
    position: Tensor | None = None  # (N,) steps before the first one, in local-m attention
    window: int = 0  # of local attention
    kept_bytes: int = KEPT_BYTES


class AttentionPass(ABC):
    """The attention steps of one pass, forward and backward, with buffers for all of them."""

    def __init__(self, inputs: AttentionInputs) -> None:
        memory = inputs.memory
        if memory.keys is None:
            raise ValueError("the memory of a model without attention cannot be attended to")
        self.keys, self.values, self.padding = memory.keys, memory.values, memory.padding
        self.batch, self.length, _ = self.keys.shape
        self.rows_each, self.differentiate = inputs.rows // self.batch, inputs.differentiate
        self.contexts = self.values.new_empty(inputs.steps, inputs.rows, self.values.shape[-1])
        self.weights = self.keys.new_empty(inputs.steps, inputs.rows, self.length, dtype=wide(self.keys.dtype))
        self.shares = self.weights  # the factors of the values in the contexts

    @abstractmethod
    def energies(self, step: int, row: Tensor) -> Tensor:
        """The energies (B, R, Tx), wide, of the states row (N, n)."""

    @abstractmethod
    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """The gradient (B, n) of the state from that of its energies (B, Tx); accumulates the other gradients."""

    @abstractmethod
    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, .), from the states (T, B, n) of all steps, after all backward steps."""

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of the tensors of `Attention.parameters_in`, likewise."""
        return ()

    def forward(self, step: int, row: Tensor) -> None:
        """Fills the weights (equation 6) and the contexts (equation 5) of a step, for the states row (N, n)."""
        energies = self._masked(step, row, self.energies(step, row))
        weights = self.weights[step].view(energies.shape)
        contexts = self.contexts[step].view(self.batch, self.rows_each, -1)
        if self.differentiate:
            torch.softmax(energies, -1, out=weights)
        else:  # padded, so that no row depends on the shape of its batch
            positions = max(0, MIN_POSITIONS - self.length)
            weights.copy_(F.pad(energies, (0, positions), value=-torch.inf).softmax(-1)[..., : self.length])
        narrow = self._rescaled(step).view(energies.shape).to(self.values.dtype)
        if not self.differentiate and self.rows_each < MIN_ROWS:
            contexts.copy_(torch.bmm(extended(narrow, MIN_ROWS), self.values)[:, : self.rows_each])
        else:
            torch.bmm(narrow, self.values, out=contexts)

    def _masked(self, step: int, row: Tensor, energies: Tensor) -> Tensor:
        """The energies (B, R, Tx), -inf where there is nothing to attend to."""
        return energies if self.padding is None else energies.masked_fill(self.padding[:, None], -torch.inf)

    def _rescaled(self, step: int) -> Tensor:
        """The `shares` (N, Tx) of a step, once its weights are a softmax."""
        return self.weights[step]

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_contexts = torch.zeros_like(self.contexts)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        d_shares = dots(self.d_contexts[step], self.values).to(self.weights.dtype)
        return self.energies_backward(step, self._d_energies_of(step, d_shares, d_weights))

    def _d_energies_of(self, step: int, d_shares: Tensor, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, Tx) of the energies from those of `shares` and of the weights."""
        weights, total = self.weights[step], d_shares if d_weights is None else d_shares + d_weights
        return weights * (total - (weights * total).sum(-1, keepdim=True))

    def gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of keys, values and parameters, from the states (T, B, n), after all backward steps."""
        return self.d_keys(rows), self.d_values(), *self.d_parameters(rows)

    def d_values(self) -> Tensor:
        """The gradient of the values (B, Tx, D) through the contexts: one product over all steps."""
        shares = self.shares.permute(1, 2, 0).to(self.d_contexts.dtype)
        return torch.bmm(shares, self.d_contexts.transpose(0, 1))

    def new_coverage(self, step: int) -> Tensor | None:
        """The coverage (N, Tx) after a step; None for an alignment model that does not depend on it."""
        return None


class Attention(Initialised, ABC):
    """The parameters of an alignment model."""

    roles: ClassVar[Mapping[str, Role]] = {
        "query_weight": Role.ATTENTION,
        "key_weight": Role.ATTENTION,
        "vector": Role.ENERGY,
    }
    pass_class: ClassVar[type[AttentionPass]]

    @abstractmethod
    def keys(self, annotations: Tensor) -> Tensor:
        """The part of the energies that no step changes: (B, Tx, 2n) to (B, Tx, .)."""

    def parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The parameters of a pass, in a dtype, in the order of `AttentionPass.d_parameters`."""
        return ()


class AdditiveAttentionPass(AttentionPass):
    """Each step computes tanh for n' units at every source position."""

    def __init__(self, inputs: AttentionInputs) -> None:
        super().__init__(inputs)
        self.query_weight, self.vector, *_ = inputs.parameters
        self._partial_vectors = _in_partial_sums(self.vector)
        self.queries = self.keys.new_empty(inputs.steps, inputs.rows, self.keys.shape[2])
        kept_steps = inputs.kept_bytes // self.keys.nbytes if self.differentiate else 0
        self._first_kept = max(0, inputs.steps - kept_steps)
        self._kept: dict[int, Tensor] = {}

    def energies(self, step: int, row: Tensor) -> Tensor:
        """v_a . tanh(W_a s + keys); without a backward pass on a CPU a few sentences at a time."""
        product(row, self.query_weight, out=self.queries[step])
        energies = self.weights.new_empty(self.batch, self.rows_each, self.length)
        for sentences, rows in self._portions():
            there = energies[sentences, rows]
            hidden = tanh(self._sums(step, sentences, rows))
            if self.differentiate and step >= self._first_kept:
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
        hidden = self._kept.pop(step, None)
        if hidden is None:
            hidden = tanh(self._sums(step, slice(None), slice(None)))
        hidden = hidden.view(self.keys.shape)
        self._d_vector += (narrow.view(1, -1) @ hidden.view(-1, hidden.shape[-1]))[0]
        squares = hidden.square_()
        # The query's gradient sums d_energy * (1 - tanh^2) * v_a over the source. The d_energies of a softmax sum to
        # 0, so the 1 cancels; left in, rounding in bf16 would cost a tenth of the gradient.
        d_query = torch.bmm(narrow[:, None], squares, out=self._d_queries[step][:, None]).squeeze(1)
        d_query.mul_(self.vector).neg_()
        # That of the keys is v_a * (sum of d_energy - sum of d_energy * tanh^2), the sums over the steps.
        self._d_energies += d_energies
        wide_squares = squares if squares.dtype == d_energies.dtype else self._wide_squares.copy_(squares)
        self._weighted_squares.addcmul_(wide_squares, d_energies[..., None])
        self._coverage_backward(step, d_energies, squares)
        return d_query @ self.query_weight

    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, n')."""
        total = self._weighted_squares.neg_().add_(self._d_energies[..., None]).mul_(self.vector)
        return total.to(self.keys.dtype)

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of W_a (n', n) and v_a (n',)."""
        return over_steps(self._d_queries, rows), self._d_vector.to(self.vector.dtype)

    def _portions(self) -> Iterator[tuple[slice, slice]]:
        """(sentences, rows of each) that are computed together."""
        if self.differentiate or self.keys.device.type != "cpu":
            yield slice(None), slice(None)
            return
        most_rows = max(1, _CACHED_ELEMENTS // (self.length * self.keys.shape[2]))
        sentences = max(1, most_rows // self.rows_each)  # each with all its rows, if they fit
        rows = min(self.rows_each, most_rows)
        for start in range(0, self.batch, sentences):
            for row in range(0, self.rows_each, rows):
                yield slice(start, start + sentences), slice(row, row + rows)

    def _sums(self, step: int, sentences: slice, rows: slice) -> Tensor:
        """W_a s + keys of some sentences and rows, (b, r, Tx, n')."""
        queries = self.queries[step].view(self.batch, self.rows_each, -1)
        return self.keys[sentences, None] + queries[sentences, rows, None]

    def _coverage_backward(self, step: int, d_energies: Tensor, squares: Tensor) -> None:
        """Takes the gradient of the coverage from those of the energies (B, Tx) and tanh^2 (B, Tx, n')."""


class AdditiveAttention(Attention):
    """The paper's alignment model: W_a, U_a and v_a with n' units."""

    pass_class = AdditiveAttentionPass

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        size = config.attention_hidden
        self.query_weight = nn.Parameter(torch.empty(size, config.hidden))  # W_a
        self.key_weight = nn.Parameter(torch.empty(size, annotation_size))  # U_a
        self.vector = nn.Parameter(torch.empty(size))  # v_a

    def keys(self, annotations: Tensor) -> Tensor:
        """U_a annotations: (B, Tx, 2n) to (B, Tx, n')."""
        return F.linear(annotations, self.key_weight.to(annotations.dtype))

    def parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """W_a and v_a."""
        return self.query_weight.to(dtype), self.vector.to(dtype)


def _in_partial_sums(vector: Tensor) -> Tensor:
    """v_a (n',) as (n', P), whose product with a row gives P partial sums of an energy; P = 1 in float32.

    An energy that is rounded to bf16 only once, at the end, was the larger half of the error of bf16 in the
    log-probability of a translation.
    """
    if vector.dtype == wide(vector.dtype):
        return vector[:, None]
    units = torch.arange(len(vector), device=vector.device)
    return vector[:, None] * (units[:, None] % _PARTIAL_SUMS == units[:_PARTIAL_SUMS])
