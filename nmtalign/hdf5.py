"""Opening HDF5 files safely: a checksum of the complete file first, then only plain datasets that are stored in it.

In HDF5 a link may point to another file, a dataset may take its bytes from one, and a few bytes may declare an array
that does not fit into memory. nmtalign writes none of these and refuses a file that has them. The HDF5 library can also
crash or hang on damaged bytes, so nmtalign seals its files: the first 512 bytes, which HDF5 does not use (the "user
block"), contain the SHA-256 of all bytes that follow. A file without a seal is refused.
"""

import contextlib
import hashlib
import io
import math
import os
import re
import signal
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import h5py
from h5py import h5a, h5d, h5s, h5t, h5z

from nmtalign.errors import FormatError
from nmtalign.files import disk_errors, open_regular

USER_BLOCK = 512  # bytes
_SEAL = "nmtalign; an HDF5 file begins at byte 512; SHA-256 of all that follows: {}\n"
_SEALED = re.compile(re.escape(_SEAL.format("@").encode()).replace(b"@", b"([0-9a-f]{64})") + b"\0*")
_MOST_OBJECTS, _MOST_ATTRIBUTES = 64, 64
_LONGEST_ATTRIBUTE = 1 << 16  # bytes
_LARGEST_CHUNK = 1 << 20  # bytes, before compression
_BEST_COMPRESSION = 1100  # gzip compresses to no less than 1/1032
_FILTERS = frozenset((h5z.FILTER_DEFLATE, h5z.FILTER_SHUFFLE))  # others may load code from plugins
_DAMAGE = (OSError, LookupError, ValueError, RuntimeError, TypeError, AttributeError, ArithmeticError)


@contextlib.contextmanager
def damage(path: Path, what: str, fix: str) -> Iterator[None]:
    """Raises FormatError for every error that a damaged file (`what`) causes, ResourceError if it cannot be read."""
    try:
        with disk_errors(path, "read"):
            yield
    except _DAMAGE as error:
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path}: damaged {what} ({reason}); {fix}") from None


