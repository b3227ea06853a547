"""The processes that train one model together: a single one, or those that torchrun has started.

Every process knows the plan of an epoch and computes its own rows of each minibatch. The gradients are summed over the
processes, so that together they make the updates that one process would make.

If a process dies, torchrun ends the others of its machine. A collective operation fails if a connection breaks, or
after a timeout. Only where rank 0 may be writing files to a slow disk, the others wait for hours.
One process reports an error: rank 0 if it failed too, else the first that failed. The others end without a message.
"""

import contextlib
import os
import re
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
from torch import distributed, nn

from nmtalign.core.model import Indices
from nmtalign.core.numerics import pick_device
from nmtalign.errors import NmtalignError, ResourceError, TrainingError, UsageError
from nmtalign.settings.definition import Device
from nmtalign.training.optimizers import Optimizer

T = TypeVar("T")
TIMEOUT = timedelta(minutes=10)  # until a process that does not arrive, or does not answer, is an error
WRITING = timedelta(hours=6)  # the same while rank 0 may be reading or writing files
ANSWER = timedelta(seconds=10)  # until torchrun's store answers whether another process has failed
TURN = 1.0  # seconds that other ranks wait before they report an error, so that rank 0 reports one that all have


class FailedElsewhereError(NmtalignError):
    """This process ends because of an error that another process reports."""

    def __init__(self, code: int) -> None:
        super().__init__("")
        self.exit_code = code


class ConnectionLostError(TrainingError):
    """A collective operation has failed: another process has ended, or has not answered within the timeout."""


