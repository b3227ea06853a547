"""Hard links and merged pieces; files of links, their counts and error rates against a naive definition."""

import gzip
from contextlib import nullcontext

import numpy as np
import pytest
from helpers.raw_links import write_raw_links
from helpers.records import add
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.alignment import link_files
from nmtalign.alignment.alignment_file import AlignmentWriter
from nmtalign.alignment.link_files import NO_LINKS, GoldLinks, LinkFigures, LinkFile, parse_links, read_links
from nmtalign.alignment.links import argmax_links, format_links, merge_log_probs, merge_pieces
from nmtalign.errors import InputError
from nmtalign.settings.command_settings import ViewConfig
from nmtalign.viewing.alignment_page import write_page
from nmtalign.viewing.heatmap import read_panels


def test_gold_formats():
    gold = parse_links("0-0 1p2 3?1  2-2", "g: line 1", role="gold")
    assert gold.sure == {(0, 0), (2, 2)}
    assert gold.possible == {(0, 0), (2, 2), (1, 2), (3, 1)}
    assert parse_links("", "g: line 1").possible == frozenset()


@pytest.mark.parametrize("text", ["0", "0-", "0:0", "0P0", "1-2-3", "x-1", "-1-0", "٣-٣"])
def test_an_error_names_what_is_not_a_gold_link(text):
    with pytest.raises(InputError, match="g: line 9: "):
        parse_links(text, "g: line 9")


NUMBERED = "0001 1 1 S\n0001 2 3 S 0.9\n\n1 3 2 P 1\n0003 2 1\n0003 1 2 .5\n0003 1 1 P\n0003 1 1 S\n"


def write(tmp_path, text, name="links"):
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_lines_of_links_count_from_0_or_1(tmp_path):
    pairs = read_links(write(tmp_path, "\n1-1 2p3 3?1\n")).pairs
    assert pairs[0] == NO_LINKS
    assert (pairs[1].sure, pairs[1].possible) == ({(1, 1)}, {(1, 1), (2, 3), (3, 1)})
    (_, pair) = read_links(tmp_path / "links", base=1).pairs
    assert (pair.sure, pair.possible) == ({(0, 0)}, {(0, 0), (1, 2), (2, 0)})
    assert pair.turned().possible == {(0, 0), (2, 1), (0, 2)}


def test_numbered_lines(tmp_path):
    text = read_links(write(tmp_path, NUMBERED))
    pairs = text.pairs
    assert (text.format, text.base, len(pairs)) == ("NAACL", 1, 3)
    assert (pairs[0].sure, pairs[0].possible) == ({(0, 0), (1, 2)}, {(0, 0), (1, 2), (2, 1)})
    assert pairs[1] is NO_LINKS  # millions of sentences without links need little memory
    sure = parse_links("0-0 2-1", "links: line 1")
    for links in (sure, sure.turned(), read_links(write(tmp_path, "1 1 1\n", "sure")).pairs[0]):
        assert links.sure is links.possible
    first, second = read_links(write(tmp_path, "7-8\n7-8 7p8\n", "equal")).pairs  # equal links are one object
    assert next(iter(first.sure)) is next(iter(second.sure))
    assert parse_links("0-0 2p1", "gold: line 1").sure == {(0, 0)}
    assert pairs[2].sure == pairs[2].possible == {(1, 0), (0, 1), (0, 0)}
    with pytest.raises(InputError, match=r"links: sentence 1: link 2-3 \(counted from 1\) points outside the pair"):
        text.check_inside(0, 2, 2)
    assert read_links(tmp_path / "links", base=0).pairs[0].sure == {(1, 1), (2, 3)}


def test_a_large_number_of_a_sentence_costs_little(tmp_path, monkeypatch):
    """A line such as `9999999 1 1` makes ten million sentences, of which only those with links are compared."""
    gold, links = write(tmp_path, "1 1 1 S\n99999 1 2 S\n", "gold"), write(tmp_path, "1 1 1\n2 1 1\n")
    counted = []
    count = link_files.count_links
    monkeypatch.setattr(link_files, "count_links", lambda *pair: counted.append(pair) or count(*pair))
    (system,) = link_files.aer([("links", links)], gold).systems
    assert system.figures == LinkFigures(99_999, 2, 2, 1, 1)
    assert len(counted) == 2 * 3  # as it is, and for the note on exchanged sides


def test_the_format_is_known_of_compressed_files_and_after_blank_lines(tmp_path):
    with gzip.open(tmp_path / "g.gz", "wt") as stream:
        stream.write("\n \n0001 1 1\n")
    assert [pair.sure for pair in read_links(tmp_path / "g.gz").pairs] == [{(0, 0)}]
    blank = read_links(write(tmp_path, "\n\n"))
    assert (blank.pairs, blank.format) == ([NO_LINKS, NO_LINKS], "Pharaoh")
    assert read_links(write(tmp_path, "")).pairs == []


MISTAKES = [
    ("0-0\n1-1 0-0\n", 1, "line 1: '0-0' has a position 0, but positions count from 1 here; .* --gold-base 0$"),
    ("1-1\n1-x\n", None, "line 2: '1-x' is not a link"),
    ("1 1 1\n1 0 2 S\n", None, "line 2: '1 0 2 S' has a position 0.*if 0 is no word .*--gold-base 0"),
    ("1 1 1\n1 1 2 X\n", None, "line 2: '1 1 2 X' is not a link"),
    ("1 1 1\n0-0\n", None, "line 2: '0-0' is not a link"),
    ("0 1 1\n", None, "line 1: sentence 0"),
    ("0-0\n1 1 1\n", None, "line 2: '1' is not a link"),
]


