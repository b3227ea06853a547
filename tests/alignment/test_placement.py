"""Where tags belong in a translation."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from nmtalign.alignment.placement import TagSpan, best_range, place


def weights(*rows):
    return np.array(rows, np.float32)


def test_a_span_encloses_the_words_that_are_linked_into_it():
    # the red boat: le bateau rouge
    links = weights([0.9, 0.1, 0], [0, 0.1, 0.9], [0, 0.9, 0.1])
    assert place([TagSpan(1, 2)], links) == [(2, 3)]
    assert place([TagSpan(1, 3)], links) == [(1, 3)]
    assert place([TagSpan(0, 1)], links) == [(0, 1)]


def test_an_outlier_is_left_out():
    links = weights([0.9, 0, 0], [0, 0.9, 0], [0, 0.9, 0], [0, 0.9, 0], [0.6, 0, 0.4])
    assert place([TagSpan(0, 1)], links) == [(0, 1)]


def test_without_links_it_encloses_the_word_linked_nearest():
    links = weights([0.9, 0, 0, 0], [0, 0, 0.9, 0], [0, 0, 0, 0.9], [0, 0, 0, 0])
    assert place([TagSpan(1, 2)], links) in ([(0, 1)], [(1, 2)])


def test_children_are_inside_and_siblings_apart():
    links = np.eye(4, dtype=np.float32)
    spans = [TagSpan(0, 3), TagSpan(0, 1, 0), TagSpan(1, 3, 0), TagSpan(1, 3, 2), TagSpan(3, 4)]
    assert place(spans, links) == [(0, 3), (0, 1), (1, 3), (1, 3), (3, 4)]


def test_an_empty_element_stays_between_its_neighbours():
    links = np.eye(4, dtype=np.float32)[[2, 3, 0, 1]]  # the second half comes first
    assert place([TagSpan(1, 1)], links) == [(3, 3)]
    assert place([TagSpan(0, 0), TagSpan(4, 4)], links) == [(0, 0), (4, 4)]


def test_lines_have_words_if_there_are_enough():
    links = weights([1, 0, 0], [1, 0, 0], [1, 0, 0])
    lines = [TagSpan(1, 1, line=True), TagSpan(2, 2, line=True)]
    assert place(lines, links) == [(1, 1), (2, 2)]
    assert place(lines, links[:0]) == [(0, 0), (0, 0)]
    assert place(lines[:1], np.eye(4, 3, dtype=np.float32), [False, True, False, False])[0] != (1, 1)
    edges = [TagSpan(0, 0, line=True), *lines, TagSpan(3, 3, line=True)]  # beside lines without words, such as a note
    assert place(edges, links) == [(0, 0), (1, 1), (2, 2), (3, 3)]
    inside = [TagSpan(2, 2, line=True), TagSpan(2, 4), TagSpan(3, 3, 1, line=True)]
    assert place(inside, np.eye(4, dtype=np.float32)[[2, 0, 1, 3]]) == [(2, 2), (2, 4), (3, 3)]


@settings(max_examples=300)
@given(st.integers(0, 2**32))
def test_ranges_are_always_nested(seed):
    chance = np.random.default_rng(seed)
    height, width = chance.integers(0, 8), chance.integers(1, 8)
    links = chance.dirichlet(np.full(width, 0.3), height).astype(np.float32) * chance.uniform(0, 1, (height, 1))
    spans = []

    def add(first, stop, parent, depth):
        while first <= stop and len(spans) < 12 and depth < 4:
            start = int(chance.integers(first, stop + 1))
            end = int(chance.integers(start, stop + 1))
            number = len(spans)
            spans.append(TagSpan(start, end, parent, start == end and chance.random() < 0.4))
            if start < end:
                add(start, end, number, depth + 1)
            first = end + (chance.random() < 0.7)

    add(0, width, -1, 0)
    found = place(spans, links.astype(np.float32))
    for number, (span, (start, stop)) in enumerate(zip(spans, found, strict=True)):
        low, high = found[span.parent] if span.parent >= 0 else (0, height)
        assert low <= start <= stop <= high
        for other, (begin, end) in list(zip(spans, found, strict=True))[:number]:
            if other.parent == span.parent:
                assert stop <= begin or end <= start or (begin, end) == (start, stop) == (start, start)
                if other.first == other.stop and span.first == span.stop:
                    assert begin <= start


def test_best_range():
    assert best_range(np.array([-1.0, 2, -1, 2, -3, 1])) == (3.0, 1, 4)
    assert best_range(np.array([0.0, 1, 0])) == (1.0, 1, 2)
    assert best_range(np.array([-3.0, -1])) == (-1.0, 1, 2)
    assert best_range(np.array([]))[0] == -np.inf
