"""Two soft matrices as one: links by hand, against definitions, and rows that sum to 1."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.symmetrization import combined, combined_words, expected_f1_links, posterior, soft_links

seeds = st.integers(0, 10_000)
# Two target words, three source words, and `</s>`: both models see the first link, they differ on the second word.
FORWARD = np.array([[0.8, 0.1, 0.0, 0.1], [0.1, 0.5, 0.3, 0.1], [0.0, 0.0, 0.0, 1.0]])
BACKWARD = np.array([[0.9, 0.1, 0.1, 0.0], [0.1, 0.2, 0.7, 0.0], [0.0, 0.7, 0.2, 1.0]])


def matrices(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A forward and a backward matrix with `</s>`, the backward one turned round."""
    generator = np.random.default_rng(seed)
    rows, columns = generator.integers(2, 6, 2)
    forward = generator.dirichlet(np.full(columns, 0.3), rows)
    return forward.astype(np.float32), generator.dirichlet(np.full(rows, 0.3), columns).T.astype(np.float32)


def test_the_product_links_what_both_weigh() -> None:
    means = np.sqrt(FORWARD * BACKWARD)[:-1, :-1]  # .85 .1 0 / .1 .32 .46
    assert soft_links(FORWARD, BACKWARD, "product", 0.4) == [(0, 0), (2, 1)]
    assert soft_links(FORWARD, BACKWARD, "product", 0.3) == [(0, 0), (1, 1), (2, 1)]
    assert soft_links(FORWARD, BACKWARD, "product") == [(0, 0), (1, 1), (2, 1)]
    assert soft_links(FORWARD, BACKWARD, "product", float(means.max()) + 0.01) == []


def test_a_mutual_link_is_the_largest_of_row_and_column() -> None:
    assert soft_links(FORWARD, BACKWARD, "mutual") == [(0, 0), (2, 1)]
    assert soft_links(FORWARD, BACKWARD, "mutual", 0.5) == [(0, 0)]
    assert soft_links(np.zeros((3, 3)), np.zeros((3, 3)), "mutual") == []


@given(seeds)
def test_mutual_links_are_one_a_word(seed: int) -> None:
    links = soft_links(*matrices(seed), "mutual")
    for side in (0, 1):
        assert len({link[side] for link in links}) == len(links)
    assert set(links) <= set(soft_links(*matrices(seed), "product", 0.02))


@given(seeds)
def test_posteriors_are_fractions_and_turn_round_with_the_matrices(seed: int) -> None:
    forward, backward = matrices(seed)
    found = posterior(forward, backward)
    assert found.shape == (len(forward) - 1, forward.shape[1] - 1)
    assert found.min() >= 0
    assert found.max() <= 1
    np.testing.assert_allclose(posterior(backward.T, forward.T), found.T, atol=1e-6)
    links = soft_links(forward, backward, "agreement", 0.5)
    assert links == [(i, j) for j, i in zip(*np.nonzero(found >= 0.5), strict=True)]


def test_a_posterior_by_hand() -> None:
    both = np.array([[0.72, 0.01, 0.0], [0.01, 0.1, 0.21]])
    by_target = both / (both.sum(1, keepdims=True) + 0.01 * 0.1**2)
    by_source = both / (both.sum(0) + 0.01 * np.array([0.0, 0.7, 0.2]) ** 2)
    np.testing.assert_allclose(posterior(FORWARD, BACKWARD), (by_target + by_source) / 2, atol=1e-6)
    assert soft_links(FORWARD, BACKWARD, "agreement", 0.5) == [(0, 0), (1, 1), (2, 1)]
    assert soft_links(FORWARD, BACKWARD, "agreement") == [(0, 0), (2, 1)]


@given(st.lists(st.floats(0, 1, width=32), min_size=1, max_size=6))
def test_expected_f1_is_the_best_of_all_sets(values: list[float]) -> None:
    posteriors = np.array([values], dtype=np.float32)
    total = float(posteriors.sum(dtype=np.float64))

    def expected(chosen: tuple[int, ...]) -> float:
        return 2 * sum(values[i] for i in chosen) / (len(chosen) + total)

    sets = [chosen for size in range(1, len(values) + 1) for chosen in itertools.combinations(range(len(values)), size)]
    links = expected_f1_links(posteriors)
    assert links == sorted(links)
    if total > 0:
        assert expected(tuple(i for i, _ in links)) == pytest.approx(max(map(expected, sets)), rel=1e-5)
    else:
        assert links == []


def test_sure_posteriors_are_the_links_of_least_risk() -> None:
    assert expected_f1_links(np.array([[0.99, 0.01], [0.02, 0.95]])) == [(0, 0), (1, 1)]
    assert expected_f1_links(np.zeros((0, 3))) == []
    assert soft_links(FORWARD, BACKWARD, "bayes-risk") == [(0, 0), (1, 1), (2, 1)]


@pytest.mark.parametrize("mean", ["geometric", "arithmetic"])
@given(seed=seeds)
def test_rows_of_one_matrix_sum_to_one(mean: str, seed: int) -> None:
    forward, backward = matrices(seed)
    found = combined(forward, backward, mean)
    assert found.shape == forward.shape
    assert found.min() >= 0
    sums = found.sum(1)
    assert np.all((abs(sums - 1) < 1e-5) | (sums == 0))
    words = combined_words(forward[:-1, :-1], backward[:-1, :-1], mean)
    assert words.shape == (len(forward) - 1, forward.shape[1] - 1)


def test_null_is_the_mean_of_both_directions_null() -> None:
    row = np.append((FORWARD[1, :3] + BACKWARD[1, :3]) / 2, (0.1 + 0.9 * 0.8 * 0.3) / 2)
    np.testing.assert_allclose(combined(FORWARD, BACKWARD, "arithmetic")[1], row / row.sum(), atol=1e-6)
    row = np.append(np.sqrt(FORWARD[1, :3] * BACKWARD[1, :3]), np.sqrt(0.1 * 0.9 * 0.8 * 0.3))
    np.testing.assert_allclose(combined(FORWARD, BACKWARD, "geometric")[1], row / row.sum(), atol=1e-6)


def test_without_end_there_is_no_null() -> None:
    forward, backward = FORWARD[:-1, :-1], BACKWARD[:-1, :-1]
    assert soft_links(forward, backward, "product", 0.4, end=False) == [(0, 0), (2, 1)]
    np.testing.assert_allclose(combined_words(forward, backward, "arithmetic").sum(1), 1, atol=1e-6)
    assert posterior(forward, backward, end=False)[0, 0] > 0.98
