import gzip
import os
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmtalign.errors import InputError
from nmtalign.text.lines import LONGEST_LINE, decode_lenient, open_bytes, read_lines, read_pairs


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"one\ntwo\n", ["one", "two"]),
        (b"one\ntwo", ["one", "two"]),
        (b"one\r\ntwo\r\n", ["one", "two"]),
        (b"one\r\r\n", ["one\r"]),
        (b"a\rb\n", ["a\rb"]),
        ("a\u2028b\u0085c\x0bd\x1ce\0f\n".encode(), ["a\u2028b\u0085c\x0bd\x1ce\0f"]),
        (b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n", ["one", "\ufefftwo"]),
        (b"\n\n \n", ["", "", " "]),
    ],
)
def test_only_the_newline_ends_a_line(tmp_path: Path, content: bytes, lines: list[str]) -> None:
    assert list(read_lines(write(tmp_path / "plain", content))) == lines
    assert list(read_lines(write(tmp_path / "packed.gz", gzip.compress(content)))) == lines


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_line_has_a_bound_and_no_more_of_it_is_read(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    long = write(tmp_path / "long", pack(b"one\n" + b"a " * (LONGEST_LINE * 6)))
    other = write(tmp_path / "other", b"one\ntwo\n")
    message = rf"{long}: line 2: longer than 4,194,304 bytes"
    lines = read_lines(long)
    assert next(lines) == "one"
    tracemalloc.start()
    with pytest.raises(InputError, match=message):
        next(lines)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 4 * LONGEST_LINE
    for pair in ((long, other), (other, long)):
        with pytest.raises(InputError, match=message):
            list(read_pairs(*pair))


def test_the_longest_line_is_read(tmp_path: Path) -> None:
    content = b"x" * (LONGEST_LINE - 1) + b"\nlast\n"
    assert [len(line) for line in read_lines(write(tmp_path / "text", content))] == [LONGEST_LINE - 1, 4]


def test_gzip_is_known_by_its_bytes_not_by_its_name(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "plain.gz", b"one\n"))) == ["one"]
    assert list(read_lines(write(tmp_path / "packed", gzip.compress(b"one\n")))) == ["one"]


def test_open_bytes_closes_what_it_opened(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0  # noqa: PTH208
    with open_bytes(write(tmp_path / "packed", gzip.compress(b"one\n"))) as stream:
        assert stream.read() == b"one\n"
    after = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else 0  # noqa: PTH208
    assert after == before


def test_standard_input(tmp_path: Path) -> None:
    code = "from pathlib import Path; from nmtalign.text.lines import read_lines; print(list(read_lines(Path('-'))))"
    for content in (b"a\r\nb", gzip.compress(b"a\nb\n")):
        done = subprocess.run([sys.executable, "-c", code], input=content, capture_output=True, check=True)
        assert done.stdout.decode().strip() == "['a', 'b']"


def test_bytes_that_are_not_utf8_are_refused_by_line_and_column(tmp_path: Path) -> None:
    path = write(tmp_path / "train.en", b"fine\nso far\nab\xff\n")
    with pytest.raises(InputError, match=r"train\.en: line 3: not UTF-8 \(byte 0xff at column 3\); convert"):
        list(read_lines(path))


@pytest.mark.parametrize("bad", [b"\xed\xa0\x80\n", b"\xc3", b"\xc3\n", b"\xff\xff"])
def test_other_bad_bytes(tmp_path: Path, bad: bytes) -> None:
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        list(read_lines(write(tmp_path / "bad", bad)))


def test_what_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.en: cannot read: No such file"):
        list(read_lines(tmp_path / "none.en"))
    with pytest.raises(InputError, match="is a folder"):
        list(read_lines(tmp_path))
    torn = gzip.compress(bytes(range(256)) * 50)[:-40]
    with pytest.raises(InputError, match=r"torn\.gz: (cannot read on|line)"):
        list(read_lines(write(tmp_path / "torn.gz", torn)))


def test_pairs(tmp_path: Path) -> None:
    source = write(tmp_path / "a.en", b"one\ntwo")
    target = write(tmp_path / "a.fr", b"un\ndeux\n")
    assert list(read_pairs(source, target)) == [("one", "un"), ("two", "deux")]


@pytest.mark.parametrize("short_first", [True, False])
def test_unequal_counts_name_the_first_missing_line(tmp_path: Path, short_first: bool) -> None:
    short = write(tmp_path / "short", b"x\n" * 3)
    long = write(tmp_path / "long", b"x\n" * 6 + b"\xff")
    with pytest.raises(InputError, match=r"short: has no line 4, but .*long has 7 lines"):
        list(read_pairs(*((short, long) if short_first else (long, short))))


@given(st.lists(st.text(alphabet=st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_any_text_comes_back(lines: list[str]) -> None:
    for line in lines:
        raw = (line + "\n").encode()
        assert decode_lenient(raw) == (line.removesuffix("\r"), False)


@given(st.binary())
def test_lenient_never_fails_and_tells(raw: bytes) -> None:
    text, bad = decode_lenient(raw)
    assert bad == (text.encode() != raw.removesuffix(b"\n").removesuffix(b"\r"))
    assert not bad or "\ufffd" in text
