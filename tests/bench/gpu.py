"""`bench gpu`: the results of a CUDA device beside float64, then the speed of updates, eager and by CUDA graphs.

It needs only PyTorch and this checkout: `python tests/bench gpu`, from any folder. Results are written after each part.
"""

import itertools
import os
import statistics
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from bench.machine import describe_machine, in_words
from bench.naive import NaiveLoop
from bench.products import flops_of
from bench.report import Table, figure, percent, say, show, write_json
from bench.timing import Task, spread, take_turns
from bench.workload import Size, random_workload
from nmtalign.core.model import TranslationModel
from nmtalign.data.batches import Batch, make_batch
from nmtalign.errors import NmtalignError, ResourceError
from nmtalign.training.graphs import GraphedLoss
from nmtalign.training.optimizers import descend, make_optimizer
from nmtalign.training.updates import BatchLoss, add_gradient

FILE = "bench-gpu.json"
WAYS = {"graphs": "CUDA graphs", "eager": "eager"}
DTYPES = {"fp32": None, "bf16": torch.bfloat16}
DRY = {"hidden": 12, "embedding": 10, "attention_hidden": 9, "maxout": 6, "output_rank": 0}
UPDATES = 8  # in a timed round; the first two of a bucket are eager, and recorded

# Errors relative to the norm: of the complete gradient, and of the gradient of the worst weight. In bf16 a maxout
# unit may choose the other one of two nearly equal values, and the keys' gradient sums terms that nearly cancel.
ALLOWED = {"fp32": (1e-5, 1e-3), "bf16": (0.12, 0.4)}
LENGTHS = ((13, 9), (5, 11), (1, 1), (8, 2), (17, 6))  # odd, with padding on both sides
WIDTHS = {"hidden": 48, "embedding": 36, "attention_hidden": 40, "maxout": 20, "output_rank": 28}


class WrongResultError(NmtalignError):
    """The results of the device differ from those of float64 on the CPU, or a graph cannot be recorded."""


def run(given: dict[str, Any]) -> int:
    """Runs the subcommand with its options by name."""
    device = torch.device(given["device"])
    dry = device.type == "cpu"
    if not dry and not torch.cuda.is_available():
        raise ResourceError("PyTorch sees no CUDA device here; use a machine with one, or a dry run with --device cpu")
    path = given["json"] or Path(os.environ.get("OUT") or ".") / FILE
    size = Size.of(given["size"] or ("tiny" if dry else "paper"), 50 if dry else 0, **(DRY if dry else {}))
    batches, length = given["batches"] or ([2] if dry else [80, 320, 640, 1280]), given["length"] or (3 if dry else 30)
    results: dict[str, Any] = {"benchmark": "gpu", "dry_run": dry, "machine": describe_machine(device.type)}
    results |= {"size": size.name, "length": length, "checks": [], "speeds": []}
    say(in_words(results["machine"]))
    ways = ["eager"] if dry else list(WAYS)
    for way in ways:
        say(f"results, {WAYS[way]}")
        results["checks"].extend(check_results(way, device))
        write_json(path, results)
    peak = matrix_rate(device)
    results["tflops_of_a_large_product"] = peak / 1e12
    for sentences, way in itertools.product(batches, ways):
        say(f"updates, {WAYS[way]}, batches of {sentences}")
        results["speeds"].append(speed(way, size, device, sentences, length, peak))
        write_json(path, results)
    show(tables(results))
    say(f"written to {path}")
    wrong = [check for check in results["checks"] if not check["ok"]]
    if wrong:
        why = f"{len(wrong)} results differ from those of float64; the first is of {wrong[0]['model']}"
        raise WrongResultError(why)
    return 0


def check_results(way: str, device: torch.device) -> Iterator[dict[str, Any]]:
    """Yields the errors of loss and gradients of small models, by model and precision, beside the naive loop.

    The naive loop computes in float64 on the CPU.
    """
    orders = ("look-generate-update", "look-update-generate")
    for attention, cell, order in itertools.product(("additive", "none"), ("paper", "cudnn"), orders):
        size = Size.of("tiny", 211, attention=attention, cell=cell, order=order, **WIDTHS)
        batch, model = _random_batch(211), _random_model(size)
        weights = {name: value.detach().double().requires_grad_() for name, value in model.named_parameters()}
        loss = NaiveLoop(size.model, weights).loss(batch.source, batch.source_mask, batch.target, batch.target_mask)
        expected = dict(zip(weights, torch.autograd.grad(loss, list(weights.values())), strict=True))
        model = model.to(device)
        for precision, (allowed, allowed_worst) in ALLOWED.items():
            compute = _make_loss(way, model, DTYPES[precision])
            for _ in range(3 if way == "graphs" else 1):  # eager, recorded, replayed
                model.zero_grad(set_to_none=True)
                nll = compute(batch)
            found = {name: _plain(parameter.grad) for name, parameter in model.named_parameters()}
            errors = {name: _error(found[name], expected[name]) for name in expected}
            complete = _error(*(torch.cat([each[name].flatten() for name in expected]) for each in (found, expected)))
            worst, loss_error = max(errors, key=lambda name: errors[name]), _error(_plain(nll), loss.detach())
            # ("<=" rather than "not >", so that NaN counts as wrong.)
            ok = loss_error <= allowed and complete <= allowed and errors[worst] <= allowed_worst
            row = {"way": way, "model": f"{cell}, {order}, {attention}", "precision": precision, "ok": ok}
            yield row | {"loss": loss_error, "gradient": complete, "worst": errors[worst], "worst_of": worst}


