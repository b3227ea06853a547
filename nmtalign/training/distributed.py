"""The processes that train one model together: one alone, or those that torchrun has started."""

from collections.abc import Sequence

import torch
from torch import nn

from nmtalign.data.batches import Indices


class World:
    """A single process: it has all the work, and nobody to agree with."""

    rank = 0
    size = 1

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def share(self, indices: Indices) -> Indices:
        """This process' part: every `size`-th, so that all get as many short as long ones of a sorted batch."""
        return indices[self.rank :: self.size]

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over the processes."""
        return list(values)

    def highest(self, values: Sequence[float]) -> list[float]:
        """The highest values over the processes."""
        return list(values)

    def gather(self, texts: Sequence[str]) -> list[list[str]]:
        """The texts of every process, by rank."""
        return [list(texts)]

    def parallel(self, module: nn.Module) -> nn.Module:
        """The module with its gradients averaged over the processes."""
        return module
