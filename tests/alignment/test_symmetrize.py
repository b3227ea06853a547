"""Links of two directions made one: against the published pseudocode, laws, and cases made by hand."""

import itertools
from collections.abc import Callable, Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.links import Link
from nmtalign.alignment.symmetrization import HARD_METHODS, symmetrize

SIZE = 7
words = st.integers(0, SIZE - 1)
any_links = st.frozensets(st.tuples(words, words), max_size=14)
one_a_word = st.dictionaries(words, words, max_size=SIZE)  # as argmax gives them


class Pseudocode:
    """Koehn et al. (2005) with nothing clever, e over target words and f over source words."""

    def __init__(self, forward: frozenset[Link], backward: frozenset[Link]) -> None:
        self.forward, self.backward = forward, backward
        self.union, self.alignment = forward | backward, set(forward & backward)

    def aligned_e(self, e: int) -> bool:
        return any(j == e for _, j in self.alignment)

    def aligned_f(self, f: int) -> bool:
        return any(i == f for i, _ in self.alignment)

    def grow_diag(self) -> None:
        added = True
        while added:
            added = False
            for e, f in itertools.product(range(SIZE), range(SIZE)):
                if (f, e) in self.alignment:
                    added |= self.grow_from(e, f)

    def grow_from(self, e: int, f: int) -> bool:
        added = False
        for down, right in [(-1, 0), (0, -1), (1, 0), (0, 1), (-1, -1), (-1, 1), (1, -1), (1, 1)]:  # (e, f)
            new_e, new_f = e + down, f + right
            if (not self.aligned_e(new_e) or not self.aligned_f(new_f)) and (new_f, new_e) in self.union:
                self.alignment.add((new_f, new_e))
                added = True
        return added

    def final(self, links: frozenset[Link], enough: Callable[[Iterable[bool]], bool]) -> None:
        for e, f in itertools.product(range(SIZE), range(SIZE)):
            if enough([not self.aligned_e(e), not self.aligned_f(f)]) and (f, e) in links:
                self.alignment.add((f, e))


def pseudocode(forward: frozenset[Link], backward: frozenset[Link], method: str) -> list[Link]:
    code = Pseudocode(forward, backward)
    if method == "union":
        code.alignment = set(code.union)
    if method.startswith("grow-diag"):
        code.grow_diag()
    if "final" in method:
        for links in (forward, backward):
            code.final(links, all if method.endswith("and") else any)
    return sorted(code.alignment, key=lambda link: (link[1], link[0]))


@given(any_links, any_links)
def test_any_links_are_made_one_as_the_pseudocode_says(forward: frozenset[Link], backward: frozenset[Link]) -> None:
    for method in HARD_METHODS:
        assert symmetrize(forward, backward, method) == pseudocode(forward, backward, method)


@given(one_a_word, one_a_word)
def test_so_are_those_of_argmax(sources: dict[int, int], targets: dict[int, int]) -> None:
    forward, backward = frozenset((i, j) for j, i in sources.items()), frozenset(targets.items())
    for method in HARD_METHODS:
        assert symmetrize(forward, backward, method) == pseudocode(forward, backward, method)


@given(any_links, any_links)
def test_each_method_holds_the_one_before(forward: frozenset[Link], backward: frozenset[Link]) -> None:
    found = {method: set(symmetrize(forward, backward, method)) for method in HARD_METHODS}
    grown = found["grow-diag"]
    assert found["intersection"] == forward & backward
    assert found["union"] == forward | backward
    assert found["intersection"] <= grown <= found["grow-diag-final-and"] <= found["union"]
    assert grown <= found["grow-diag-final"] <= found["union"]
    # "final" leaves no word without a link that has one in the union.
    assert {i for i, _ in found["grow-diag-final"]} == {i for i, _ in found["union"]}
    assert {j for _, j in found["grow-diag-final"]} == {j for _, j in found["union"]}


@given(any_links, any_links)
def test_which_direction_is_which_counts_for_final_alone(forward: frozenset[Link], backward: frozenset[Link]) -> None:
    for method in ("intersection", "union", "grow-diag"):
        assert symmetrize(forward, backward, method) == symmetrize(backward, forward, method)


@given(any_links)
def test_equal_directions_stay_as_they_are(links: frozenset[Link]) -> None:
    for method in HARD_METHODS:
        assert set(symmetrize(links, links, method)) == links
        assert symmetrize(list(links) * 2, links, method) == symmetrize(links, links, method)


CASES = [
    # The link beside the intersection comes, on the diagonal, too; the one far from it waits for "final".
    ("grow-diag", {(0, 0), (1, 1), (4, 4)}, {(0, 0)}, [(0, 0), (1, 1)]),
    ("grow-diag-final", {(0, 0), (1, 1), (4, 4)}, {(0, 0)}, [(0, 0), (1, 1), (4, 4)]),
    ("grow-diag-final-and", {(0, 0), (1, 1), (4, 4)}, {(0, 0)}, [(0, 0), (1, 1), (4, 4)]),
    # One of the words has a link already: enough for "final", too much for "final-and".
    ("grow-diag-final", {(0, 0), (0, 3)}, {(0, 0)}, [(0, 0), (0, 3)]),
    ("grow-diag-final-and", {(0, 0), (0, 3)}, {(0, 0)}, [(0, 0)]),
    # A link beside the intersection whose words both have links stays away.
    ("grow-diag", {(0, 0), (1, 1), (0, 1)}, {(0, 0), (1, 1)}, [(0, 0), (1, 1)]),
    # What was added on the way lets more in.
    ("grow-diag", {(0, 0), (1, 0), (2, 0), (3, 1)}, {(0, 0)}, [(0, 0), (1, 0), (2, 0), (3, 1)]),
    # "final" takes the forward direction first: its link of target word 3 leaves no room for the backward one.
    ("grow-diag-final-and", {(2, 3)}, {(2, 5)}, [(2, 3)]),
    ("grow-diag-final-and", {(2, 5)}, {(2, 3)}, [(2, 5)]),
    ("intersection", {(0, 0), (1, 2)}, {(1, 2), (2, 2)}, [(1, 2)]),
    ("union", {(1, 2), (0, 0)}, {(2, 2)}, [(0, 0), (1, 2), (2, 2)]),
    ("grow-diag-final-and", set(), set(), []),
]


@pytest.mark.parametrize(("method", "forward", "backward", "expected"), CASES)
def test_made_by_hand(method, forward, backward, expected) -> None:
    assert symmetrize(forward, backward, method) == expected


def test_another_method_is_refused() -> None:
    with pytest.raises(ValueError, match="not by 'grow'"):
        symmetrize([], [], "grow")  # type: ignore[arg-type]
