"""Tensors in a file that can prove itself whole: safetensors, with a SHA-256 of all its bytes in its own metadata.

The digest is the first entry of the metadata, at a fixed place, and is taken with that place filled with zeros. So any
changed bit is noticed: in the header, in the metadata, in the digest or in a tensor.
"""

import contextlib
import hashlib
import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmtalign.errors import FormatError
from nmtalign.files import atomic_path, exclusive
from nmtalign.model_files import (
    BLANK_DIGEST,
    CHUNK,
    DIGEST_PLACE,
    DIGEST_PREFIX,
    FORMAT,
    FORMAT_VERSION,
    checksum_of,
)
from nmtalign.untrusted import open_regular, parse_json

_LONGEST_HEADER = 16 << 20  # bytes; that of the largest model has some thousands
_EARLY_METADATA = {"format", "format_version", "update", "fingerprint"}  # of weights, before there were checksums
_NAMES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}
_TYPES = {name: dtype for dtype, name in _NAMES.items()}


@dataclass(frozen=True)
class _Entry:
    """What a header records of one tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int  # in bytes, behind the header
    end: int


@dataclass(frozen=True)
class _Header:
    """The beginning of a file of tensors."""

    size: int  # in bytes, the eight that hold its length included
    metadata: dict[str, str]
    entries: dict[str, _Entry]
    checksum: bool  # whether there is one; the weights of the earliest version have none


def save_tensors(
    path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], keep: Path | None = None
) -> None:
    """Writes tensors with a format mark and a checksum, whole or not at all; what was there is kept as `keep`.

    No tensor is copied unless it is on another device or not contiguous, and then one at a time. Hashing runs beside
    the writing. Raises ResourceError for what the disk refuses.
    """
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # every tensor stays aligned
    header = _header({name: tensors[name] for name in order}, metadata)
    digest = hashlib.sha256(header)
    with (
        atomic_path(path, keep) as temporary,
        ThreadPoolExecutor(1) as beside,
        temporary.open("wb") as stream,
        exclusive(stream),
    ):
        stream.write(header)
        for name in order:
            for chunk in _chunks(tensors[name]):
                hashed = beside.submit(digest.update, chunk)
                stream.write(chunk)
                hashed.result()
        stream.seek(DIGEST_PLACE)
        stream.write(digest.hexdigest().encode())
        stream.flush()
        os.fsync(stream.fileno())  # here, where the file is still held, since it takes longest


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Length and JSON header of a safetensors file, padded so that the first tensor is aligned."""
    marks = {"sha256": BLANK_DIGEST.decode(), "format": FORMAT, "format_version": str(FORMAT_VERSION), **metadata}
    entries: dict[str, object] = {"__metadata__": marks}
    end = 0
    for name, tensor in tensors.items():
        begin, end = end, end + tensor.numel() * tensor.element_size()
        entries[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(entries, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    return len(text).to_bytes(8, "little") + text


def _chunks(tensor: Tensor) -> Iterator[memoryview]:
    if not tensor.numel():
        return
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    view: memoryview = flat.numpy().data
    for start in range(0, len(view), CHUNK):
        yield view[start : start + CHUNK]


def load_tensors(path: Path, device: str = "cpu") -> tuple[dict[str, Tensor], dict[str, str]]:
    """(tensors, metadata) of a file of `save_tensors`, mapped rather than read, after all its bytes were checked.

    Raises FormatError for a foreign or damaged file. Only weights of the earliest version, which had no checksum, are
    loaded unchecked.
    """
    with _reading(path) as stream:
        header = _read_header(path, stream)
        if header.checksum:
            _check_bytes(path, stream)
        data = mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_COPY)  # tensors can be written to, the file cannot
    return {name: _mapped(data, header, entry).to(device) for name, entry in header.entries.items()}, header.metadata


def _mapped(data: mmap.mmap, header: _Header, entry: _Entry) -> Tensor:
    count = math.prod(entry.shape)
    if not count:
        return torch.empty(entry.shape, dtype=entry.dtype)
    flat = torch.frombuffer(data, dtype=entry.dtype, count=count, offset=header.size + entry.begin)
    return flat.reshape(entry.shape)


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor in memory of its own) of a file of `save_tensors`, one after the other.

    A mapped tensor would hold on to the whole file, and to its place on the disk. The bytes are not compared with the
    checksum: the caller has done so with `check_tensors`. Raises FormatError for a file that is foreign or cut off.
    """
    with _reading(path) as stream:
        header = _read_header(path, stream)
        for name, entry in header.entries.items():
            tensor = torch.empty(entry.shape, dtype=entry.dtype)
            stream.seek(header.size + entry.begin)
            for chunk in _chunks(tensor):
                if stream.readinto(chunk) != len(chunk):
                    raise FormatError(f"{path}: damaged: cut off while it was read")
            yield name, tensor


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file of `save_tensors`, its tensors unseen; FormatError if foreign, empty or cut off."""
    with _reading(path) as stream:
        return _read_header(path, stream).metadata


def read_shapes(path: Path) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """(type, shape) of every tensor by name, the tensors unseen; raises FormatError as `read_metadata`."""
    with _reading(path) as stream:
        return {name: (entry.dtype, entry.shape) for name, entry in _read_header(path, stream).entries.items()}


def check_tensors(path: Path) -> dict[str, str]:
    """The metadata of a file of `save_tensors`, all of whose bytes have been read and found as they were written.

    Raises FormatError that says what is wrong.
    """
    with _reading(path) as stream:
        header = _read_header(path, stream)
        if not header.checksum:
            raise FormatError(f"{path}: carries no checksum: an early version of nmtalign wrote it")
        _check_bytes(path, stream)
    return header.metadata


def _check_bytes(path: Path, stream: FileIO) -> None:
    if not checksum_of(stream).matches():
        raise FormatError(f"{path}: damaged: its checksum does not match, so some of its bytes have changed")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[FileIO]:
    try:
        with open_regular(path) as stream:
            yield stream
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
    except (ValueError, KeyError, TypeError, AttributeError):
        raise FormatError(f"{path}: damaged: its header makes no sense") from None
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path}: not written by nmtalign")
    if 8 + length + end != size:
        raise FormatError(f"{path}: damaged: {size:,} bytes of {8 + length + end:,}")
    checksum = text.startswith(DIGEST_PREFIX)
    if not checksum and not metadata.keys() <= _EARLY_METADATA:
        raise FormatError(f"{path}: damaged: carries no checksum")
    return _Header(8 + length, metadata, tensors, checksum)


def _entry(entry: Mapping[str, Any]) -> _Entry:
    """What a header records of one tensor; raises ValueError, KeyError or TypeError for what contradicts itself."""
    dtype, shape, (begin, end) = _TYPES[entry["dtype"]], entry["shape"], entry["data_offsets"]
    if not all(type(size) is int and 0 <= size < 2**63 for size in (*shape, begin, end)):
        raise ValueError
    if end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError
    return _Entry(dtype, tuple(shape), begin, end)


def _end(entries: Mapping[str, _Entry]) -> int:
    """Where the last tensor ends; raises ValueError where tensors overlap, or leave a gap."""
    end = 0
    for entry in sorted(entries.values(), key=lambda entry: (entry.begin, entry.end)):
        if entry.begin != end:
            raise ValueError
        end = entry.end
    return end
