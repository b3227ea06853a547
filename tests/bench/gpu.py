"""`bench gpu`: the speed of complete updates on a CUDA device, eager and by CUDA graphs, and their kernels.

It needs only PyTorch and this checkout: `python tests/bench gpu`, from any folder. Results are written after each part.
"""

import itertools
import os
import statistics
import time
from functools import partial
from pathlib import Path

import torch

from bench.machine import describe_machine, in_words
from bench.products import flops_of
from bench.report import Table, figure, percent, say, show, write_json
from bench.timing import spread, take_turns
from bench.workload import Size, random_workload
from nmtalign.core.model import TranslationModel
from nmtalign.core.numerics import Fusion
from nmtalign.errors import NmtalignError, ResourceError
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.graphs import GraphedLoss
from nmtalign.training.optimizers import descend, make_optimizer
from nmtalign.training.updates import add_gradient, batch_loss

FILE = "bench-gpu.json"
KERNELS = 25  # of an update that are listed, those with the most time
WAYS = {"graphs": "CUDA graphs, fused", "unfused": "CUDA graphs", "eager": "eager"}
DRY = {"hidden": 12, "embedding": 12, "attention_hidden": 9, "maxout": 6, "output_rank": 0}
UPDATES = 8  # in a timed round; the first two of a bucket are eager, and recorded


class NoGraphError(NmtalignError):
    """A graph cannot be recorded."""


def run(given):
    """Runs the subcommand with its options by name, and writes the results."""
    device = torch.device(given["device"])
    dry = device.type == "cpu"
    if not dry and not torch.cuda.is_available():
        raise ResourceError("PyTorch sees no CUDA device here; use a machine with one, or a dry run with --device cpu")
    path = given["json"] or Path(os.environ.get("OUT") or ".") / FILE
    names = (given["size"] or ("tiny" if dry else "paper")).split(",")
    sizes = [Size.of(name, 50 if dry else 0, **(DRY if dry else {})) for name in names]
    batches, length = given["batches"] or ([2] if dry else [80, 320, 640, 1280]), given["length"] or (3 if dry else 30)
    results = {"benchmark": "gpu", "dry_run": dry, "machine": describe_machine(device.type)}
    results |= {"length": length, "speeds": [], "kernels": {}}
    say(in_words(results["machine"]))
    ways = ["eager"] if dry else list(WAYS)
    peak = matrix_rate(device)
    results["tflops_of_a_large_product"] = peak / 1e12
    for size in sizes:
        for sentences, way in itertools.product(batches, ways):
            say(f"{size.name}: updates, {WAYS[way]}, batches of {sentences}")
            results["speeds"].append(speed(way, size, device, sentences, length, peak))
            write_json(path, results)
        for sentences in sorted({batches[0], batches[-1]}):
            say(f"{size.name}: the kernels of an update, batches of {sentences}")
            results["kernels"][f"{size.name}, {sentences} sentences"] = kernels(size, device, sentences, length)
            write_json(path, results)
    show(tables(results))
    say(f"written to {path}")


def speed(way, size, device, sentences, length, peak):
    """The speed of complete updates in bf16; `peak` is the rate of a large product."""
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    row = {"size": size.name, "way": way, "sentences": sentences}
    Fusion.wanted = way == "graphs"
    updates, began = _updates(way, size, device, sentences, length), time.perf_counter()
    try:
        updates()
        row["first_seconds"] = time.perf_counter() - began  # with the compiler
        all_seconds = [seconds / UPDATES for seconds in _seconds(updates, device)]
    except (torch.OutOfMemoryError, NoGraphError) as error:
        return row | {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    seconds, [shape] = statistics.median(all_seconds), random_workload(size, sentences, length).shapes
    return row | {
        "seconds": seconds,
        "spread": spread(all_seconds),
        "target_words_per_second": shape.words / seconds,
        "of_matrix_rate": flops_of(size.model, shape) / seconds / peak,
        "kernels": Fusion.problem or ("compiled" if Fusion.wanted else "PyTorch's"),
        "peak_mb": torch.cuda.max_memory_allocated(device) / (1 << 20) if cuda else None,
    }


def kernels(size, device, sentences, length):
    """The kernels of an eager update, those with the most time first: name, launches and milliseconds."""
    from torch.profiler import ProfilerActivity, profile

    Fusion.wanted = True
    updates, cuda = _updates("eager", size, device, sentences, length), device.type == "cuda"
    updates()
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU], acc_events=True) as profiled:
        updates()
        if cuda:
            torch.cuda.synchronize(device)
    found = []
    for event in profiled.key_averages():
        total = event.self_device_time_total if cuda else event.self_cpu_time_total
        found.append({"name": event.key, "launches": event.count / UPDATES, "ms": total / UPDATES / 1e3})
    return sorted((one for one in found if one["ms"]), key=lambda one: -float(one["ms"]))


