"""The best continuations of a beam: by blocks of words as by looking at each, ties included."""

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.decoding import selection
from nmtalign.decoding.selection import best_continuations


@dataclass
class Given:
    values: torch.Tensor

    @property
    def shape(self):
        return tuple(self.values.shape)

    @property
    def device(self):
        return self.values.device

    def logits(self, rows):
        part = self.values[rows].clone()
        return part, part.logsumexp(-1, keepdim=True)


def agree(values: torch.Tensor, open_totals: torch.Tensor, count: int, banned: int | None = None) -> None:
    """Against a stable sort of everything."""

    def restrict(logits, log_sums, rows):
        if banned is not None:
            logits[:, banned] = -torch.inf

    found = best_continuations(Given(values), open_totals, count, restrict)
    log_probs = values - values.logsumexp(-1, keepdim=True)
    if banned is not None:
        log_probs[:, banned] = -torch.inf
    totals = (log_probs.double().view(*open_totals.shape, -1) + open_totals[:, :, None]).flatten(1)
    order = totals.argsort(dim=1, descending=True, stable=True)[:, :count]
    finite = totals.gather(1, order) > -torch.inf
    assert torch.equal(found.totals[finite], totals.gather(1, order)[finite])
    places = found.hypotheses * values.shape[1] + found.columns
    assert torch.equal(places[finite], order[finite])
    assert torch.equal(found.gains[finite], log_probs.view(len(open_totals), -1).gather(1, order)[finite])


@pytest.mark.parametrize("width", [7, 4096, 5003, 30000])
@pytest.mark.parametrize("rows", [1, 5])
@pytest.mark.parametrize("count", [1, 12])
def test_blocks_find_what_sorting_finds(width: int, rows: int, count: int) -> None:
    torch.manual_seed(width + rows)
    open_totals = torch.randn(3, rows, dtype=torch.float64)
    agree(torch.randn(3 * rows, width) * 4, open_totals, count, banned=1)


@pytest.mark.parametrize("levels", [1, 2, 40])
def test_equal_values_come_by_hypothesis_and_word(levels: int) -> None:
    torch.manual_seed(levels)
    values = torch.randint(0, levels, (6, 5003)).float()
    agree(values, torch.zeros(2, 3, dtype=torch.float64), 12)
    values[:, 17:] = -torch.inf
    agree(values, torch.zeros(2, 3, dtype=torch.float64), 12)


def test_hypotheses_that_are_not_there_are_passed_over() -> None:
    torch.manual_seed(0)
    open_totals = torch.randn(2, 4, dtype=torch.float64)
    open_totals[0, 1:] = open_totals[1, 3] = -torch.inf
    agree(torch.randn(8, 6000), open_totals, 12)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 9), st.integers(1, 40), st.integers(0, 9999), st.integers(1, 6)
)
def test_whatever_the_shape(sentences: int, rows: int, count: int, width: int, seed: int, levels: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(0, levels, (sentences * rows, width), generator=generator).float()
    open_totals = -torch.randint(0, 3, (sentences, rows), generator=generator).double()
    wide, stride = selection._WIDE, selection._STRIDE
    selection._WIDE, selection._STRIDE = 5, 5
    try:
        agree(values, open_totals, count)
    finally:
        selection._WIDE, selection._STRIDE = wide, stride
