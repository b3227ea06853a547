"""`bench gpu`: all measurements and checks of a CUDA device in one command of under 9 minutes.

It needs only PyTorch and this checkout: `python tests/bench gpu`, from any folder. The most important parts run first,
the results are written after every part, and parts that do not fit into the budget are skipped and reported.
"""

import os
from pathlib import Path
from typing import Any

import torch

from bench.budget import Budget
from bench.gpu_checks import OPTIONS, check_path
from bench.gpu_rates import Training, attention_rates, ceilings
from bench.machine import describe_machine, in_words
from bench.paths import PATHS, TITLES, interpret_kernels, missing
from bench.report import Table, figure, percent, say, show, write_json
from bench.workload import Size
from nmtalign.errors import NmtalignError, ResourceError

FILE = "bench-gpu.json"


class WrongResultError(NmtalignError):
    """The results of the device differ from those of float64 on the CPU."""


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    device = torch.device(given["device"])
    dry = device.type == "cpu"
    if not dry and not torch.cuda.is_available():
        raise ResourceError("PyTorch sees no CUDA device here; use a machine with one, or a dry run with --device cpu")
    if dry:
        interpret_kernels()
    path = given["json"] or Path(os.environ.get("OUT") or ".") / FILE
    results: dict[str, Any] = {"benchmark": "gpu", "dry_run": dry, "machine": describe_machine(device.type)}
    say(in_words(results["machine"]))
    budget = Budget(given["budget"], lambda: write_json(path, results))
    results["skipped"] = budget.skipped
    size = Size.of(given["size"] or ("tiny" if dry else "paper"), 50 if dry else 0, **(_DRY if dry else {}))
    batches = given["batches"] or ([2] if dry else [80, 320, 640, 1280])
    length = given["length"] or (3 if dry else 30)
    results["workload"] = {"size": size.name, "model": dict(vars(size.model)), "length": length}
    results["paths"] = {name: missing(name, device) or "there" for name in PATHS}
    with budget.enforced():
        _measure(budget, results, size, device, batches, length)
    show(tables(results))
    say(f"written to {path}")
    wrong = [check for checks in results.get("checks", {}).values() for check in checks if not check["ok"]]
    if wrong:
        raise WrongResultError(
            f"{len(wrong)} results differ from those of float64; the first is of {wrong[0]['model']}"
        )
    return 0


_DRY = {"hidden": 12, "embedding": 10, "attention_hidden": 9, "maxout": 6, "output_rank": 0}


def _measure(
    budget: Budget, results: dict[str, Any], size: Size, device: torch.device, batches: list[int], length: int
) -> None:
    """Runs all parts, the most important first."""
    results |= {"ceilings": {}, "checks": {}, "speeds": [], "launches": [], "attention": []}
    budget.section("ceilings", lambda: results["ceilings"].update(ceilings(device)))
    peak = results["ceilings"].get("tflops", float("nan"))
    there = [path for path in PATHS if results["paths"][path] == "there"]
    few = OPTIONS[:1] if device.type == "cpu" else OPTIONS
    for path in there:
        _check(budget, results, path, device, few[:1])
    held: list[Training] = []
    budget.section("model and optimiser", lambda: held.append(Training(size, device)), 10)
    if held:
        training = held[0]
        for path, sentences in _in_order(there, batches):
            _speed(budget, results, training, (path, sentences, length), peak)
        for path in there:
            _launches(budget, results, training, (path, min(batches), length))
    for path in there:
        _check(budget, results, path, device, few[1:])
    if "kernels" in there:
        _attention(budget, results, size, device, batches, length)


def _in_order(paths: list[str], batches: list[int]) -> list[tuple[str, int]]:
    """Orders the measurements: the best path at the middle, largest and smallest batch first, then the others."""
    inner = [*batches[1:-1][::-1], batches[-1], batches[0]] if len(batches) > 2 else batches
    order = list(dict.fromkeys(inner))
    return [(path, sentences) for path in paths for sentences in order]


def _check(
    budget: Budget, results: dict[str, Any], path: str, device: torch.device, options: list[tuple[str, str, str]]
) -> None:
    if not options:
        return

    def part() -> None:
        results["checks"].setdefault(path, []).extend(check_path(path, device, options))

    budget.section(f"results by {TITLES[path]}, {len(options)} models", part, 15)


def _speed(
    budget: Budget, results: dict[str, Any], training: Training, what: tuple[str, int, int], peak: float
) -> None:
    path, sentences, length = what

    def part() -> None:
        results["speeds"].append(training.speed(path, sentences, length, peak))

    budget.section(f"{TITLES[path]}, batches of {sentences}", part, 15)


