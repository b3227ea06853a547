"""Checks of settings, and what a setting says in words: sizes, times, intervals."""

import math
import re
from typing import Literal

from nmtalign.errors import UsageError


def at_least(low: float, **values: float) -> None:
    """Raises UsageError for the first value under `low`, or that is no number at all (NaN)."""
    for name, value in values.items():
        if not value >= low:
            raise UsageError(f"{name} = {value}: must be at least {low:g}")


def at_most(high: float, **values: float) -> None:
    """Raises UsageError for the first value above `high`, or that is no number at all (NaN)."""
    for name, value in values.items():
        if not value <= high:
            raise UsageError(f"{name} = {value}: must be at most {high:.7g}")


def finite(**values: float) -> None:
    """Raises UsageError for the first value that is infinite or no number at all."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise UsageError(f"{name} = {value}: must be a finite number")


def fraction(**values: float) -> None:
    """Raises UsageError for the first value outside [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise UsageError(f"{name} = {value}: must be at least 0 and less than 1")


def pair_of_sizes(name: str, text: str) -> tuple[int, int]:
    """(N, N) of "N", (N, M) of "N:M"; each at least 3 (`</s>`, `<unk>` and one word)."""
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    if not match or min(sizes := (int(match[1]), int(match[2] or match[1]))) < 3:
        raise UsageError(f"{name} = {text!r}: give N or N:M (source:target), each at least 3")
    return sizes


def seconds(name: str, text: str) -> float:
    """Seconds of "60s", "15m", "2h"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise UsageError(f"{name} = {text!r}: give a time such as 60s, 15m or 2h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def byte_count(name: str, text: str) -> int:
    """Bytes of "500M", "2G", "1.5GB" (powers of 1024) or a plain number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise UsageError(f"{name} = {text!r}: give a size such as 500M or 2G")
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def interval(name: str, text: str) -> tuple[Literal["updates", "seconds", "epoch"], float]:
    """("updates", 1000) of "1000", ("seconds", 600) of "10m", ("epoch", 1) of "epoch"."""
    if text == "epoch":
        return "epoch", 1.0
    if re.fullmatch(r"[1-9]\d*", text.strip()):
        return "updates", float(text)
    try:
        return "seconds", seconds(name, text)
    except UsageError:
        raise UsageError(f"{name} = {text!r}: give updates (1000), a time (10m) or `epoch`") from None