class World:
    """A single process, which does all the work, or one of several processes, connected by torch.distributed."""

    def __init__(self, device: torch.device, rank: int = 0, size: int = 1, store: Any = None) -> None:
        """`store` is that of torchrun; it tells whether another process has failed. Without it nothing is sent."""
        self.device, self.rank, self.size, self._store = device, rank, size, store
        self.is_main = rank == 0  # this process writes files and emits events
        self.update, self._parent, self._flat = 0, os.getppid(), torch.empty(0)  # the update is named in messages
        self._files: Any = None  # the same processes with a longer timeout
        self._name = f"rank {rank} (pid {os.getpid()}, host {socket.gethostname()})"

    def connect(self, device: Device) -> None:
        """Chooses the device, one GPU for each process of a machine or the CPU, and connects all processes.

        Raises ResourceError if the processes cannot connect or have too few GPUs.
        """
        from torch.distributed.distributed_c10d import PrefixStore

        self.device = pick_device(device)
        if self.device.type == "mps":
            raise ResourceError("device mps: several processes cannot train on it; choose the device cpu")
        if cuda := self.device.type == "cuda":
            number, count = int(os.environ.get("LOCAL_RANK", "0")), torch.cuda.device_count()
            if number >= count:
                seen = f"{count} GPU{'s' * (count > 1)} here, too few for process {number + 1} of this machine"
                fix = f"give torchrun --nproc-per-node {count}, or --device cpu"
                raise ResourceError(f"PyTorch sees {seen}; {fix}")
            torch.cuda.set_device(number)
            self.device = torch.device("cuda", number)
        with _connecting():
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                timeout=TIMEOUT,
                store=PrefixStore("group", self._store),
                rank=self.rank,
                world_size=self.size,
                device_id=self.device if cuda else None,
            )
            self._files = distributed.new_group(timeout=WRITING, backend="gloo")

    def share(self, indices: Indices) -> Indices:
        """Every `size`-th row of a minibatch, so that all processes have equally many short and long sentences."""
        return indices[self.rank :: self.size]

    def all_reduce(self, values: Sequence[float], operation: Literal["sum", "max"]) -> list[float]:
        """The sums, or the highest values, over the processes."""
        numbers = torch.tensor(list(values), dtype=torch.float64)
        self._together(lambda: distributed.all_reduce(numbers, getattr(distributed.ReduceOp, operation.upper())))
        return numbers.tolist()

    def wait_for_files(self) -> None:
        """Waits until all processes, rank 0 with its files among them, are here."""
        self._together(lambda: distributed.all_reduce(torch.zeros(1), group=self._files))

    def begin(self, update: int) -> None:
        """Notes the update; if torchrun has died, which would end all processes, this one ends by SIGTERM."""
        self.update = update
        if self._store is not None and os.getppid() != self._parent:
            os.kill(os.getpid(), signal.SIGTERM)

    def all_gather(self, value: T) -> list[T]:
        """The values of all processes, by rank."""
        values = [value] * self.size
        self._together(lambda: distributed.all_gather_object(values, value))
        return values

    def broadcast(self, model: nn.Module, optimizer: Optimizer) -> None:
        """Gives all processes the weights and the optimiser state of rank 0."""
        if self._store is None:
            return
        state: list[Any] = [
            {name: weight.cpu() for name, weight in model.state_dict().items()},
            {n: {name: x.cpu() for name, x in values.items()} for n, values in optimizer.values().items()},
        ]
        self._together(lambda: distributed.broadcast_object_list(state, 0))
        if not self.is_main:
            model.load_state_dict(state[0])
            optimizer.restore(state[1])

    def reduce_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Sums the gradients over the processes in one operation; a process without gradients adds zeros."""
        parts = [torch.zeros_like(w).view(-1) if w.grad is None else w.grad.reshape(-1) for w in parameters]
        total = sum(map(len, parts))
        if len(self._flat) != total:
            self._flat = parts[0].new_empty(total)  # kept, because to allocate it takes longer than to fill it
        torch.cat(parts, out=self._flat)
        self._together(lambda: distributed.all_reduce(self._flat))
        for weight, part in zip(parameters, self._flat.split([len(part) for part in parts]), strict=True):
            weight.grad = part.view_as(weight)

    def _together(self, operation: Callable[[], object]) -> None:
        """Makes a collective operation, if there are several processes; raises TrainingError where it fails."""
        if self._store is None:
            return
        try:
            operation()
        except RuntimeError as error:
            text = re.sub(r"^\[[^\]]*\]\s*", "", str(error))  # without the line of the C++ source
            reason = " ".join(text.split()).partition(". ")[0][:160]
            raise ConnectionLostError(
                f"{self._name} lost the connection to the other processes at update {self.update} ({reason}); "
                "the report of torchrun names the process that failed; the same command resumes from the last "
                "checkpoint"
            ) from None

    @contextlib.contextmanager
    def reporting_once(self) -> Iterator[None]:
        """A context for all the work; raises FailedElsewhereError instead of an error that another one reports."""
        try:
            yield
        except BaseException as error:
            if self._store is None or isinstance(error, FailedElsewhereError):
                raise
            if "LOCAL_RANK" in os.environ:  # torchrun ends all processes when one has failed; this one has its reason
                with contextlib.suppress(ValueError):  # not the main thread
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
            others = {KeyboardInterrupt: 130, SystemExit: getattr(error, "code", 1)}
            code = getattr(error, "exit_code", others.get(type(error), 1))
            if not self._is_first_to_fail():
                raise FailedElsewhereError(code) from None
            if self.is_main or isinstance(error, ConnectionLostError) or not isinstance(error, NmtalignError):
                raise
            named = NmtalignError(f"{self._name}: {error}")
            named.exit_code = code
            raise named from None

    def _is_first_to_fail(self) -> bool:
        """Whether no other process failed before; if the store does not answer, the process reports its error."""
        if not self.is_main:
            time.sleep(TURN)
        with contextlib.suppress(RuntimeError):
            self._store.set_timeout(ANSWER)
            return bool(self._store.add("failures", 1) == 1)
        return True

    def close(self) -> None:
        """Waits until all processes are done, and disconnects from them."""
        if self._store is None:
            return
        # A thread of PyTorch may still use the tensors of the last operation. As their only owner, it would wait for
        # Python's lock to free them, and `destroy_process_group`, which holds the lock, would wait for the thread.
        last = torch.zeros(1)
        self._together(lambda: distributed.all_reduce(last))
        distributed.destroy_process_group()


def open_world(device: Device) -> World:
    """The processes that torchrun describes in the environment; each has a GPU, or all share the CPU.

    Raises UsageError for an incomplete environment, ResourceError if the processes cannot connect or have too few GPUs.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1":
        return World(pick_device(device))
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    with _connecting():
        store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    # torchrun may start the processes again, with the same store.
    store = PrefixStore(f"nmtalign/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)
    world = World(torch.device("cpu"), rank, size, store)
    with world.reporting_once():
        world.connect(device)
    return world


@contextlib.contextmanager
def _connecting() -> Iterator[None]:
    """Raises UsageError for an incomplete environment, ResourceError if the processes cannot connect."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{error}; start the processes with torchrun") from None
    except RuntimeError as error:
        place = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        reason = " ".join(str(error).split())[:200]
        raise ResourceError(f"cannot connect to the other processes at {place}: {reason}") from None
