"""Timing on a machine that others use too: what is compared takes turns, and medians are reported."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from bench.report import say

Task = Callable[[], None]


def take_turns(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[float]]:
    """Seconds of each task, `repeats` of them: round by round, every task once a round, after a round not counted.

    What disturbs the machine for a while disturbs all tasks alike.
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
    """Half the distance between the quartiles, as a share of the median; 0 for fewer than 3."""
    if len(seconds) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2 / middle
