"""One of several processes that train one model, on PyTorch's own engine (torch.distributed).

Gradients are reduced by DistributedDataParallel; everything else that must be agreed on is a few numbers a collective
operation, on the CPU. Lives are watched by heartbeats (nmtalign.training.watch).
"""

import contextlib
import json
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.distributed.distributed_c10d import PrefixStore, ReduceOp, Store
from torch.nn.parallel import DistributedDataParallel

from nmtalign.config import Device
from nmtalign.core.devices import pick_device
from nmtalign.errors import NmtalignError, ResourceError, TrainingError
from nmtalign.training.distributed import EndedTogetherError, Seat, World, said_for_all
from nmtalign.training.watch import SILENCE, Watch

CONNECTION = timedelta(seconds=60)  # to the store
ARRIVAL = 600.0  # seconds until every process has come; importing PyTorch over a network can take minutes
PATIENCE = timedelta(hours=1)  # of one collective operation; who is lost is found out by the watch, long before


class Ranks(World):
    """One of several processes."""

    alone = False

    def __init__(self, seat: Seat, device: Device, lose: Callable[[str, int], None]) -> None:
        self.rank, self.size = seat.rank, seat.size
        hosts = seat.rank == 0 and not seat.agent
        base = TCPStore(seat.address, seat.port, None, hosts, CONNECTION, wait_for_workers=False)
        # A client of its own: the heart must not wait for what the main thread asks.
        client = TCPStore(seat.address, seat.port, None, False, CONNECTION, wait_for_workers=False)
        beats = PrefixStore(f"nmtalign/{seat.attempt}/watch", client)
        self._watch = Watch(beats, self.rank, self.size, lose, TrainingError.exit_code)
        self._meet(beats)
        client.set_timeout(timedelta(seconds=SILENCE))
        self._watch.start()
        with self.together():
            super().__init__(_local_device(device, seat))
            cuda = self.device.type == "cuda"
            distributed.init_process_group(
                "cpu:gloo,cuda:nccl" if cuda else "gloo",
                timeout=PATIENCE,
                store=PrefixStore(f"nmtalign/{seat.attempt}/group", base),
                rank=self.rank,
                world_size=self.size,
                device_id=self.device if cuda else None,
            )

    def _meet(self, store: Store) -> None:
        """Waits for the others, now and then awake to take a signal."""
        until = time.monotonic() + ARRIVAL
        while missing := [str(rank) for rank in range(self.size) if not store.check([f"rank/{rank}"])]:
            if time.monotonic() > until:
                raise ResourceError(
                    f"rank {', '.join(missing)} has not come within {ARRIVAL:g} s; start all {self.size} processes"
                )
            time.sleep(0.1)

    @property
    def update(self) -> int:
        """The update that is being made, which the heartbeats tell."""
        return self._watch.update

    @update.setter
    def update(self, number: int) -> None:
        self._watch.update = number

    def sum(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, ReduceOp.SUM)

    def highest(self, values: Sequence[float]) -> list[float]:
        return self._reduced(values, ReduceOp.MAX)

    def _reduced(self, values: Sequence[float], how: "ReduceOp.RedOpType") -> list[float]:
        numbers = torch.tensor(list(values), dtype=torch.float64)
        distributed.all_reduce(numbers, how)
        return [float(number) for number in numbers]

    def meet(self) -> None:
        self.highest([0.0])

    def gather(self, texts: Sequence[str]) -> list[list[str]]:
        data = torch.frombuffer(bytearray(json.dumps(list(texts)).encode()), dtype=torch.uint8)
        lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
        distributed.all_gather(lengths, torch.tensor([len(data)]))
        longest = max(int(length) for length in lengths)
        parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
        distributed.all_gather(parts, nn.functional.pad(data, (0, longest - len(data))))
        return [json.loads(bytes(part[: int(length)].numpy())) for part, length in zip(parts, lengths, strict=True)]

    def spread(self, optimizer: torch.optim.Optimizer) -> None:
        state: dict[int, dict[str, Any]] = optimizer.state_dict()["state"]
        plan = [
            (index, name, [str(value.dtype), str(value.device), list(value.shape)] if torch.is_tensor(value) else value)
            for index, slots in state.items()
            for name, value in slots.items()
        ]
        received: dict[int, dict[str, Any]] = {}
        for index, name, what in json.loads(self.gather([json.dumps(plan)])[0][0]):
            value = state[index][name] if self.first else what
            if isinstance(what, list):
                value = self._received(value if self.first else None, *what)
            received.setdefault(index, {})[name] = value
        if not self.first:
            optimizer.load_state_dict({"state": received, "param_groups": optimizer.state_dict()["param_groups"]})

    def _received(self, mine: Tensor | None, dtype: str, device: str, shape: list[int]) -> Tensor:
        """The tensor of rank 0; on this process' own device where it was on that of rank 0."""
        place = torch.device("cpu") if device == "cpu" else self.device
        if mine is None:
            mine = torch.empty(shape, dtype=getattr(torch, dtype.removeprefix("torch.")), device=place)
        distributed.broadcast(mine, 0)
        return mine

    def parallel(self, module: nn.Module) -> nn.Module:
        # A gradient of one row is met with a warning although its bytes lie as the bucket's do.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        # Buckets of gradients are reduced while the backward pass is still computing others.
        return DistributedDataParallel(module, gradient_as_bucket_view=True)

    def unreduced(self, module: nn.Module) -> contextlib.AbstractContextManager[None]:
        if not isinstance(module, DistributedDataParallel):
            return contextlib.nullcontext()
        return module.no_sync()

    def writing(self) -> contextlib.AbstractContextManager[Any]:
        return self._watch.writing

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        try:
            yield
        except BaseException as error:
            if isinstance(error, EndedTogetherError):
                raise
            if _is_broken_connection(error):
                self._watch.wait()  # does not return where another rank is the cause
                error = TrainingError(f"lost the connection to the other processes: {_one_line(error)}")
            code = _exit_code(error)
            if not self._watch.fail(code):
                raise EndedTogetherError(code) from None
            if isinstance(error, NmtalignError) and self.rank:
                error = type(error)(f"rank {self.rank} ({self._watch.row.name}): {error}")
            raise said_for_all(error) from None

    def close(self) -> None:
        """Waits until all are done, and parts from them."""
        self.meet()
        self._watch.leave()
        distributed.destroy_process_group()


def _local_device(name: Device, seat: Seat) -> torch.device:
    """One GPU a process of a machine, or the CPU."""
    device = pick_device(name)
    if device.type != "cuda":
        return device
    count = torch.cuda.device_count()
    if seat.local_rank >= count:
        raise ResourceError(
            f"PyTorch sees {count} GPU{'s' * (count > 1)} here, too few for process {seat.local_rank + 1} of this "
            f"machine; give torchrun --nproc-per-node {count}, or --device cpu"
        )
    torch.cuda.set_device(seat.local_rank)
    return torch.device("cuda", seat.local_rank)


def _is_broken_connection(error: BaseException) -> bool:
    text = str(error).lower()
    broken = isinstance(error, distributed.DistError) or any(word in text for word in ("gloo", "nccl", "connection"))
    return isinstance(error, RuntimeError) and broken


def _exit_code(error: BaseException) -> int:
    if isinstance(error, SystemExit):
        return error.code if isinstance(error.code, int) else 1
    return 130 if isinstance(error, KeyboardInterrupt) else getattr(error, "exit_code", 1)


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
