"""Counts and error rates of links, against a naive definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.evaluation import figures_of
from nmtalign.alignment.link_files import GoldLinks, LinkCounts, count_links

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), max_size=4))
def test_counts_and_rates_are_what_their_definitions_say(pairs: list[tuple[frozenset, frozenset, frozenset]]) -> None:
    found = [one for one, _, _ in pairs]
    gold = [GoldLinks(sure, sure | maybe) for _, sure, maybe in pairs]
    counts = sum(map(count_links, found, gold), LinkCounts())
    a = {(n, link) for n, one in enumerate(found) for link in one}
    s = {(n, link) for n, one in enumerate(gold) for link in one.sure}
    p = s | {(n, link) for n, (_, _, maybe) in enumerate(pairs) for link in maybe}
    assert counts == LinkCounts(len(a), len(s), len(a & s), len(a & p))
    rates = counts.rates()
    figures = figures_of(list(map(count_links, found, gold)))
    assert (figures.aer, figures.f1) == ((rates.aer, rates.f1) if a or s else (None, None))
    if a and s:
        assert rates.precision == pytest.approx(len(a & p) / len(a))
        assert rates.recall == pytest.approx(len(a & s) / len(s))
        assert rates.aer == pytest.approx(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
