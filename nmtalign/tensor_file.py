"""Safetensors files with a checksum: the metadata include the SHA-256 of all bytes of the file.

The digest is the first entry of the metadata, at a fixed place, and is computed with zeros at that place. Any changed
bit is therefore detected: in the header, in the metadata, in the digest or in a tensor. The safetensors library (0.8)
cannot be used. Its writer puts the metadata in random order: the digest would have no fixed place, and equal tensors
would give different files. Its reader opens a file only by name: the file could be replaced after its check.

A file whose metadata have `weights` = int8 contains matrices in eight bits (`int8_rows`). `load_tensors` and
`read_shapes` give the float32 matrices that they represent.
"""

import contextlib
import hashlib
import json
import math
import mmap
import os
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from nmtalign.errors import FormatError
from nmtalign.files import atomic_path, lock
from nmtalign.untrusted import open_regular, parse_json

if TYPE_CHECKING:
    from torch import Tensor  # imported by the functions that make tensors, so that `nmtalign info` starts without it

FORMAT = "nmtalign model"
FORMAT_VERSION = 1
CHUNK = 8 << 20  # bytes that are hashed at a time
DIGEST_PREFIX = b'{"__metadata__":{"sha256":"'  # the beginning of the header of a file of tensors
BLANK_DIGEST = b"0" * 64
DIGEST_PLACE = 8 + len(DIGEST_PREFIX)  # the offset of the digest in the file
_LONGEST_HEADER, _MOST_DIMENSIONS = 16 << 20, 8  # bytes (the largest model needs a few thousand), sizes in a shape
_SCALE = ".scale"  # ends the name of the scales of an int8 matrix
OF_THE_FILE = ("sha256", "format", "format_version", "weights")  # metadata that describe the file, not its content
# The types of tensors in a file: their names in PyTorch, and their sizes in bytes.
_TYPES = {
    "F64": ("float64", 8),
    "F32": ("float32", 4),
    "F16": ("float16", 2),
    "BF16": ("bfloat16", 2),
    "I64": ("int64", 8),
    "I32": ("int32", 4),
    "I16": ("int16", 2),
    "I8": ("int8", 1),
    "U8": ("uint8", 1),
    "BOOL": ("bool", 1),
}
_NAMES = {name: short for short, (name, _) in _TYPES.items()}


class _Entry(NamedTuple):
    """The header's record of one tensor."""

    dtype: str  # such as float32
    shape: tuple[int, ...]
    begin: int  # in bytes, after the header
    end: int


class _Header(NamedTuple):
    """The header of a file."""

    size: int  # in bytes, including the eight bytes of its length
    metadata: dict[str, str]
    entries: dict[str, _Entry]
    scales: dict[str, _Entry]  # of the matrices that are stored in eight bits, by the name of the matrix


def save_tensors(
    path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str], keep: Path | None = None
) -> None:
    """Writes tensors with a format name and a checksum, atomically; an existing file is renamed to `keep`.

    Only tensors that are on a GPU or not contiguous are copied, one at a time. A second thread hashes during the
    writing. Raises ResourceError if the disk refuses.
    """
    # Large elements come first, so that every tensor is aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    header = _header({name: tensors[name] for name in order}, metadata)
    digest = hashlib.sha256(header)
    with (
        atomic_path(path, keep, follow=False) as temporary,
        ThreadPoolExecutor(1) as beside,
        temporary.open("wb") as stream,
    ):
        lock(stream)
        stream.write(header)
        for name in order:
            for chunk in _chunks(tensors[name]):
                hashed = beside.submit(digest.update, chunk)
                stream.write(chunk)
                hashed.result()
        stream.seek(DIGEST_PLACE)
        stream.write(digest.hexdigest().encode())
        stream.flush()
        os.fsync(stream.fileno())  # while the file is still locked, because this takes longest


