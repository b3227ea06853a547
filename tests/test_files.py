"""Files are complete or absent."""

import contextlib
import errno
import fcntl
import gzip
import io
import os
import stat
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from nmtalign import files
from nmtalign.errors import ResourceError, UsageError
from nmtalign.files import PartialFile, atomic_path, atomic_text, disk_errors, folder_lock
from nmtalign.hdf5 import is_hdf5
from nmtalign.text.lines import read_lines


def test_a_file_appears_complete_and_its_folder_is_made(tmp_path):
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


def test_equal_text_gives_equal_gz_files(tmp_path, monkeypatch):
    """A run after an interruption has another time and process number, and both would be in the header."""
    for number, name in ((1, "a.gz"), (2, "b.gz")):
        monkeypatch.setattr(os, "getpid", lambda number=number: number)
        monkeypatch.setattr(time, "time", lambda number=number: 1e9 * number)
        with atomic_text(tmp_path / name) as stream:
            stream.write("a\n")
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"a\n"
    assert (tmp_path / "a.gz").read_bytes()[8] == 0  # neither the fastest level nor the slow highest one


def test_a_full_disk_is_named():
    full = pytest.raises(ResourceError, match="/dev/full: cannot write: no space left")
    with full, atomic_text(Path("/dev/full")) as stream:
        stream.write("x" * 100_000)


def test_a_device_is_written_to_not_replaced():
    with atomic_path(Path("/dev/null")) as path:
        assert path == Path("/dev/null")
    assert Path("/dev/null").is_char_device()


def test_wherever_writing_is_cut_off_one_of_the_two_is_complete(tmp_path, monkeypatch):
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
    swept = [".config.json.1.partial", ".best.safetensors.99999999.partial", ".source.vocabulary.txt.7.partial"]
    kept = [".out.txt.1.partial", "config.json.partial", ".best.safetensors", "best.safetensors"]
    for name in (*swept, *kept):
        (tmp_path / name).write_text("")
    files.sweep(tmp_path)
    assert {entry.name for entry in tmp_path.iterdir()} == {*kept}
    files.sweep(tmp_path / "missing")


def test_a_file_is_renamed_only_once_the_disk_has_it(tmp_path, monkeypatch):
    def refuses(number):
        raise OSError(errno.EIO, "Input/output error")

    file = PartialFile(tmp_path / "links")
    file.open()
    file.write(b"0-0\n")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", refuses)
        with pytest.raises(ResourceError, match=r"links.partial: cannot write"):
            file.rename(file.path)
    assert not file.path.exists()
    file.rename(file.path)
    assert file.path.read_bytes() == b"0-0\n"


def test_a_locked_folder_is_made_and_removed_again_while_it_is_empty(tmp_path):
    (tmp_path / "there").mkdir()
    folder = tmp_path / "there" / "new" / "model"
    for reason in (None, ValueError):
        with contextlib.suppress(ValueError), folder_lock(folder):
            assert folder.is_dir()
            if reason:
                raise reason
        assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    with folder_lock(folder):
        (folder / "config.json").touch()
    with folder_lock(folder):
        pass
    assert (folder / "config.json").exists()


def test_a_link_to_a_folder_that_does_not_exist_yet_becomes_one(tmp_path):
    (tmp_path / "model").symlink_to("disk/of/models")
    with folder_lock(tmp_path / "model" / "work"):
        (tmp_path / "model" / "config.json").touch()
    assert [path.name for path in (tmp_path / "disk/of/models").iterdir()] == ["config.json"]
    assert (tmp_path / "model").is_symlink()
    (tmp_path / "circle").symlink_to("circle")
    with pytest.raises(ResourceError, match="circle: "):
        files.make_folder(tmp_path / "circle")


def test_a_locked_folder_is_refused_and_left_alone(tmp_path):
    with folder_lock(tmp_path / "model"):
        busy = pytest.raises(UsageError, match="another process is working in this folder")
        with busy, folder_lock(tmp_path / "model"):
            pass
        assert (tmp_path / "model").is_dir()
        with folder_lock(tmp_path / "other"):
            pass
    with folder_lock(tmp_path / "model"):
        pass


