"""`largest` against a full stable sort."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.decoding.ranking import largest


def by_sorting(values: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    best, places = values.sort(dim=1, descending=True, stable=True)
    return best[:, :count], places[:, :count]


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 45), st.integers(1, 6), st.integers(0, 1000))
def test_equals_a_stable_sort_whatever_the_ties(rows: int, width: int, count: int, levels: int, seed: int) -> None:
    values = torch.randint(levels, (rows, width), generator=torch.Generator().manual_seed(seed)).float()
    best, places = largest(values, count)
    expected, at = by_sorting(values, count)
    assert torch.equal(best, expected)
    assert torch.equal(places, at)


@pytest.mark.parametrize("count", [1, 3, 8])
def test_infinite_entries_are_no_ties(count: int) -> None:
    values = torch.full((2, 6), -torch.inf)
    values[0, 4], values[0, 2], values[1, 5] = 1.0, 1.0, 0.5
    best, places = largest(values, count)
    assert best[0].tolist() == [1.0, 1.0, *[-torch.inf] * 4][:count]
    assert places[0, :2].tolist() == [2, 4][:count]
    assert (best[1, 0], places[1, 0]) == (0.5, 5)


def test_leaves_its_input_alone() -> None:
    values = torch.zeros(2, 9)
    largest(values, 3)
    assert torch.equal(values, torch.zeros(2, 9))
