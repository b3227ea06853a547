"""Safetensors files with a checksum: the metadata include the SHA-256 of all bytes of the file.

The metadata have one key, `nmtalign`. Its value is a JSON object, so that equal tensors give equal bytes: the
safetensors library writes several keys in random order. The digest is the first entry of the object, at a fixed place,
and is computed with zeros at that place. Any changed bit is therefore detected.

The safetensors library reads the files. They are written here, one tensor at a time: the library would first copy all
tensors of a GPU, and would leave a file under a name of its own if the process is killed.

A file whose metadata have `weights` = int8 contains matrices in eight bits (`int8_rows`). `load_tensors` gives the
float32 matrices that they represent.
"""

import contextlib
import hashlib
import json
import math
from collections.abc import Iterator, Mapping
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from nmtalign.errors import FormatError
from nmtalign.files import atomic_path, open_regular, parse_json

if TYPE_CHECKING:
    from torch import Tensor  # imported by the functions that make tensors, so that `nmtalign info` starts without it

FORMAT, FORMAT_VERSION = "nmtalign model", 2
_DIGEST_PREFIX = b'{"__metadata__":{"nmtalign":"{\\"sha256\\":\\"'  # the beginning of the header
BLANK_DIGEST = b"0" * 64
DIGEST_PLACE = 8 + len(_DIGEST_PREFIX)  # the offset of the digest in the file
_SCALE = ".scale"  # ends the name of the scales of an int8 matrix
_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16", "int64": "I64", "int32": "I32"}
_TYPES |= {"int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def save_tensors(
    path: Path, tensors: Mapping[str, "Tensor"], metadata: Mapping[str, str], keep: Path | None = None
) -> None:
    """Writes tensors with metadata and a checksum, atomically; an existing file is renamed to `keep`.

    Only tensors that are on a GPU or not contiguous are copied, one at a time. Raises ResourceError if the disk
    refuses.
    """
    marks = {"sha256": BLANK_DIGEST.decode(), "format_version": str(FORMAT_VERSION), **metadata}
    header: dict[str, Any] = {"__metadata__": {"nmtalign": json.dumps(marks, separators=(",", ":"))}}
    end = 0
    # Large elements come first, so that every tensor is aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))
    for name in order:
        begin, end = end, end + tensors[name].nbytes
        kind = _TYPES[str(tensors[name].dtype).removeprefix("torch.")]
        header[name] = {"dtype": kind, "shape": list(tensors[name].shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-(len(text) + 8) % 64)
    start = len(text).to_bytes(8, "little") + text
    digest = hashlib.sha256(start)
    with atomic_path(path, keep, follow=False) as temporary, temporary.open("wb") as stream:
        stream.write(start)
        for name in order:
            data = _bytes_of(tensors[name])
            digest.update(data)
            stream.write(data)
        stream.seek(DIGEST_PLACE)
        stream.write(digest.hexdigest().encode())


def _bytes_of(tensor: "Tensor") -> memoryview:
    import torch

    data: memoryview = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
    return data


def int8_rows(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Replaces each float32 matrix by whole numbers from -127 to 127 and one float32 scale per row.

    The last dimension is that of a row. The scale is 1/127 of the row's largest value, so a value changes by at most
    1/254 of that. Vectors stay float32. `save_tensors` needs the metadata `weights` = int8 beside the result. Raises
    ValueError for a value that is not finite.
    """
    import torch

    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or tensor.dim() < 2 or not tensor.numel():
            result[name] = tensor
            continue
        scale = tensor.abs().amax(-1) / 127
        if not bool(scale.isfinite().all()):
            raise ValueError(f"{name} has a value that is not finite")
        smallest = torch.finfo(torch.float32).tiny
        result[name] = (tensor / scale.clamp_min(smallest)[..., None]).round_().clamp_(-127, 127).to(torch.int8)
        result[name + _SCALE] = scale
    return result


def load_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Maps a file of `save_tensors` into memory after checking all its bytes; returns (tensors, metadata).

    Writing to a tensor does not change the file. Raises FormatError for a foreign or damaged file.
    """
    with _opened(path, "pt") as (stream, file, metadata):
        _check_bytes(path, stream)
        tensors: dict[str, Tensor] = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if metadata.get("weights") == "int8":
        _multiply_scales(path, tensors)
    return tensors, metadata


def _multiply_scales(path: Path, tensors: dict[str, "Tensor"]) -> None:
    """Replaces the int8 matrices and their scales by float32 matrices."""
    import torch

    for name in [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]:
        matrix, scale = tensors[name], tensors.pop(name + _SCALE, None)
        if scale is None or scale.dtype != torch.float32 or not matrix.dim() or scale.shape != matrix.shape[:-1]:
            raise FormatError(f"{path}: damaged: {name} has no scales that fit")
        if not bool(((scale >= 0) & (scale * 128).isfinite()).all()):
            raise FormatError(f"{path}: damaged: the scales of {name} are not finite numbers from 0")
        tensors[name] = matrix.float() * scale[..., None]


def read_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata of a file without reading its tensors; raises FormatError if it is foreign or cut off."""
    with _opened(path) as (_, _, metadata):
        return metadata


def check_tensors(path: Path) -> tuple[dict[str, str], int]:
    """Verifies the checksum of a file; returns its metadata and the number of values of its tensors, without scales.

    Raises FormatError, which describes the damage.
    """
    with _opened(path) as (stream, file, metadata):
        _check_bytes(path, stream)
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 - it is no mapping
    if metadata.get("weights") == "int8":
        shapes = {name: shape for name, shape in shapes.items() if name.removesuffix(_SCALE) not in {*shapes} - {name}}
    return metadata, sum(map(math.prod, shapes.values()))


@contextlib.contextmanager
def _opened(path: Path, framework: str = "np") -> Iterator[tuple[FileIO, Any, dict[str, str]]]:
    """Opens a file as a stream of bytes and with the safetensors library; also yields its metadata.

    The library opens a file only by name. It gets the name of the open stream, so that it reads the bytes that were
    checked even if the file is replaced. (Windows, which has no such names, does not replace an open file.) Raises
    FormatError if the file is foreign, damaged or cannot be read.
    """
    try:
        with open_regular(path) as stream:
            name = Path(f"/dev/fd/{stream.fileno()}")
            with safe_open(name if name.exists() else path, framework) as file:
                yield stream, file, _metadata(path, file.metadata())
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (SafetensorError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path}: damaged, or not a safetensors file ({reason})") from None


def _metadata(path: Path, stored: Mapping[str, str] | None) -> dict[str, str]:
    """The metadata that were given to `save_tensors`."""
    if not stored or "nmtalign" not in stored:
        raise FormatError(f"{path}: written by another program, or by an earlier version of nmtalign")
    metadata = parse_json(stored["nmtalign"])
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise FormatError(f"{path}: damaged: its metadata are not texts")
    metadata.pop("sha256", None)
    if (version := metadata.pop("format_version", "")) != str(FORMAT_VERSION):
        raise FormatError(f"{path}: has the format {version[:60]}, and this version of nmtalign reads {FORMAT_VERSION}")
    return metadata


def _check_bytes(path: Path, stream: FileIO) -> None:
    """Raises FormatError unless the digest in the file is the SHA-256 of its bytes with zeros in the digest's place."""
    start = stream.read(DIGEST_PLACE + len(BLANK_DIGEST))
    digest = hashlib.file_digest(stream, lambda: hashlib.sha256(start[:DIGEST_PLACE] + BLANK_DIGEST))
    if digest.hexdigest().encode() != start[DIGEST_PLACE:]:
        raise FormatError(f"{path}: damaged: its checksum does not match, so some of its bytes have changed")
