"""Windows of lines: full ones of files, ready ones of pipes."""

import gzip
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from nmtalign.decoding.stream import InputLine, input_size, read_windows
from nmtalign.errors import InputError

# One Windows line end, an inner carriage return and U+2028, a blank line, a bad byte, no end of line at the end.
RAW = b"\xef\xbb\xbfa\r\nb\rb \xe2\x80\xa8\n\n\xff\x00\nlast"
TEXTS = ["a", "b\rb \u2028", "", "\ufffd\x00", "last"]


def texts(windows: list[list[InputLine]]) -> list[str]:
    return [line.text for window in windows for line in window]


def test_a_file_gives_full_windows(tmp_path: Path) -> None:
    path = tmp_path / "in.en"
    path.write_bytes(RAW)
    windows = list(read_windows([path], 2))
    assert [len(window) for window in windows] == [2, 2, 1]
    assert texts(windows) == TEXTS
    bad = windows[1][1]
    assert (bad.place, bad.valid, bad.size) == (f"{path}: line 4", False, 3)
    assert [line.valid for window in windows for line in window].count(False) == 1
    assert input_size([path, path]) == 2 * len(RAW)


def test_several_files_one_of_them_compressed(tmp_path: Path) -> None:
    plain, packed, empty = tmp_path / "a.en", tmp_path / "b.gz", tmp_path / "c.en"
    plain.write_bytes(RAW)
    packed.write_bytes(gzip.compress(RAW))
    empty.write_bytes(b"")
    windows = list(read_windows([plain, empty, packed], 100))
    assert texts(windows) == TEXTS * 2
    assert windows[1][0].place == f"{packed}: line 1"
    assert input_size([plain, packed]) is None


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    return path


def test_a_pipe_gives_what_is_there(pipe: Path) -> None:
    answered = threading.Semaphore(0)

    def write() -> None:
        with pipe.open("wb", buffering=0) as stream:
            for part in (b"one\n", b"two\nthree\n", b"four"):
                stream.write(part)
                if part != b"four":
                    assert answered.acquire(timeout=60)  # writes no more until there is an answer

    writer = threading.Thread(target=write)
    writer.start()
    found = []
    for window in read_windows([pipe], 100):
        found += [line.text for line in window]
        if found in (["one"], ["one", "two", "three"]):
            answered.release()
    writer.join(timeout=60)
    assert found == ["one", "two", "three", "four"]
    assert input_size([pipe]) is None


def test_a_flood_through_a_pipe_comes_in_bounded_windows(pipe: Path) -> None:
    def write() -> None:
        with pipe.open("wb") as stream:
            stream.write(b"".join(b"%d\n" % number for number in range(5000)))

    writer = threading.Thread(target=write)
    writer.start()
    windows = list(read_windows([pipe], 64))
    writer.join(timeout=60)
    assert texts(windows) == [str(number) for number in range(5000)]
    assert max(map(len, windows)) <= 64
    assert [line.number for window in windows for line in window] == list(range(1, 5001))


def test_an_empty_pipe(pipe: Path) -> None:
    writer = threading.Thread(target=lambda: pipe.open("wb").close())
    writer.start()
    assert list(read_windows([pipe], 4)) == []
    writer.join(timeout=60)


def test_what_cannot_be_read_is_named(tmp_path: Path, pipe: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=f"{path}: cannot read"):
            list(read_windows([path], 4))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(os.urandom(90000))[:50000])
    with pytest.raises(InputError, match=r"cut.gz: cannot read on: .*is the file complete"):
        list(read_windows([cut], 4))
    writer = threading.Thread(target=lambda: pipe.write_bytes(cut.read_bytes()))
    writer.start()
    with pytest.raises(InputError, match="pipe: cannot read on"):
        list(read_windows([pipe], 4))
    writer.join(timeout=60)
