"""What a training would do, from a few real updates: its size, memory and time, and what `--preset auto` chooses.

No file is written.
"""

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import cycle, islice
from pathlib import Path
from statistics import median_high

import torch

from nmtalign.core.model import Indices
from nmtalign.core.numerics import keeping_generators
from nmtalign.data.corpus import Corpus
from nmtalign.files import CONFIG
from nmtalign.model_directory import model_config, read_settings
from nmtalign.processor import lines_of
from nmtalign.settings.definition import Layer, resolve
from nmtalign.settings.presets import AUTO, AUTO_SIZES, automatic
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.budget import BudgetAdvice, TrainingBudget, count_words, duration, rounded
from nmtalign.training.checkpoints import Position, load_state
from nmtalign.training.distributed import World
from nmtalign.training.updates import TrainingSetup

_PROCESS = 500_000_000  # bytes of Python and PyTorch where the system does not report them, and of CUDA on a GPU
_KERNELS = 1_100_000_000  # bytes of the bf16 kernels that PyTorch keeps on a processor, one for each shape of batch
_GPU_GROUPS = 8  # groups of minibatches whose updates are measured on a GPU
_TRIAL = 2.0  # seconds in which the speed of a size is measured


def choose_settings(
    layers: tuple[Layer, ...], corpus: Corpus, folder: Path, world: World, restart: bool = False
) -> tuple[tuple[Layer, ...], str]:
    """The layers of a training with the preset `auto`, and a line that says what it chose and why.

    `layers` are the preset and what the user has chosen. A run in the folder keeps its choice, unless `restart`. Else
    the largest size is chosen for which the budget is enough at the speed of a few updates; without a limit, the
    preset's number of epochs counts. A training that starts from another model has the architecture of that model;
    nothing is chosen.
    """
    words, given = count_words(corpus), {name: value for _, layer in layers[1:] for name, value in layer.items()}
    if given.get("init_from"):
        return layers, ""

    def layer(units: int, passes: float) -> Layer:
        return "preset auto: chosen", automatic(words, units, passes, given)

    if not restart and (folder / CONFIG).is_file() and (settings := read_settings(folder))["preset"] == AUTO:
        recorded = settings["model"] | settings["training"]
        origin, chosen = layer(model_config(folder, settings).hidden, 0.0)
        kept = recorded.keys() & chosen.keys() - {"epochs", "max_time"}  # a larger budget may replace these
        return (layers[0], (origin, {**chosen, **{name: recorded[name] for name in kept}}), *layers[1:]), ""
    sizes = [(0, given["hidden"], 0)] if "hidden" in given else AUTO_SIZES
    read, speed, units = 0.0, 0.0, sizes[0][1]
    for needed, wider, _ in sizes:
        if read < needed:
            break
        trial = layers[0], layer(wider, 0.0), *layers[1:]
        config = resolve(TrainingConfig, *trial)
        setup = TrainingSetup(corpus, folder, resolve(ModelConfig, *trial), config, World(world.device))
        with keeping_generators(setup.device, config.threads):
            setup.build(lambda notice: None)
            plan = setup.plan(0)
            update_seconds = median_high(_update_times(setup, plan, _TRIAL)) / world.size
        updates_in_epoch = math.ceil(len(plan) / config.accumulate)
        total = TrainingBudget(config).total_updates(0, 0.0, updates_in_epoch, update_seconds)
        if math.isinf(total):
            total = automatic(words, wider, 0.0, {})["epochs"] * updates_in_epoch
        if (enough := total / updates_in_epoch * words) >= needed:
            read, speed, units = enough, words / updates_in_epoch / update_seconds, wider
    layers = layers[0], layer(units, read / words), *layers[1:]
    dropout, rate = resolve(ModelConfig, *layers).dropout, resolve(TrainingConfig, *layers).learning_rate
    note = (
        f"auto: {units} hidden units and dropout {dropout:g}, because at {speed:,.0f} target words/s the budget is "
        f"enough for {rounded(read / words)} passes over {words:,} words (about {duration(read / speed)}); to fix "
        f"this choice: --set hidden={units} --set dropout={dropout:g} --set learning_rate={rate:g}"
    )
    return layers, note