def test_the_lock_of_a_folder_that_was_removed_meanwhile_is_not_taken(tmp_path, monkeypatch):
    folder, flock = tmp_path / "model", fcntl.flock

    def late(descriptor, operation):  # another process has ended between the opening and the locking
        folder.rmdir()
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UsageError, match="another process is working in this folder"), folder_lock(folder):
        pass


def test_a_partial_file_that_another_run_finished_meanwhile_is_not_written(tmp_path, monkeypatch):
    file, flock = PartialFile(tmp_path / "text"), fcntl.flock
    file.partial.write_text("complete")

    def late(descriptor, operation):  # the other run has ended between the opening and the locking
        file.partial.rename(file.path)
        flock(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", late)
    with pytest.raises(UsageError, match=r"text\.partial: another run is writing this file"):
        file.open()
    assert file.path.read_text() == "complete"


def test_a_partial_file_that_another_run_makes_or_ends_at_this_moment_is_opened(tmp_path, monkeypatch):
    file, opened = PartialFile(tmp_path / "text"), Path.open

    def late(path, *arguments, **options):
        path.unlink() if path.exists() else path.touch()
        return opened(path, *arguments, **options)

    for _ in range(2):
        with monkeypatch.context() as patched:
            patched.setattr(Path, "open", late)
            file.open()
        assert file.is_empty()
        file.write(b"0-0\n1-1\n")
        file.cut(4)
        file.write(b"2-2\n")
        assert file.partial.read_bytes() == b"0-0\n2-2\n"
        file.close()


def test_without_locks_the_folder_is_made_all_the_same(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "fcntl", None)
    with folder_lock(tmp_path / "model"), folder_lock(tmp_path / "model"):
        assert (tmp_path / "model").is_dir()


STREAMS = {"/dev/stdout": 1, "/dev/../dev/stderr": 2, "/dev/fd/63": 63, "/proc/self/fd/7": 7, "/dev/null": None}


@pytest.mark.parametrize(("name", "number"), [*STREAMS.items(), ("1", None)])
def test_names_of_streams(name: str, number: int | None) -> None:
    assert files.stream_number(Path(name)) == number
    assert files.stays_in_place(Path(name)) == (name != "1")


def test_a_link_stays_and_what_it_leads_to_is_replaced(tmp_path):
    there, link, chain = tmp_path / "there", tmp_path / "link", tmp_path / "chain"
    there.mkdir()
    link.symlink_to("there/text")
    chain.symlink_to("link")
    for path, content in ((link, "new"), (chain, "newer")):  # at first there is no file behind the link
        with atomic_text(path) as stream:
            stream.write(content)
            assert {one.name for one in tmp_path.iterdir()} == {"there", "link", "chain"}
        assert (there / "text").read_text() == content
    assert str(link.readlink()) == "there/text"
    assert str(chain.readlink()) == "link"
    assert [one.name for one in there.iterdir()] == ["text"]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o400])
def test_a_file_that_is_replaced_keeps_its_mode(tmp_path, mode):
    path = tmp_path / "text"
    path.write_text("old")
    path.chmod(mode)
    with atomic_path(path) as temporary:
        temporary.write_text("new")
        # Not readable by other users, because the final file may not be.
        assert stat.S_IMODE(temporary.stat().st_mode) == 0o600
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == ("new", mode)


