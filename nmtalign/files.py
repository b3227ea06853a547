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
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def refusal(name: str | Path, error: OSError) -> ResourceError:
    """One clear line for what the operating system refused to write."""
    reason = "no space left on the disk" if error.errno == errno.ENOSPC else (error.strerror or str(error))
    return ResourceError(f"{name}: cannot write: {reason}")


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


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turns the operating system's refusals to write `path` into one clear line."""
    try:
        yield
    except OSError as error:
        if error.errno == errno.EPIPE:
            raise
        raise refusal(path, error) from error


@contextlib.contextmanager
def atomic_path(path: Path, keep: Path | None = None) -> Iterator[Path]:
    """Yields a temporary name beside `path`; it becomes `path` at the end, or goes if anything is raised.

    The folder is made where it is missing. The content is flushed to the disk before the rename. What is there and is
    neither file nor folder (/dev/null, a named pipe) is not replaced but written to. With `keep`, the file that is
    replaced lives on under that name: at no moment is neither of the two whole.
    """
    with disk_errors(path):
        if stays_in_place(path):
            yield path
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{os.getpid()}{_PARTIAL}")
        try:
            yield temporary
            with temporary.open("rb") as stream:
                os.fsync(stream.fileno())
            if keep is not None and path.is_file():
                path.replace(keep)
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


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


def open_alone(path: Path) -> BinaryIO:
    """Opens a file to read and write, unbuffered, made where it is missing, and marks it as written by this process.

    Raises BlockingIOError where another process has marked it; the mark goes with the process.
    """
    stream = path.open("r+b" if path.exists() else "x+b", buffering=0)
    try:
        _mark(stream.fileno())
    except BlockingIOError:
        stream.close()
        raise
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
