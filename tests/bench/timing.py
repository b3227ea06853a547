"""Timing on a shared machine: the tasks that are compared take turns, and medians are reported."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from bench.report import say

Task = Callable[[], None]


def take_turns(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[float]]:
    """Returns `repeats` times in seconds of each task; after a warm-up round, every task runs once per round.

    A temporary disturbance of the machine therefore affects all tasks equally.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(repeats + 1):
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            if number:
                seconds[name].append(time.perf_counter() - began)
        say(f"round {number} of {repeats}" if number else "warm")
    return seconds


def spread(seconds: Sequence[float]) -> float:
    """Returns half the distance between the quartiles divided by the median; 0 for fewer than 3 values."""
    if len(seconds) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2 / middle