class DryRun:
    """The course of a training, as far as it is known before; sizes are in bytes."""

    def __init__(
        self, setup: TrainingSetup, preset: str, before: int, restart: bool = False, seconds: float = 5.0
    ) -> None:
        """Measures updates for some seconds; a run in the folder is continued in memory, unless `restart`.

        `before` is the `process_peak` before any model was made.
        """
        config, self.advice = setup.config, list[str]()  # about a budget that is too small
        checkpoint = None if restart else setup.find_run()
        with keeping_generators(setup.device, config.threads):
            setup.build(self.advice.append)
            self.advice += setup.notices()
            self.done = checkpoint.position if checkpoint else Position()
            if checkpoint:
                load_state(checkpoint.path, setup.model, setup.optimizer)
            plan = setup.plan(self.done.epoch)
            times = _update_times(setup, plan, seconds)
            self.memory = _memory(setup, plan, before)  # at the update with the largest batch, by use
        self.measured, self.update_seconds = len(times), median_high(times)  # updates, and an estimate for one
        self.updates_in_epoch = math.ceil(len(plan) / config.accumulate)
        budget, done = TrainingBudget(config), self.done
        self.budget = budget.describe(self.updates_in_epoch, setup.patience)  # in words
        total = budget.total_updates(done.update, done.seconds, self.updates_in_epoch, self.update_seconds)
        reached = budget.reached(done.update, done.epoch + done.batch / len(plan), done.seconds)
        ended = reached or done.finished == budget.time_limit or done.patience_spent(setup.patience)
        self.updates = done.update if ended else max(done.update, total)  # in total, infinite without a limit
        self.seconds = (self.updates - done.update) * self.update_seconds  # of the updates that remain
        if done.diverged:
            self.advice.append(setup.describe_divergence(done))
        else:
            words = count_words(setup.corpus)
            adviser = BudgetAdvice(config, preset, words, self.updates_in_epoch, self.advice.append)
            adviser.check_budget(done.update, done.seconds, self.update_seconds, is_known=True)
        self.parameters = Counter[str]()  # by part of the model
        for name, weight in setup.model.named_parameters():
            self.parameters[name.partition(".")[0].replace("_", " ")] += weight.numel()


def _memory(setup: TrainingSetup, plan: Sequence[Indices], before: int) -> Mapping[str, int]:
    """The bytes at the peak of an update with the largest minibatch, by use; `before` is that of `DryRun`.

    On a processor they are those of the process, on a GPU those of the GPU.
    """
    source, target = setup.pairs.source.lengths, setup.pairs.target.lengths
    by_size = sorted(plan, key=lambda pairs: len(pairs) * int(source[pairs].max() + target[pairs].max() + 2))
    # Memory that is kept from smaller minibatches is too small for larger ones, as in a training, where they alternate.
    for share in (0.5, 0.9, 1.0):  # the second minibatch of a group finds gradients
        group = [by_size[int(share * (len(plan) - 1))]] * min(2, setup.config.accumulate)
        _update(setup, group)
    on_gpu = setup.device.type == "cuda"
    memory = {
        "Python and PyTorch": _PROCESS if on_gpu else before or _PROCESS,
        "parameters": sum(weight.nbytes for weight in setup.model.parameters()),
        "optimiser": sum(value.nbytes for kept in setup.optimizer.values().values() for value in kept.values()),
    }
    peak = _PROCESS + torch.cuda.max_memory_reserved(setup.device) if on_gpu else process_peak()
    memory["activations and gradients of the largest batch"] = max(0, peak - sum(memory.values()))
    if setup.dtype and setup.device.type == "cpu":  # most shapes come only after these few updates
        memory["kernels in bf16"] = _KERNELS
    return memory


def process_peak() -> int:
    """The largest memory of this process so far, in bytes; 0 where the system does not report it."""
    peaks = [line.split()[1] for line in lines_of(Path("/proc/self/status")) if line.startswith("VmHWM:")]
    return int(peaks[0]) * 1024 if peaks else 0


def _update_times(setup: TrainingSetup, plan: Sequence[Indices], seconds: float) -> list[float]:
    """The seconds of each of some updates."""
    groups = setup.groups(plan)
    if setup.device.type == "cuda":  # a shape is fast from its third update on: after the compiler, and with a graph
        some = list(islice(groups, _GPU_GROUPS))
        for group in some * 2:
            _update(setup, group)
        groups = cycle(some)
    times, end = list[float](), time.perf_counter() + seconds
    for group in groups:
        began = time.perf_counter()
        _update(setup, group)
        times.append(time.perf_counter() - began)
        if time.perf_counter() > end:
            break
    return times[len(times) // 2 :]  # the first updates of each shape are slow


def _update(setup: TrainingSetup, group: Sequence[Indices]) -> None:
    """An update at the rate 0, which leaves the weights as they are."""
    setup.update(group, setup.batches(group), 0.0)
