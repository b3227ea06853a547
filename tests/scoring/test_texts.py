"""Texts to score are read completely; errors of unequal counts name the first missing line."""

import gzip
from pathlib import Path

import pytest

from nmtalign.errors import InputError
from nmtalign.scoring.texts import Text, check_aligned, read_text


def test_text_and_gzip_are_read(tmp_path: Path) -> None:
    plain, packed = tmp_path / "a.txt", tmp_path / "a.gz"
    plain.write_bytes("un\r\n\ndeux\u2028trois\rquatre".encode())
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_text(plain) == Text(str(plain), ["un", "", "deux\u2028trois\rquatre"])
    assert read_text(packed).lines == read_text(plain).lines


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(InputError, match=r"a\.txt: is empty; nothing to score"):
        read_text(tmp_path / "a.txt")


@pytest.mark.parametrize("longer_first", [True, False])
def test_unequal_counts_name_files_counts_and_the_missing_line(longer_first: bool) -> None:
    texts = [Text("long.fr", ["a", "b", "c"]), Text("short.fr", ["a"])]
    message = r"short.fr: has no line 2: it has 1 line, but long.fr has 3 lines; give files with one line per sentence"
    with pytest.raises(InputError, match=message):
        check_aligned(texts if longer_first else texts[::-1])


def test_equal_counts_pass() -> None:
    check_aligned([Text("a", ["x"]), Text("b", [""]), Text("c", ["y"])])
