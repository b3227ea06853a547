"""What a training would do: its size, memory, updates and time, from a few real updates. No file is written."""

import math
import time
import weakref
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from nmtalign.data.batches import Indices, load_batches
from nmtalign.processor import lines_of
from nmtalign.training.budget import BudgetAdvice, TrainingBudget, count_words
from nmtalign.training.checkpoints import Position, load_state
from nmtalign.training.trainer import TrainingSetup
from nmtalign.training.updates import cut_groups

_PROCESS = 500_000_000  # bytes of Python and PyTorch where the system does not report them, and of CUDA on a GPU
_KERNELS = 1_100_000_000  # bytes of the bf16 kernels that PyTorch keeps on a processor, one for each shape of batch


@dataclass(frozen=True)
class DryRun:
    """The course of a training, as far as it is known before; sizes are in bytes."""

    parameters: Mapping[str, int]  # by part of the model
    memory: Mapping[str, int]  # at the update with the largest batch, by use
    budget: str  # the limits in words
    done: Position
    measured: int  # updates
    update_seconds: float  # estimated, of one update
    updates: float  # in total, infinite without a limit
    updates_in_epoch: int
    seconds: float  # estimated, of the updates that remain
    advice: Sequence[str]  # about a budget that is too small

    @property
    def passes(self) -> float:
        """Passes over the corpus, in total."""
        return self.updates / self.updates_in_epoch


def dry_run(setup: TrainingSetup, preset: str, restart: bool = False, seconds: float = 5.0) -> DryRun:
    """Measures updates for some seconds; a run in the folder is continued in memory, unless `restart`."""
    config, advice = setup.config, list[str]()
    found = None if restart else setup.find_run()
    setup.build(advice.append)
    advice += [setup.guide.note] if setup.guide and setup.guide.note else []
    begun = _process_peak()
    position = load_state(found, setup.model, setup.optimizer) if found else Position()
    plan = setup.plan(position.epoch)
    setup.model.train()
    times = _update_times(setup, plan, seconds)
    update_seconds = median_high(times)
    memory = _memory(setup, plan, begun)
    updates_in_epoch = math.ceil(len(plan) / config.accumulate)
    budget = TrainingBudget.of(config)
    total = budget.total_updates(position.update, position.seconds, updates_in_epoch, update_seconds)
    total = max(position.update, total)
    if position.diverged:
        advice.append(setup.describe_divergence(position))
    else:
        words = count_words(setup.corpus)
        adviser = BudgetAdvice(config, preset, words, updates_in_epoch, advice.append)
        adviser.check_budget(position.update, position.seconds, update_seconds, is_known=True)
    return DryRun(
        _parameters(setup),
        memory,
        budget.describe(updates_in_epoch, setup.patience),
        position,
        len(times),
        update_seconds,
        total,
        updates_in_epoch,
        (total - position.update) * update_seconds,
        advice,
    )


def _memory(setup: TrainingSetup, plan: Sequence[Indices], begun: int) -> Mapping[str, int]:
    """The bytes at the peak of an update with the largest minibatch, by use; other updates were made before.

    On a processor they are those of the process, on a GPU those of the GPU. `begun` is the peak before all updates.
    """
    by_size = sorted(plan, key=lambda indices: _positions(setup, indices))
    largest = [by_size[-1]] * min(2, setup.config.accumulate)  # the second one of a group finds gradients
    # Memory that is kept from smaller minibatches is too small for larger ones, as in a training, where they alternate.
    for share in (0.5, 0.9, 1.0):
        _update(setup, [by_size[int(share * (len(plan) - 1))]] * len(largest))
    weights = list(setup.model.parameters())
    values = [value for kept in setup.optimizer.values().values() for value in kept.values()]
    if setup.device.type == "cuda":
        process = torch.cuda.max_memory_reserved(setup.device) + _PROCESS
        tensors = torch.cuda.max_memory_allocated(setup.device)
    else:
        process = _process_peak()  # before the memory of tensors is followed, which takes more than 100 MB itself
        with TensorMemory([*weights, *values]) as followed:
            _update(setup, largest)
        tensors = followed.peak
    memory = {"parameters": _bytes(weights), "optimiser": _bytes(values)}
    memory["activations and gradients of the largest batch"] = tensors - sum(memory.values())
    memory["Python and PyTorch"] = process - tensors if process > tensors else _PROCESS
    if setup.bf16 and setup.device.type == "cpu":  # most shapes come only after these few updates
        memory["Python and PyTorch"] = begun - memory["parameters"] if begun else _PROCESS
        memory["kernels in bf16"] = max(_KERNELS, process - tensors - memory["Python and PyTorch"])
    return memory


def _bytes(tensors: Iterable[Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def _process_peak() -> int:
    """The largest memory of this process so far, in bytes; 0 where the system does not report it."""
    found = [line.split()[1] for line in lines_of(Path("/proc/self/status")) if line.startswith("VmHWM:")]
    return int(found[0]) * 1024 if found else 0


class TensorMemory(TorchDispatchMode):
    """Follows the bytes of tensors on a processor: the given ones, and all that operations make while it is active."""

    def __init__(self, given: Iterable[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes = self.peak = 0
        self._known: set[int] = set()
        for tensor in given:
            self._add(tensor)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Does an operation, also of a hand-written pass or of the gradient, and adds its results."""
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, Tensor) and tensor.layout is torch.strided:  # the parts of others are strided
                self._add(tensor)
        return made

    def _add(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        place, size = storage.data_ptr(), storage.nbytes()
        if size and place not in self._known:
            self._known.add(place)
            self.bytes += size
            self.peak = max(self.peak, self.bytes)
            weakref.finalize(storage, self._free, place, size)

    def _free(self, place: int, size: int) -> None:
        self._known.discard(place)
        self.bytes -= size


def _update_times(setup: TrainingSetup, plan: Sequence[Indices], seconds: float) -> list[float]:
    """The seconds of each of some updates."""
    times, end = list[float](), time.perf_counter() + seconds
    for group in cut_groups(setup.pairs, plan, setup.config.accumulate):
        began = time.perf_counter()
        _update(setup, group.plan)
        times.append(time.perf_counter() - began)
        if time.perf_counter() > end:
            break
    return times[len(times) // 2 :]  # the first updates of each shape are slow


def _update(setup: TrainingSetup, plan: Sequence[Indices]) -> None:
    """An update at the rate 0, which leaves the weights as they are."""
    for group in cut_groups(setup.pairs, plan, len(plan)):
        batches = load_batches(setup.pairs, plan, setup.device.type == "cuda", setup.complete)
        _ = setup.updater.update(group, batches, 0.0).norm  # waits for a GPU


def _positions(setup: TrainingSetup, indices: Indices) -> int:
    """The positions of a batch on both sides, padding included."""
    longest = (int(lengths[indices].max()) for lengths in (setup.pairs.source_lengths, setup.pairs.target_lengths))
    return len(indices) * (sum(longest) + 2)


def _parameters(setup: TrainingSetup) -> Mapping[str, int]:
    """The number of parameters of each part of the model, for example of the encoder."""
    counts = Counter[str]()
    for name, weight in setup.model.named_parameters():
        counts[name.partition(".")[0].replace("_", " ")] += weight.numel()
    return counts
