"""Files that are written atomically (temporary name, flush, rename) or continued by a later run; locks; checksums.

It also has the names of nmtalign's own files. The last functions read small, untrusted files, so that no content can
hang the process or fill the memory. They raise OSError if a file is missing or not regular, and ValueError with a short
reason for content that they refuse.
"""

import contextlib
import errno
import glob
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, TextIO

from nmtalign.errors import ResourceError, UsageError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

CONFIG, LOG = "config.json", "train.jsonl"  # of a model directory
SOURCE_VOCABULARY, TARGET_VOCABULARY = "source.vocabulary.txt", "target.vocabulary.txt"
ALIGNER, LINKS = "aligner.safetensors", "links.tsv"  # what `nmtalign link` has learned, and the links
_KINDS = {CONFIG: "a model", "corpus.h5": "a prepared corpus", ALIGNER: "a word aligner of `nmtalign link`"}
_MADE = (CONFIG, LOG, "tokenizer.json", "corpus.h5", "summary.json", "link.json", LINKS, "lexicon.tsv")
_ENDINGS = (".safetensors", ".spm", ".vocabulary.txt")

DEEPEST = 200  # objects and lists inside each other; deeper ones could overflow the stack when they are written
_STRING_OR_COMMENT = re.compile(rb"\"[^\"\n]*\"|'[^'\n]*'|#.*")  # in a line of TOML
_MOST_BYTES = 256 << 20  # the largest file that is read at once; a vocabulary of a million words has some 10 MB
_MOST_INTEGER = 2**63  # TOML has integers of 64 bits
_HALF_CHARACTER = re.compile(rb"\\u[dD][89a-fA-F]")
_PARTIAL, INCOMPLETE = ".partial", ".*.partial"  # the latter: the names of the temporary files of `atomic_path`
JOURNAL = b"nmtalign journal of alignments, not yet HDF5: --resume continues it\n"  # how such a file begins
_IS_INPUT = "is also an input; give the output another name"
_STREAM = re.compile(r"/(?:dev|proc/self)/fd/(\d+)")
_REASONS = {errno.ENOSPC: "no space left on the disk", errno.EBADF: "it is not open for writing"}
# No missing, foreign or damaged file causes these errors.
_OF_SYSTEM = {errno.EACCES, errno.EPERM, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ESTALE}
_STREAMS = {"/dev/stdin": 0, "/dev/stdout": 1, "/dev/stderr": 2}


def kind_of(path: Path) -> str:
    """What a path is, for the message that it is not what a command needs; "" if nothing is there."""
    if path.is_dir():
        kind = next((kind for name, kind in _KINDS.items() if (path / name).is_file()), "")
        return f"a folder with {kind}" if kind else "a folder"
    if not path.is_file():
        return ""
    with open_regular(path) as stream, disk_errors(path, "read"):
        start = stream.read(1024)
    if start.startswith(JOURNAL):
        return "the beginning of an alignment file, which --resume completes"
    if b"\x89HDF" in start:
        return "a prepared corpus" if path.name == "corpus.h5" else "an HDF5 file, such as a corpus or alignments"
    return "a binary file" if b"\0" in start or start.startswith(b"\x1f\x8b") else "a text file"


def is_aligner(folder: Path) -> bool:
    """Whether a folder has the word aligner of `nmtalign link`, which aligns in both directions."""
    return (folder / ALIGNER).is_file()


def own_files(folder: Path) -> list[Path]:
    """The files that nmtalign has made in a model directory, a prepared corpus or the folder of `nmtalign link`."""
    with contextlib.suppress(OSError):  # data/ may belong to another program; a command that needs it reports the error
        if any((folder / name).is_file() for name in _KINDS):
            return [path for path in folder.iterdir() if _is_own(path.name)]
    return []


def _is_own(name: str) -> bool:
    return name in _MADE or name.endswith(_ENDINGS)


def refusal(error: OSError, path: Path | None = None, verb: str = "write") -> ResourceError:
    """Returns the ResourceError for an error in an attempt to `verb` the file `path`, or the file that it names."""
    number = error.errno or 0
    reason = _REASONS.get(number) or (os.strerror(number) if number in _OF_SYSTEM else error.strerror) or str(error)
    if error.filename2 is not None:
        name = path if path and str(error.filename2).endswith(_PARTIAL) else error.filename2
        return ResourceError(f"{name}: cannot rename or copy {error.filename} to it: {reason}")
    named = Path(os.fsdecode(error.filename)) if isinstance(error.filename, str | bytes) else None
    if named is None or (path and named.suffix == _PARTIAL):
        return ResourceError(f"{path}: cannot {verb}: {reason}" if path else f"the system refused: {reason}")
    if path and (path in (named, *named.parents) or named in path.parents):
        return ResourceError(f"{named}: cannot {verb}: {reason}")
    return ResourceError(f"{named}: {reason}")


