"""Batches that are too large are done in halves."""

from collections.abc import Sequence

import pytest
import torch

from nmtalign.core.devices import in_halves
from nmtalign.errors import ResourceError


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
    ],
)
def test_a_batch_is_halved_until_it_fits(error: Exception) -> None:
    sizes = []

    def work(items: Sequence[int]) -> list[int]:
        sizes.append(len(items))
        if sum(items) > 6:
            raise error
        return [10 * item for item in items]

    assert in_halves(work, [1, 2, 3, 4, 5], str) == [10, 20, 30, 40, 50]
    assert sizes == [5, 2, 3, 1, 2, 1, 1]
    with pytest.raises(ResourceError, match="item 7 is too much") as caught:
        in_halves(work, [1, 7, 2], lambda item: f"item {item} is too much")
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_other_errors_are_not_taken_for_memory() -> None:
    def work(items: Sequence[int]) -> list[int]:
        raise RuntimeError("shapes do not fit")

    with pytest.raises(RuntimeError, match="shapes do not fit"):
        in_halves(work, [1, 2], str)
