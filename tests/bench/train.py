"""`bench train` compares training with the naive loop and the floor, on the same batches in the same run."""

import statistics
from functools import partial
from pathlib import Path
from typing import Any

import torch

from bench.cli import as_settings
from bench.floor import Floor
from bench.machine import describe_machine, in_words
from bench.memory import peak_memory
from bench.products import products_of
from bench.report import Table, figure, percent, say, show, times
from bench.timing import spread, steady, take_turns
from bench.variants import VARIANTS, Variant, choose, loss_and_gradients, make_model
from bench.workload import SYSTEM_SIZES, Size, Workload, corpus_workload, random_workload
from nmtalign.processor import keep_memory

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WORKLOAD_OPTIONS = ("size", "vocabulary", "batch", "length", "data", "batches", "threads", "set")


def run(given: dict[str, Any]) -> dict[str, Any]:
    """Runs the subcommand with its options by name, prints tables, and returns the results."""
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    keep_memory()  # as training does
    ours = "ours-bf16,ours-fp32" if given["size"] in SYSTEM_SIZES else None  # the naive loop is RNNsearch
    variants = choose(given["variants"] or ours)
    workload = workload_of(given)
    results = {"benchmark": "train", "machine": describe_machine(), "workload": _describe(workload)}
    say(f"{in_words(results['machine'])}; {workload.origin}")
    results |= compare(workload, variants, given["repeats"])
    options = {name: given[name] for name in WORKLOAD_OPTIONS}
    for variant in variants if not given["no_memory"] else ():
        say(f"peak memory of {variant.name}")
        results["variants"][variant.name]["peak_mb"] = peak_memory(variant.name, options)
    show([_main_table(results), _floor_table(results["floor"])])
    return results


def workload_of(given: dict[str, Any]) -> Workload:
    """Returns the batches that the options select."""
    size = Size.of(given["size"], given["vocabulary"] or 0, **as_settings(given["set"]))
    if given["data"]:
        return corpus_workload(size, Path(given["data"]), given["batches"], given["batch"])
    return random_workload(size, given["batch"] or 80, given["length"])


def compare(workload: Workload, variants: list[Variant], repeats: int) -> dict[str, Any]:
    """Times variants and floors in turns: {"variants": {name: ...}, "floor": {precision: ...}, "ratios": ...}."""
    model = make_model(workload)
    tasks = {variant.name: partial(loss_and_gradients, variant, model, workload) for variant in variants}
    precisions = sorted({variant.precision for variant in variants})
    products = [products_of(workload.size.model, shape) for shape in workload.shapes]
    floors = {name: Floor(products, DTYPES[name]) for name in precisions}
    tasks |= {f"floor {name}": floor.measure for name, floor in floors.items()}
    seconds = take_turns(tasks, repeats)
    flops = sum(product.flops for batch in products for product in batch)
    floor_results = {name: _rates(workload, flops, floor.seconds) for name, floor in floors.items()}
    found = {}
    for variant in variants:
        median = statistics.median(seconds[variant.name])
        found[variant.name] = {
            **_rates(workload, flops, median),
            "of_floor": steady(floors[variant.precision].seconds / median, spread(seconds[variant.name])),
            "precision": variant.precision,
            "spread": spread(seconds[variant.name]),
            "all_seconds": seconds[variant.name],
        }
    return {"variants": found, "floor": floor_results, "ratios": _ratios(found)}


def _rates(workload: Workload, flops: int, seconds: float) -> dict[str, float]:
    rates = {"target_words_per_second": workload.target_words, "sentences_per_second": workload.sentences}
    rates |= {"gflops": flops / 1e9}
    return {"seconds": seconds, **{name: value / seconds for name, value in rates.items()}}


def _ratios(found: dict[str, dict[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Returns the speed of each variant relative to each naive loop; None if a spread is too large."""
    loops = [name for name in found if name.startswith("loop")]
    return {
        name: {
            loop: steady(found[loop]["seconds"] / figures["seconds"], found[loop]["spread"], figures["spread"])
            for loop in loops
        }
        for name, figures in found.items()
    }


def _describe(workload: Workload) -> dict[str, Any]:
    model = vars(workload.size.model)
    described = {"size": workload.size.name, "model": dict(model), "origin": workload.origin}
    counts = {"target_words": workload.target_words, "sentences": workload.sentences}
    return described | counts | {"shapes": [vars(shape) for shape in workload.shapes]}


def _main_table(results: dict[str, Any]) -> Table:
    found, ratios = results["variants"], results["ratios"]
    loops = [name for name in ("loop-fp32", "loop-autocast") if name in found]
    short = {"loop-fp32": "x the loop", "loop-autocast": "x autocast"}
    columns = [*(short[loop] for loop in loops), "words/s", "spread", "GFLOP/s", "of floor"]
    measured_memory = any("peak_mb" in figures for figures in found.values())
    columns += ["peak MB", "with update"] if measured_memory else []
    machine, workload = results["machine"], results["workload"]
    table = Table(f"Training `{workload['size']}`, loss and gradients: {workload['origin']}", ["", *columns])
    for name, figures in found.items():
        peak = figures.get("peak_mb", {})
        peaks = [figure(peak.get(name)) for name in ("loss_and_gradients", "update")]
        cells = [figure(figures["target_words_per_second"]), percent(figures["spread"]), figure(figures["gflops"])]
        cells += [percent(figures["of_floor"]), *(peaks if measured_memory else [])]
        table.rows.append([VARIANTS[name].title, *(times(ratios[name][loop]) for loop in loops), *cells])
    table.note = (
        f"{in_words(machine)}\nwords/s: target words with `</s>`, medians; spread: half the distance of the quartiles, "
        "above 10% no ratio is printed; peak: of a separate process (VmHWM), after loss and gradients, then updates"
    )
    return table


def _floor_table(floors: dict[str, dict[str, float]]) -> Table:
    table = Table("The floor: only the matrix products, at these shapes, in the same run", ["", "words/s", "GFLOP/s"])
    for name, figures in floors.items():
        rates = figure(figures["target_words_per_second"]), figure(figures["gflops"])
        table.rows.append([name, *rates])
    return table
