"""Files are whole or not there."""

import contextlib
import gzip
from pathlib import Path

import pytest

from nmtalign.errors import ResourceError
from nmtalign.files import atomic_path, atomic_text, exclusive, sha256_of, stays_in_place, stream_number, sweep


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


def test_what_is_replaced_may_be_kept(tmp_path):
    path, older = tmp_path / "text", tmp_path / "older"
    for content in ("one", "two", "three"):
        with atomic_path(path, keep=older) as temporary:
            temporary.write_text(content)
    assert (path.read_text(), older.read_text()) == ("three", "two")
    assert len(list(tmp_path.iterdir())) == 2


def test_wherever_writing_is_cut_off_one_of_the_two_is_whole(tmp_path, monkeypatch):
    path, older = tmp_path / "text", tmp_path / "older"
    path.write_text("two")
    older.write_text("one")

    class CutOff(BaseException):
        pass

    rename = Path.replace
    for allowed, expected in [(0, ("two", "one")), (1, (None, "two")), (2, ("three", "two"))]:
        left = [allowed]

        def replace(self, target, left=left):
            if not left[0]:
                raise CutOff
            left[0] -= 1
            return rename(self, target)

        monkeypatch.setattr(Path, "replace", replace)
        with contextlib.suppress(CutOff), atomic_path(path, keep=older) as temporary:
            temporary.write_text("three")
        found = tuple(file.read_text() if file.exists() else None for file in (path, older))
        assert found == expected
        path.write_text("two")
        older.write_text("one")


def test_what_killed_processes_left_is_swept_away_and_nothing_else(tmp_path):
    names = [".model.1.partial", ".model.99999999.partial", "kept.partial", ".kept", "model"]
    for name in names:
        (tmp_path / name).write_text("")
    with (tmp_path / ".alive.1.partial").open("wb") as stream, exclusive(stream):
        sweep(tmp_path)
        assert {entry.name for entry in tmp_path.iterdir()} == {*names[2:], ".alive.1.partial"}
    sweep(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {*names[2:]}
    sweep(tmp_path / "missing")


@pytest.mark.parametrize(
    ("name", "number"),
    [
        ("/dev/stdout", 1),
        ("/dev/../dev/stderr", 2),
        ("/dev/fd/63", 63),
        ("/proc/self/fd/7", 7),
        ("/dev/null", None),
        ("1", None),
    ],
)
def test_names_of_streams(name: str, number: int | None) -> None:
    assert stream_number(Path(name)) == number
    assert stays_in_place(Path(name)) == (name != "1")