def test_without_the_group_of_before_a_file_is_no_more_open_than_for_others(tmp_path, monkeypatch):
    path = tmp_path / "text"
    path.write_text("old")
    path.chmod(0o664)
    group = path.stat().st_gid

    def refuse(*_):
        raise PermissionError

    with path.open("rb") as stream, monkeypatch.context() as changed:
        changed.setattr(os, "fchown", refuse)
        changed.setattr(os, "fstat", lambda number: SimpleNamespace(st_gid=group + 1))
        files.keep_mode(stream.fileno(), path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_follows_the_umask(tmp_path, umask, mode):
    before = os.umask(umask)
    try:
        with atomic_text(tmp_path / "text") as stream:
            stream.write("new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "text").stat().st_mode) == mode


def raised(path, work):
    """The line that an error becomes while `path` is being written."""
    with pytest.raises(ResourceError) as caught, atomic_path(path):
        work()
    return str(caught.value)


def test_an_error_names_what_was_refused_of_which_file(tmp_path):
    out, other = tmp_path / "out", tmp_path / "other"
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("")
    assert raised(out, other.read_bytes) == f"{other}: No such file or directory"
    assert raised(out, (tmp_path / "folder").read_bytes) == f"{tmp_path / 'folder'}: Is a directory"
    for path in (tmp_path / "folder", Path(), Path("/")):
        with pytest.raises(UsageError, match=f"^{path}: is not a file that can be replaced"), atomic_path(path):
            pass
    for folder in (tmp_path / "file", tmp_path / "file" / "new"):
        with pytest.raises(UsageError, match=f"^{tmp_path / 'file'}: is a file; give the name of a folder"):
            files.make_folder(folder)
    with pytest.raises(FileNotFoundError), disk_errors(other, "read"):  # the caller says what is missing
        other.read_bytes()
    with pytest.raises(ResourceError, match="other: cannot read: Permission denied"), disk_errors(other, "read"):
        raise PermissionError(errno.EACCES, "Permission denied", str(other))
    with pytest.raises(ResourceError, match=r"out: cannot rename or copy .*other to it: No such"), disk_errors(out):
        other.rename(out)
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert raised(tmp_path / "a", lambda: None).startswith(f"{tmp_path / 'a'}: cannot write: Too many levels")
    assert str(files.refusal(OSError(24, "Too many open files", "text"))) == "text: Too many open files"
    assert str(files.refusal(OSError(24, "Too many open files"))) == "the system refused: Too many open files"
    assert str(files.refusal(OSError(24, "Too many open files", "out.partial"))) == "out.partial: Too many open files"
    file = PartialFile(out)
    file.open()
    (tmp_path / "out").mkdir()
    with pytest.raises(ResourceError, match=f"^{out}: cannot rename or copy {file.partial} to it: Is a directory"):
        file.rename(out)
    file.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
@pytest.mark.parametrize("read", [files.read_json, files.kind_of, is_hdf5, lambda path: list(read_lines(path))])
def test_what_the_system_cannot_read_further_is_not_damaged(tmp_path, monkeypatch, read, number):
    class Broken(io.FileIO):
        def read(self, *_):
            raise OSError(number, os.strerror(number))

        readinto = readall = read

    (tmp_path / "a").write_text("{}\n")
    monkeypatch.setattr(io, "FileIO", Broken)
    with pytest.raises(ResourceError, match=f"^{tmp_path / 'a'}: cannot read: {os.strerror(number)}$"):
        read(tmp_path / "a")


def test_what_the_system_cannot_read_further_of_a_compressed_text_is_not_damaged(tmp_path, monkeypatch):
    class Broken(io.FileIO):
        def read(self, *_):
            if self.tell():
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return super().read(10)

    (tmp_path / "a.gz").write_bytes(gzip.compress(b"text\n"))
    monkeypatch.setattr(io, "FileIO", Broken)
    with pytest.raises(ResourceError, match=f"^{tmp_path / 'a.gz'}: cannot read: {os.strerror(errno.EIO)}$"):
        list(read_lines(tmp_path / "a.gz"))


def test_a_folder_of_another_program_has_no_own_files(tmp_path, monkeypatch):
    """The default data/ may belong to a container: a command that does not need it must not fail."""

    def refuse(path):
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    for name in ("corpus.h5", "out.txt"):
        (tmp_path / name).touch()
    assert files.own_files(tmp_path) == [tmp_path / "corpus.h5"]
    monkeypatch.setattr(Path, "is_file", refuse)
    assert files.own_files(tmp_path) == []
