"""What every alignment model has (PAPER section 2): a softmax over the source's energies, and the sums that it weighs.

A score, what makes the energies, is a file of its own with two classes: an `Attention`, which has the parameters and
looks without a gradient, and its `Looks`, which go forward and backward through a pass. `nmtalign.core.kinds` names it.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nmtalign.core.elementwise import wide

# MKL's strict reproducibility leaves batched products out: those of fewer rows are rounded differently.
LEAST_ROWS = 4
_SOFTMAX_WIDTH = 16  # a softmax over fewer is summed otherwise


class Attention(nn.Module, ABC):
    """One look at the source a step: weights = softmax over j of energies[i, j], context = sum_j weights annotations.

    With a temperature other than 1 the energies are divided by it first: below 1 the weights are sharper.
    """

    looks_class: type["Looks"]

    def __init__(self, temperature: float = 1.0) -> None:
        super().__init__()
        self._temperature = temperature

    @abstractmethod
    def keys(self, annotations: Tensor) -> Tensor:
        """What energies are made of and no step changes: (B, Tx, 2n) to (B, Tx, .)."""

    def queries(self, states: Tensor) -> Tensor:
        """What the energies read of states (rows, n): (rows, .)."""
        return states

    @abstractmethod
    def energies(self, queries: Tensor, keys: Tensor, covered: tuple[Tensor, Tensor] | None) -> Tensor:
        """Energies (B, R, Tx), wide, over the temperature, of queries (B, R, .) and keys (B, Tx, .); no gradient.

        `covered` as in `look`; only a score that coverage goes with is given any.
        """

    def looks_parameters(self, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """What `looks_class` reads beside keys and annotations, in a type; in the order of `Looks.d_parameters`."""
        return ()

    def look(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        padding: Tensor | None,
        covered: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(sums (rows, D) of values by weight, weights (rows, Tx)) of queries (rows, .), without a gradient.

        Any number of adjacent rows share a sentence: keys (B, Tx, .), values (B, Tx, D), padding (B, Tx). `covered`
        are the rows' coverage (rows, Tx) and V_c (n',) of a model that has it.
        """
        sentences, length, size = keys.shape
        queries = queries.view(sentences, -1, size)
        energies = self.energies(queries, keys, covered)
        if padding is not None:
            energies.masked_fill_(padding[:, None], -torch.inf)
        weights = F.pad(energies, (0, max(0, _SOFTMAX_WIDTH - length)), value=-torch.inf).softmax(-1)[..., :length]
        few = max(0, LEAST_ROWS - queries.shape[1])
        sums = torch.bmm(F.pad(weights.to(values.dtype), (0, 0, 0, few)), values)[:, : queries.shape[1]]
        return sums.flatten(0, 1), weights.flatten(0, 1)


class Looks(ABC):
    """The looks of one pass over T steps, forward and backward, over buffers for all of them."""

    def __init__(
        self, keys: Tensor, annotations: Tensor, padding: Tensor | None, steps: int, differentiate: bool = True
    ) -> None:
        """keys (B, Tx, .), annotations (B, Tx, D), padding (B, Tx) or None."""
        batch, length, _ = keys.shape
        self.keys, self.annotations, self.padding = keys, annotations, padding
        self.contexts = annotations.new_empty(steps, batch, annotations.shape[-1])
        self.weights = keys.new_empty(steps, batch, length, dtype=wide(keys.dtype))

    @abstractmethod
    def energies(self, step: int, row: Tensor) -> Tensor:
        """The energies (B, Tx) of the state row (B, n)."""

    @abstractmethod
    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """The gradient (B, n) of the state's row from that of its energies (B, Tx); keeps what the others need."""

    @abstractmethod
    def d_keys(self, rows: Tensor) -> Tensor:
        """The gradient of the keys (B, Tx, .), from the rows (T, B, n) that looked, when all have gone back."""

    def d_parameters(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Those of the score's own parameters, likewise."""
        return ()

    def forward(self, step: int, row: Tensor) -> Tensor:
        """The context (B, D) that the state row (B, n) sees."""
        weights = self.weights[step].copy_(softmax(self.energies(step, row), self.padding))
        context = self.contexts[step]
        torch.bmm(weights.to(self.annotations.dtype)[:, None], self.annotations, out=context[:, None])
        return context

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        self.d_contexts = torch.empty_like(self.contexts)

    def backward(self, step: int, d_weights: Tensor | None) -> Tensor:
        """The gradient (B, n) of the state's row, once `d_contexts[step]` is there."""
        weights, d_context = self.weights[step], self.d_contexts[step]
        total = torch.bmm(self.annotations, d_context[:, :, None]).squeeze(2).to(weights.dtype)
        if d_weights is not None:
            total += d_weights
        return self.energies_backward(step, weights * (total - (weights * total).sum(-1, keepdim=True)))

    def d_annotations(self) -> Tensor:
        """The gradient of the annotations (B, Tx, D), as the contexts read them: one product over all steps."""
        weights = self.weights.permute(1, 2, 0).to(self.d_contexts.dtype)
        return torch.bmm(weights, self.d_contexts.transpose(0, 1))


def softmax(energies: Tensor, padding: Tensor | None) -> Tensor:
    """Weights over the last axis in float32 (float64 for float64), exactly 0 at padding."""
    energies = energies.to(wide(energies.dtype))
    return (energies if padding is None else energies.masked_fill(padding, -torch.inf)).softmax(-1)
