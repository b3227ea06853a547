"""The model directory: all files of a model, relocatable, with checksums and without pickled objects.

docs/formats.md describes the files. `export_model` copies a model without the files of its training; config.json of the
copy has the key `exported`. Only the functions that handle tensors import PyTorch: `nmtalign info` starts without it.
"""

import contextlib
import filecmp
import hashlib
import json
import mmap
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import (
    CONFIG,
    LOG,
    SOURCE_VOCABULARY,
    TARGET_VOCABULARY,
    atomic_path,
    atomic_text,
    disk_errors,
    kind_of,
    open_regular,
    parse_json,
    read_json,
    sha256_of,
    work_folder,
)
from nmtalign.settings.command_settings import StoredWeights
from nmtalign.settings.definition import Device, InferencePrecision, Layer, resolve, select, shortened, toml, written
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.text.languages import TextFit
from nmtalign.text.tokenizer import MODEL_FILES, TOKENIZER_FILE, Tokenizers, Vocabulary, load_vocabularies, pair_ids
from nmtalign.version import __version__

if TYPE_CHECKING:  # imported by the functions that make tensors, so that `nmtalign info` starts without it
    import torch
    from numpy.typing import NDArray
    from torch import Tensor

    from nmtalign.core.model import TranslationModel

BEST, LAST = "best.safetensors", "last.safetensors"
STATE, PREVIOUS_STATE = "training_state.safetensors", "training_state.previous.safetensors"
CALIBRATION = "calibration"  # in the metadata of best.safetensors
EXPORTED = "exported"  # in config.json of an exported model: the type of its weights
AVERAGED = "averaged"  # in the metadata of best.safetensors: the number of weights whose mean they are
FIXED = select(ModelConfig, lambda setting: not setting.adaptable)  # settings that give weights their meaning

_USUAL = Path("model")  # the folder of the model, unless another is given
_WORDS = (SOURCE_VOCABULARY, TARGET_VOCABULARY, TOKENIZER_FILE)  # hashed by every version
_TEXTS = "nmtalign_version", "preset", "source_language", "target_language", "corpus"
_KEYS = dict.fromkeys(_TEXTS, str) | dict.fromkeys(("model", "training", "prep", "files"), dict)


