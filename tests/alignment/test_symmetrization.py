"""Two directions are joined: links compared with the published pseudocode, soft matrices with their definitions."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.links import AlignmentRecord, hard_links
from nmtalign.alignment.symmetrization import HARD_METHODS, combined, join, posterior, soft_links, symmetrize
from nmtalign.errors import InputError, UsageError

SIZE = 7
words = st.integers(0, SIZE - 1)
any_links = st.frozensets(st.tuples(words, words), max_size=14)


class Pseudocode:
    """The pseudocode of Koehn et al. (2005): e is a target word, f a source word."""

    def __init__(self, forward, backward, strict=False):
        self.enough = all if strict else any  # in grow-diag; of the two words, which have no link
        self.forward, self.backward = forward, backward
        self.union, self.alignment = forward | backward, set(forward & backward)

    def aligned_e(self, e):
        return any(j == e for _, j in self.alignment)

    def aligned_f(self, f):
        return any(i == f for i, _ in self.alignment)

    def grow_diag(self):
        added = True
        while added:
            added = False
            for e, f in itertools.product(range(SIZE), range(SIZE)):
                if (f, e) in self.alignment:
                    added |= self.grow_from(e, f)

    def grow_from(self, e, f):
        added = False
        for down, right in [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]:  # (e, f)
            new_e, new_f = e + down, f + right
            free = not self.aligned_e(new_e), not self.aligned_f(new_f)
            if self.enough(free) and (new_f, new_e) in self.union:
                self.alignment.add((new_f, new_e))
                added = True
        return added

    def final(self, links, enough):
        for e, f in itertools.product(range(SIZE), range(SIZE)):
            if enough([not self.aligned_e(e), not self.aligned_f(f)]) and (f, e) in links:
                self.alignment.add((f, e))


def pseudocode(forward, backward, method):
    code = Pseudocode(forward, backward, method == "grow-diag-strict")
    if method == "union":
        code.alignment = set(code.union)
    if method.startswith("grow-diag"):
        code.grow_diag()
    if "final" in method:
        for links in (forward, backward):
            code.final(links, all if method.endswith("and") else any)
    return sorted(code.alignment, key=lambda link: (link[1], link[0]))


@given(any_links, any_links)
def test_any_links_are_joined_as_in_the_pseudocode(forward, backward):
    for method in HARD_METHODS:
        assert symmetrize(forward, backward, method) == pseudocode(forward, backward, method)


@pytest.mark.timeout(60)
def test_links_that_grow_backwards_take_linear_time():
    """Each pass over the links adds the one before the first: 20,000 passes."""
    diagonal = [(place, place) for place in range(20_000)]
    assert symmetrize(diagonal[-1:], diagonal) == diagonal


def test_another_method_is_refused():
    with pytest.raises(UsageError, match="not by 'grow'"):
        symmetrize([], [], "grow")


# Two target words, three source words, and `</s>`: both models see the first link, they differ on the second word.
FORWARD = np.array([[0.8, 0.1, 0.0, 0.1], [0.1, 0.5, 0.3, 0.1], [0.0, 0.0, 0.0, 1.0]])
BACKWARD = np.array([[0.9, 0.1, 0.1, 0.0], [0.1, 0.2, 0.7, 0.0], [0.0, 0.7, 0.2, 1.0]])


def test_the_mean_needs_half_of_both_directions():
    means = (FORWARD + BACKWARD)[:-1, :-1] / 2
    links, scores = soft_links(FORWARD, BACKWARD, "mean")
    assert links == [(int(i), int(j)) for j, i in np.argwhere(means >= 0.5)]
    np.testing.assert_allclose(scores, means)
    assert soft_links(FORWARD, BACKWARD, "mean", float(means.max()) + 0.01)[0] == []


def test_a_posterior_by_hand():
    both = np.array([[0.72, 0.01, 0.0], [0.01, 0.1, 0.21]])
    by_target = both / (both.sum(1, keepdims=True) + 0.01 * 0.1**2)
    by_source = both / (both.sum(0) + 0.01 * np.array([0.0, 0.7, 0.2]) ** 2)
    np.testing.assert_allclose(posterior(FORWARD, BACKWARD), (by_target + by_source) / 2, atol=1e-6)
    assert soft_links(FORWARD, BACKWARD, "agreement", 0.5)[0] == [(0, 0), (1, 1), (2, 1)]
    assert soft_links(FORWARD, BACKWARD, "agreement")[0] == [(0, 0), (2, 1)]
    assert not posterior(np.zeros((2, 2)), np.zeros((2, 2))).any()  # words without weight in both directions


def test_null_is_the_mean_of_both_directions_null():
    row = np.append((FORWARD[1, :3] + BACKWARD[1, :3]) / 2, (0.1 + 0.9 * 0.8 * 0.3) / 2)
    np.testing.assert_allclose(combined(FORWARD, BACKWARD, "arithmetic")[1], row / row.sum(), atol=1e-6)
    row = np.append(np.sqrt(FORWARD[1, :3] * BACKWARD[1, :3]), np.sqrt(0.1 * 0.9 * 0.8 * 0.3))
    np.testing.assert_allclose(combined(FORWARD, BACKWARD, "geometric")[1], row / row.sum(), atol=1e-6)
    row = np.append((BACKWARD[2, :3] + [0.2 * 0.9, 0.9 * 0.5, 0.7]) / 2, 1.0)  # of `</s>`: no target word chooses these
    np.testing.assert_allclose(combined(FORWARD, BACKWARD, "arithmetic")[2], row / row.sum(), atol=1e-6)
    assert not combined(np.zeros((2, 2)), np.zeros((2, 2)), "geometric")[0].any()  # a row without weight


def test_one_record_of_two_directions():
    def record(source, target, weights):
        log_probs = np.full(len(weights), -1.0)
        links = tuple(hard_links(weights, "argmax"))
        return AlignmentRecord(tuple(source), tuple(target), weights, -3.0, 0, log_probs, links)

    forward, backward = record("abc", "xy", FORWARD), record("xy", "abc", BACKWARD.T)
    assert join(forward, backward, "intersection").hard_links == ((0, 0),)
    both = join(forward, backward, "union")
    assert (both.source, both.target, both.log_prob) == (forward.source, forward.target, forward.log_prob)
    assert both.hard_links == ((0, 0), (1, 1), (2, 1))
    np.testing.assert_allclose(both.weights, combined(FORWARD, BACKWARD, "arithmetic"))
    assert both.link_scores == tuple(both.weights[j, i] for i, j in both.hard_links)
    agreed = join(forward, backward, "agreement")
    assert agreed.link_scores == pytest.approx([posterior(FORWARD, BACKWARD)[j, i] for i, j in agreed.hard_links])
    np.testing.assert_allclose(agreed.weights, combined(FORWARD, BACKWARD, "geometric"))
    with pytest.raises(InputError, match=r"line 1: the two directions have different words \('c' and 'd'\)"):
        join(forward, record("xy", "abd", BACKWARD.T), "union")
    with pytest.raises(InputError, match=r"different words \(3 and 2 words\)"):
        join(forward, record("xy", "ab", BACKWARD.T), "union")
    assert replace(both, hard_links=()).links("argmax") == hard_links(both.weights, "argmax")
    assert hard_links(FORWARD, "threshold", 0.15) == [(i, j) for j, i in np.argwhere(FORWARD[:-1, :-1] > 0.15).tolist()]
