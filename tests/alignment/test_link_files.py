"""Files of links: one line per pair, or one line per link."""

import gzip
from pathlib import Path

import pytest

from nmtalign.alignment.error_rates import GoldFile
from nmtalign.alignment.link_files import NO_LINKS, TextLinks, parse_gold
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


NUMBERED = "0001 1 1 S\n0001 2 3 S 0.9\n\n1 3 2 P 1\n0003 2 1\n0003 1 2 .5\n0003 1 1 P\n0003 1 1 S\n"


def write(tmp_path: Path, text: str, name: str = "links") -> Path:
    (tmp_path / name).write_text(text)
    return tmp_path / name


def test_lines_of_links_counted_from_either(tmp_path: Path) -> None:
    pairs = list(TextLinks(write(tmp_path, "\n1-1 2p3 3?1\n")))
    assert pairs[0] == NO_LINKS
    assert (pairs[1].sure, pairs[1].possible) == ({(1, 1)}, {(1, 1), (2, 3), (3, 1)})
    (_, pair) = TextLinks(tmp_path / "links", base=1)
    assert (pair.sure, pair.possible) == ({(0, 0)}, {(0, 0), (1, 2), (2, 0)})
    assert pair.turned().possible == {(0, 0), (2, 1), (0, 2)}


def test_numbered_lines(tmp_path: Path) -> None:
    text = TextLinks(write(tmp_path, NUMBERED))
    pairs = list(text)
    assert (text.format, text.counts_from, len(pairs)) == ("NAACL", 1, 3)
    assert (pairs[0].sure, pairs[0].possible) == ({(0, 0), (1, 2)}, {(0, 0), (1, 2), (2, 1)})
    assert pairs[1] == NO_LINKS
    assert pairs[2].sure == pairs[2].possible == {(1, 0), (0, 1), (0, 0)}
    assert text.where(0, (2, 1)).endswith("links: line 4")
    assert text.where(1).endswith("links: sentence 2")
    assert next(iter(TextLinks(tmp_path / "links", base=0))).sure == {(1, 1), (2, 3)}


def test_what_is_compressed_or_comes_after_blank_lines_is_known(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "g.gz", "wt") as stream:
        stream.write("\n \n0001 1 1\n")
    assert [pair.sure for pair in TextLinks(tmp_path / "g.gz")] == [{(0, 0)}]
    blank = TextLinks(write(tmp_path, "\n\n"))
    assert (list(blank), blank.format) == ([NO_LINKS, NO_LINKS], "Pharaoh")
    assert list(TextLinks(write(tmp_path, ""))) == []


MISTAKES = [
    ("0-0\n1-1 0-0\n", 1, "line 1: '0-0' has a position 0, but positions count from 1 here; .* --gold-base 0$"),
    ("1-1\n1-x\n", None, "line 2: '1-x' is not a gold link"),
    ("1 1 1\n1 0 2 S\n", None, "line 2: '1 0 2 S' has a position 0.*--gold-base 0; if 0 stands for no word, leave"),
    ("1 1 1\n1 1 2 X\n", None, "line 2: '1 1 2 X' is not a link"),
    ("1 1 1\n1 1\n", None, "line 2: '1 1' is not a link"),
    ("1 1 1\n0-0\n", None, "line 2: '0-0' is not a link"),
    ("0 1 1\n", None, "line 1: sentence 0"),
    ("0-0\n1 1 1\n", None, "line 2: '1' is not a gold link"),
]


@pytest.mark.parametrize(("text", "base", "message"), MISTAKES)
def test_mistakes_name_file_and_line(tmp_path: Path, text: str, base: int | None, message: str) -> None:
    with pytest.raises(InputError, match="links: " + message):
        list(TextLinks(write(tmp_path, text), base))


def test_links_are_called_links() -> None:
    with pytest.raises(InputError, match=r"'0:0' is not a link; .*"):
        parse_gold("0:0", "f: line 1", role="links")
    with pytest.raises(InputError, match=r"give --links-base 0$"):
        parse_gold("0-0", "f: line 1", base=1, role="links")


def test_gold_files_of_numbered_lines(tmp_path: Path) -> None:
    gold = GoldFile(write(tmp_path, NUMBERED))
    gold.compare([(0, 0)], 3, 3)
    gold.compare([], 1, 1)
    gold.compare([(0, 0)], 2, 2)
    gold.compare([(0, 0)], 1, 1)  # a sentence without gold links is not in the file
    assert gold.finish().recall == 2 / 5
    gold = GoldFile(tmp_path / "links")
    gold.compare([], 3, 3)
    with pytest.raises(InputError, match="has 3 sentences, but there are 1 pairs: sentence 2 belongs to no pair"):
        gold.finish()
    gold = GoldFile(tmp_path / "links")
    with pytest.raises(InputError, match=r"line 2: link 2-3 [(]counted from 1[)] points outside"):
        gold.compare([], 3, 2)