def _launches(budget: Budget, results: dict[str, Any], training: Training, what: tuple[str, int, int]) -> None:
    path, sentences, length = what
    known = [s for s in results["speeds"] if s["path"] == path and s["sentences"] == sentences]
    if not known:
        return

    def part() -> None:
        results["launches"].append(training.launches(path, sentences, length, known[0]["seconds"]))

    budget.section(f"launches by {TITLES[path]}, batches of {sentences}", part, 15)


def _attention(
    budget: Budget, results: dict[str, Any], size: Size, device: torch.device, batches: list[int], length: int
) -> None:
    copy_rate = results["ceilings"].get("copy_gb_per_second", float("nan"))
    for sentences in batches:

        def part(sentences: int = sentences) -> None:
            results["attention"].extend(attention_rates(size, device, sentences, length, copy_rate))

        budget.section(f"attention only, batches of {sentences}", part)


def tables(results: dict[str, Any]) -> list[Table]:
    """Returns the tables of the results."""
    made = [_speed_table(results)]
    if results["launches"]:
        columns = ["", "batch", "kernels", "us per kernel", "device busy"]
        table = Table("Kernel launches (while the device is not busy, the update waits for the host)", columns)
        for row in results["launches"]:
            rates = [figure(row["microseconds_a_kernel"], 1), percent(row["busy"])]
            table.rows.append([TITLES[row["path"]], figure(row["sentences"]), figure(row["kernels"]), *rates])
        made.append(table)
    if results["attention"]:
        table = Table("One attention step", ["", "batch", "direction", "us", "GB/s", "share of copy rate"])
        for row in results["attention"]:
            rates = [figure(row["microseconds"], 1), figure(row["gb_per_second"]), percent(row["of_copy_rate"])]
            table.rows.append([TITLES[row["path"]], figure(row["sentences"]), row["direction"], *rates])
        table.note = (
            "GB/s: keys and annotations, each read once, per second; small batches stay in the cache of the device"
        )
        made.append(table)
    made.append(_check_table(results))
    if results["skipped"]:
        made.append(Table("Left out", ["", "why"], [[name, why] for name, why in results["skipped"].items()]))
    return made


def _speed_table(results: dict[str, Any]) -> Table:
    columns = ["", "batch", "pairs/s", "words/s", "TFLOP/s", "share of matrix rate", "ms", "peak MB", "53M pairs, min"]
    table = Table(f"Training `{results['workload']['size']}` in bf16, complete updates", columns)
    for row in sorted(results["speeds"], key=lambda row: (PATHS.index(row["path"]), row["sentences"])):
        table.rows.append(
            [
                TITLES[row["path"]],
                figure(row["sentences"]),
                figure(row["pairs_per_second"]),
                figure(row["target_words_per_second"]),
                figure(row["tflops"], 1),
                f"{100 * row['of_matrix_rate']:.1f}%",
                figure(1e3 * row["seconds"], 1),
                figure(row["peak_mb"]),
                figure(row["minutes_of_the_papers_run"]),
            ]
        )
    ceiling, words = results["ceilings"], results["workload"]["length"]
    rates = (
        f"a large bf16 product {ceiling['tflops']:.1f} TFLOP/s, a copy {ceiling['copy_gb_per_second']:.0f} GB/s"
        if ceiling
        else "device limits not measured"
    )
    missing_paths = [f"{TITLES[name]}: {why}" for name, why in results["paths"].items() if why != "there"]
    lines = [in_words(results["machine"]), f"{words} words per side, with `</s>`; {rates}", *missing_paths]
    table.note = "\n".join(
        [*lines, *(["a dry run on the CPU: its figures mean nothing"] if results["dry_run"] else [])]
    )
    return table


def _check_table(results: dict[str, Any]) -> Table:
    columns = ["", "precision", "models", "loss", "gradient", "worst weight", "its name", ""]
    table = Table("Largest relative errors, compared with the naive loop in float64", columns)
    for path, checks in results["checks"].items():
        for precision in dict.fromkeys(check["precision"] for check in checks):
            rows = [check for check in checks if check["precision"] == precision]
            worst = max(rows, key=lambda row: row["worst"])
            errors = [f"{max(row[name] for row in rows):.1e}" for name in ("loss", "gradient", "worst")]
            verdict = "right" if all(row["ok"] for row in rows) else "WRONG"
            table.rows.append([TITLES[path], precision, figure(len(rows)), *errors, worst["worst_of"], verdict])
    return table
