"""Rates of a device: its ceilings, training by every path, launches, and the attention's kernels against memory."""

import statistics
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

from bench.paths import following, make_update
from bench.products import annotation_size, flops_of
from bench.workload import Size, Workload, random_workload
from nmtalign.core.attention import AttentionInputs, Memory
from nmtalign.core.model import Activations, TranslationModel
from nmtalign.training.optimizers import make_optimizer

# Blocks of calls that are timed, and seconds of each; on a CPU nothing is to be learnt but that it runs.
BLOCKS = {"cuda": (3, 0.7), "cpu": (1, 0.01)}
PAPER_PAIRS = 53e6  # sentence pairs of the paper's longest run


def wait_for(device: torch.device) -> None:
    """Until the device has done what it was given."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def seconds_of(run: Callable[[], object], device: torch.device, share: float = 1.0) -> float:
    """Seconds of one call: the median of a few blocks, each of as many calls as fill a `share` of its time."""
    run()
    wait_for(device)
    began = time.perf_counter()
    run()
    wait_for(device)
    count, block = BLOCKS[device.type]
    calls = max(1, int(share * block / max(1e-6, time.perf_counter() - began)))
    blocks: list[float] = []
    for _ in range(count):
        began = time.perf_counter()
        for _ in range(calls):
            run()
        wait_for(device)
        blocks.append((time.perf_counter() - began) / calls)
    return statistics.median(blocks)


def ceilings(device: torch.device) -> dict[str, float]:
    """The rate of a large bf16 product, and of a copy in memory (bytes read and written)."""
    cuda = device.type == "cuda"
    edge, cells = (8192, 1 << 30) if cuda else (256, 1 << 16)
    left, right = (torch.randn(edge, edge, device=device).bfloat16() for _ in range(2))
    out = torch.empty_like(left)
    product = seconds_of(lambda: torch.mm(left, right, out=out), device)
    source = torch.empty(cells, dtype=torch.bfloat16, device=device).fill_(1)
    target = torch.empty_like(source)
    copy = seconds_of(lambda: target.copy_(source), device)
    return {"tflops": 2 * edge**3 / product / 1e12, "copy_gb_per_second": 4 * cells / copy / 1e9}


class Training:
    """A model and its optimiser on a device, for updates by any path."""

    def __init__(self, size: Size, device: torch.device) -> None:
        torch.manual_seed(1)
        self.size, self.device = size, device
        self.model = TranslationModel(size.model).to(device).train()
        self.how = Activations(torch.bfloat16)
        self.optimizer = make_optimizer(self.model.parameters(), size.training)

    def speed(self, path: str, sentences: int, length: int, peak_tflops: float) -> dict[str, Any]:
        """Whole updates by a path: pairs/s, words/s, share of the device's matrix rate, peak memory."""
        workloads = [random_workload(self.size, sentences, length, seed) for seed in range(4)]
        batches = [batch.to(self.device) for workload in workloads for batch in workload.batches]
        _forget_peak(self.device)
        with following(path):
            update = make_update(path, self.model, self.how, self.optimizer, self.size.training)
            turn = 0

            def one() -> None:
                nonlocal turn
                turn += 1
                update(batches[turn % len(batches)])

            one()  # compiles and captures
            seconds = seconds_of(one, self.device)
        return {
            "path": path,
            "sentences": sentences,
            **_rates(workloads[0], seconds, peak_tflops),
            **_peak(self.device),
        }

    def launches(self, path: str, sentences: int, length: int, seconds: float) -> dict[str, Any]:
        """Kernels of one update, and how much of its `seconds` (taken without a profiler) the device computes."""
        from torch.profiler import ProfilerActivity, profile

        [batch] = random_workload(self.size, sentences, length).batches
        there = batch.to(self.device)
        with following(path):
            update = make_update(path, self.model, self.how, self.optimizer, self.size.training)
            for _ in range(3 if path == "graphs" else 1):  # a graph is recorded at the second
                update(there)
            wait_for(self.device)
            activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if self.device.type == "cuda" else [])]
            with profile(activities=activities) as profiled:
                update(there)
                wait_for(self.device)
        kernels = [event for event in profiled.events() if _is_kernel(event)]
        busy = _covered((event.time_range.start, event.time_range.end) for event in kernels) / 1e6
        return {
            "path": path,
            "sentences": sentences,
            "kernels": len(kernels),
            "kernel_seconds": busy,
            "busy": busy / seconds,
            "microseconds_a_kernel": 1e6 * seconds / max(1, len(kernels)),
        }


