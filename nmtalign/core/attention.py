"""Attention over the annotations (section 3.1), the paper's alignment model (appendix A.1.2), and other ones.

An alignment model computes energies from the decoder's state and the annotations. Their softmax are the weights
(equation 6), and the context is the sum of the annotations by their weights (equation 5). Each score is one function,
`energies`, of queries and keys; the keys are what no step changes. The scores "dot" and "general", and local attention,
are those of Luong et al. (2015); linguistic coverage is that of Tu et al. (2016).
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.numerics import (
    Initialised,
    Role,
    additive_energies,
    fused,
    in_partial_sums,
    over_steps,
    product,
    tanh_,
    wide,
)
from nmtalign.settings.training_settings import ModelConfig

KEPT_BYTES = 192 << 20  # bytes of tanh, B Tx n' elements per step; a backward pass computes that of other steps again
FERTILITY_LIMIT = 2.0  # N, the largest number of target words that a source word becomes, as in Tu et al. (2016)
R = TypeVar("R")


@dataclass(frozen=True)
class Memory:
    """The inputs of the decoder from B encoded sentences.

    `values` are summed up to contexts: the annotations (B, Tx, 2n), or, folded for search, the products (B, Tx, 3n +
    2l) of each annotation with the weights of the cell and of the readout. Without attention they are the fixed
    context (B, c) of each sentence, or its products (B, 3n + 2l).
    """

    values: Tensor
    keys: Tensor | None  # (B, Tx, n') U_a annotations (appendix A.1.2); (B, Tx, n) for other scores; None without any
    padding: Tensor | None  # (B, Tx), True = padding; None if there is none
    initial: Tensor  # (B, n), the first decoder state; (B, L S) of a stack of layers
    fertilities: Tensor | None = None  # (B, Tx), of the source words; None without coverage
    copies: Tensor | None = None  # (B, Tx), the id that a copying model copies from each place; None without copying


def select_rows(record: R, rows: Tensor) -> R:
    """Selects some of the rows of every tensor of a dataclass; its other fields stay."""
    selected = {name: part[rows] for name, part in vars(record).items() if isinstance(part, Tensor)}
    return cast(R, replace(cast(Any, record), **selected))


class Look(NamedTuple):
    """The result of an attention step for N rows."""

    context: Tensor  # (N, D)
    weights: Tensor | None  # (N, Tx); None without attention
    coverage: Tensor | None = None  # (N, Tx), after this step; None without coverage


class FixedContext(nn.Module):
    """The decoder of the RNNencdec does not attend: each step gets the same context (section 2.1)."""

    def look(self, memory: Memory, states: Tensor, coverage: Tensor | None, step: int) -> Look:
        return Look(memory.values.repeat_interleave(len(states) // len(memory.values), 0), None)


class Attention(Initialised, ABC):
    """A score, and attention to all positions."""

    @abstractmethod
    def keys(self, annotations: Tensor) -> Tensor:
        """The part of the energies that no step changes: (B, Tx, 2n) to (B, Tx, .)."""

    @abstractmethod
    def energies(self, states: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """The energies (B, R, Tx) of states (B, R, n) and keys (B, Tx, .); they are float32 also beside bf16.

        `coverage` (B, R, Tx) is that of the source words before the step, for `CoverageAttention`; None = 0.
        """

    def fertilities(self, annotations: Tensor) -> Tensor | None:
        """The fertilities (B, Tx) of annotations (B, Tx, 2n); None without coverage."""
        return None

    def look(self, memory: Memory, states: Tensor, coverage: Tensor | None, step: int) -> Look:
        """The weights (equation 6) and contexts (equation 5) of states (N, n), before which there were `step` steps.

        N = B * R: R adjacent rows share a sentence, such as the hypotheses of a beam.
        """
        by_sentence = len(memory.values), -1
        coverage = None if coverage is None else coverage.unflatten(0, by_sentence)
        energies = self.energies(states.unflatten(0, by_sentence), cast(Tensor, memory.keys), coverage)
        weights = _masked(energies, memory.padding).softmax(-1)
        return Look(_contexts(weights, memory.values), weights.flatten(0, 1))


class AdditiveAttention(Attention):
    """The paper's alignment model: v_a . tanh(W_a s + U_a annotations[j]) with n' units, without bias."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        size = config.attention_hidden
        self.query_weight = Role.ATTENTION.parameter(size, config.hidden)  # W_a
        self.key_weight = Role.ATTENTION.parameter(size, annotation_size)  # U_a
        self.vector = Role.ENERGY.parameter(size)  # v_a

    def keys(self, annotations: Tensor) -> Tensor:
        """U_a annotations: (B, Tx, 2n) to (B, Tx, n')."""
        return F.linear(annotations, self.key_weight)

    def energies(self, states: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """v_a . tanh(W_a s + keys)."""
        queries = F.linear(states, self.query_weight)
        if not torch.is_grad_enabled():
            return additive_energies(queries, keys, self.vector)
        return self.dots(queries[:, :, None] + keys[:, None])

    def dots(self, sums: Tensor) -> Tensor:
        """v_a . tanh(sums), for sums (B, R, Tx, n')."""
        vectors = in_partial_sums(self.vector.to(sums.dtype))
        return (sums.tanh() @ vectors).sum(-1, dtype=wide(sums.dtype))


class CoverageAttention(AdditiveAttention):
    """Linguistic coverage: energies[t, j] = v_a . tanh(W_a s + U_a annotations[j] + V_c coverage[t, j]).

    coverage[0] = 0 and coverage[t + 1, j] = coverage[t, j] + weights[t, j] / Phi_j. Phi_j = N sigmoid(U_f
    annotations[j]) is the fertility of a source word: the number of target words it becomes. A word with coverage 1 is
    translated completely.
    """

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, annotation_size)
        self.coverage_weight = Role.ATTENTION.parameter(config.attention_hidden, 1)  # V_c
        self.fertility_weight = Role.ATTENTION.parameter(1, annotation_size)  # U_f

    def fertilities(self, annotations: Tensor) -> Tensor:
        """Phi, float32 beside bf16 too."""
        products = F.linear(annotations, self.fertility_weight.to(annotations.dtype)).squeeze(-1)
        return FERTILITY_LIMIT * products.to(wide(products.dtype)).sigmoid()

    def energies(self, states: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """v_a . tanh(W_a s + keys + V_c coverage)."""
        if coverage is None:
            return super().energies(states, keys)
        queries = F.linear(states, self.query_weight)
        covered = coverage[..., None].to(keys.dtype) * self.coverage_weight[:, 0].to(keys.dtype)
        return self.dots(queries[:, :, None] + keys[:, None] + covered)

    def look(self, memory: Memory, states: Tensor, coverage: Tensor | None, step: int) -> Look:
        look = super().look(memory, states, coverage, step)
        fertilities = cast(Tensor, memory.fertilities).repeat_interleave(len(states) // len(memory.values), 0)
        added = cast(Tensor, look.weights) / fertilities
        return look._replace(coverage=added if coverage is None else coverage + added)


class DotAttention(Attention):
    """Luong et al.'s score "dot": no parameters, so state and key must have the same size n.

    With two directions the key is the sum of the two halves of an annotation, forward_j + backward_j; with one
    direction it is the annotation itself. Contexts are sums of complete annotations.
    """

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__()
        self._size = config.hidden

    def keys(self, annotations: Tensor) -> Tensor:
        """The sum of the directions: (B, Tx, 2n) to (B, Tx, n)."""
        first, *others = annotations.split(self._size, -1)
        return first + others[0] if others else annotations

    def energies(self, states: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        """s . keys."""
        dtype = wide(keys.dtype)
        return states.to(dtype) @ keys.to(dtype).mT


class GeneralAttention(DotAttention):
    """Luong et al.'s score "general": energies[i, j] = s . W_a annotations[j], with one parameter W_a (n, 2n)."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, annotation_size)
        self.key_weight = Role.ATTENTION.parameter(config.hidden, annotation_size)  # W_a

    def keys(self, annotations: Tensor) -> Tensor:
        """W_a annotations: (B, Tx, 2n) to (B, Tx, n)."""
        return F.linear(annotations, self.key_weight)


class PositionPredictor(Initialised):
    """The position to which local-p attends: p = S sigmoid(v_p . tanh(W_p state)), for a sentence of S words."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.weight = Role.MATRIX.parameter(config.attention_hidden, config.hidden)  # W_p
        self.vector = Role.ENERGY.parameter(config.attention_hidden)  # v_p

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """Positions (B, R) of states (B, R, n) and lengths (B,), at least in float32: bf16 would be off by words."""
        hidden = F.linear(states, self.weight).to(wide(states.dtype)).tanh()
        return lengths[:, None] * (hidden * self.vector).sum(-1).sigmoid()


class LocalAttention(Attention):
    """Attention to the positions within D of a position p, in whichever direction the encoder reads the sentence.

    In local-m p is the number of the target word, and at most that of the last source word. In local-p it is predicted,
    and the context is the sum of the annotations times softmax * exp(-(j - p)^2 / (2 sigma^2)), with sigma = D / 2. The
    sum of these factors is less than 1. The weights are the normalised factors: an alignment, as in every other model.
    """

    def __init__(self, score: Attention, config: ModelConfig) -> None:
        super().__init__()
        self.score, self._window = score, config.attention_window
        self.position = PositionPredictor(config) if config.attention_span == "local-p" else None

    def keys(self, annotations: Tensor) -> Tensor:
        return self.score.keys(annotations)

    def energies(self, states: Tensor, keys: Tensor, coverage: Tensor | None = None) -> Tensor:
        return self.score.energies(states, keys)

    def look(self, memory: Memory, states: Tensor, coverage: Tensor | None, step: int) -> Look:
        states = states.unflatten(0, (len(memory.values), -1))
        energies = _masked(self.energies(states, cast(Tensor, memory.keys)), memory.padding)
        lengths = energies.new_full((len(energies),), energies.shape[-1])
        if memory.padding is not None:
            lengths = lengths - memory.padding.sum(1)
        center = (lengths - 1).clamp_max(step)[:, None]
        if self.position is not None:
            center = self.position(states, lengths)
        offsets = torch.arange(energies.shape[-1], device=energies.device) - center[..., None]
        weights = factors = energies.masked_fill(offsets.abs() > self._window, -torch.inf).softmax(-1)
        if self.position is not None:
            factors = factors * torch.exp(-2 * (offsets / self._window) ** 2)
            weights = factors / factors.sum(-1, keepdim=True)
        return Look(_contexts(factors, memory.values), weights.flatten(0, 1))


SCORES: Mapping[str, Callable[[ModelConfig, int], Attention]] = {
    "additive": AdditiveAttention,
    "concat": AdditiveAttention,  # Luong et al.'s name for it
    "dot": DotAttention,
    "general": GeneralAttention,
}


def make_attention(config: ModelConfig, annotation_size: int) -> Attention | FixedContext:
    if config.attention == "none":
        return FixedContext()
    if config.coverage == "linguistic":
        return CoverageAttention(config, annotation_size)
    score = SCORES[config.attention](config, annotation_size)
    return score if config.attention_span == "global" else LocalAttention(score, config)


def _masked(energies: Tensor, padding: Tensor | None) -> Tensor:
    """Energies (B, R, Tx) with -inf at the padding (B, Tx)."""
    return energies if padding is None else energies.masked_fill(padding[:, None], -torch.inf)


def _contexts(factors: Tensor, values: Tensor) -> Tensor:
    """The sums (N, D) of values (B, Tx, D) by factors (B, R, Tx)."""
    return torch.bmm(factors.to(values.dtype), values).flatten(0, 1)


class AdditivePass:
    """The attention steps of one pass, which compute v_a . tanh(W_a s + keys) (appendix A.1.2), for B sentences."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        padding: Tensor | None,
        query_weight: Tensor,
        vector: Tensor,
        steps: int,
        differentiate: bool,
    ) -> None:
        self.keys, self.values, self.padding, self.query_weight = keys, values, padding, query_weight
        self.vector, self._differentiate = vector.to(keys.dtype), differentiate
        (batch, length, size), dtype = keys.shape, wide(keys.dtype)
        self.contexts = values.new_empty(steps, batch, values.shape[-1])
        self.weights = keys.new_empty(steps, batch, length, dtype=dtype)
        self.queries = keys.new_empty(steps, batch, size)
        self._partial_vectors = in_partial_sums(self.vector)
        self._first_kept = max(0, steps - KEPT_BYTES // max(1, keys.nbytes)) if differentiate else steps
        self._kept: dict[int, Tensor] = {}

    def forward(self, step: int, row: Tensor) -> None:
        """Fills the weights (equation 6) and the contexts (equation 5) of a step, for the states row (B, n)."""
        query = product(row, self.query_weight, out=self.queries[step])
        if self._differentiate:
            hidden = tanh_(self.keys + query[:, None])
            if step >= self._first_kept:
                self._kept[step] = hidden
            energies = (hidden @ self._partial_vectors).sum(-1, dtype=self.weights.dtype)
        else:
            energies = additive_energies(query[:, None], self.keys, self.vector)[:, 0]
        if self.padding is not None:
            energies = energies.masked_fill_(self.padding, -torch.inf)
        weights = torch.softmax(energies, -1, out=self.weights[step])
        torch.bmm(weights[:, None].to(self.values.dtype), self.values, out=self.contexts[step][:, None])

    def start_backward(self) -> None:
        self.d_contexts = torch.zeros_like(self.contexts)
        self._d_queries = torch.empty_like(self.queries)
        self._d_energies = torch.zeros_like(self.weights[0])
        self._weighted_squares = torch.zeros_like(self.keys, dtype=self.weights.dtype)
        self._wide_squares = torch.empty_like(self._weighted_squares)
        self._d_vector = torch.zeros_like(self.vector, dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        weights, total = self.weights[step], _dots(self.d_contexts[step], self.values).to(self.weights.dtype)
        total = total if d_weights is None else total + d_weights
        d_energies = weights * (total - (weights * total).sum(-1, keepdim=True))
        narrow = d_energies.to(self.queries.dtype)
        hidden = self._kept.pop(step, None)
        if hidden is None:
            hidden = tanh_(self.keys + self.queries[step][:, None])
        self._d_vector += (narrow.view(1, -1) @ hidden.view(-1, hidden.shape[-1]))[0]
        squares = hidden.square_()
        # The query's gradient sums d_energy * (1 - tanh^2) * v_a over the source. The d_energies of a softmax sum to
        # 0, so the 1 cancels; left in, rounding in bf16 would cost a tenth of the gradient.
        d_query = torch.bmm(narrow[:, None], squares, out=self._d_queries[step][:, None]).squeeze(1)
        d_query.mul_(self.vector).neg_()
        # The keys' gradient is v_a * (sum of d_energy - sum of d_energy * tanh^2), the sums over the steps.
        self._d_energies += d_energies
        wide_squares = squares if squares.dtype == d_energies.dtype else self._wide_squares.copy_(squares)
        self._weighted_squares.addcmul_(wide_squares, d_energies[..., None])
        return d_query @ self.query_weight

    def gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The gradients of keys, values, W_a and v_a, from the states (T, B, n), after all backward steps."""
        d_keys = self._weighted_squares.neg_().add_(self._d_energies[..., None]).mul_(self.vector).to(self.keys.dtype)
        d_values = torch.bmm(self.weights.permute(1, 2, 0).to(self.values.dtype), self.d_contexts.transpose(0, 1))
        return d_keys, d_values, over_steps(self._d_queries, rows), self._d_vector


def _fused_tanh(keys: Tensor, query: Tensor, dtype: torch.dtype) -> Tensor:
    """tanh(keys + query) = 2 sigmoid(2 (keys + query)) - 1, which a GPU computes in fewer operations than its tanh."""
    return 2 * (2 * (keys + query).to(dtype)).sigmoid() - 1


@fused
def _fused_weights(keys: Tensor, query: Tensor, vector: Tensor, padding: Tensor | None, weights: Tensor) -> Tensor:
    hidden = _fused_tanh(keys, query[:, None], weights.dtype)
    energies = (hidden * vector.to(weights.dtype)).sum(-1)
    if padding is not None:
        energies = energies.masked_fill(padding, -torch.inf)
    weights.copy_(energies.softmax(-1))
    return weights.to(keys.dtype)


@fused
def _fused_energy_gradient(weights: Tensor, total: Tensor, d_energies: Tensor) -> None:
    d_energies.copy_(weights * (total - (weights * total).sum(-1, keepdim=True)))


@fused
def _fused_query_gradient(
    keys: Tensor, query: Tensor, vector: Tensor, d_energies: Tensor, d_vectors: Tensor, d_query: Tensor
) -> None:
    """One kernel. With more than four tensors to read, the compiler would write the terms to memory, (B, Tx, n')."""
    hidden = _fused_tanh(keys, query[:, None], d_energies.dtype)
    terms = d_energies[..., None] * hidden
    d_vectors.add_(terms.sum(1))
    d_query.copy_((terms * hidden).sum(1) * -vector.to(terms.dtype))


@fused
def _fused_key_gradient(keys: Tensor, queries: Tensor, vector: Tensor, d_energies: Tensor) -> Tensor:
    hidden = _fused_tanh(keys, queries[:, :, None], d_energies.dtype)
    sums = ((1 - hidden * hidden) * d_energies[..., None]).sum(0)
    return (sums * vector.to(sums.dtype)).to(keys.dtype)


class FusedAdditivePass(AdditivePass):
    """As `AdditivePass`, in few kernels of a GPU: tanh is computed again where it is needed, not kept."""

    def forward(self, step: int, row: Tensor) -> None:
        query = product(row, self.query_weight, out=self.queries[step])
        weights = _fused_weights(self.keys, query, self.vector, self.padding, self.weights[step])
        torch.bmm(weights[:, None], self.values, out=self.contexts[step][:, None])

    def start_backward(self) -> None:
        self.d_contexts = torch.zeros_like(self.contexts)
        self._d_queries, self._d_energies = torch.empty_like(self.queries), torch.empty_like(self.weights)
        self._d_vectors = torch.zeros_like(self.queries[0], dtype=self.weights.dtype)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        total = _dots(self.d_contexts[step], self.values)
        total = total if d_weights is None else total + d_weights
        _fused_energy_gradient(self.weights[step], total, self._d_energies[step])
        gradients = self._d_energies[step], self._d_vectors, self._d_queries[step]
        _fused_query_gradient(self.keys, self.queries[step], self.vector, *gradients)
        return self._d_queries[step] @ self.query_weight

    def gradients(self, rows: Tensor) -> tuple[Tensor, ...]:
        """See `AdditivePass.gradients`; the gradient of the keys is computed here, without sums in memory."""
        d_keys = torch.empty_like(self.keys)
        most = max(1, KEPT_BYTES // (self.keys[0].nbytes * len(self.queries)))
        for part in (slice(start, start + most) for start in range(0, len(d_keys), most)):
            of_part = self.queries[:, part], self.vector, self._d_energies[:, part]
            d_keys[part] = _fused_key_gradient(self.keys[part], *of_part)
        d_values = torch.bmm(self.weights.permute(1, 2, 0).to(self.values.dtype), self.d_contexts.transpose(0, 1))
        return d_keys, d_values, over_steps(self._d_queries, rows), self._d_vectors.sum(0)


def _dots(vectors: Tensor, rows: Tensor) -> Tensor:
    """The dot products (B, R) of vectors (B, n) with their rows (B, R, n).

    In float32, MKL's product of a row and a matrix takes a ninth of the time of that of a matrix and a column.
    """
    if rows.dtype == torch.bfloat16:
        return torch.bmm(rows, vectors[:, :, None]).squeeze(2)
    return torch.bmm(vectors[:, None], rows.mT).squeeze(1)
