"""How much faster two Ray workers translate than one: `python tests/bench/workers.py MODEL TEXT` on a quiet machine.

Each worker has one thread. The start (Ray, and loading the model in each worker) is measured apart from the work. The
processor time of the busiest worker shows the speed-up that is possible where other programs use the processor.
"""

import os
import sys
import time
from collections import defaultdict
from pathlib import Path

import ray.data

from nmtalign import TranslateBatch

ROWS = 1000  # that a worker takes at a time


class TimedBatch(TranslateBatch):
    """Adds the process and the seconds of processor time of its batch, divided by its rows."""

    def __call__(self, batch):
        before = time.process_time()
        result = super().__call__(batch)
        rows = len(result["translation"])
        seconds = time.process_time() - before
        return {**result, "worker": [os.getpid()] * rows, "seconds": [seconds / rows] * rows}


def measure(workers: int, model: str, lines: list[str]) -> tuple[float, float, list[float]]:
    """Seconds until each worker has a model, seconds of translating, processor time of each worker."""
    began = time.monotonic()
    ray.init(num_cpus=workers, include_dashboard=False, object_store_memory=200 << 20, log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    translate = TimedBatch(model, beam=5)

    def run(texts: list[str], size: int) -> list[dict]:
        table = ray.data.from_items([{"text": text} for text in texts], override_num_blocks=-(-len(texts) // size))
        return table.map_batches(translate, batch_size=None).take_all()

    run(lines[: 80 * workers], 20)
    started = time.monotonic()
    rows = run(lines, ROWS)
    done = time.monotonic()
    ray.shutdown()
    of_workers: dict[int, float] = defaultdict(float)
    for row in rows:
        of_workers[row["worker"]] += row["seconds"]
    return started - began, done - started, sorted(of_workers.values(), reverse=True)


def main(model: str, text: str) -> None:
    """Prints the times of one and of two workers, and their ratios."""
    lines = Path(text).read_text(encoding="utf-8").splitlines()
    (start, alone, busy), (both_start, together, shared) = (measure(count, model, lines) for count in (1, 2))
    print(f"{len(lines):,} lines        start    work    processor time of each worker")
    for count, row in ((1, (start, alone, busy)), (2, (both_start, together, shared))):
        print(f"{count} worker(s)      {row[0]:6.1f}s {row[1]:6.1f}s    {', '.join(f'{cpu:.1f}s' for cpu in row[2])}")
    print(
        f"speed-up: {alone / together:.2f} of the work, {(start + alone) / (both_start + together):.2f} with the start"
    )
    print(f"by processor time: {sum(busy) / shared[0]:.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
