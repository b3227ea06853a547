"""Files that are either whole or not there: temporary name, flush, rename."""

import contextlib
import errno
import gzip
import hashlib
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, TextIO

from nmtalign.errors import ResourceError, UsageError
from nmtalign.untrusted import open_regular

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_PARTIAL = ".partial"
_STREAM = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_REASONS = {
    errno.ENOSPC: "no space left on the disk",
    errno.EBADF: "it is not open for writing",
    errno.EEXIST: "a file is in the way",
}
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def refusal(error: OSError, path: Path | None = None, verb: str = "write") -> ResourceError:
    """One clear line for what the operating system refused while `path` was being written, read, or whatever `verb` is.

    An error of another file names that file, and what was refused only as far as the system tells.
    """
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    if error.filename2 is not None:
        return ResourceError(f"{path or error.filename2}: cannot rename {error.filename} to this name: {reason}")
    found = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    if path is None or (found and path not in (found, *found.parents) and found.suffix != _PARTIAL):
        return ResourceError(f"{found}: {reason}" if found else f"the system refused: {reason}")
    inside = found is not None and found.suffix != _PARTIAL
    return ResourceError(f"{found if inside else path}: cannot {verb}: {reason}")


def stream_number(path: Path) -> int | None:
    """The number of the open stream of this process that a name such as /dev/stdout stands for, else None.

    To be asked before the name is: where such a stream goes to a file, the name looks like that file's.
    """
    name = os.path.abspath(path)  # noqa: PTH100 - not `resolve`, which would follow it
    match = _STREAM.fullmatch(name)
    return int(match[1]) if match else _STREAMS.get(name)


def stays_in_place(path: Path) -> bool:
    """Whether what is there is written to and never replaced: a device, a named pipe, a stream of this process."""
    return stream_number(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def followed(path: Path) -> Path:
    """The name that symbolic links lead to, where a file may be missing; the name itself where it is no link.

    This is the name to replace, so that the link stays. Raises ResourceError for links that lead in a circle.
    """
    if not path.is_symlink():
        return path
    target = Path(os.path.realpath(path))
    if target.is_symlink():
        raise refusal(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), path)
    return target


@contextlib.contextmanager
def disk_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Turns the operating system's refusals to write `path`, or to do what `verb` says, into one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise refusal(error, path, verb) from error


def make_folder(folder: Path) -> None:
    """Makes a folder, and those that it is in, where they are missing; raises ResourceError."""
    with disk_errors(folder, "make the folder"):
        folder.mkdir(parents=True, exist_ok=True)


def keep_mode(descriptor: int, path: Path) -> None:
    """Gives an open file the owner, the group and the mode of the file that it is to replace, if there is one.

    What the system does not allow stays as it is. Without the same group, the group may do what others may.
    """
    if fcntl is None or not path.is_file():
        return
    old = path.stat()
    for owner, group in ((old.st_uid, -1), (-1, old.st_gid)):
        with contextlib.suppress(OSError):
            os.fchown(descriptor, owner, group)
    mode = old.st_mode & 0o777
    if os.fstat(descriptor).st_gid != old.st_gid:
        mode = mode & 0o707 | (mode & 0o007) << 3
    with contextlib.suppress(OSError):
        os.fchmod(descriptor, mode)


