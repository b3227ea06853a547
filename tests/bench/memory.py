"""Peak memory of a variant, measured in a separate process."""

import json
import subprocess
import sys

from bench.machine import BENCH
from bench.report import complaint_in
from nmtalign.errors import NmtalignError


def peak_memory(variant, given):
    """Returns the peaks in MB of a new process that runs the variant twice; `given` are the options of the workload."""
    task = json.dumps({**given, "variant": variant}, default=str)
    done = subprocess.run([sys.executable, str(BENCH), "memory", task], capture_output=True, text=True)
    if done.returncode:
        why = complaint_in(done.stderr.splitlines())
        raise NmtalignError(f"the process that measures the memory of {variant} ended with {done.returncode}: {why}")
    peaks: dict[str, float] = json.loads(done.stdout)
    return peaks


def run(given):
    """Runs in that process: prints the peaks after the imports, after loss and gradients, and after an update."""
    import torch

    from bench.train import workload_of
    from bench.variants import VARIANTS, loss_and_gradients, make_model
    from nmtalign.processor import keep_memory
    from nmtalign.training.dry_run import process_peak
    from nmtalign.training.optimizers import descend, make_optimizer

    given = json.loads(given["task"])
    if given["threads"]:
        torch.set_num_threads(given["threads"])
    keep_memory()  # as training does
    workload = workload_of(given)
    variant = VARIANTS[given["variant"]]
    peaks = {"imports": process_peak() / (1 << 20)}
    model = make_model(workload)
    loss_and_gradients(variant, model, workload)
    loss_and_gradients(variant, model, workload)
    peaks["loss_and_gradients"] = process_peak() / (1 << 20)
    training = workload.size.training
    optimizer = make_optimizer(model.parameters(), training)
    for batch in [*workload.batches, *workload.batches][:2]:
        (variant.loss(model, batch) / len(batch.source)).backward()
        descend(optimizer, training.learning_rate, training.clip_norm)
    peaks["update"] = process_peak() / (1 << 20)
    sys.stdout.write(json.dumps(peaks))
