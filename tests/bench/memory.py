"""Peak memory of a variant, measured in a process of its own."""

import json
import subprocess
import sys
from typing import Any

from bench.machine import BENCH, own_peak_mb
from nmtalign.errors import NmtalignError


def peak_memory(variant: str, given: dict[str, Any]) -> dict[str, float]:
    """The peaks in MB of a new process that runs the variant twice; `given` are the options of the workload."""
    task = json.dumps({**given, "variant": variant})
    done = subprocess.run([sys.executable, str(BENCH), "memory", task], capture_output=True, text=True)
    if done.returncode:
        said = (done.stderr.strip() or "it said nothing").splitlines()[-1]
        raise NmtalignError(f"the process that measures the memory of {variant} ended with {done.returncode}: {said}")
    peaks: dict[str, float] = json.loads(done.stdout)
    return peaks


def measure(task: str) -> None:
    """What that process does: prints the peaks after the imports, after loss and gradients, and after an update."""
    import torch

    from bench.train import workload_of
    from bench.variants import VARIANTS, loss_and_gradients, make_model
    from nmtalign.training.optimizers import make_optimizer

    given = json.loads(task)
    torch.set_num_threads(given["threads"] or torch.get_num_threads())
    workload = workload_of(given)
    variant = VARIANTS[given["variant"]]
    peaks = {"imports": own_peak_mb()}
    model = make_model(workload)
    loss_and_gradients(variant, model, workload)
    loss_and_gradients(variant, model, workload)
    peaks["loss_and_gradients"] = own_peak_mb()
    optimizer = make_optimizer(model.parameters(), workload.size.training)
    for batch in workload.batches[:2]:
        (variant.loss(model, batch) / len(batch.source)).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    peaks["update"] = own_peak_mb()
    sys.stdout.write(json.dumps(peaks))
