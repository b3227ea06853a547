"""Attention over the annotations (section 3.1): a softmax over energies, and the context that the weights sum up.

An alignment model is two classes. The `Attention` has the parameters, and computes the keys once per sentence. Its
`AttentionPass` runs the attention steps of one pass, forward and, in training, backward. The scores of Luong et al.
(2015), "dot" and "general", are here; the paper's own score is in `additive_attention`.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, ClassVar, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.functional import wide
from nmtalign.core.initialisation import Initialised, Role
from nmtalign.settings.training_settings import ModelConfig

# MKL's strict reproducibility does not include batched products: those of fewer rows or positions are rounded
# differently, and so is a softmax over fewer positions.
MIN_ROWS, _MIN_POSITIONS = 4, 16

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    R = TypeVar("R", bound=DataclassInstance)


@dataclass(frozen=True)
class Memory:
    """What the decoder reads of B encoded sentences.

    `values` are what a context is a weighted sum of: the annotations (B, Tx, 2n), or, folded for search, what the
    cell's candidate and gates and the readout compute from each annotation, (B, Tx, 3n + 2l). Without attention they
    are the fixed context (B, c) of each sentence, or its folded form (B, 3n + 2l).
    """

    values: Tensor
    keys: Tensor | None  # (B, Tx, n') U_a annotations (equation 6); (B, Tx, n) for other scores; None without attention
    padding: Tensor | None  # (B, Tx), True = padding; None where there is none
    initial: Tensor  # (B, n), the first decoder state
    shares: Tensor | None = None  # (B, Tx), what a weight of 1 adds to a word's coverage; None without coverage

    def select(self, sentences: Tensor | slice) -> "Memory":
        """The memory of some of the sentences (indices)."""
        return select_rows(self, sentences)


def select_rows(record: "R", rows: Tensor | slice) -> "R":
    """A dataclass of tensors (or None) with the same first dimension, as one of some of the rows."""
    parts = {field.name: getattr(record, field.name) for field in fields(record)}
    return replace(record, **{name: part[rows] for name, part in parts.items() if part is not None})


class AttentionPass(ABC):
    """The attention steps of one pass over T steps, forward and backward, with buffers for all of them.

    There are N = B * R rows: R adjacent rows share a sentence, such as the hypotheses of a beam. The backward pass
    needs R = 1.
    """

    def __init__(
        self,
        memory: Memory,
        rows: int,
        steps: int,
        differentiate: bool,
        coverage: Tensor | None = None,
    ) -> None:
        """`memory` with keys; N rows; `coverage` (N, Tx) at the start, for a score that depends on it."""
        if memory.keys is None:
            raise ValueError("the memory of a model without attention cannot be attended to")
        self.keys, self.values, self.padding = memory.keys, memory.values, memory.padding
        batch, length, _ = self.keys.shape
        self.batch, self.rows_each, self.length = batch, rows // batch, length
        self.differentiate = differentiate
        self.contexts = self.values.new_empty(steps, rows, self.values.shape[-1])
        self.weights = self.keys.new_empty(steps, rows, length, dtype=wide(self.keys.dtype))

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
        energies = self.energies(step, row)
        if self.padding is not None:
            energies = energies.masked_fill(self.padding[:, None], -torch.inf)
        weights = self.weights[step].view(energies.shape)
        contexts = self.contexts[step].view(self.batch, self.rows_each, -1)
        if self.differentiate:
            torch.softmax(energies, -1, out=weights)
            torch.bmm(weights.to(self.values.dtype), self.values, out=contexts)
        else:  # padded, so that no row depends on the shape of its batch
            positions, rows = max(0, _MIN_POSITIONS - self.length), max(0, MIN_ROWS - self.rows_each)
            weights.copy_(F.pad(energies, (0, positions), value=-torch.inf).softmax(-1)[..., : self.length])
            narrow = F.pad(weights.to(self.values.dtype), (0, 0, 0, rows))
            contexts.copy_(torch.bmm(narrow, self.values)[:, : self.rows_each])

    def start_backward(self) -> None:
        """Allocates the gradients."""
        self.d_contexts = torch.empty_like(self.contexts)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state of a step, once `d_contexts[step]` is complete."""
        weights, d_context = self.weights[step], self.d_contexts[step]
        total = torch.bmm(self.values, d_context[:, :, None]).squeeze(2).to(weights.dtype)
        if d_weights is not None:
            total += d_weights
        return self.energies_backward(step, weights * (total - (weights * total).sum(-1, keepdim=True)))

    def d_values(self) -> Tensor:
        """The gradient of the values (B, Tx, D) through the contexts: one product over all steps."""
        weights = self.weights.permute(1, 2, 0).to(self.d_contexts.dtype)
        return torch.bmm(weights, self.d_contexts.transpose(0, 1))

    def new_coverage(self, step: int) -> Tensor | None:
        """The coverage (N, Tx) after a step; None for a score that does not depend on it."""
        return None


