"""The processes that train one model together: one alone, or those that torchrun has started.

Every process knows the plan of an epoch and takes its own rows of each minibatch, so that together they make the very
updates that one process makes.
"""

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from nmtalign.config import Device
from nmtalign.core.devices import pick_device
from nmtalign.data.batches import Indices
from nmtalign.errors import NmtalignError, ResourceError, UsageError


class World:
    """A single process: it has all the work, and nobody to agree with."""

    rank = 0
    size = 1
    alone = True  # no gradient is reduced
    update = 0  # the one that is being made, for the others to know

    def __init__(self, device: torch.device) -> None:
        self.device = device

    @property
    def first(self) -> bool:
        """Whether this is the process that writes files and speaks."""
        return self.rank == 0

    def share(self, indices: Indices) -> Indices:
        """This process' rows of a minibatch: every `size`-th, so that all get as many short as long ones of it."""
        return indices[self.rank :: self.size]

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums over the processes."""
        return list(values)

    def highest(self, values: Sequence[float]) -> list[float]:
        """The highest values over the processes."""
        return list(values)

    def meet(self) -> None:
        """Waits until every process has come here."""

    def gather(self, texts: Sequence[str]) -> list[list[str]]:
        """The texts of every process, by rank."""
        return [list(texts)]

    def spread(self, optimizer: torch.optim.Optimizer) -> None:
        """Gives every process the optimiser's state of the first."""

    def parallel(self, module: nn.Module) -> nn.Module:
        """The module, its weights those of the first process, its gradients averaged over the processes."""
        return module

    def unreduced(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        """A context in which a `parallel` module's gradients are summed up in each process alone."""
        return contextlib.nullcontext()

    def writing(self) -> contextlib.AbstractContextManager[Any]:
        """A context in which this process is not ended for another's death."""
        return contextlib.nullcontext()

    def together(self) -> contextlib.AbstractContextManager[None]:
        """A context around all the work: an error that leaves it ends the other processes too."""
        return contextlib.nullcontext()

    def close(self) -> None:
        """Waits until all are done, and parts from them."""


class EndedTogetherError(NmtalignError):
    """This process ends for a reason that another one says."""

    def __init__(self, code: int) -> None:
        super().__init__("ended with the other processes")
        self.exit_code = code


def said_for_all(error: BaseException) -> BaseException:
    """The error, marked as the one that its process says for all of them."""
    error.__dict__["said_for_all"] = True
    return error


def is_said_for_all(error: BaseException) -> bool:
    """Whether the processes have agreed that the one with this error speaks."""
    return "said_for_all" in error.__dict__


@dataclass(frozen=True)
class Seat:
    """A process' place among those that train together, as torchrun's environment describes it."""

    rank: int
    size: int
    local_rank: int
    address: str
    port: int
    agent: bool  # whether torchrun keeps the store, or rank 0 must
    attempt: str

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Seat | None":
        """The place that the environment describes; None for a process on its own. Raises UsageError if it is amiss."""
        try:
            size = int(environment.get("WORLD_SIZE", "1"))
            if size == 1:
                return None
            seat = cls(
                int(environment["RANK"]),
                size,
                int(environment.get("LOCAL_RANK", "0")),
                environment["MASTER_ADDR"],
                int(environment["MASTER_PORT"]),
                environment.get("TORCHELASTIC_USE_AGENT_STORE") == "True",
                environment.get("TORCHELASTIC_RESTART_COUNT", "0"),
            )
        except KeyError as error:
            raise UsageError(f"WORLD_SIZE is set but {error.args[0]} is not; start the processes by torchrun") from None
        except ValueError as error:
            raise UsageError(f"RANK, WORLD_SIZE, LOCAL_RANK or MASTER_PORT: {error}; use torchrun") from None
        if not 0 <= seat.rank < size:
            raise UsageError(f"RANK = {seat.rank}: must be from 0 to WORLD_SIZE - 1 = {size - 1}; use torchrun")
        return seat


def open_world(device: Device, lose: Callable[[str, int], None]) -> World:
    """The processes that the environment describes; each has a GPU of its own, or its share of the CPU.

    `lose(line, code)` is called in another thread when one of the others is lost, and is to end this process, having
    said the line unless it is empty. Raises ResourceError where they cannot meet or have too few GPUs.
    """
    seat = Seat.of(os.environ)
    if seat is None:
        return World(pick_device(device))
    if not torch.distributed.is_available():
        raise UsageError("this PyTorch is built without torch.distributed; train with one process")
    from nmtalign.training.ranks import Ranks

    try:
        return Ranks(seat, device, lose)
    except (RuntimeError, ValueError) as error:
        where, reason = f"{seat.address}:{seat.port}", " ".join(str(error).split())[:200]
        failure = ResourceError(f"rank {seat.rank} cannot join the other processes at {where}: {reason}")
        raise said_for_all(failure) if is_said_for_all(error) else failure from None
