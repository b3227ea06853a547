"""`bench scaling`: words/s by hidden size, vocabulary, length, batch and number of processes, varied one at a time."""

import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import torch

from bench.floor import Floor
from bench.machine import BENCH, describe_machine, environment, in_words
from bench.products import flops_of
from bench.report import Table, figure, percent, say, show, write_json
from bench.timing import spread, take_turns
from bench.train import DTYPES, MODEL_OPTIONS, workload_of
from bench.variants import VARIANTS, loss_and_gradients, make_model
from bench.watch import complaint_in
from bench.workload import Size, Workload
from nmtalign.core.devices import picks_bf16, use_threads
from nmtalign.errors import NmtalignError, ResourceError
from nmtalign.processor import keep_memory

AXES = {
    "hidden": [128, 256, 512, 1000],
    "vocabulary": [2500, 10000, 30000, 90000],
    "length": [10, 20, 30, 50, 80],
    "batch": [10, 20, 40, 80, 160, 320],
    "processes": [1, 2],
}
Point = dict[str, Any]


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    use_threads(given["threads"] or 0)
    keep_memory()  # as training does
    if given["plot"]:
        from bench.plot import check_plot, draw_scaling

        check_plot(given["plot"])
    bf16 = picks_bf16(given["precision"], torch.device("cpu"))
    precision = "bf16" if bf16 else "fp32"
    results: dict[str, Any] = {"benchmark": "scaling", "machine": describe_machine(), "precision": precision}
    say(f"{in_words(results['machine'])}; {given['size']}, {precision}")
    known: dict[str, Point] = {}  # the point shared by all axes is measured once
    results["axes"] = {axis: _measure_axis(axis, values, given, precision, known) for axis, values in _axes(given)}
    results["base"] = {**_base(given), "size": given["size"]}
    show([_table(axis, points, results) for axis, points in results["axes"].items()])
    if given["json"]:
        write_json(given["json"], results)
    if given["plot"]:
        draw_scaling(results, given["plot"])
        say(f"drawn to {given['plot']}")
    return 0


def _axes(given: dict[str, Any]) -> list[tuple[str, list[int]]]:
    """Yields (axis, values) of every axis that was not left out."""
    chosen = ((axis, usual if given[f"{axis}_axis"] is None else given[f"{axis}_axis"]) for axis, usual in AXES.items())
    return [(axis, values) for axis, values in chosen if values]


def _base(given: dict[str, Any]) -> dict[str, int]:
    """Returns the value of each axis while another axis is varied."""
    size = Size.of(given["size"], given["vocabulary"] or 0, **{name: given[name] for name in MODEL_OPTIONS})
    return {
        "hidden": size.model.hidden,
        "vocabulary": size.model.target_vocabulary_size,
        "length": given["length"],
        "batch": given["batch"],
        "processes": 1,
    }


def _measure_axis(
    axis: str, values: Sequence[int], given: dict[str, Any], precision: str, known: dict[str, Point]
) -> list[Point]:
    points = []
    for value in values:
        at = {**_base(given), axis: value}
        key = json.dumps([at, axis == "processes"])  # processes are measured with complete updates
        if key not in known:
            say(f"{axis} {value}")
            known[key] = _measure(at, axis, given, precision)
        points.append({"value": value, **known[key]})
    return points


def _options(at: dict[str, int], axis: str, given: dict[str, Any]) -> dict[str, Any]:
    """Returns the options of the workload at a point; the other layer sizes follow the hidden size."""
    options = {**{name: given[name] for name in ("size", "threads", *MODEL_OPTIONS)}, "data": None, "batches": 1}
    options |= {name: at[name] for name in ("vocabulary", "length", "batch")}
    if axis == "hidden":
        n = at["hidden"]
        options |= {"hidden": n, "embedding": max(1, n // 2), "attention_hidden": n, "maxout": max(1, n // 2)}
    return options


def _measure(at: dict[str, int], axis: str, given: dict[str, Any], precision: str) -> Point:
    options = _options(at, axis, given)
    if axis == "processes":
        return _measure_processes(at["processes"], options, given, precision)
    workload = workload_of(options)
    variant, model = VARIANTS[f"ours-{precision}"], make_model(workload)
    floor = Floor.of_training(workload.size.model, workload.shapes, DTYPES[precision])
    tasks = {"ours": lambda: loss_and_gradients(variant, model, workload), "floor": floor.measure}
    seconds = take_turns(tasks, given["repeats"])["ours"]
    return _point(workload, statistics.median(seconds), floor.seconds, spread(seconds))


def _point(workload: Workload, seconds: float, floor: float | None, noise: float) -> Point:
    flops = sum(flops_of(workload.size.model, shape) for shape in workload.shapes)
    return {
        "target_words_per_second": workload.target_words / seconds,
        "gflops": flops / seconds / 1e9,
        "of_floor": None if floor is None else floor / seconds,
        "floor_words_per_second": None if floor is None else workload.target_words / floor,
        "spread": noise,
    }


def _measure_processes(count: int, options: dict[str, Any], given: dict[str, Any], precision: str) -> Point:
    """Runs complete updates with `count` processes under torchrun, which share the batch, the threads and gradients."""
    task = {**options, "precision": precision, "repeats": given["repeats"]}
    task["threads"] = max(1, torch.get_num_threads() // count)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command += [str(BENCH), "share", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment())
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode or not lines:
        why = complaint_in(done.stderr.splitlines())
        raise NmtalignError(f"{count} processes under torchrun ended with {done.returncode}: {why}")
    seconds = json.loads(lines[0])["seconds"]
    return _point(workload_of(options), statistics.median(seconds), None, spread(seconds))


def measure_share(task: str) -> None:
    """Runs in each of those processes: updates on its share of the batch; rank 0 prints the seconds of each update."""
    from bench.share import updates_together

    given = json.loads(task)
    use_threads(given["threads"] or 0)
    keep_memory()  # as training does
    try:
        seconds = updates_together(workload_of(given), given["precision"] == "bf16", given["repeats"])
    except ImportError as error:
        raise ResourceError(f"several processes cannot train together here: {error}") from None
    if seconds is not None:
        sys.stdout.write(json.dumps({"seconds": seconds}) + "\n")


def _table(axis: str, points: list[Point], results: dict[str, Any]) -> Table:
    base = ", ".join(f"{name} {value}" for name, value in results["base"].items() if name != axis)
    columns = [axis, "words/s", "of floor", "GFLOP/s", "spread"]
    table = Table(f"Words/s by {axis}, {results['precision']} ({base})", columns)
    for point in points:
        rates = figure(point["target_words_per_second"]), percent(point["of_floor"]), figure(point["gflops"])
        table.rows.append([figure(point["value"]), *rates, percent(point["spread"])])
    if axis == "hidden":
        table.note = "the alignment model has the same size; embeddings and maxout units have half of it"
    if axis == "processes":
        table.note = "complete updates: gradients reduced over the processes, and the optimiser's step"
    return table