class _Disk(io.FileIO):
    """A new file for HDF5 to write. It keeps the first error of the disk; HDF5 takes all later data as written.

    After an error HDF5 would report each of its open objects with a traceback while Python frees them.
    """

    error: OSError | None = None

    def write(self, data: Any) -> int:
        """Writes all the data, or keeps the error."""
        rest = view = memoryview(data).cast("B")
        try:
            while self.error is None and rest:
                rest = rest[super().write(rest) or 0 :]
        except OSError as error:
            self.error = error
        return len(view)

    def readinto(self, buffer: Any) -> int:
        """Reads the data that was written; data that could not be written is zeros."""
        view = memoryview(buffer).cast("B")
        count = super().readinto(view) or 0
        view[count:] = bytes(len(view) - count)
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Gives the file this size, or keeps the error."""
        try:
            return super().truncate(size)
        except OSError as error:
            self.error = self.error or error
            return size or 0


@contextlib.contextmanager
def created(path: Path) -> Iterator[h5py.File]:
    """Yields a new HDF5 file, which is sealed at the end, for one process; raises OSError if data cannot be written.

    Its layout can be read by every HDF5 tool since version 1.8. Signals wait until it is written: HDF5 calls `_Disk`,
    and may crash if that raises an exception, such as that of Ctrl-C.
    """
    came, in_main_thread = list[int](), threading.current_thread() is threading.main_thread()
    with contextlib.ExitStack() as stack:
        for number in signal.valid_signals() if in_main_thread else ():
            if callable(handler := signal.getsignal(number)):
                stack.callback(signal.signal, number, handler)
                signal.signal(number, lambda number, _: came.append(number))
        disk = stack.enter_context(_Disk(path, "w+"))
        try:
            with h5py.File(disk, "w", libver=("earliest", "v110"), userblock_size=USER_BLOCK) as file:
                yield file
        except (OSError, RuntimeError):
            if disk.error is None:
                raise
        if disk.error is not None:
            raise disk.error
    for first in came[:1]:
        signal.raise_signal(first)
    seal(path)


def seal(path: Path) -> None:
    """Writes the SHA-256 of the content into the user block of a file."""
    with path.open("r+b") as stream:
        stream.seek(USER_BLOCK)
        text = _SEAL.format(hashlib.file_digest(stream, "sha256").hexdigest()).encode()
        stream.seek(0)
        stream.write(text.ljust(USER_BLOCK, b"\0"))
        stream.flush()
        os.fsync(stream.fileno())


def check_seal(path: Path, largest: int | None = None) -> None:
    """Raises ValueError for a file without a seal; up to `largest` bytes also if its content does not match."""
    with path.open("rb") as stream:
        match = _SEALED.fullmatch(stream.read(USER_BLOCK))
        if match is None:
            raise ValueError("not written by this version of nmtalign, or edited: it does not begin with a checksum")
        if largest is not None and path.stat().st_size > largest:
            return
        if hashlib.file_digest(stream, "sha256").hexdigest() != match[1].decode():
            raise ValueError("its content does not match its SHA-256: changed or cut off since it was written")


def write_attributes(node: h5py.HLObject, attributes: Mapping[str, Any]) -> None:
    """Writes numbers and texts as attributes; each text has a fixed length.

    HDF5 stores texts of variable length in heaps, and would follow the links of a forged heap without an end.
    """
    for name, value in attributes.items():
        if isinstance(value, str):
            data = value.encode(errors="backslashreplace")
            node.attrs.create(name, data, dtype=h5py.string_dtype("utf-8", max(1, len(data))))
        else:
            node.attrs[name] = value


def is_hdf5(path: Path) -> bool:
    """Returns whether a file is HDF5; raises ResourceError if the system refuses to read it."""
    with contextlib.suppress(OSError), disk_errors(path, "read"), open_regular(path) as stream:
        stream.read(1)  # h5py would report a file that the system refuses to read as no HDF5
        return bool(h5py.is_hdf5(path))
    return False


def opened(path: Path) -> h5py.File:
    """Opens a file to read it, with locks as in plain h5py: a process can open a file again only in the same way.

    A disk without locks is read without them.
    """
    try:
        return h5py.File(path, "r")
    except OSError:
        return h5py.File(path, "r", locking=False)


def plain_attributes(node: h5py.HLObject) -> dict[str, Any]:
    """Returns attributes as int, float, bool and str; raises ValueError unless each is one number or one text."""
    if (count := h5a.get_num_attrs(node.id)) > _MOST_ATTRIBUTES:
        raise ValueError(f"has {count:,} attributes, more than nmtalign writes")
    attributes = {}
    for index in range(count):
        attribute = h5a.open(node.id, index=index)
        name, kind = attribute.name.decode(), attribute.get_type()
        simple = isinstance(kind, h5t.TypeStringID | h5t.TypeIntegerID | h5t.TypeFloatID | h5t.TypeEnumID)
        single = attribute.get_space().get_simple_extent_type() == h5s.SCALAR
        if not simple or kind.committed() or not single or attribute.get_storage_size() > _LONGEST_ATTRIBUTE:
            raise ValueError(f"its attribute {name!r} is neither one number nor one text")
        if isinstance(kind, h5t.TypeStringID) and kind.is_variable_str():
            raise ValueError(f"its attribute {name!r} is a text of variable length, as earlier versions wrote it")
        value = node.attrs[name].item()
        attributes[name] = value.decode() if isinstance(value, bytes) else value
    return attributes


def format_of(path: Path) -> str | None:
    """Returns the text `format` among the attributes of the root ("" without one), None if the file is not HDF5."""
    with contextlib.suppress(*_DAMAGE), opened(path) as file:
        with contextlib.suppress(*_DAMAGE):
            return str(plain_attributes(file)["format"])
        return ""
    return None


def plain_datasets(file: h5py.File) -> dict[str, h5py.Dataset]:
    """Returns every dataset by its path; raises ValueError unless all are plain and their sizes fit the file.

    A plain dataset is stored in the file itself, contains numbers, and uses no filters except gzip and shuffle. Soft
    and external links are not followed.
    """
    found, names = dict[str, h5py.Dataset](), list[str]()
    size = Path(file.filename).stat().st_size

    def collect(name: str, node: h5py.HLObject) -> None:
        names.append(name)
        if len(names) > _MOST_OBJECTS:
            raise ValueError("has more groups and datasets than nmtalign writes")
        if isinstance(node, h5py.Dataset):
            _check_plain(name, node.id, size)
            found[name] = node
        elif not isinstance(node, h5py.Group):
            raise ValueError(f"{name!r} is neither a group nor a dataset")

    file.visititems(collect)  # visits each object once
    return found


def _check_plain(name: str, dataset: h5d.DatasetID, file_size: int) -> None:
    properties, kind = dataset.get_create_plist(), dataset.get_type()
    layout = properties.get_layout()
    if properties.get_external_count() or layout not in (h5d.CONTIGUOUS, h5d.CHUNKED, h5d.COMPACT):
        raise ValueError(f"{name!r} is stored in other files, which nmtalign does not read")
    number = isinstance(kind, h5t.TypeIntegerID | h5t.TypeFloatID)
    array = dataset.get_space().get_simple_extent_type() == h5s.SIMPLE and dataset.rank <= 2
    if not (number and array) or kind.committed() or not kind.equal(h5t.py_create(kind.dtype)):
        raise ValueError(f"{name!r} is not an array of numbers as nmtalign writes it")
    size = math.prod(dataset.shape) * kind.dtype.itemsize
    if layout == h5d.CHUNKED:
        complete = _has_chunks(dataset, size, file_size)
    else:
        complete = size == dataset.get_storage_size()
        start = dataset.get_offset() if layout == h5d.CONTIGUOUS and size else 0
        complete = complete and start is not None and start + size <= file_size
    if not complete:
        raise ValueError(f"{name!r} declares {size:,} bytes, which the file does not have")


def _has_chunks(dataset: h5d.DatasetID, size: int, file_size: int) -> bool:
    """Returns whether all chunks are present, none is large or filtered by a plugin, and their sizes fit the file."""
    properties = dataset.get_create_plist()
    shape = properties.get_chunk()
    chunk = math.prod(shape) * dataset.dtype.itemsize
    filters = {properties.get_filter(index)[0] for index in range(properties.get_nfilters())}
    expected = math.prod(-(-length // step) for length, step in zip(dataset.shape, shape, strict=True))
    if not filters <= _FILTERS or chunk > _LARGEST_CHUNK or size > _BEST_COMPRESSION * file_size:
        return False
    stored: dict[tuple[int, ...], int] = {}

    def note(info: Any) -> bool | None:
        stored[info.chunk_offset] = info.size
        return None if len(stored) <= expected else True  # anything but None ends the iteration

    if dataset.get_num_chunks() == expected:
        dataset.chunk_iter(note)
    within = all(start < length for place in stored for start, length in zip(place, dataset.shape, strict=True))
    return len(stored) == expected and within and max(stored.values(), default=0) <= chunk + chunk // 64 + 1024