@contextlib.contextmanager
def atomic_path(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yields a temporary name beside `path`; it becomes `path` at the end, or goes if anything is raised.

    The folder is made where it is missing. The content is flushed to the disk before the rename. What is there and is
    neither file nor folder (/dev/null, a named pipe) is not replaced but written to. A symbolic link stays, and the
    file that it leads to is replaced. The new file keeps the mode of the file that it replaces and, where possible, its
    owner. With `keep`, the file that is replaced lives on under that name: at no moment is neither of the two whole.
    """
    if stays_in_place(path):
        with disk_errors(path):
            yield path
        return
    final = followed(path) if keep is None else path
    make_folder(final.parent)
    temporary = final.with_name(f".{final.name}.{os.getpid()}{_PARTIAL}")
    try:
        with disk_errors(path):
            _begin(temporary, final)
            yield temporary
            with temporary.open("rb") as stream:
                keep_mode(stream.fileno(), final)
                os.fsync(stream.fileno())
            if keep is not None and final.is_file():
                final.replace(keep)
            temporary.replace(final)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _begin(temporary: Path, final: Path) -> None:
    """Makes the file under the temporary name where it is to replace one: only its owner may read it until then."""
    if final.is_dir():
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if final.is_file():
        temporary.unlink(missing_ok=True)
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))


@contextlib.contextmanager
def atomic_text(path: Path) -> Iterator[TextIO]:
    """A UTF-8 text stream (only `\\n` ends a line) that becomes `path` when the block ends without an error.

    A name that ends in .gz is compressed.
    """
    with atomic_path(path) as temporary:
        if path.suffix == ".gz":
            with gzip.open(temporary, "wt", encoding="utf-8", newline="\n") as stream:
                yield stream
        else:
            number = stream_number(path)
            opened = temporary if number is None else os.dup(number)
            with open(opened, "w", encoding="utf-8", newline="\n") as stream:  # noqa: PTH123
                yield stream


@contextlib.contextmanager
def exclusive(stream: IO[bytes]) -> Iterator[None]:
    """Marks an open file as being written by a living process, for `sweep`; the mark goes with the process."""
    with contextlib.suppress(BlockingIOError):
        _mark(stream.fileno())
    yield


def _mark(descriptor: int) -> None:
    """Marks what is open as written by this process, where files can be marked; BlockingIOError where another has."""
    if fcntl is None:
        return
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError:  # a file system without locks
        pass


def open_alone(path: Path, final: Path) -> BinaryIO:
    """Opens a file to read and write, unbuffered, made where it is missing, and marks it as written by this process.

    It is to become `final`, and whoever may not read that may not read it either. Raises BlockingIOError where another
    process has marked it; the mark goes with the process.
    """
    stream = path.open("r+b" if path.exists() else "x+b", buffering=0)
    try:
        _mark(stream.fileno())
    except BlockingIOError:
        stream.close()
        raise
    keep_mode(stream.fileno(), final)
    with contextlib.suppress(OSError):  # a later run of the same user has to go on with it
        path.chmod(path.stat().st_mode & 0o777 | 0o600)
    return stream


@contextlib.contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Locks a folder for this process; the folder is made where it is missing. The lock ends with the process.

    Folders that were made here and are still empty at the end are removed. Raises UsageError where another process has
    locked the folder, and ResourceError where it cannot be made.
    """
    made: list[Path] = []
    descriptor = None
    try:
        descriptor = _lock_folder(folder, made)
        yield
    finally:
        with contextlib.suppress(OSError):  # a folder that holds files stays, and so do those above it
            for path in made:
                path.rmdir()
        if descriptor is not None:
            os.close(descriptor)


def _lock_folder(folder: Path, made: list[Path]) -> int | None:
    """The descriptor that holds the lock of a folder, or None on a system without such locks.

    The folders that had to be made are put into `made`, the innermost first.
    """
    while True:
        with disk_errors(folder):
            missing = [path for path in (folder, *folder.parents) if not path.exists()]
            folder.mkdir(parents=True, exist_ok=True)
            made[:] = missing or made
            if fcntl is None:
                return None
            try:
                descriptor = os.open(folder, os.O_RDONLY)
            except FileNotFoundError:  # another process has just removed the folder that it had made
                continue
        try:
            _mark(descriptor)
        except BlockingIOError:
            os.close(descriptor)
            made.clear()  # it belongs to the process that holds the lock, even while it is empty
            raise UsageError(
                f"{folder}: another process is training there; wait until it has ended, or give another folder"
            ) from None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(descriptor), folder.stat()):
                return descriptor
        os.close(descriptor)  # the lock of a folder that is no longer there


def free_space(folder: Path) -> int | None:
    """The bytes that this process may still write to the disk of a folder; None where the system does not tell."""
    try:
        usage = shutil.disk_usage(folder)
    except (OSError, AttributeError):
        return None
    return usage.free if usage.total else None


def sweep(folder: Path) -> None:
    """Removes what processes that were killed have left half-written in a folder."""
    for path in folder.glob(f".*{_PARTIAL}"):
        with contextlib.suppress(OSError):
            if not _is_being_written(path):
                path.unlink()


def _is_being_written(path: Path) -> bool:
    with path.open("rb") as stream:
        try:
            _mark(stream.fileno())
        except BlockingIOError:
            return True
    return False


def sha256_of(path: Path) -> str:
    """The SHA-256 of a regular file's bytes, in hexadecimal; OSError for a pipe or a device, which may never end."""
    with open_regular(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
