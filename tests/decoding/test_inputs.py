"""The lines of files and pipes, as they are."""

import gzip
import os
import threading
from pathlib import Path

import pytest

from nmtalign.decoding.inputs import are_at_hand, input_size, read_inputs
from nmtalign.errors import InputError

# One Windows line end, an inner carriage return and U+2028, a blank line, a bad byte, no end of line at the end.
RAW = b"\xef\xbb\xbfa\r\nb\rb \xe2\x80\xa8\n\n\xff\x00\nlast"
TEXTS = ["a", "b\rb \u2028", "", "\ufffd\x00", "last"]


def test_lines_are_what_a_line_feed_ends(tmp_path: Path) -> None:
    path = tmp_path / "in.en"
    path.write_bytes(RAW)
    lines = list(read_inputs([path]))
    assert [line.text for line in lines] == TEXTS
    assert (lines[3].place, lines[3].valid, lines[3].size) == (f"{path}: line 4", False, 3)
    assert [line.valid for line in lines].count(False) == 1
    assert input_size([path, path]) == 2 * len(RAW)


def test_several_files_one_of_them_compressed(tmp_path: Path) -> None:
    plain, packed, empty = tmp_path / "a.en", tmp_path / "b.gz", tmp_path / "c.en"
    plain.write_bytes(RAW)
    packed.write_bytes(gzip.compress(RAW))
    empty.write_bytes(b"")
    lines = list(read_inputs([plain, empty, packed]))
    assert [line.text for line in lines] == TEXTS * 2
    assert lines[5].place == f"{packed}: line 1"
    assert are_at_hand([plain, packed])
    assert input_size([plain, packed]) is None


def test_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for raw in (RAW, b""):
        writer = threading.Thread(target=pipe.write_bytes, args=(raw,))
        writer.start()
        assert [line.text for line in read_inputs([pipe])] == (TEXTS if raw else [])
        writer.join(timeout=60)
    assert not are_at_hand([pipe])
    assert input_size([pipe]) is None


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(InputError, match=f"{path}: cannot read"):
            list(read_inputs([path]))
    with pytest.raises(InputError, match="none: cannot read"):
        are_at_hand([tmp_path / "none"])
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(os.urandom(90000))[:50000])
    with pytest.raises(InputError, match=r"cut.gz: cannot read on: .*is the file complete"):
        list(read_inputs([cut]))