def stream_number(path: Path) -> int | None:
    """Returns the number of the open stream of this process that a name such as /dev/stdout denotes, or None.

    Callers check this first: if such a stream is redirected to a file, the name looks like a name of that file.
    """
    name = os.path.splitdrive(os.path.abspath(path))[1].replace(os.sep, "/")  # noqa: PTH100 - `resolve` follows links
    match = _STREAM.fullmatch(name)
    return int(match[1]) if match else _STREAMS.get(name)


def stays_in_place(path: Path) -> bool:
    """Returns whether a path is written in place, never replaced: a device, a named pipe, a stream of this process."""
    return stream_number(path) is not None or (path.exists() and not path.is_file() and not path.is_dir())


def check_other(path: Path, others: Iterable[Path | None], reason: str = _IS_INPUT) -> None:
    """Raises UsageError if an output, or the FILE.partial that it is first, would replace one of the other files."""
    if stays_in_place(path) or path.is_dir():
        return
    for other in filter(None, others):
        for name in (path, Path(f"{os.path.realpath(path)}{_PARTIAL}")):
            same = os.path.realpath(name) == os.path.realpath(other)
            with contextlib.suppress(OSError, ValueError):
                same = os.path.samefile(name, other)  # noqa: PTH121 - also by hard links
            if same:
                raise UsageError(f"{path}: {reason}")


def _replaceable(path: Path, follow: bool = True) -> Path:
    """Returns the path to which symbolic links lead, even if it does not exist; without `follow` the path itself.

    Raises ResourceError for a circle of links, and UsageError for a path that exists and is not a file.
    """
    final = Path(os.path.realpath(path)) if follow and path.is_symlink() else path
    if follow and final.is_symlink():
        raise refusal(OSError(errno.ELOOP, os.strerror(errno.ELOOP)), path)
    if final.exists() and not final.is_file():
        raise UsageError(f"{path}: is not a file that can be replaced; give another name")
    return final


@contextlib.contextmanager
def disk_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Turns errors of the operating system into a ResourceError (`refusal`).

    If `verb` is "read", an error that a missing, foreign or damaged file can cause stays an OSError.
    """
    try:
        yield
    except OSError as error:
        of_file = error.errno not in _OF_SYSTEM or os.path.isdir(path)  # noqa: PTH112 - Windows opens no folder
        if error.errno == errno.EPIPE or (verb == "read" and of_file):
            raise
        raise refusal(error, path, verb) from error


def make_folder(folder: Path) -> None:
    """Makes a folder and its parents, also where links lead; raises UsageError if one is a file, and ResourceError."""
    with disk_errors(folder, "make the folder"):
        for one in (folder, *folder.parents):
            if one.exists() and not one.is_dir():
                raise UsageError(f"{one}: is a file; give the name of a folder")
            if one.is_symlink():  # perhaps to a folder that does not exist yet
                Path(os.path.realpath(one)).mkdir(parents=True, exist_ok=True)
        folder.mkdir(parents=True, exist_ok=True)


def keep_mode(descriptor: int, path: Path) -> None:
    """Gives an open file the owner, the group and the mode of the file that it will replace, if there is one.

    Changes that the system does not allow are skipped. If the group cannot be kept, the new group gets only the
    permissions of others.
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
def atomic_path(path: Path, keep: Path | None = None, follow: bool = True) -> Iterator[Path]:
    """Yields a temporary path in the folder of `path`, and renames it to `path` at the end; after an error removes it.

    The folder is made if it does not exist. The content is flushed to the disk before it is renamed. A device or a
    named pipe is written in place. A symbolic link is preserved, and its target is replaced. Without `follow` the link
    itself is replaced, because the folder of a model may be untrusted. The new file has the mode and, if possible, the
    owner of the file that it replaces. With `keep` that file is renamed to `keep`: one of the two is always complete.
    """
    if follow and stays_in_place(path):
        with disk_errors(path):
            yield path
        return
    final = _replaceable(path, follow)
    make_folder(final.parent)
    temporary = final.with_name(f".{final.name}.{os.getpid()}{_PARTIAL}")
    try:
        with disk_errors(path):
            temporary.unlink(missing_ok=True)
            mode = 0o600 if final.is_file() else 0o666  # what replaces a file gets its mode at the end
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
            yield temporary
            with temporary.open("r+b") as stream:  # Windows flushes only a file that is open for writing
                keep_mode(stream.fileno(), final)
                os.fsync(stream.fileno())
            if keep is not None and final.is_file():
                final.replace(keep)
            temporary.replace(final)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_text(path: Path, follow: bool = True) -> Iterator[TextIO]:
    """Yields a UTF-8 text stream that becomes `path` if the block ends without an error; only `\\n` ends a line.

    A file whose name ends in .gz is compressed, without a time and a name; gzip's usual level takes a fifth of the
    highest one's time. `follow` is that of `atomic_path`.
    """
    with atomic_path(path, follow=follow) as temporary:
        number = stream_number(path) if follow else None
        with open(temporary if number is None else os.dup(number), "wb") as raw:  # noqa: PTH123
            packed: Any = gzip.GzipFile("", "wb", 6, raw, mtime=0) if path.suffix == ".gz" else raw
            with packed, io.TextIOWrapper(packed, "utf-8", newline="\n") as stream:
                yield stream


