"""Counts and error rates of links, against a naive definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.link_files import GoldLinks, LinkFigures, count_links

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
RATES = ("precision", "recall", "aer", "f1")


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), max_size=4))
def test_counts_and_rates_are_what_their_definitions_say(pairs: list[tuple[frozenset, frozenset, frozenset]]) -> None:
    found = [one for one, _, _ in pairs]
    gold = [GoldLinks(sure, sure | maybe) for _, sure, maybe in pairs]
    figures = sum(map(count_links, found, gold), LinkFigures())
    a = {(n, link) for n, one in enumerate(found) for link in one}
    s = {(n, link) for n, one in enumerate(gold) for link in one.sure}
    p = s | {(n, link) for n, (_, _, maybe) in enumerate(pairs) for link in maybe}
    assert figures == LinkFigures(len(pairs), len(s), len(a), len(a & s), len(a & p))
    if a and s:
        precision, recall = len(a & p) / len(a), len(a & s) / len(s)
        aer = 1 - (len(a & s) + len(a & p)) / (len(a) + len(s))
        f1 = 2 * precision * recall / ((precision + recall) or 1)
        assert figures.rates() == pytest.approx(dict(zip(RATES, (precision, recall, aer, f1), strict=True)))
    if not (a or s):
        assert figures.rates() == dict.fromkeys(RATES)


@pytest.mark.parametrize(
    ("links", "sure", "rates"),
    [
        ([(0, 0)], [(0, 0)], (1, 1, 0, 1)),
        ([(0, 0)], [(1, 1)], (0, 0, 1, 0)),
        ([], [(0, 0)], (1, 0, 1, 0)),
        ([(0, 0), (0, 0)], [(0, 0)], (1, 1, 0, 1)),
    ],
)
def test_smallest_and_largest_rates(links: list, sure: list, rates: tuple[int, ...]) -> None:
    figures = count_links(links, GoldLinks(frozenset(sure), frozenset(sure)))
    assert tuple(figures.rates().values()) == rates
