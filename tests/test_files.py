"""Files are whole or not there."""

import gzip
from pathlib import Path

import pytest

from nmtalign.errors import ResourceError
from nmtalign.files import atomic_path, atomic_text, sha256_of


def test_a_file_appears_whole_and_its_folder_is_made(tmp_path):
    path = tmp_path / "new folder" / "text"
    with atomic_text(path) as stream:
        stream.write("é\r\n\u2028")
        assert not path.exists()
    assert path.read_bytes() == "é\r\n\u2028".encode()
    assert [entry.name for entry in path.parent.iterdir()] == ["text"]


def test_after_an_error_the_old_file_is_there_and_nothing_else(tmp_path):
    path = tmp_path / "text"
    path.write_text("old")

    def cut_off():
        with atomic_text(path) as stream:
            stream.write("new")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        cut_off()
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["text"]


def test_gz_by_name(tmp_path):
    with atomic_text(tmp_path / "text.gz") as stream:
        stream.write("a\n")
    assert gzip.decompress((tmp_path / "text.gz").read_bytes()) == b"a\n"


def test_what_the_disk_refuses_is_one_line_that_names_the_file(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResourceError, match="file/text: cannot write"), atomic_text(tmp_path / "file" / "text"):
        pass


def test_a_full_disk_is_named():
    with (
        pytest.raises(ResourceError, match="/dev/full: cannot write: no space left"),
        atomic_text(Path("/dev/full")) as stream,
    ):
        stream.write("x" * 100_000)


def test_a_device_is_written_to_not_replaced():
    with atomic_path(Path("/dev/null")) as path:
        assert path == Path("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_sha256(tmp_path):
    (tmp_path / "f").write_bytes(b"abc")
    assert sha256_of(tmp_path / "f") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
