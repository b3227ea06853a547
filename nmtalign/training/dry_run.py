"""What a training would do: its size, memory, updates and time, from a few real updates. No file is written."""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high

import torch
from torch import Tensor

from nmtalign.data.batches import Indices, load_batches
from nmtalign.training.budget import BudgetAdvice, TrainingBudget
from nmtalign.training.fit import count_words
from nmtalign.training.optimizers import VALUES_PER_WEIGHT
from nmtalign.training.setup import TrainingSetup
from nmtalign.training.state import Position, load_state
from nmtalign.training.updates import cut_groups

_PROCESS = 500_000_000  # bytes of Python and PyTorch; measured, see details.md
_KERNELS = 900_000_000  # bytes of the bf16 kernels that PyTorch keeps on a processor, one for each shape of batch


@dataclass(frozen=True)
class DryRun:
    """The course of a training, as far as it is known before; sizes are in bytes."""

    parameters: Mapping[str, int]  # by part of the model
    memory: Mapping[str, int]  # estimated, by use
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
    found = None if restart else setup.found()
    setup.build(advice.append)
    position = load_state(found, setup.model, setup.optimizer) if found else Position()
    plan = setup.plan(position.epoch)
    setup.model.train()
    saved = _saved_bytes(setup, plan)
    times = _update_times(setup, plan, seconds)
    update_seconds = median_high(times)
    updates_in_epoch = math.ceil(len(plan) / config.accumulate)
    budget = TrainingBudget.of(config)
    total = budget.total_updates(position.update, position.seconds, updates_in_epoch, update_seconds)
    total = max(position.update, total)
    look = BudgetAdvice(config, preset, count_words(setup.corpus), updates_in_epoch, advice.append).look
    look(position.update, position.seconds, update_seconds, is_known=True)
    return DryRun(
        _parameters(setup),
        _memory(setup, saved),
        budget.describe(updates_in_epoch, setup.patience),
        position,
        len(times),
        update_seconds,
        total,
        updates_in_epoch,
        (total - position.update) * update_seconds,
        advice,
    )


def _saved_bytes(setup: TrainingSetup, plan: Sequence[Indices]) -> int:
    """The bytes that the largest batch saves for its gradient."""
    largest = max(plan, key=lambda indices: _positions(setup, indices))
    saved = _Saved(setup)
    with torch.autograd.graph.saved_tensors_hooks(saved.pack, lambda tensor: tensor):
        _update(setup, [largest])
    return saved.bytes


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


class _Saved:
    """Counts the bytes that a forward pass saves for the gradient, apart from the weights."""

    def __init__(self, setup: TrainingSetup) -> None:
        self._seen = {weight.untyped_storage().data_ptr() for weight in setup.model.parameters()}
        self.bytes = 0

    def pack(self, tensor: Tensor) -> Tensor:
        """Counts a tensor unless its storage was counted before."""
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in self._seen:
            self._seen.add(storage.data_ptr())
            self.bytes += storage.nbytes()
        return tensor


def _parameters(setup: TrainingSetup) -> Mapping[str, int]:
    """The number of parameters of each part of the model, for example of the encoder."""
    counts = Counter[str]()
    for direction in setup.directions:
        for name, weight in direction.model.named_parameters():
            counts[name.partition(".")[0].replace("_", " ")] += weight.numel()
    return counts


def _memory(setup: TrainingSetup, saved: int) -> Mapping[str, int]:
    weights = sum(weight.numel() * weight.element_size() for weight in setup.model.parameters())
    # Beside what is saved, the gradient of the largest batch takes about as much again.
    return {
        "parameters": weights,
        "gradients": weights,
        "optimiser": VALUES_PER_WEIGHT * weights,
        "activations of the largest batch": 2 * saved,
        "PyTorch": _PROCESS + (_KERNELS if setup.bf16 and setup.device.type == "cpu" else 0),
    }