def _updates(way, size, device, sentences, length):
    """A task that makes `UPDATES` complete updates with bf16 products."""
    batches = [random_workload(size, sentences, length, seed).batches[0] for seed in range(4)]
    batches = [batch.pinned() if device.type == "cuda" else batch for batch in batches]
    model = TranslationModel(size.model).to(device).train()
    compute = _make_loss(way, model, torch.bfloat16)
    optimizer = make_optimizer(model.parameters(), size.training)

    def updates():
        for batch in itertools.islice(itertools.cycle(batches), UPDATES):
            compute(batch, 1 / sentences)
            float(descend(optimizer, size.training.learning_rate, size.training.clip_norm))

    return updates


def matrix_rate(device):
    """The operations per second of a large product in bf16."""
    edge = 8192 if device.type == "cuda" else 256
    left, right = (torch.randn(edge, edge, device=device).bfloat16() for _ in range(2))
    return 2 * edge**3 / statistics.median(_seconds(lambda: torch.mm(left, right), device))


def tables(results):
    """Returns the tables of the results."""
    title = f"Training in bf16, complete updates, {results['length']} words per side"
    table = Table(title, ["size", "", "batch", "words/s", "of matrix rate", "ms", "first s", "peak MB"])
    for row in results["speeds"]:
        rate = row.get("failed") or figure(row["target_words_per_second"])
        cells = [percent(row.get("of_matrix_rate")), figure(1e3 * row.get("seconds", 0), 1)]
        cells += [figure(row.get("first_seconds"), 1), figure(row.get("peak_mb"))]
        table.rows.append([row["size"], WAYS[row["way"]], figure(row["sentences"]), rate, *cells])
    table.note = f"a large bf16 product: {results['tflops_of_a_large_product']:.1f} TFLOP/s" + (
        "; a dry run on the CPU: its figures mean nothing" if results["dry_run"] else ""
    )
    return [table, *(_kernel_table(name, found) for name, found in results["kernels"].items())]


def _kernel_table(name, found):
    launches, ms = (sum(one[key] for one in found) for key in ("launches", "ms"))
    table = Table(f"An eager update of `{name}`", ["kernel", "launches", "ms"])
    table.rows += [[one["name"][:100], figure(one["launches"]), figure(one["ms"], 3)] for one in found[:KERNELS]]
    table.note = f"together {len(found)} kernels, {launches:,.0f} launches, {ms:.2f} ms of the device"
    return table


def _make_loss(way, model, dtype):
    """Returns a function that computes loss and gradients of a batch; NoGraphError if recording fails."""
    loss = partial(batch_loss, model, TrainingConfig(), dtype)
    eager = partial(add_gradient, loss, next(model.parameters()).device)
    return eager if way == "eager" else GraphedLoss(model, loss, eager, _refuse)


def _refuse(reason):
    raise NoGraphError(reason)


def _seconds(task, device):
    """The times of some rounds, after a warm-up round."""

    def complete():
        task()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return take_turns({"": complete}, 5 if device.type == "cuda" else 1)[""]