def _lock(descriptor: int, path: Path) -> bool:
    """Locks an open file or folder, if the system can, until it is closed.

    Returns False if another process has locked it, or has renamed or removed it since it was opened.
    """
    try:
        if fcntl is not None:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if isinstance(error, BlockingIOError):
            return False
    with contextlib.suppress(OSError):
        return os.path.samestat(os.fstat(descriptor), path.stat())
    return False


class PartialFile:
    """FILE.partial: the part of FILE that has been written. A later run can continue it.

    Only one process can open it. Nothing is buffered: after `write` the system has the data. A symbolic link FILE is
    followed. All methods raise ResourceError if the system refuses the operation.
    """

    def __init__(self, path: Path) -> None:
        """Raises UsageError if `path` exists and is not a file."""
        self.path = _replaceable(path)
        self.partial = self.path.with_name(f"{self.path.name}{_PARTIAL}")
        self.old = self.path.with_name(f"{self.path.name}{_PARTIAL}.old")
        self._stream: BinaryIO | None = None

    @property
    def stream(self) -> BinaryIO:
        """The open file; all that is written is appended."""
        if self._stream is None:
            raise ValueError(f"{self.partial}: is not open")
        return self._stream

    def open(self) -> None:
        """Opens or creates FILE.partial with the permissions of FILE; raises UsageError if another process has it."""
        make_folder(self.partial.parent)
        with disk_errors(self.partial):
            stream = self.partial.open("a+b", buffering=0)
            if not _lock(stream.fileno(), self.partial):
                stream.close()
                raise UsageError(f"{self.partial}: another run is writing this file; wait for it, or give another name")
            for left in self.path.parent.glob(f".{glob.escape(self.path.name)}.[0-9]*{_PARTIAL}"):
                left.unlink(missing_ok=True)  # a run that was killed at its end has left it
            keep_mode(stream.fileno(), self.path)
            with contextlib.suppress(OSError):  # a later run of the same user must be able to continue it
                self.partial.chmod(self.partial.stat().st_mode & 0o777 | 0o600)
            self._stream = stream

    def is_empty(self) -> bool:
        """Returns whether FILE.partial has no content."""
        return os.fstat(self.stream.fileno()).st_size == 0

    def write(self, data: bytes) -> None:
        with disk_errors(self.partial):
            rest = memoryview(data)
            while rest:
                rest = rest[self.stream.write(rest) :]

    def cut(self, size: int) -> None:
        """Removes everything after the first `size` bytes."""
        with disk_errors(self.partial):
            self.stream.truncate(size)

    def set_aside(self, notify: Callable[[str], object]) -> None:
        """Renames FILE.partial, unless it is empty, to FILE.partial.old, reports it, and opens an empty one."""
        if not self.is_empty():
            self.rename(self.old)
            self.open()
            notify(f"{self.partial} existed; renamed to {self.old}; --resume would have continued it")

    def rename(self, path: Path) -> None:
        """Waits until the disk has FILE.partial, renames it and closes it."""
        with disk_errors(self.partial):
            os.fsync(self.stream.fileno())
            self._end(lambda: self.partial.replace(path))

    def close(self, remove: bool = False) -> None:
        """Closes FILE.partial; removes it if it is empty, or with `remove`."""
        if self._stream is not None:
            with disk_errors(self.partial):
                remove = remove or self.is_empty()
                self._end(lambda: self.partial.unlink(missing_ok=True) if remove else None)

    def _end(self, change: Callable[[], object]) -> None:
        """Renames or removes the file under its lock. Windows, which does not change open files, closes it before."""
        if fcntl is None:
            self.stream.close()
        change()
        self.stream.close()
        self._stream = None


