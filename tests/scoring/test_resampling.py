"""Draws in slices are those drawn at once, and their sums are exact."""

import tracemalloc

import numpy as np
import pytest

from nmtalign.scoring import report
from nmtalign.scoring.report import bootstrap, interval, swaps


def made_up(size, width=10, seed=3):
    return np.random.default_rng(seed).integers(0, 40, size=(size, width)).astype(np.float64)


@pytest.mark.parametrize("size", [1, 2, 31, 100])
@pytest.mark.parametrize("at_once", [1, 2**8, 2**22])
def test_slices_draw_what_is_drawn_at_once(monkeypatch, size, at_once):
    monkeypatch.setattr(report, "_DRAWS", at_once)
    monkeypatch.setattr(report, "_COINS", at_once)
    rows = [made_up(size), made_up(size, 3, 4)]
    drawn = np.random.default_rng(12345).choice(size, size=(70, size), replace=True)
    coins = np.random.default_rng(12345).integers(2, size=(150, size), dtype=bool)
    for one, sums, (picked, left) in zip(rows, bootstrap(rows, 70, 12345), swaps(rows, 150, 12345), strict=True):
        assert (sums == one[drawn].sum(axis=1)).all()
        assert (picked == coins @ one).all()
        assert (left == ~coins @ one).all()


def test_other_than_whole_numbers_are_added_in_the_order_drawn():
    rows = made_up(500, 2) + 1 / 3
    drawn = np.random.default_rng(5).choice(500, size=(40, 500))
    assert (bootstrap([rows], 40, 5)[0] == [sample.sum(0) for sample in rows.astype(np.float32)[drawn]]).all()


def test_sums_beyond_those_of_float32_are_rounded_once():
    rows = made_up(300, 3) * 100_000 + 1
    drawn = np.random.default_rng(5).choice(300, size=(20, 300))
    expected = rows[drawn].sum(axis=1)
    assert expected.max() > 2**24
    assert (bootstrap([rows], 20, 5)[0] == expected.astype(np.float32)).all()


def test_memory_is_that_of_a_slice(monkeypatch):
    monkeypatch.setattr(report, "_DRAWS", 2**18)
    monkeypatch.setattr(report, "_COINS", 2**19)
    rows = [made_up(10_000, 4)]
    tracemalloc.start()
    bootstrap(rows, 190, 1)  # 15 MB of indices
    swaps(rows, 1_900, 1)  # 19 MB of coins, 152 MB as floats
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 15e6


def test_the_bounds_leave_out_a_fortieth_on_either_side():
    assert interval(np.arange(1000)[::-1].astype(np.float64)) == (499.5, 25.0, 974.0)
    assert interval(np.array([3.0])) == (3.0, 3.0, 3.0)
