"""Threads that search in parallel, and PyTorch's number of threads."""

from collections.abc import Iterator

import pytest
import torch

from nmtalign.settings.training_settings import ModelConfig
from nmtalign.translating.batching import BatchLimits, Workers

CPU = torch.device("cpu")
LIMITS = BatchLimits(  # one sentence per batch
    words=1, memory=0, model=ModelConfig(), beam=1, itemsize=4, scored=1, length_ratio=1.0, keep_weights=False
)


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_searches_that_overlap_leave_pytorch_its_threads() -> None:
    """Independent of which search ends first; the second search has the same number of threads as the first."""
    for order in ((0, 1), (1, 0)):
        searches = []
        for _ in range(2):
            workers = Workers(CPU, ahead=True)
            assert Workers.count(CPU) == 2
            found = workers.run(lambda batch: [torch.get_num_threads()], [0, 1, 2], [1, 1, 1], LIMITS)
            assert list(found) == [1, 1, 1]
            searches.append(workers)
        assert torch.get_num_threads() == 1
        for place in order:
            searches[place].__exit__(None, None, None)
        assert torch.get_num_threads() == 2