def read_settings(folder: Path) -> dict[str, Any]:
    """Reads and checks config.json of a model directory; raises FormatError if it is missing or foreign."""
    path = folder / CONFIG
    try:
        settings = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        kind = kind_of(folder)
        content = f", but {kind}" if kind not in ("", "a folder") else ""
        fix = "name one with -m" if folder == _USUAL else "give the folder of a model"
        raise FormatError(
            f"{folder}: no nmtalign model here (no {CONFIG}){content}; {fix}, or train one with `nmtalign train`"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{path}: cannot be read: {reason}; the model directory is damaged") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise FormatError(f"{path}: not a model of nmtalign (its format is not '{FORMAT}')")
    if (version := settings.get("format_version")) != FORMAT_VERSION:
        raise FormatError(
            f"{path}: format {shortened(str(version))} is not the format {FORMAT_VERSION} that nmtalign {__version__} "
            "reads; train it again, or use the nmtalign that wrote it"
        )
    if missing := [key for key in _KEYS if key not in settings]:
        raise FormatError(f"{path}: damaged: it has no '{missing[0]}'")
    for key, expected in {**_KEYS, EXPORTED: str}.items():
        if not isinstance(settings.get(key, ""), expected):
            raise FormatError(f"{path}: damaged: '{key}' is not {'an object' if expected is dict else 'a text'}")
    for name, digest in settings["files"].items():
        if not isinstance(digest, str):
            raise FormatError(f"{path}: damaged: the checksum of '{shortened(name)}' is not a text")
        if name in ("", ".", "..") or "\0" in name or "\\" in name or Path(name).name != name:
            raise FormatError(f"{path}: damaged: '{shortened(name)}' names no file of this folder")
    return settings


def write_settings(folder: Path, settings: Mapping[str, Any]) -> None:
    """Writes config.json, with the version of its format."""
    versions = {"format": FORMAT, "format_version": FORMAT_VERSION, "nmtalign_version": __version__}
    text = json.dumps({**versions, **settings}, indent=2, ensure_ascii=False)
    with atomic_text(folder / CONFIG, follow=False) as stream:
        stream.write(text.encode(errors="replace").decode() + "\n")  # a file name may have any bytes


def model_config(folder: Path, settings: Mapping[str, Any]) -> ModelConfig:
    """The model's sizes and options in config.json; raises FormatError."""
    try:
        return resolve(ModelConfig, (f"{folder / CONFIG}: model", settings["model"]))
    except UsageError as error:
        raise FormatError(str(error)) from None


def with_first_model(first: Path, layers: tuple[Layer, ...]) -> tuple[Layer, ...]:
    """Adds the architecture of the model that a training starts from to the layers of the training.

    It comes after the first layer, the preset. Raises UsageError for a later layer that asks for another architecture.
    """
    config = model_config(first, read_settings(first))
    model = {name: getattr(config, name) for name in select(ModelConfig, lambda setting: not setting.internal)}
    for origin, values in layers[1:]:
        for name in sorted(model.keys() & FIXED & values.keys()):
            value = FIXED[name].convert(origin, values[name])
            if value != model[name]:
                raise UsageError(
                    f"{written(origin, name, value)}: the model {first} has {name} = {toml(model[name])}, and a "
                    "training that starts from it has the same; leave this setting out, or train without --init-from"
                )
    return layers[0], (f"MODEL {first}", model), *layers[1:]


def check_files(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raises FormatError with the first vocabulary or tokeniser file that is missing or was edited."""
    pieces = [name for name in MODEL_FILES if (folder / name).exists()]
    if missing := [name for name in (*_WORDS, *pieces) if name not in settings["files"]]:
        raise FormatError(f"{folder / CONFIG}: damaged: 'files' has no checksum of {missing[0]}; restore the original")
    for name, expected in settings["files"].items():
        path = folder / name
        if not path.is_file():
            raise FormatError(f"{path}: missing; the model directory is incomplete: copy all of it")
        if sha256_of(path) != expected:
            raise FormatError(f"{path}: was changed after training, and does not fit the weights; restore the original")


def find_weights(folder: Path) -> Path:
    """The file of the best weights; before the first validation, they are the last ones."""
    for name in (BEST, LAST):
        if os.path.lexists(folder / name):  # what cannot be read is damage, not a model without best weights
            return folder / name
    raise FormatError(f"{folder}: has no weights yet ({BEST}); let `nmtalign train` reach a checkpoint")


def describe_model(folder: Path) -> dict[str, Any]:
    """The description for `nmtalign info`, with all checksums verified; a damaged file of tensors has "damaged"."""
    settings = read_settings(folder)
    check_files(folder, settings)
    load_vocabularies(folder, model_config(folder, settings))  # checks the sizes, too
    files = {path.name: _describe_tensors(path) for path in sorted(folder.glob("*.safetensors"))}
    state = "kept" if {STATE, PREVIOUS_STATE} & files.keys() else "none"
    return {
        "kind": "model",
        "format_version": settings["format_version"],
        "nmtalign_version": settings["nmtalign_version"],
        "preset": settings["preset"],
        "languages": f"{settings['source_language']}-{settings['target_language']}",
        "parameters": next((f["parameters"] for n in (BEST, LAST) if "parameters" in (f := files.get(n, {}))), 0),
        "weights": files.get(BEST, {}).get("weights", "fp32"),
        "training_state": "none; it was exported" if EXPORTED in settings else state,
        "files": files,
        "model": settings["model"],
        "training": settings["training"],
        "prep": settings["prep"],
    }


def _describe_tensors(path: Path) -> dict[str, Any]:
    """Describes a file of weights or a checkpoint after checking all its bytes."""
    try:
        arrays, metadata = map_arrays(path)
        if "position" in metadata:
            return {**parse_json(metadata["position"]), "checksum": "matches"}
        scales = {name + SCALE for name in arrays}
        count = sum(array.size for name, array in arrays.items() if name not in scales)
        facts: dict[str, Any] = {"parameters": count, "checksum": "matches"}
        facts |= {name: parse_json(metadata[name]) for name in ("update", CALIBRATION, AVERAGED) if name in metadata}
        return facts | ({"weights": metadata["weights"]} if "weights" in metadata else {})
    except (TypeError, ValueError):
        return {"damaged": "its metadata is invalid"}
    except FormatError as error:
        return {"damaged": str(error).removeprefix(f"{path}: ").removeprefix("damaged: ")}


@dataclass(frozen=True)
class LoadedModel:
    """A model with its vocabularies and tokenisers, ready to translate or to align."""

    folder: Path
    weights_file: Path
    model: "TranslationModel"
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    tokenizers: Tokenizers
    settings: Mapping[str, Any]
    device: "torch.device"
    metadata: Mapping[str, str] = field(default_factory=dict)  # of the file of weights

    @property
    def source_language(self) -> str:
        """The source language, such as "en"."""
        return str(self.settings["source_language"])

    @property
    def target_language(self) -> str:
        """The target language."""
        return str(self.settings["target_language"])

    def ids(self, source: Sequence[str], target: Sequence[str] = ()) -> tuple[list[int], list[int], list[int]]:
        """The ids of the tokens of a pair, as the model reads them (see `pair_ids`)."""
        return pair_ids((self.source_vocabulary, self.target_vocabulary), source, target, self.model.config.copy)

    def text_fit(self, side: int = 0, tokenized: bool = False, raw: bool = True) -> TextFit:
        """Compares a text that should be in the source language (side 0) or the target language with both."""
        return TextFit(self.tokenizers, (self.source_vocabulary, self.target_vocabulary), side, tokenized, raw=raw)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of the hashes of config.json, which contains those of the vocabularies, and of the weights."""
        hashes = sha256_of(self.folder / CONFIG) + sha256_of(self.weights_file)
        return hashlib.sha256(hashes.encode()).hexdigest()


def load_model(
    place: Path, device: Device = "auto", precision: InferencePrecision = "fp32", threads: int = 0
) -> LoadedModel:
    """Loads a model for inference, with this number of threads; on the CPU its weights are mapped into memory.

    `place` is the folder of the model, for its best weights, or a file of weights in this folder.

    Raises FormatError with the file name for anything missing, foreign, damaged or edited, and ResourceError for a
    device or a precision that the machine does not have.
    """
    import torch

    from nmtalign.core.inference import in_dtype
    from nmtalign.core.model import TranslationModel
    from nmtalign.core.numerics import in_int8, inference_precision, pick_device, using_threads

    folder = place.parent if place.suffix == ".safetensors" else place
    settings = read_settings(folder)
    check_files(folder, settings)
    config = model_config(folder, settings)
    vocabularies = load_vocabularies(folder, config)
    path = find_weights(folder) if place == folder else place
    chosen = pick_device(device)
    with using_threads(threads), torch.inference_mode(False):  # autograd, which a posterior needs, refuses its tensors
        products = inference_precision(precision, chosen)
        with torch.device("meta"):
            model = TranslationModel(config).float()
        try:
            tensors, metadata = load_tensors(path)
        except FormatError as error:
            raise FormatError(f"{error}; `nmtalign info {folder}` reports which files are intact") from None
        parts = tensors, model.state_dict()
        sizes, expected = ({name: (x.dtype, x.shape) for name, x in part.items()} for part in parts)
        if sizes != expected:
            raise FormatError(f"{path}: does not contain the weights of the model that {CONFIG} describes; copy both")
        model.load_state_dict({name: tensor.to(chosen) for name, tensor in tensors.items()}, assign=True)
        if products == "bf16":
            model = in_dtype(model, torch.bfloat16)
        model.eval().requires_grad_(False)
        if products == "int8":
            model = in_int8(model)
    return LoadedModel(folder, path, model, *vocabularies, Tokenizers.load(folder), settings, chosen, metadata)


def write_copy(loaded: LoadedModel, folder: Path, weights: StoredWeights) -> None:
    """Writes a loaded model, with `weights` = int8 in eight bits (`int8_rows`), and copies its other files.

    Hidden files, train.jsonl, HDF5 files, and symbolic links that config.json does not name are left out.
    """
    tensors, metadata = loaded.model.state_dict(), loaded.metadata
    if weights == "int8":
        try:
            tensors, metadata = int8_rows(tensors), {**metadata, "weights": weights}
        except ValueError as error:
            raise FormatError(f"{loaded.weights_file}: {error}; export it with fp32 weights") from None
    save_tensors(folder / BEST, tensors, metadata)
    for path in sorted(loaded.folder.iterdir()):
        left_out = path.name in (CONFIG, LOG) or path.name.startswith(".") or path.suffix in (".safetensors", ".h5")
        wanted = path.name in loaded.settings["files"] or (path.is_file() and not path.is_symlink())
        if wanted and not left_out:
            with atomic_path(folder / path.name, follow=False) as temporary:
                shutil.copyfile(path, temporary)
    write_settings(folder, {**loaded.settings, EXPORTED: weights})


def export_model(
    model: Path,
    folder: Path,
    weights: StoredWeights = "fp32",
    force: bool = False,
    average: Sequence[Path] = (),
    write: Callable[[LoadedModel, Path, StoredWeights], None] = write_copy,
) -> None:
    """Exports a model, as `nmtalign.api.export` does; `folder` appears only when it is complete.

    `write` gets the model with its best weights, or with a mean of weights, and a new folder.
    Raises UsageError for a folder with other files, FormatError for a damaged model.
    """
    target = Path(os.path.realpath(folder))
    if target.exists() and not target.is_dir():
        raise UsageError(f"{folder}: is a file; give the name of a folder with -o")
    with work_folder(target.parent / f".{target.name}.partial", "work") as work, disk_errors(folder):
        new = work / "new"
        loaded = load_model(model, device="cpu")
        if average:  # its confidence is not calibrated
            loaded.model.load_state_dict(_mean_of(loaded, average), assign=True)
            loaded = replace(loaded, metadata={AVERAGED: str(1 + len(average))})
        write(loaded, new, weights)
        if not target.exists() or _may_replace(folder, new, force):
            if target.exists():
                target.replace(work / "old")
            new.replace(target)


def _mean_of(loaded: LoadedModel, others: Sequence[Path]) -> "dict[str, torch.Tensor]":
    """The mean of the weights, summed in float64 and rounded once; raises UsageError for weights of another model."""
    own = loaded.model.state_dict()
    total = {name: tensor.double() for name, tensor in own.items()}
    for path in others:
        if path.is_dir():
            other = load_model(path, device="cpu")
            tensors, fits = other.model.state_dict(), _identity(other) == _identity(loaded)
        else:
            tensors, _ = load_tensors(path)
            fits = {name: x.shape for name, x in tensors.items()} == {name: x.shape for name, x in own.items()}
        if not fits:
            raise UsageError(f"{path}: is of another model than {loaded.folder}, so there is no mean of their weights")
        for name, tensor in tensors.items():
            total[name] += tensor
    return {name: (value / (1 + len(others))).to(own[name].dtype) for name, value in total.items()}


def _identity(loaded: LoadedModel) -> tuple[Any, ...]:
    """What must be equal for weights to have the same meaning."""
    settings = {name: getattr(loaded.model.config, name) for name in FIXED}
    return settings, loaded.source_vocabulary, loaded.target_vocabulary


def _may_replace(folder: Path, new: Path, force: bool) -> bool:
    """Whether a finished export replaces the existing folder; False if both are equal. Raises UsageError."""
    names = [path.name for path in new.iterdir()]
    if all((folder / name).is_file() and filecmp.cmp(folder / name, new / name, False) for name in names):
        return False
    if not any(folder.iterdir()):
        return True
    replaceable = False
    with contextlib.suppress(OSError, ValueError, TypeError):
        replaceable = {EXPORTED, "nmtalign_version"} <= {*read_json(folder / CONFIG)}
    if not replaceable:
        raise UsageError(f"{folder}: contains other files, which would be lost; give a new folder with -o")
    if not force:
        fix = "give another folder with -o, or --force to replace it"
        raise UsageError(f"{folder}: contains another exported model, which would be lost; {fix}")
    return True


FORMAT, FORMAT_VERSION = "nmtalign model", 2
_DIGEST_PREFIX = b'{"__metadata__":{"nmtalign":"{\\"sha256\\":\\"'  # the beginning of the header
BLANK_DIGEST = b"0" * 64
DIGEST_PLACE = 8 + len(_DIGEST_PREFIX)  # the offset of the digest in the file
SCALE = ".scale"  # ends the name of the scales of an int8 matrix
_TYPES = {"float64": "F64", "float32": "F32", "float16": "F16", "int64": "I64", "int32": "I32"}
_TYPES |= {"int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def save_tensors(
    path: Path, tensors: "Mapping[str, Tensor | NDArray[Any]]", metadata: Mapping[str, str], keep: Path | None = None
) -> None:
    """Writes tensors or arrays with metadata and a checksum, atomically; an existing file is renamed to `keep`.

    Only tensors that are on a GPU or not contiguous are copied, one at a time. Raises ResourceError if the file cannot
    be written.
    """
    import numpy as np

    marks = {"sha256": BLANK_DIGEST.decode(), "format_version": str(FORMAT_VERSION), **metadata}
    header: dict[str, Any] = {"__metadata__": {"nmtalign": json.dumps(marks, separators=(",", ":"))}}
    end = 0
    # Large elements come first, so that every tensor is aligned.
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
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
            tensor = tensors[name]
            array = tensor if isinstance(tensor, np.ndarray) else tensor.detach().cpu().numpy()
            data = np.ascontiguousarray(array).reshape(-1).view(np.uint8).data
            digest.update(data)
            stream.write(data)
        stream.seek(DIGEST_PLACE)
        stream.write(digest.hexdigest().encode())


def int8_rows(tensors: Mapping[str, "Tensor"]) -> dict[str, "Tensor"]:
    """Replaces each float32 matrix by whole numbers from -127 to 127 and one float32 scale per row.

    The last dimension is that of a row. The scale is 1/127 of the row's largest value, so a value changes by at most
    1/254 of that. Vectors and biases stay float32. `save_tensors` needs the metadata `weights` = int8 beside the
    result. Raises ValueError for a value of a matrix that is not finite.
    """
    import torch

    result: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or tensor.dim() < 2 or name.endswith("bias") or not tensor.numel():
            result[name] = tensor
            continue
        scale = tensor.abs().amax(-1) / 127
        if not bool(scale.isfinite().all()):
            raise ValueError(f"{name} has a value that is not finite")
        smallest = torch.finfo(torch.float32).tiny
        result[name] = (tensor / scale.clamp_min(smallest)[..., None]).round_().clamp_(-127, 127).to(torch.int8)
        result[name + SCALE] = scale
    return result


def load_tensors(path: Path) -> tuple[dict[str, "Tensor"], dict[str, str]]:
    """Maps a file of `save_tensors` into memory after checking all its bytes; returns (tensors, metadata).

    Writing to a tensor does not change the file. Matrices in eight bits become float32, and the metadata have no
    `weights`. Raises FormatError for a foreign or damaged file.
    """
    import torch

    arrays, metadata = map_arrays(path, mmap.ACCESS_COPY)
    tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
    if metadata.pop("weights", "") == "int8":
        _multiply_scales(path, tensors)
    return tensors, metadata


def map_arrays(path: Path, access: int = mmap.ACCESS_READ) -> tuple[dict[str, "NDArray[Any]"], dict[str, str]]:
    """As `load_tensors`, but returns arrays, which are read-only, and imports no PyTorch."""
    import numpy as np

    types = {code: np.dtype(name) for name, code in _TYPES.items()}
    with _opened(path) as (stream, metadata):
        head = stream.read(DIGEST_PLACE + len(BLANK_DIGEST))
        blank = head[:DIGEST_PLACE] + BLANK_DIGEST
        digest = hashlib.file_digest(stream, lambda: hashlib.sha256(blank))  # of all bytes, with zeros in its place
        if digest.hexdigest().encode() != head[DIGEST_PLACE:]:
            raise FormatError(f"{path}: damaged: its checksum does not match, so some of its bytes have changed")
        data = mmap.mmap(stream.fileno(), 0, access=access)
        start = 8 + int.from_bytes(data[:8], "little")
        arrays = {
            name: np.ndarray(own["shape"], types[own["dtype"]], data, start + own["data_offsets"][0])
            for name, own in parse_json(data[8:start].decode()).items()
            if name != "__metadata__"
        }
    return arrays, metadata


def _multiply_scales(path: Path, tensors: dict[str, "Tensor"]) -> None:
    """Replaces the int8 matrices and their scales by float32 matrices."""
    import torch

    for name in [name for name, tensor in tensors.items() if tensor.dtype == torch.int8]:
        matrix, scale = tensors[name], tensors.pop(name + SCALE, None)
        if scale is None or scale.dtype != torch.float32 or not matrix.dim() or scale.shape != matrix.shape[:-1]:
            raise FormatError(f"{path}: damaged: {name} has no scales that fit")
        if not bool(((scale >= 0) & (scale * 128).isfinite()).all()):
            raise FormatError(f"{path}: damaged: the scales of {name} are not finite numbers from 0")
        tensors[name] = matrix * scale[..., None]


def read_metadata(path: Path) -> dict[str, str]:
    """Returns the metadata of a file without reading its tensors; raises FormatError if it is foreign or cut off."""
    with _opened(path) as (_, metadata):
        return metadata


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[tuple[FileIO, dict[str, str]]]:
    """Opens a file as a stream of bytes, whose header the safetensors library checks; also yields its metadata.

    The library opens a file only by name. It gets the name of the open stream, so that it reads the bytes that were
    checked even if the file is replaced. (Windows, which has no such names, does not replace an open file.) Raises
    FormatError if the file is missing, foreign or damaged, ResourceError if the system refuses to read it.
    """
    try:
        with open_regular(path) as stream, disk_errors(path, "read"):
            name = Path(f"/dev/fd/{stream.fileno()}")
            with safe_open(name if name.exists() else path, "np") as file:
                stored: Mapping[str, str] = file.metadata() or {}
            if "nmtalign" not in stored:
                raise FormatError(f"{path}: written by another program, or by an earlier version of nmtalign")
            metadata = parse_json(stored["nmtalign"])
            if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
                raise FormatError(f"{path}: damaged: its metadata are not texts")
            metadata.pop("sha256", None)
            if (version := metadata.pop("format_version", "")) != str(FORMAT_VERSION):
                known = f"and this version of nmtalign reads {FORMAT_VERSION}"
                raise FormatError(f"{path}: has the format {version[:60]}, {known}")
            yield stream, metadata
    except OSError as error:
        raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise FormatError(f"{path}: damaged, or not a safetensors file ({reason})") from None
