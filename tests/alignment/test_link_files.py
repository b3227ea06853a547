"""Files of links: one line per pair, or one line per link."""

import gzip
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
from helpers.raw_links import write_raw_links
from helpers.records import add

from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.evaluation import turned_note
from nmtalign.alignment.link_files import (
    NO_LINKS,
    ErrorRates,
    GoldFile,
    GoldLinks,
    LinkCounts,
    count_links,
    f_measure,
    parse_links,
    read_links,
)
from nmtalign.errors import InputError
from nmtalign.viewing.alignment_page import write_page
from nmtalign.viewing.heatmap import read_panels


def test_gold_formats() -> None:
    gold = parse_links("0-0 1p2 3?1  2-2", "g: line 1", role="gold")
    assert gold.sure == {(0, 0), (2, 2)}
    assert gold.possible == {(0, 0), (2, 2), (1, 2), (3, 1)}
    assert parse_links("", "g: line 1").possible == frozenset()


@pytest.mark.parametrize("text", ["0", "0:0", "0P0", "1-2-3", "x-1"])
def test_an_error_names_what_is_not_a_gold_link(text: str) -> None:
    with pytest.raises(InputError, match="g: line 9: "):
        parse_links(text, "g: line 9")


NUMBERED = "0001 1 1 S\n0001 2 3 S 0.9\n\n1 3 2 P 1\n0003 2 1\n0003 1 2 .5\n0003 1 1 P\n0003 1 1 S\n"


def write(tmp_path: Path, text: str, name: str = "links") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_lines_of_links_count_from_0_or_1(tmp_path: Path) -> None:
    pairs = read_links(write(tmp_path, "\n1-1 2p3 3?1\n")).pairs
    assert pairs[0] == NO_LINKS
    assert (pairs[1].sure, pairs[1].possible) == ({(1, 1)}, {(1, 1), (2, 3), (3, 1)})
    (_, pair) = read_links(tmp_path / "links", base=1).pairs
    assert (pair.sure, pair.possible) == ({(0, 0)}, {(0, 0), (1, 2), (2, 0)})
    assert pair.turned().possible == {(0, 0), (2, 1), (0, 2)}


def test_numbered_lines(tmp_path: Path) -> None:
    text = read_links(write(tmp_path, NUMBERED))
    pairs = text.pairs
    assert (text.format, text.base, len(pairs)) == ("NAACL", 1, 3)
    assert (pairs[0].sure, pairs[0].possible) == ({(0, 0), (1, 2)}, {(0, 0), (1, 2), (2, 1)})
    assert pairs[1] == NO_LINKS
    assert pairs[2].sure == pairs[2].possible == {(1, 0), (0, 1), (0, 0)}
    assert text.where(1).endswith("links: sentence 2")
    assert read_links(tmp_path / "links", base=0).pairs[0].sure == {(1, 1), (2, 3)}


def test_the_format_is_known_of_compressed_files_and_after_blank_lines(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "g.gz", "wt") as stream:
        stream.write("\n \n0001 1 1\n")
    assert [pair.sure for pair in read_links(tmp_path / "g.gz").pairs] == [{(0, 0)}]
    blank = read_links(write(tmp_path, "\n\n"))
    assert (blank.pairs, blank.format) == ([NO_LINKS, NO_LINKS], "Pharaoh")
    assert read_links(write(tmp_path, "")).pairs == []


MISTAKES = [
    ("0-0\n1-1 0-0\n", 1, "line 1: '0-0' has a position 0, but positions count from 1 here; .* --gold-base 0$"),
    ("1-1\n1-x\n", None, "line 2: '1-x' is not a gold link"),
    ("1 1 1\n1 0 2 S\n", None, "line 2: '1 0 2 S' has a position 0.*--gold-base 0"),
    ("1 1 1\n1 1 2 X\n", None, "line 2: '1 1 2 X' is not a link"),
    ("1 1 1\n1 1\n", None, "line 2: '1 1' is not a link"),
    ("1 1 1\n0-0\n", None, "line 2: '0-0' is not a link"),
    ("0 1 1\n", None, "line 1: sentence 0"),
    ("0-0\n1 1 1\n", None, "line 2: '1' is not a gold link"),
]


@pytest.mark.parametrize(("text", "base", "message"), MISTAKES)
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, base: int | None, message: str) -> None:
    with pytest.raises(InputError, match="links: " + message):
        read_links(write(tmp_path, text), "gold", base)