def speed(way: str, size: Size, device: torch.device, sentences: int, length: int, peak: float) -> dict[str, Any]:
    """The speed of complete updates in bf16; `peak` is the rate of a large product."""
    batches = [random_workload(size, sentences, length, seed).batches[0].to(device) for seed in range(4)]
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    model = TranslationModel(size.model).to(device).train()
    compute = _make_loss(way, model, torch.bfloat16)
    optimizer = make_optimizer(model.parameters(), size.training)

    def updates() -> None:
        for batch in itertools.islice(itertools.cycle(batches), UPDATES):
            compute(batch, 1 / sentences)
            descend(optimizer, size.training.learning_rate, size.training.clip_norm)

    row: dict[str, Any] = {"way": way, "sentences": sentences}
    try:
        all_seconds = [seconds / UPDATES for seconds in _seconds(updates, device)]
    except (torch.OutOfMemoryError, WrongResultError) as error:
        return row | {"failed": f"{type(error).__name__}: {str(error).splitlines()[0]}"}
    seconds, [shape] = statistics.median(all_seconds), random_workload(size, sentences, length).shapes
    return row | {
        "seconds": seconds,
        "spread": spread(all_seconds),
        "target_words_per_second": shape.words / seconds,
        "of_matrix_rate": flops_of(size.model, shape) / seconds / peak,
        "peak_mb": torch.cuda.max_memory_allocated(device) / (1 << 20) if cuda else None,
    }


def matrix_rate(device: torch.device) -> float:
    """The operations per second of a large product in bf16."""
    edge = 8192 if device.type == "cuda" else 256
    left, right = (torch.randn(edge, edge, device=device).bfloat16() for _ in range(2))
    return 2 * edge**3 / statistics.median(_seconds(lambda: torch.mm(left, right), device))


def tables(results: dict[str, Any]) -> list[Table]:
    """Returns the tables of the results."""
    title = f"Training `{results['size']}` in bf16, complete updates, {results['length']} words per side"
    table = Table(title, ["", "batch", "words/s", "of matrix rate", "ms", "peak MB"])
    for row in results["speeds"]:
        rate = row.get("failed") or figure(row["target_words_per_second"])
        cells = [percent(row.get("of_matrix_rate")), figure(1e3 * row.get("seconds", 0), 1), figure(row.get("peak_mb"))]
        table.rows.append([WAYS[row["way"]], figure(row["sentences"]), rate, *cells])
    table.note = f"a large bf16 product: {results['tflops_of_a_large_product']:.1f} TFLOP/s" + (
        "; a dry run on the CPU: its figures mean nothing" if results["dry_run"] else ""
    )
    checked = Table("Relative errors", ["", "model", "precision", "loss", "gradient", "worst weight", ""])
    for row in results["checks"]:
        errors = [f"{row[name]:.1e}" for name in ("loss", "gradient", "worst")]
        checked.rows.append(
            [WAYS[row["way"]], row["model"], row["precision"], *errors, "right" if row["ok"] else "WRONG"]
        )
    return [table, checked]


def _make_loss(way: str, model: TranslationModel, dtype: torch.dtype | None) -> Callable[..., Tensor]:
    """Returns a function that computes loss and gradients of a batch; WrongResultError if recording fails."""
    loss = BatchLoss(model, 0.0, dtype=dtype)
    eager = partial(add_gradient, loss, next(model.parameters()).device)
    return GraphedLoss(model, loss, eager, _refuse) if way == "graphs" else eager


def _refuse(reason: str) -> None:
    raise WrongResultError(reason)


def _seconds(task: Task, device: torch.device) -> list[float]:
    """The times of some rounds, after a warm-up round."""

    def complete() -> None:
        task()
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    return take_turns({"": complete}, 5 if device.type == "cuda" else 1)[""]


def _random_batch(words: int) -> Batch:
    generator = torch.Generator().manual_seed(3)
    sentences = [
        torch.randint(2, words, (length,), generator=generator).tolist() for pair in LENGTHS for length in pair
    ]
    return make_batch(list(zip(sentences[::2], sentences[1::2], strict=True)))


def _random_model(size: Size) -> TranslationModel:
    """Returns a model in which every weight and bias affects the result."""
    torch.manual_seed(5)
    model = TranslationModel(size.model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.08)
    return model


def _plain(tensor: Any) -> Tensor:
    plain: Tensor = tensor.detach().double().cpu()
    return plain


def _error(found: Tensor, expected: Tensor) -> float:
    """Returns the distance divided by the norm of the expected value."""
    return float((found - expected).norm() / expected.norm().clamp_min(1e-30))