def _header(tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str]) -> bytes:
    """Returns the length and the JSON header of the file, padded so that the first tensor is aligned."""
    marks = {"sha256": BLANK_DIGEST.decode(), "format": FORMAT, "format_version": str(FORMAT_VERSION), **metadata}
    entries: dict[str, object] = {"__metadata__": marks}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.nbytes
        entries[name] = {"dtype": _NAMES[type_name(tensor)], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text


def type_name(tensor: "Tensor") -> str:
    """The name of a tensor's type, such as float32."""
    return str(tensor.dtype).removeprefix("torch.")


def int8_rows(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Replaces each float32 matrix by whole numbers from -127 to 127 and one float32 scale per row.

    The last dimension is that of a row. The scale is 1/127 of the row's largest value, so a value changes by at most
    1/254 of that. Vectors stay float32. `save_tensors` needs the metadata `weights` = int8 beside the result. Raises
    ValueError for a value that is not finite.
    """
    import torch

    found: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or tensor.dim() < 2 or not tensor.numel():
            found[name] = tensor
            continue
        scale = tensor.abs().amax(-1) / 127
        if not bool(scale.isfinite().all()):
            raise ValueError(f"{name} has a value that is not finite")
        smallest = torch.finfo(torch.float32).tiny
        found[name] = (tensor / scale.clamp_min(smallest)[..., None]).round_().clamp_(-127, 127).to(torch.int8)
        found[name + _SCALE] = scale
    return found


def _chunks(tensor: "Tensor") -> Iterator[memoryview]:
    import torch

    if not tensor.numel():
        return
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    view: memoryview = flat.numpy().data
    for start in range(0, len(view), CHUNK):
        yield view[start : start + CHUNK]


def load_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Maps a file of `save_tensors` into memory after checking all its bytes; returns (tensors, metadata).

    Raises FormatError for a foreign or damaged file.
    """
    with _opened(path) as (stream, header):
        _check_bytes(path, stream)
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)  # writing to a tensor does not change the file
    tensors = {name: _mapped(data, header, entry).to(device) for name, entry in header.entries.items()}
    for name, entry in header.scales.items():
        scale = _mapped(data, header, entry).to(device)
        if not bool(((scale >= 0) & (scale * 128).isfinite()).all()):
            raise FormatError(f"{path}: damaged: the scales of {name} are not finite numbers from 0")
        tensors[name] = tensors[name].float() * scale[..., None]
    return tensors, header.metadata


def _mapped(data: mmap.mmap, header: _Header, entry: _Entry) -> "Tensor":
    import torch

    count, dtype = math.prod(entry.shape), getattr(torch, entry.dtype)
    if not count:
        return torch.empty(entry.shape, dtype=dtype)
    return torch.frombuffer(data, dtype=dtype, count=count, offset=header.size + entry.begin).reshape(entry.shape)


def read_tensors(path: Path) -> Iterator[tuple[str, "Tensor"]]:
    """Reads a file of `save_tensors` one tensor at a time: (name, tensor that does not depend on the file).

    A mapped tensor would keep the complete file open, and its space on the disk occupied. The checksum is not verified;
    the caller uses `check_tensors` before. Raises FormatError for a foreign file, for one that is cut off, and for
    matrices in eight bits, which no checkpoint has.
    """
    import torch

    with _opened(path) as (stream, header):
        if header.scales:
            raise FormatError(f"{path}: contains weights in eight bits, not a checkpoint")
        for name, entry in header.entries.items():
            tensor = torch.empty(entry.shape, dtype=getattr(torch, entry.dtype))
            stream.seek(header.size + entry.begin)
            for chunk in _chunks(tensor):
                if stream.readinto(chunk) != len(chunk):
                    raise FormatError(f"{path}: damaged: cut off while it was read")
            yield name, tensor


def read_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata of a file without reading its tensors; raises FormatError if it is foreign or cut off."""
    with _opened(path) as (_, header):
        return header.metadata


def read_shapes(path: Path) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Returns the (type's name, shape) of each tensor without reading it; raises FormatError like `read_metadata`."""
    with _opened(path) as (_, header):
        return {
            name: ("float32" if name in header.scales else entry.dtype, entry.shape)
            for name, entry in header.entries.items()
        }


def check_tensors(path: Path) -> dict[str, str]:
    """Reads all bytes of a file, verifies the checksum and returns the metadata.

    Raises FormatError, which describes the damage.
    """
    with _opened(path) as (stream, header):
        _check_bytes(path, stream)
    return header.metadata


def _check_bytes(path: Path, stream: FileIO) -> None:
    if not checksum_of(stream).matches():
        raise FormatError(f"{path}: damaged: its checksum does not match, so some of its bytes have changed")


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[FileIO, _Header]]:
    """Opens a file and reads its header; raises FormatError if it is foreign, damaged or cannot be read."""
    try:
        with open_regular(path) as stream:
            yield stream, _read_header(path, stream)
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None


