"""A batch for which memory runs out is done in halves."""

from collections.abc import Callable, Sequence
from typing import TypeVar

import torch

from nmtalign.errors import ResourceError, is_out_of_memory

T = TypeVar("T")
R = TypeVar("R")


def in_halves(work: Callable[[Sequence[T]], list[R]], items: Sequence[T], too_much: Callable[[T], str]) -> list[R]:
    """What `work` gives for a batch, one result an item; where memory runs out, for its halves one after the other.

    Raises ResourceError with what `too_much` says of an item that is too much by itself.
    """
    try:
        return work(items)
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
    if len(items) == 1:
        raise ResourceError(too_much(items[0]))
    half = len(items) // 2
    return in_halves(work, items[:half], too_much) + in_halves(work, items[half:], too_much)


def out_of_memory(error: Exception) -> bool:
    """Whether PyTorch means that, whichever class it says it with."""
    if is_out_of_memory(error) or isinstance(error, torch.OutOfMemoryError):
        return True
    told = str(error).lower()
    return "memory" in told and "alloc" in told