def _is_kernel(event: Any) -> bool:
    """Whether an event of the profiler is work of the device, not a remark about a stretch of it."""
    remark = getattr(event, "is_user_annotation", False) or event.name.startswith(("Optimizer.", "ProfilerStep"))
    return event.device_type.name != "CPU" and not remark


def _covered(stretches: Iterable[tuple[float, float]]) -> float:
    """The length of what the stretches cover together."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(stretches):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _rates(workload: Workload, seconds: float, peak_tflops: float) -> dict[str, float]:
    flops = sum(flops_of(workload.size.model, shape) for shape in workload.shapes)
    pairs = workload.sentences / seconds
    return {
        "seconds": seconds,
        "pairs_per_second": pairs,
        "target_words_per_second": workload.target_words / seconds,
        "tflops": flops / seconds / 1e12,
        "of_matrix_rate": flops / seconds / 1e12 / peak_tflops,
        "minutes_of_the_papers_run": PAPER_PAIRS / pairs / 60,
    }


def _forget_peak(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def _peak(device: torch.device) -> dict[str, float | None]:
    if device.type != "cuda":
        return {"peak_mb": None}
    return {"peak_mb": torch.cuda.max_memory_allocated(device) / (1 << 20)}


def attention_rates(
    size: Size, device: torch.device, sentences: int, length: int, copy_rate: float
) -> list[dict[str, Any]]:
    """One look at the source, forward and backward, by PyTorch's operations and by the kernels.

    The bytes are those that nobody can do without, keys and annotations read once, at the rate of a copy in memory.
    """
    n, depth = size.model.attention_hidden, annotation_size(size.model)
    query = torch.randn(sentences, n, device=device).bfloat16()
    keys = torch.randn(sentences, length, n, device=device).bfloat16()
    annotations = torch.randn(sentences, length, depth, device=device).bfloat16()
    vector = torch.randn(n, device=device).bfloat16()
    d_context = torch.randn(sentences, depth, device=device).bfloat16()
    bytes_read = 2 * sentences * length * (n + depth)
    found = []
    for name, (forward, backward) in _looks(query, keys, annotations, vector, d_context).items():
        for direction, run in (("forward", forward), ("backward", backward)):
            seconds = seconds_of(run, device, 0.25)
            rate = bytes_read / seconds / 1e9
            found.append(
                {
                    "path": name,
                    "direction": direction,
                    "sentences": sentences,
                    "microseconds": 1e6 * seconds,
                    "gb_per_second": rate,
                    "of_copy_rate": rate / copy_rate,
                }
            )
    return found


Looks = dict[str, tuple[Callable[[], None], Callable[[], None]]]


def _looks(query: Tensor, keys: Tensor, annotations: Tensor, vector: Tensor, d_context: Tensor) -> Looks:
    from nmtalign.core.gpu.fused_attention import FusedAttentionPass

    weights = _plain_forward(query, keys, annotations, vector)[1]

    def plain_forward() -> None:
        _plain_forward(query, keys, annotations, vector)

    def plain_backward() -> None:
        _plain_backward(d_context, query, keys, annotations, vector, weights)

    unit = torch.eye(query.shape[1], device=query.device, dtype=query.dtype)
    memory = Memory(annotations, keys, None, query)
    fused = FusedAttentionPass(AttentionInputs(memory, (unit, vector), len(query), 1, differentiate=True))
    fused.forward(0, query)
    fused.start_backward()
    fused.d_contexts[0] = d_context

    def fused_forward() -> None:
        fused.forward(0, query)

    def fused_backward() -> None:
        fused.backward(0, None)

    return {"plain": (plain_forward, plain_backward), "kernels": (fused_forward, fused_backward)}


def _plain_forward(query: Tensor, keys: Tensor, annotations: Tensor, vector: Tensor) -> tuple[Tensor, Tensor]:
    energies = ((keys + query[:, None]).tanh_() @ vector[:, None]).squeeze(-1)
    weights = energies.softmax(-1, dtype=torch.float32)
    return torch.bmm(weights.to(annotations.dtype)[:, None], annotations).squeeze(1), weights


def _plain_backward(
    d_context: Tensor, query: Tensor, keys: Tensor, annotations: Tensor, vector: Tensor, weights: Tensor
) -> tuple[Tensor, Tensor]:
    """(d_query, d_energies) of one step, tanh computed again, as the kernels give them."""
    d_weights = torch.bmm(annotations, d_context[:, :, None]).squeeze(2).float()
    d_energies = weights * (d_weights - (weights * d_weights).sum(-1, keepdim=True))
    squares = (keys + query[:, None]).tanh_().square_()
    return torch.bmm(d_energies.to(squares.dtype)[:, None], squares).squeeze(1).mul_(vector).neg_(), d_energies
