"""Tensors in a file that can prove itself whole: safetensors, with a SHA-256 of all its bytes in its own metadata.

The digest is the first entry of the metadata, at a fixed place, and is taken with that place filled with zeros. So any
changed bit is noticed: in the header, in the metadata, in the digest or in a tensor.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from io import FileIO
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nmtalign.errors import FormatError
from nmtalign.files import atomic_path, exclusive
from nmtalign.model_files import FORMAT, FORMAT_VERSION

CHUNK = 8 << 20  # bytes written, read and hashed at a time
_PREFIX = b'{"__metadata__":{"sha256":"'
_BLANK = b"0" * 64
_PLACE = 8 + len(_PREFIX)  # of the digest in the file
_LONGEST_HEADER = 100 << 20  # the limit of the safetensors format
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
        stream.seek(_PLACE)
        stream.write(digest.hexdigest().encode())
        stream.flush()
        os.fsync(stream.fileno())  # here, where the file is still held, since it takes longest


def _header(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    """Length and JSON header of a safetensors file, padded so that the first tensor is aligned."""
    marks = {"sha256": _BLANK.decode(), "format": FORMAT, "format_version": str(FORMAT_VERSION), **metadata}
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
    """(tensors, metadata) of a file of `save_tensors`, mapped rather than read; raises FormatError for a foreign one.

    A file that was cut off is noticed too. A changed bit among the tensors is not: `check_tensors` reads all.
    """
    metadata = read_metadata(path)
    try:
        with safe_open(path, framework="pt", device=device) as stream:
            return {name: stream.get_tensor(name) for name in stream.keys()}, metadata  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise FormatError(f"{path}: damaged or not a safetensors file: {error}") from None


def read_tensors(path: Path) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor in memory of its own) of a file of `save_tensors`, one after the other.

    A mapped tensor would hold on to the whole file, and to its place on the disk. Raises FormatError as `load_tensors`.
    """
    types = {name: dtype for dtype, name in _NAMES.items()}
    with _reading(path) as stream:
        header, _, entries = _read_header(path, stream)
        for name, entry in entries.items():
            tensor = torch.empty(entry["shape"], dtype=types[entry["dtype"]])
            stream.seek(len(header) + entry["data_offsets"][0])
            for chunk in _chunks(tensor):
                if stream.readinto(chunk) != len(chunk):
                    raise FormatError(f"{path}: damaged: cut off while it was read")
            yield name, tensor


def read_metadata(path: Path) -> dict[str, str]:
    """The metadata of a file of `save_tensors`, its tensors unseen; FormatError if foreign, empty or cut off."""
    with _reading(path) as stream:
        return _read_header(path, stream)[1]


def check_tensors(path: Path) -> dict[str, str]:
    """The metadata of a file of `save_tensors`, all of whose bytes have been read and found as they were written.

    Raises FormatError that says what is wrong.
    """
    with _reading(path) as stream:
        header, metadata, _ = _read_header(path, stream)
        if not header.startswith(_PREFIX, 8):
            raise FormatError(f"{path}: carries no checksum: damaged, or written by an earlier version")
        written = header[_PLACE : _PLACE + len(_BLANK)]
        digest = hashlib.sha256(header[:_PLACE] + _BLANK + header[_PLACE + len(_BLANK) :])
        buffer = memoryview(bytearray(CHUNK))
        while count := stream.readinto(buffer):
            digest.update(buffer[:count])
    if digest.hexdigest().encode() != written:
        raise FormatError(f"{path}: damaged: its checksum does not match, so some of its bytes have changed")
    return metadata


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[FileIO]:
    try:
        with path.open("rb", buffering=0) as stream:
            yield stream
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None


def _read_header(path: Path, stream: FileIO) -> tuple[bytes, dict[str, str], dict[str, Any]]:
    """(length and header as they are in the file, metadata, what it says of each tensor)."""
    size = os.fstat(stream.fileno()).st_size
    if size < 8:
        raise FormatError(f"{path}: damaged: {'cut off' if size else 'empty'}")
    start = stream.read(8)
    length = int.from_bytes(start, "little")
    if length > _LONGEST_HEADER:
        raise FormatError(f"{path}: damaged, or not a safetensors file")
    text = stream.read(length)
    if len(text) < length:
        raise FormatError(f"{path}: damaged: cut off, or not a safetensors file")
    try:
        entries = json.loads(text)
        metadata = {str(name): str(value) for name, value in entries.pop("__metadata__", {}).items()}
        end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        raise FormatError(f"{path}: damaged: its header makes no sense") from None
    if metadata.get("format") != FORMAT:
        raise FormatError(f"{path}: not written by nmtalign")
    if end != size:
        raise FormatError(f"{path}: damaged: {size:,} bytes of {end:,}")
    return start + text, metadata, entries
