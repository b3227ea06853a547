"""Counts, error rates and types of links, against counts by hand and a naive definition."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.evaluation import TYPES, LinkEvaluation, count_types, crossing, figures_of, link_types
from nmtalign.alignment.link_files import GoldLinks, LinkCounts, count_links

LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)


def gold_of(sure: str, possible: str = "") -> GoldLinks:
    certain, maybe = links(sure), links(possible)
    return GoldLinks(certain, certain | maybe)


def links(text: str) -> frozenset[tuple[int, int]]:
    return frozenset((int(part[0]), int(part[1])) for part in text.split())


# the red boat of mine | le bateau rouge à moi: 1 and 2 change places, 3 and 4 both go to two words.
GOLD = [gold_of("00 12 21 33 44", "34 43"), gold_of("00 01 10", "22")]
FOUND = [links("00 12 22 33 34"), links("00")]


def test_types_by_hand() -> None:
    counts = count_types(FOUND, GOLD, [(6, 5), (3, 4)])
    # Sure links that cross: 12 and 21 of the first pair; 01 and 10 of the second.
    assert counts["reordered"] == LinkCounts(links=0, sure=4, links_sure=1, links_possible=0)
    assert counts["monotone"] == LinkCounts(links=6, sure=4, links_sure=3, links_possible=5)
    # Sure links: all of the first pair; of the second 01 has a source word, 10 a target word that 00 has, too.
    assert counts["one-to-one"] == LinkCounts(links=2, sure=5, links_sure=3, links_possible=2)
    assert counts["one-to-many"] == LinkCounts(links=2, sure=1, links_sure=0, links_possible=2)
    assert counts["many-to-one"] == LinkCounts(links=2, sure=1, links_sure=0, links_possible=1)
    assert counts["many-to-many"] == LinkCounts(links=0, sure=1, links_sure=1, links_possible=0)
    # Without a gold link: source 5 of the first pair; target 3 of the second. Found: 4 and 5, 1 and 2; 1, and 1, 2, 3.
    assert counts["NULL source"] == LinkCounts(links=4, sure=1, links_sure=1, links_possible=1)
    assert counts["NULL target"] == LinkCounts(links=4, sure=1, links_sure=1, links_possible=1)
    assert tuple(counts) == TYPES
    assert counts["many-to-one"].precision == 0.5
    assert LinkCounts().recall is LinkCounts().precision is None


def test_the_worst_by_hand() -> None:
    # AER: 1 - (3 + 4) / (5 + 5) = 0.3; 1 - (1 + 1) / (1 + 3) = 0.5; the third has no mistake.
    gold = [*GOLD, gold_of("00")]
    system = LinkEvaluation("a", [*FOUND, links("00")], gold, [(9, 9)] * 3, "", (None, None), "")
    first, second = system.worst(5)
    assert (first.number, first.missed, first.wrong) == (1, ((0, 1), (1, 0)), ())
    assert (second.number, second.missed, second.wrong) == (0, ((2, 1), (4, 4)), ((2, 2),))
    assert second.figures.aer == pytest.approx(0.3)
    assert system.worst(1) == [first]
    assert system.worst(0) == []


@given(LINKS)
def test_crossing_is_what_its_definition_says(found: frozenset[tuple[int, int]]) -> None:
    naive = {(i, j) for i, j in found if any((i - k) * (j - m) < 0 for k, m in found)}
    assert crossing(found) == naive
    for (i, j), (order, fertility) in link_types(found).items():
        assert (order == "reordered") == ((i, j) in naive)
        source = sum(1 for k, _ in found if k == i)
        target = sum(1 for _, m in found if m == j)
        # "many-to-one": many source words to one target word, so the target word has several links.
        assert fertility == ("many" if target > 1 else "one") + "-to-" + ("many" if source > 1 else "one")


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
    types = count_types(found, gold, [(6, 6)] * len(found))
    for group in (TYPES[:2], TYPES[2:6]):
        assert sum(types[name].sure for name in group) == len(s)
        assert sum(types[name].links_sure for name in group) == len(a & s)
        assert sum(types[name].links for name in group) == len(a)
        assert sum(types[name].links_possible for name in group) == len(a & p)
    for side, name in enumerate(TYPES[6:]):
        linked = {(n, link[side]) for n, link in p}
        assert types[name].sure == 6 * len(found) - len(linked)
