"""Timing on a shared machine: the tasks that are compared take turns, and medians are reported."""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence

from bench.report import say

Task = Callable[[], None]
LARGEST_SPREAD = 0.1  # of times from which a ratio is computed
MOST_TIMES = 3  # there are at most this number of times the rounds that were asked for


def take_turns(tasks: Mapping[str, Task], repeats: int) -> dict[str, list[float]]:
    """Returns the times in seconds of each task; after a warm-up round, every task runs once per round.

    A temporary disturbance of the machine therefore affects all tasks equally. There are `repeats` rounds, and further
    ones, up to three times as many, while the spread of a task is above 10%.
    """
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for number in range(MOST_TIMES * repeats + 1):
        if number > repeats and all(spread(each) <= LARGEST_SPREAD for each in seconds.values()):
            break
        for name, task in tasks.items():
            began = time.perf_counter()
            task()
            if number:
                seconds[name].append(time.perf_counter() - began)
        more = " (the times differ by more than 10%)" if number > repeats else ""
        say(f"round {number} of {repeats}{more}" if number else "warm")
    return seconds


def steady(value: float, *spreads: float) -> float | None:
    """A ratio of times with these spreads; None if other programs disturbed one of them too much."""
    return value if max(spreads) <= LARGEST_SPREAD else None


def spread(seconds: Sequence[float]) -> float:
    """Returns half the distance between the quartiles divided by the median; 0 for fewer than 3 values."""
    if len(seconds) < 3:
        return 0.0
    low, middle, high = statistics.quantiles(seconds, n=4)
    return (high - low) / 2 / middle
