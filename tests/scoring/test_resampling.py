"""Draws in slices are those drawn at once, and their sums are exact."""

import tracemalloc

import numpy as np
import pytest
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.scoring.metrics import Statistics
from nmtalign.scoring.resampling import Columns, bootstrap, interval, swaps


def statistics(rows: NDArray[np.float64]) -> Statistics:
    return Statistics("BLEU", "BLEU|nrefs:1", rows, BLEU(force=True))


def made_up(size: int, width: int = 10, seed: int = 3) -> NDArray[np.float64]:
    return np.random.default_rng(seed).integers(0, 40, size=(size, width)).astype(np.float64)


@pytest.mark.parametrize("size", [1, 2, 31, 100])
@pytest.mark.parametrize("slices", [1, 2**8, 2**21])
def test_slices_draw_the_samples_that_are_drawn_at_once(size: int, slices: int) -> None:
    rows, done = made_up(size), list[int]()
    columns = Columns.of([[statistics(rows)]])
    drawn = np.random.default_rng(12345).choice(size, size=(70, size), replace=True)
    sums = bootstrap(columns, 70, 12345, done.append, slices)[:, columns.places[0][0]]
    assert (sums == rows[drawn].sum(axis=1)).all()
    assert sum(done) == 70


@pytest.mark.parametrize("size", [1, 2, 31, 100])
@pytest.mark.parametrize("slices", [1, 2**8, 2**23])
def test_slices_toss_the_coins_that_are_tossed_at_once(size: int, slices: int) -> None:
    rows, done = made_up(size), list[int]()
    columns = Columns.of([[statistics(rows)]])
    coins = np.random.default_rng(12345).integers(2, size=(150, size), dtype=bool)
    picked, left = (sums[:, columns.places[0][0]] for sums in swaps(columns, 150, 12345, done.append, slices))
    assert (picked == coins @ rows).all()
    assert (left == ~coins @ rows).all()
    assert sum(done) == 150


def test_other_than_whole_numbers_are_added_in_the_order_drawn() -> None:
    rows = made_up(500, 2) + 1 / 3
    columns = Columns.of([[Statistics("TER", "TER|nrefs:3", rows, TER())]])
    drawn = np.random.default_rng(5).choice(500, size=(40, 500))
    expected = [sample.sum(0) for sample in rows.astype(np.float32)[drawn]]
    assert (bootstrap(columns, 40, 5)[:, columns.places[0][0]] == expected).all()
    assert columns.totals().tolist() == [sum(column) for column in rows.T.tolist()]


def test_sums_beyond_those_of_float32_are_rounded_once() -> None:
    rows = made_up(300, 3) * 100_000 + 1
    columns = Columns.of([[statistics(rows)]])
    drawn = np.random.default_rng(5).choice(300, size=(20, 300))
    expected = rows[drawn].sum(axis=1)
    assert expected.max() > 2**24
    assert (bootstrap(columns, 20, 5)[:, columns.places[0][0]] == expected.astype(np.float32)).all()
    assert (np.cumsum(rows[drawn], axis=1, dtype=np.float32)[:, -1] != expected.astype(np.float32)).any()


def test_columns_that_are_alike_are_kept_once() -> None:
    rows = made_up(30, 24)
    chrf, more = Statistics("chrF2", "", rows[:, :18], CHRF()), Statistics("chrF2++", "", rows, CHRF(word_order=2))
    columns = Columns.of([[chrf, more], [chrf, more]])
    assert columns.whole.shape == (30, 24)
    for system in (0, 1):
        for metric, one in enumerate((chrf, more)):
            assert (columns.whole[:, columns.places[system][metric]] == one.rows).all()


def test_a_subset_draws_as_a_corpus_of_its_own() -> None:
    rows, mask = made_up(60), np.arange(60) % 3 == 0
    apart, within = Columns.of([[statistics(rows[mask])]]), Columns.of([[statistics(rows)]]).subset(mask)
    assert (bootstrap(apart, 50, 1) == bootstrap(within, 50, 1)[:, within.places[0][0]]).all()


def test_a_seed_gives_its_own_draws() -> None:
    columns = Columns.of([[statistics(made_up(60))]])
    first, again, other = (bootstrap(columns, 50, seed) for seed in (1, 1, 2))
    assert (first == again).all()
    assert (first != other).any()


def test_memory_is_that_of_a_slice() -> None:
    columns = Columns.of([[statistics(made_up(50_000, 4))]])
    tracemalloc.start()
    bootstrap(columns, 300, 1)  # 120 MB of indices
    swaps(columns, 3_000, 1)  # 150 MB of coins, 600 MB as floats
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 60e6


def test_the_bounds_leave_out_a_fortieth_on_either_side() -> None:
    found = interval(np.arange(1000)[::-1].astype(np.float64))
    assert (found.mean, found.low, found.high, found.half_width) == (499.5, 25.0, 974.0, 474.5)
    assert (interval(np.array([3.0])).low, interval(np.array([3.0])).high) == (3.0, 3.0)
