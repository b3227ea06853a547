"""Luong et al.'s score "dot" (2015): energies[i, j] = s . keys[j], the state's own product with what stands at j."""

import torch
from torch import Tensor
from torch.nn import functional as F

from nmtalign.config import ModelConfig
from nmtalign.core.attention import LEAST_ROWS, Attention, Looks
from nmtalign.core.elementwise import wide

_LEAST_POSITIONS = 16  # a batched product of fewer columns is rounded differently


class DotLooks(Looks):
    """Products alone, so that nothing of the size of the keys is kept a step; their sums are wide beside bf16 too."""

    def __init__(
        self, keys: Tensor, annotations: Tensor, padding: Tensor | None, steps: int, differentiate: bool = True
    ) -> None:
        """keys (B, Tx, n) over the temperature; the rest as in `Looks`."""
        super().__init__(keys, annotations, padding, steps, differentiate)
        self._wide_keys = keys.to(self.weights.dtype)

    def energies(self, step: int, row: Tensor) -> Tensor:
        """s . keys."""
        return torch.bmm(self._wide_keys, row.to(self.weights.dtype)[:, :, None]).squeeze(2)

    def start_backward(self) -> None:
        """Makes room for the gradients."""
        super().start_backward()
        self._d_energies = torch.empty_like(self.weights)

    def energies_backward(self, step: int, d_energies: Tensor) -> Tensor:
        """The sum of d_energies * keys."""
        self._d_energies[step] = d_energies
        return torch.bmm(d_energies[:, None], self._wide_keys).squeeze(1)

    def d_keys(self, rows: Tensor) -> Tensor:
        """The sum over the steps of d_energies * s: one product (B, Tx, n)."""
        wide_rows = rows.transpose(0, 1).to(self.weights.dtype)
        return torch.bmm(self._d_energies.permute(1, 2, 0), wide_rows).to(self.keys.dtype)


class DotAttention(Attention):
    """No parameters: state and annotation must be of one size, which an annotation of both directions, 2n, is not.

    There the key is the sum of its two halves, forward_j + backward_j; with one direction it is the annotation itself.
    Contexts are made of whole annotations.
    """

    looks_class = DotLooks

    def __init__(self, config: ModelConfig, annotation_size: int) -> None:
        super().__init__(config.attention_temperature)
        self._size = config.hidden

    def keys(self, annotations: Tensor) -> Tensor:
        """The sum of the directions, over the temperature: (B, Tx, 2n) to (B, Tx, n)."""
        first, *others = annotations.split(self._size, -1)
        return self._over_temperature(first + others[0] if others else annotations)

    def energies(self, queries: Tensor, keys: Tensor, covered: tuple[Tensor, Tensor] | None) -> Tensor:
        """One product a sentence, of so many rows and positions that none depends on how many others there are."""
        rows, positions = queries.shape[1], keys.shape[1]
        queries, keys = queries.to(wide(keys.dtype)), keys.to(wide(keys.dtype))
        queries = F.pad(queries, (0, 0, 0, max(0, LEAST_ROWS - rows)))
        keys = F.pad(keys, (0, 0, 0, max(0, _LEAST_POSITIONS - positions)))
        return torch.bmm(queries, keys.mT)[:, :rows, :positions]

    def _over_temperature(self, keys: Tensor) -> Tensor:
        """Energies are linear in the keys: so none has to be divided."""
        return keys if self._temperature == 1 else keys / self._temperature
