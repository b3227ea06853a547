"""Gold links and error rates, by hand."""

from pathlib import Path

import pytest

from nmtalign.alignment.error_rates import ErrorRates, GoldFile, error_rates
from nmtalign.alignment.link_files import parse_gold
from nmtalign.errors import InputError


def test_gold_formats() -> None:
    gold = parse_gold("0-0 1p2 3?1  2-2", "g: line 1")
    assert gold.sure == {(0, 0), (2, 2)}
    assert gold.possible == {(0, 0), (2, 2), (1, 2), (3, 1)}
    assert parse_gold("", "g: line 1").possible == frozenset()


@pytest.mark.parametrize("text", ["0", "0:0", "0P0", "1-2-3", "x-1"])
def test_what_is_no_gold_link_is_named(text: str) -> None:
    with pytest.raises(InputError, match="g: line 9: "):
        parse_gold(text, "g: line 9")


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