@contextlib.contextmanager
def folder_lock(folder: Path) -> Iterator[None]:
    """Locks a folder for this process and makes it if it does not exist. The lock ends with the process.

    Folders that were made here, or by a process that was killed (NAME.partial), are removed if they are empty at the
    end. Raises UsageError if another process has locked the folder, and ResourceError if it cannot be made.
    """
    made = [path for path in (folder, *folder.parents) if path.suffix == _PARTIAL or not path.exists()]
    make_folder(folder)
    with contextlib.ExitStack() as stack:
        if fcntl is not None:
            with disk_errors(folder):
                descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            if not _lock(descriptor, folder):
                raise UsageError(f"{folder}: another process is working in this folder; wait for it, or give another")
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # a folder with files and its parents remain
                for path in made:
                    path.rmdir()


@contextlib.contextmanager
def work_folder(folder: Path, name: str) -> Iterator[Path]:
    """Locks a folder (`folder_lock`) and yields a new one inside, `name`, which is removed at the end."""
    work = folder / name
    with folder_lock(folder), disk_errors(folder):
        shutil.rmtree(work, ignore_errors=True)  # a process that was killed has left it
        try:
            work.mkdir()
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)


def sweep(folder: Path) -> None:
    """Removes the incomplete files of nmtalign that killed processes have left in a folder, which is locked."""
    for path in folder.glob(INCOMPLETE):
        if _is_own(path.name[1:].rsplit(".", 2)[0]):  # .NAME.PID.partial
            with disk_errors(path):
                path.unlink(missing_ok=True)


def open_regular(path: Path) -> io.FileIO:
    """Opens a regular file to read, unbuffered; OSError for a folder, named pipe, socket or device, which may hang.

    A symbolic link is followed: the owner of the folder made it. Raises ResourceError if the system refuses.
    """
    at_once = getattr(os, "O_NONBLOCK", 0)
    with disk_errors(path, "read"):
        stream = io.FileIO(str(path), opener=lambda name, flags: os.open(name, flags | at_once))
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return stream


def read_regular(path: Path) -> bytes:
    """Returns the bytes of a regular file; raises OSError for any other file and for one that is too large."""
    with open_regular(path) as stream, disk_errors(path, "read"):
        if os.fstat(stream.fileno()).st_size > _MOST_BYTES:
            raise OSError(errno.EFBIG, f"larger than {_MOST_BYTES >> 20} MiB", str(path))
        return stream.read()


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a regular file in hexadecimal; raises OSError for any other, which might never end."""
    with open_regular(path) as stream, disk_errors(path, "read"):
        return hashlib.file_digest(stream, "sha256").hexdigest()


def parse_json(text: str, parse_constant: Callable[[str], Any] | None = None) -> Any:
    """Returns the value of a JSON text; raises ValueError also for nesting deeper than DEEPEST and long integers."""
    with _refusals():
        found = json.loads(text, parse_constant=parse_constant)
        levels = _levels(found) if text.count("[") + text.count("{") > DEEPEST else ()
        if sum(any(isinstance(part, dict | list) for part in level) for level in levels) > DEEPEST:
            raise RecursionError
    return found


def read_json(path: Path) -> Any:
    """Returns the value of a JSON file in UTF-8; raises OSError or ValueError as `read_regular` and `parse_json` do."""
    data = read_regular(path)
    found = parse_json(data.decode("utf-8"))
    if _HALF_CHARACTER.search(data):
        json.dumps(found, ensure_ascii=False).encode()  # half a character cannot be printed: a ValueError
    return found


def parse_toml(data: bytes) -> dict[str, Any]:
    """Returns the table of a TOML file; raises ValueError also for deep nesting and integers of more than 64 bits."""
    with _refusals():
        # The memory for a key grows with the square of the number of its parts, between which there are dots.
        if any(line.count(b".") > DEEPEST for line in _STRING_OR_COMMENT.sub(b"", data).split(b"\n")):
            raise RecursionError
        found = tomllib.loads(data.decode("utf-8-sig").replace("\r\n", "\n"))
        for value in (value for level in _levels(found) for value in level):
            if isinstance(value, int) and not -_MOST_INTEGER <= value < _MOST_INTEGER:
                raise ValueError("an integer does not fit in 64 bits")
    return found


@contextlib.contextmanager
def _refusals() -> Iterator[None]:
    """Turns the errors of a parser about an untrusted text into a ValueError of one short line."""
    try:
        yield
    except RecursionError:
        raise ValueError("nested too deeply") from None
    except ValueError as error:
        if "integer string conversion" in str(error):
            raise ValueError("an integer has too many digits") from None
        raise


def _levels(value: Any) -> Iterator[list[Any]]:
    """Yields [the value], then the list of all values inside it, then of all values inside those, and so on."""
    level = [value]
    while level:
        yield level
        inner = (part for part in level if isinstance(part, dict | list))
        level = [value for part in inner for value in (part.values() if isinstance(part, dict) else part)]