class Attention(Initialised, ABC):
    """The parameters of an alignment model, which computes energies from a state and the keys of the annotations.

    Energies are divided by the temperature before the softmax: below 1 the weights are sharper.
    """

    roles: ClassVar[Mapping[str, Role]] = {
        "query_weight": Role.ATTENTION,
        "key_weight": Role.ATTENTION,
        "vector": Role.ENERGY,
    }
    pass_class: type[AttentionPass]

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self._temperature = temperature

    @abstractmethod
    def keys(self, annotations: Tensor) -> Tensor:
        """The part of the energies that no step changes: (B, Tx, 2n) to (B, Tx, .)."""

    def parameters_in(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The tensors that `begin` takes, in a dtype, in the order of `AttentionPass.d_parameters`."""
        return ()

    def begin(
        self,
        memory: Memory,
        rows: int,
        steps: int,
        differentiate: bool,
        coverage: Tensor | None,
        parameters: tuple[Tensor, ...],
    ) -> AttentionPass:
        """A pass of this attention, with arguments as in `AttentionPass`."""
        return self.pass_class(memory, rows, steps, differentiate, coverage, *parameters)


class DotAttentionPass(AttentionPass):
    """energies[i, j] = s . keys[j] (Luong et al. 2015); the sums are wide beside bf16 too."""

    def __init__(
        self, memory: Memory, rows: int, steps: int, differentiate: bool, coverage: Tensor | None = None
    ) -> None:
        super().__init__(memory, rows, steps, differentiate)
        self._wide_keys = self.keys.to(self.weights.dtype)

    def energies(self, step: int, row: Tensor) -> Tensor:
        """s . keys."""
        queries = row.to(self.weights.dtype).view(self.batch, self.rows_each, -1)
        keys = self._wide_keys
        if not self.differentiate:
            queries = F.pad(queries, (0, 0, 0, max(0, MIN_ROWS - self.rows_each)))
            keys = F.pad(keys, (0, 0, 0, max(0, _MIN_POSITIONS - self.length)))
        return torch.bmm(queries, keys.mT)[:, : self.rows_each, : self.length]

    def start_backward(self) -> None:
        """Allocates the gradients."""
        super().start_backward()
        self._d_energies = torch.empty_like(self.weights)

    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """The sum of d_energies * keys over the positions."""
        self._d_energies[step] = d_energies
        return torch.bmm(d_energies[:, None], self._wide_keys).squeeze(1)

    def d_keys(self, rows: Tensor) -> Tensor:
        """The sum of d_energies * s over the steps: one product (B, Tx, n)."""
        wide_rows = rows.transpose(0, 1).to(self.weights.dtype)
        return torch.bmm(self._d_energies.permute(1, 2, 0), wide_rows).to(self.keys.dtype)


class DotAttention(Attention):
    """Luong et al.'s score "dot": no parameters, so state and key must have the same size n.

    With two directions the key is the sum of the two halves of an annotation, forward_j + backward_j; with one
    direction it is the annotation itself. Contexts are sums of whole annotations.
    """

    pass_class = DotAttentionPass

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config.attention_temperature)
        self._size = config.hidden

    def keys(self, annotations: Tensor) -> Tensor:
        """The sum of the directions, over the temperature: (B, Tx, 2n) to (B, Tx, n)."""
        first, *others = annotations.split(self._size, -1)
        return self._over_temperature(first + others[0] if others else annotations)

    def _over_temperature(self, keys: Tensor) -> Tensor:
        """Energies are linear in the keys, so dividing the keys divides the energies."""
        return keys if self._temperature == 1 else keys / self._temperature


class GeneralAttention(DotAttention):
    """Luong et al.'s score "general": energies[i, j] = s . W_a annotations[j], with one parameter W_a (n, 2n)."""

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config, annotation_size)
        self.key_weight = nn.Parameter(torch.empty(config.hidden, annotation_size))  # W_a

    def keys(self, annotations: Tensor) -> Tensor:
        """W_a annotations, over the temperature: (B, Tx, 2n) to (B, Tx, n)."""
        return self._over_temperature(F.linear(annotations, self.key_weight.to(annotations.dtype)))
