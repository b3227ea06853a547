"""Error rates and types of links, against counts by hand and a naive definition; files of gold links."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment.error_rates import (
    TYPES,
    ErrorRates,
    GoldFile,
    LinkCounts,
    TypeCounts,
    count_pairs,
    count_types,
    crossing,
    error_rates,
    f_measure,
    gold_lengths,
    link_types,
    total,
    worst_pairs,
)
from nmtalign.alignment.link_files import GoldLinks
from nmtalign.errors import InputError


def test_rates_by_hand() -> None:
    # Sentence 1: A = {00, 11, 21}, S = {00, 12}, P = S + {11}: |A and S| = 1, |A and P| = 2.
    # Sentence 2: A = {00}, S = {00, 10}: |A and S| = |A and P| = 1. Sums: |A| 4, |S| 4, 2 and 3.
    links = [[(0, 0), (1, 1), (2, 1)], [(0, 0)]]
    sure = [[(0, 0), (1, 2)], [(0, 0), (1, 0)]]
    rates = error_rates(links, sure, [[(1, 1)], []])
    assert rates.precision == pytest.approx(3 / 4)
    assert rates.recall == pytest.approx(2 / 4)
    assert rates.aer == pytest.approx(1 - (2 + 3) / (4 + 4))
    assert rates.f1 == pytest.approx(2 * 0.75 * 0.5 / 1.25)


def test_the_ends_of_the_scale() -> None:
    link = [[(0, 0)]]
    assert error_rates(link, link, [[]]) == ErrorRates(1, 1, 0, 1)
    assert error_rates(link, [[(1, 1)]], [[]]) == ErrorRates(0, 0, 1, 0)
    assert error_rates([[]], [[]], [[]]) == ErrorRates(1, 1, 0, 1)
    assert error_rates([[]], link, [[]]) == ErrorRates(1, 0, 1, 0)
    assert error_rates([[(0, 0), (0, 0)]], link, [[]]).precision == 1


def _gold(tmp_path: Path, text: str) -> GoldFile:
    (tmp_path / "gold").write_text(text)
    return GoldFile(tmp_path / "gold")


def test_a_gold_file_is_compared_pair_by_pair(tmp_path: Path) -> None:
    gold = _gold(tmp_path, "0-0 1p1\n\n2-0\n")
    gold.compare([(0, 0), (1, 1)], 2, 2)
    gold.compare([], 0, 3)
    gold.compare([(1, 0)], 3, 1)
    rates = gold.finish()
    assert (rates.precision, rates.recall) == (2 / 3, 1 / 2)
    assert rates.aer == pytest.approx(1 - (1 + 2) / (3 + 2))


def test_line_counts_must_be_equal(tmp_path: Path) -> None:
    gold = _gold(tmp_path, "0-0\n")
    gold.compare([], 1, 1)
    with pytest.raises(InputError, match="gold: has no line 2"):
        gold.compare([], 1, 1)
    gold = _gold(tmp_path, "0-0\n0-0\n0-0\n")
    gold.compare([], 1, 1)
    with pytest.raises(InputError, match="has 3 lines, but there are 1 pairs"):
        gold.finish()


@pytest.mark.parametrize("line", ["2-0", "0p3"])
def test_a_link_outside_its_pair_is_named(tmp_path: Path, line: str) -> None:
    gold = _gold(tmp_path, f"0-0\n{line}\n")
    gold.compare([], 2, 3)
    with pytest.raises(InputError, match=r"gold: line 2: link .* whose (source has 2|target has 3) words.*--tokenized"):
        gold.compare([], 2, 3)


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
    assert counts["reordered"] == TypeCounts(gold=4, recalled=1, found=0, right=0)
    assert counts["monotone"] == TypeCounts(gold=4, recalled=3, found=6, right=5)
    # Sure links: all of the first pair; of the second 01 has a source word, 10 a target word that 00 has, too.
    assert counts["one-to-one"] == TypeCounts(gold=5, recalled=3, found=2, right=2)
    assert counts["one-to-many"] == TypeCounts(gold=1, recalled=0, found=2, right=2)
    assert counts["many-to-one"] == TypeCounts(gold=1, recalled=0, found=2, right=1)
    assert counts["many-to-many"] == TypeCounts(gold=1, recalled=1, found=0, right=0)
    # Without a gold link: source 5 of the first pair; target 3 of the second. Found: 4 and 5, 1 and 2; 1, and 1, 2, 3.
    assert counts["NULL source"] == TypeCounts(gold=1, recalled=1, found=4, right=1)
    assert counts["NULL target"] == TypeCounts(gold=1, recalled=1, found=4, right=1)
    assert tuple(counts) == TYPES
    assert counts["many-to-one"].precision == 0.5
    assert TypeCounts().recall is TypeCounts().precision is None


def test_the_worst_by_hand() -> None:
    # AER: 1 - (3 + 4) / (5 + 5) = 0.3; 1 - (1 + 1) / (1 + 3) = 0.5; the third has no mistake.
    first, second = worst_pairs([*FOUND, links("00")], [*GOLD, gold_of("00")], 5)
    assert (first.number, first.missed, first.wrong) == (1, ((0, 1), (1, 0)), ())
    assert (second.number, second.missed, second.wrong) == (0, ((2, 1), (4, 4)), ((2, 2),))
    assert second.counts.rates().aer == pytest.approx(0.3)
    assert worst_pairs(FOUND, GOLD, 1) == [first]
    assert worst_pairs(FOUND, GOLD, 0) == []


def test_lengths_of_gold_links() -> None:
    assert gold_lengths([gold_of("03", "10"), gold_of("")]) == [(2, 4), (0, 0)]


def test_f_with_a_weight() -> None:
    assert f_measure(0.5, 1.0, 0.4) == pytest.approx(1 / (0.4 / 0.5 + 0.6 / 1.0))
    assert f_measure(0.5, 1.0) == pytest.approx(2 * 0.5 / 1.5)
    assert (f_measure(0.5, 0.25, 1), f_measure(0.5, 0.25, 0), f_measure(0, 0, 0.3)) == (0.5, 0.25, 0)


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
    counts = total(count_pairs(found, gold))
    a = {(n, link) for n, one in enumerate(found) for link in one}
    s = {(n, link) for n, one in enumerate(gold) for link in one.sure}
    p = s | {(n, link) for n, (_, _, maybe) in enumerate(pairs) for link in maybe}
    assert counts == LinkCounts(len(a), len(s), len(a & s), len(a & p))
    rates = counts.rates()
    assert rates == error_rates(found, [one.sure for one in gold], [one.possible for one in gold])
    if a and s:
        assert rates.precision == pytest.approx(len(a & p) / len(a))
        assert rates.recall == pytest.approx(len(a & s) / len(s))
        assert rates.aer == pytest.approx(1 - (len(a & s) + len(a & p)) / (len(a) + len(s)))
    types = count_types(found, gold, [(6, 6)] * len(found))
    for group in (TYPES[:2], TYPES[2:6]):
        assert sum(types[name].gold for name in group) == len(s)
        assert sum(types[name].recalled for name in group) == len(a & s)
        assert sum(types[name].found for name in group) == len(a)
        assert sum(types[name].right for name in group) == len(a & p)
    for side, name in enumerate(TYPES[6:]):
        linked = {(n, link[side]) for n, link in p}
        assert types[name].gold == 6 * len(found) - len(linked)