def test_gold_files_of_numbered_lines(tmp_path: Path) -> None:
    gold = GoldFile(write(tmp_path, NUMBERED))
    gold.compare([(0, 0)], 3, 3)
    gold.compare([], 1, 1)
    gold.compare([(0, 0)], 2, 2)
    gold.compare([(0, 0)], 1, 1)  # a sentence without gold links is not in the file
    assert gold.finish().rates().recall == 2 / 5
    gold = GoldFile(tmp_path / "links")
    gold.compare([], 3, 3)
    with pytest.raises(InputError, match="has 3 sentences, but there are 1 pairs: sentence 2 belongs to no pair"):
        gold.finish()
    gold = GoldFile(tmp_path / "links")
    with pytest.raises(InputError, match=r"sentence 1: link 2-3 [(]counted from 1[)] points outside"):
        gold.compare([], 3, 2)


Links = list[tuple[int, int]]


def error_rates(links: list[Links], sure: list[Links], possible: list[Links]) -> ErrorRates:
    gold = [GoldLinks(frozenset(s), frozenset(s + p)) for s, p in zip(sure, possible, strict=True)]
    return sum(map(count_links, links, gold), LinkCounts()).rates()


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


def test_smallest_and_largest_rates() -> None:
    link = [[(0, 0)]]
    assert error_rates(link, link, [[]]) == ErrorRates(1, 1, 0, 1)
    assert error_rates(link, [[(1, 1)]], [[]]) == ErrorRates(0, 0, 1, 0)
    assert error_rates([[]], [[]], [[]]) == ErrorRates(1, 1, 0, 1)
    assert error_rates([[]], link, [[]]) == ErrorRates(1, 0, 1, 0)
    assert error_rates([[(0, 0), (0, 0)]], link, [[]]).precision == 1


def test_f_with_a_weight() -> None:
    assert f_measure(0.5, 1.0, 0.4) == pytest.approx(1 / (0.4 / 0.5 + 0.6 / 1.0))
    assert f_measure(0.5, 1.0) == pytest.approx(2 * 0.5 / 1.5)
    assert (f_measure(0.5, 0.25, 1), f_measure(0.5, 0.25, 0), f_measure(0, 0, 0.3)) == (0.5, 0.25, 0)


@pytest.mark.parametrize(("reverse", "fix"), [(False, "give --reverse-gold"), (True, "leave out --reverse-gold")])
def test_gold_links_in_the_other_direction_are_noticed(tmp_path, reverse, fix):
    """Found links 0-0 1-2 2-1 3-4 4-3 are right; the file has them in one order, and is read in the other."""
    right = [(0, 1), (1, 3), (2, 0), (3, 4), (4, 2)]
    written = right if reverse else [(j, i) for i, j in right]
    (tmp_path / "gold").write_text(" ".join(f"{i}-{j}" for i, j in written) + "\n")
    gold = GoldFile(tmp_path / "gold", reverse=reverse)
    gold.compare(right, 5, 5)
    assert gold.finish().rates().aer == 1
    note = turned_note(gold.file, gold.found, gold.file.pairs)
    assert "with source and target exchanged its AER would be 0.0000 and not 1.0000; " in note
    assert note.endswith(fix)
    gold = GoldFile(tmp_path / "gold", reverse=not reverse)
    gold.compare(right, 5, 5)
    assert gold.finish().rates().aer == 0
    assert turned_note(gold.file, gold.found, gold.file.pairs) == ""


def test_gold_links_that_count_other_words_are_refused(tmp_path: Path) -> None:
    """Compared with found links pair by pair, and drawn over alignments."""
    by_tokens, by_words = write_raw_links(tmp_path)
    found, lines = read_links(by_tokens), (tmp_path / "train.tok.en").read_text().splitlines()
    others = (tmp_path / "train.tok.fr").read_text().splitlines()
    with AlignmentWriter(tmp_path / "a.h5", {}) as writer:
        for pair, source, target in zip(found.pairs, lines, others, strict=True):
            words = source.split(), target.split()
            weights = np.zeros((len(words[1]) + 1, len(words[0]) + 1))
            add(writer, *words, weights, -1.0, links=sorted(pair.sure))
    for path, wrong in ((by_tokens, False), (by_words, True)):
        expected = pytest.raises(InputError, match="counts the words between spaces") if wrong else nullcontext()
        gold = GoldFile(path)
        for pair in found.pairs:
            gold.compare(pair.sure, 99, 99)
        with expected:
            gold.finish()
        with expected:
            read_panels([("", tmp_path / "a.h5")], [3], gold=read_links(path, "gold"))
        with expected:
            write_page([("a", tmp_path / "a.h5")], tmp_path / "page.html", gold=read_links(path, "gold"))