@pytest.mark.parametrize(("text", "base", "message"), MISTAKES)
def test_mistakes_name_file_and_line(tmp_path, text, base, message):
    with pytest.raises(InputError, match="links: " + message):
        read_links(write(tmp_path, text), "gold", base)


def test_gold_links_that_count_other_words_are_refused(tmp_path):
    """When they are drawn over alignments, as when they are compared (`test_aer`)."""
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
        with expected:
            list(read_panels([("", tmp_path / "a.h5")], [3], ViewConfig(), read_links(path, "gold")))
        with expected:
            write_page([("a", tmp_path / "a.h5")], tmp_path / "page.html", gold=read_links(path, "gold"))


def test_the_pieces_of_a_text_without_spaces_are_the_words_of_the_alignments(tmp_path):
    """Its tokens between marks are fewer; links to pieces behind the last token were "outside the pair"."""
    texts = tmp_path / "a.zh", tmp_path / "a.en"
    texts[0].write_text("对不起，我们预订了两个房间。\n" * 20)
    texts[1].write_text("Sorry, we reserved two rooms.\n" * 20)
    words = ["对不起", "，", "我们", "预订", "了", "两个", "房间", "。"], ["Sorry,", "we", "reserved", "two", "rooms."]
    links = frozenset([(0, 0), (2, 1), (3, 2), (5, 3), (6, 4)])
    both = ("gold", None), ("a.h5", [words] * 20)
    gold, found = (LinkFile(name, "HDF5", 0, [GoldLinks(links, links)] * 20, words=own) for name, own in both)
    files, pairs, notes = link_files.comparable([gold, found], texts)
    assert (files, pairs, notes) == ([gold, found], 20, ())
    assert found.turned().words == [words[::-1]] * 20


LINKS = st.frozensets(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12)
RATES = ("precision", "recall", "aer", "f1")


@given(st.lists(st.tuples(LINKS, LINKS, LINKS), max_size=4))
def test_counts_and_rates_are_what_their_definitions_say(pairs):
    found = [one for one, _, _ in pairs]
    gold = [GoldLinks(sure, sure | maybe) for _, sure, maybe in pairs]
    figures = sum(map(link_files.count_links, found, gold), LinkFigures())
    a = {(n, link) for n, one in enumerate(found) for link in one}
    s = {(n, link) for n, one in enumerate(gold) for link in one.sure}
    p = s | {(n, link) for n, (_, _, maybe) in enumerate(pairs) for link in maybe}
    assert figures == LinkFigures(len(pairs), len(s), len(a), len(a & s), len(a & p))
    if a:
        precision, recall = len(a & p) / len(a), len(a & s) / len(s) if s else 1
        aer = 1 - (len(a & s) + len(a & p)) / (len(a) + len(s))
        f1 = 2 * precision * recall / ((precision + recall) or 1)
        assert figures.rates() == pytest.approx(dict(zip(RATES, (precision, recall, aer, f1), strict=True)))
    elif s:
        assert figures.rates() == dict(zip(RATES, (1, 0, 1, 0), strict=True))
    else:
        assert figures.rates() == dict.fromkeys(RATES)


def test_a_column_of_scores_is_ignored_and_other_columns_are_not() -> None:
    assert parse_links("0-0 2-1\t0.9800 0.7143", "").sure == {(0, 0), (2, 1)}
    assert parse_links("\t", "").sure == set()
    assert parse_links("0-0\t2-1", "").sure == {(0, 0), (2, 1)}
    with pytest.raises(InputError, match="'x' is not a link"):
        parse_links("0-0\tx", "links: line 1")


def test_each_target_word_has_one_link_or_none() -> None:
    weights = np.array(
        [
            [0.1, 0.7, 0.2],  # word 1
            [0.1, 0.2, 0.7],  # NULL: </s> has the largest weight
            [0.4, 0.4, 0.2],  # a tie: the first
            [0.4, 0.2, 0.4],  # a tie with </s>: the word
            [0.9, 0.1, 0.0],  # the row of </s> has no link
        ]
    )
    assert argmax_links(weights) == [(1, 0), (0, 2), (0, 3)]


def test_pairs_without_words_have_no_links() -> None:
    assert argmax_links(np.zeros((3, 1))) == []
    assert argmax_links(np.ones((1, 4))) == []
    assert argmax_links(np.zeros((3, 4))) == []
    assert argmax_links(np.full((3, 4), np.nan)) == []


def test_pieces_are_summed_over_the_source_and_averaged_over_the_target() -> None:
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.2, 0.5, 0.0], [0.6, 0.1, 0.1, 0.2], [0.0, 0.0, 0.0, 1.0]])
    merged = merge_pieces(weights, [0, 2, 3], [0, 1, 3])
    expected = [[0.3, 0.3, 0.4], [(0.5 + 0.7) / 2, (0.5 + 0.1) / 2, 0.1], [0.0, 0.0, 1.0]]
    np.testing.assert_allclose(merged, expected, atol=1e-7)
    np.testing.assert_allclose(merged.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(merge_log_probs([-1, -2, -3, -0.5], [0, 1, 3]), [-1, -5, -0.5])


@given(st.lists(st.tuples(st.integers(0, 999), st.integers(0, 999))))
def test_pharaoh_round_trip(links: list[tuple[int, int]]) -> None:
    assert parse_links(format_links(links), "x: line 1").sure == set(links)