def _read_header(path: Path, stream: FileIO) -> _Header:
    size = os.fstat(stream.fileno()).st_size
    if size < 8:
        raise FormatError(f"{path}: damaged: {'cut off' if size else 'empty'}")
    length = int.from_bytes(stream.read(8), "little")
    if length > _LONGEST_HEADER:
        raise FormatError(f"{path}: damaged, or not a safetensors file")
    text = stream.read(length)
    if len(text) < length:
        raise FormatError(f"{path}: damaged: cut off, or not a safetensors file")
    try:
        entries = parse_json(text)
        metadata = {str(name): str(value) for name, value in entries.pop("__metadata__", {}).items()}
        tensors = {name: _entry(entry) for name, entry in entries.items()}
        end = _end(tensors)
        scales = _take_scales(tensors) if metadata.get("weights") == "int8" else {}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FormatError(f"{path}: damaged: its header makes no sense") from None
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path}: not written by nmtalign")
    if 8 + length + end != size:
        raise FormatError(f"{path}: damaged: {size:,} bytes of {8 + length + end:,}")
    if not text.startswith(DIGEST_PREFIX):
        raise FormatError(f"{path}: damaged: carries no checksum")
    return _Header(8 + length, metadata, tensors, scales)


def _entry(entry: Mapping[str, Any]) -> _Entry:
    """Reads the record of one tensor; raises ValueError, KeyError or TypeError if it is inconsistent."""
    (dtype, size_of_one), shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    sizes = all(type(size) is int and 0 <= size < 2**63 for size in (*shape, begin, end))
    # The product of a million sizes would take an hour, and PyTorch counts the numbers of a tensor in 64 bits.
    few = sizes and len(shape) <= _MOST_DIMENSIONS and math.prod(filter(None, shape)) < 2**63
    if not few or end - begin != math.prod(shape) * size_of_one:
        raise ValueError
    return _Entry(dtype, tuple(shape), begin, end)


def _take_scales(entries: dict[str, _Entry]) -> dict[str, _Entry]:
    """Removes and returns the scales of the int8 matrices; raises ValueError or KeyError if they do not fit."""
    matrices = [name for name, entry in entries.items() if entry.dtype == "int8"]
    found = {name: entries.pop(name + _SCALE) for name in matrices}
    for name, scale in found.items():
        if scale.dtype != "float32" or not entries[name].shape or scale.shape != entries[name].shape[:-1]:
            raise ValueError
    return found


def _end(entries: Mapping[str, _Entry]) -> int:
    """Returns the end of the last tensor; raises ValueError if tensors overlap or leave a gap."""
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            raise ValueError
        end = entry.end
    return end


class Checksum(threading.Thread):
    """A thread that hashes an open file of tensors; hashlib and file reading release Python's global lock."""

    def __init__(self, stream: FileIO) -> None:
        """The stream's position moves to its end."""
        super().__init__(daemon=True)  # a command that ends early does not wait
        self._descriptor = os.dup(stream.fileno())
        self._matches: bool | OSError | MemoryError = False

    def run(self) -> None:
        """Compares the SHA-256 of the file, with zeros in place of the digest, to the digest."""
        try:
            with FileIO(self._descriptor, "rb") as stream:
                stream.seek(0)
                start = stream.read(DIGEST_PLACE + len(BLANK_DIGEST))
                digest = hashlib.sha256(start[:DIGEST_PLACE] + BLANK_DIGEST)
                buffer = memoryview(bytearray(CHUNK))
                while count := stream.readinto(buffer):
                    digest.update(buffer[:count])
            self._matches = digest.hexdigest().encode() == start[DIGEST_PLACE:]
        except (OSError, MemoryError) as error:
            self._matches = error

    def matches(self) -> bool:
        """Waits for the thread; whether the digest in the file is correct. Raises the error of the reading."""
        self.join()
        if isinstance(self._matches, bool):
            return self._matches
        raise self._matches


_ahead: dict[tuple[int, ...], Checksum] = {}


def start_checksum(stream: FileIO) -> None:
    """Starts hashing an open file of tensors that will be loaded, while PyTorch is being imported."""
    check = Checksum(stream)
    check.start()
    _ahead[_identity(stream)] = check


def checksum_of(stream: FileIO) -> Checksum:
    """The checksum of an open file of tensors, which `start_checksum` may have started."""
    if _identity(stream) not in _ahead:
        start_checksum(stream)
    return _ahead.pop(_identity(stream))


def _identity(stream: FileIO) -> tuple[int, ...]:
    """The properties that change when a file is written or replaced."""
    state = os.fstat(stream.fileno())
    return state.st_dev, state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns
