"""The files of a model directory that can be read without PyTorch: names, settings, checksums."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

from nmtalign.errors import FormatError, UsageError
from nmtalign.files import open_regular, parse_json, read_json, sha256_of
from nmtalign.settings.definition import Layer, definitions, resolve, select, toml, written
from nmtalign.settings.training_settings import ModelConfig
from nmtalign.tensor_file import FORMAT, FORMAT_VERSION, check_tensors
from nmtalign.version import __version__

CONFIG = "config.json"
SOURCE_VOCABULARY, TARGET_VOCABULARY = "source.vocabulary.txt", "target.vocabulary.txt"
BEST, PREVIOUS_BEST, LAST = "best.safetensors", "best.previous.safetensors", "last.safetensors"
STATE, PREVIOUS_STATE = "training_state.safetensors", "training_state.previous.safetensors"
LOG = "train.jsonl"
_USUAL = Path("model")  # the folder of the model, unless another is given
ALIGNER = "aligner.safetensors"  # what `nmtalign link` has learned
CALIBRATION = "calibration"  # in the metadata of best.safetensors
AVERAGED = "averaged"  # in the metadata of best.safetensors: the number of weights whose mean they are
Which = Literal["best", "last"]

_WORDS = (SOURCE_VOCABULARY, TARGET_VOCABULARY, "tokenizer.json")  # hashed by every version
_PIECES = ("source.spm", "target.spm")  # hashed by every version, if they exist
_OPTIONAL_KEYS: dict[str, type] = {"prep": dict, "given": dict, "exported": str}  # of config.json
_KEYS: dict[str, type] = {
    "nmtalign_version": str,
    "source_language": str,
    "target_language": str,
    "model": dict,
    "training": dict,
    "files": dict,
}


def kind_of(path: Path) -> str:
    """What a path is, for the message that it is not what a command needs; "" if nothing is there."""
    if path.is_dir():
        held = next((kind for name, kind in _HELD.items() if (path / name).is_file()), "")
        return f"a folder with {held}" if held else "a folder"
    if not path.is_file():
        return ""
    try:
        with open_regular(path) as stream:
            start = stream.read(1024)
    except OSError:
        return "a file that cannot be read"
    if b"\x89HDF" in start:
        return "a prepared corpus" if path.name == "corpus.h5" else "an HDF5 file, such as a corpus or alignments"
    return "a binary file" if b"\0" in start or start.startswith(b"\x1f\x8b") else "a text file"


_HELD = {CONFIG: "a model", "corpus.h5": "a prepared corpus", ALIGNER: "a word aligner of `nmtalign link`"}
_MADE = (CONFIG, LOG, "tokenizer.json", "corpus.h5", "summary.json", "link.json", "links.tsv")
_ENDINGS = (".safetensors", ".spm", ".vocabulary.txt")


def own_files(folder: Path) -> list[Path]:
    """The files that nmtalign has made in a model directory, a prepared corpus or the folder of `nmtalign link`."""
    made = folder.iterdir() if any((folder / name).is_file() for name in _HELD) else ()
    return [path for path in made if path.name in _MADE or path.name.endswith(_ENDINGS)]


def read_settings(folder: Path) -> dict[str, Any]:
    """Reads and checks config.json of a model directory; raises FormatError if it is missing or foreign."""
    path = folder / CONFIG
    try:
        settings = read_json(path)
    except (FileNotFoundError, NotADirectoryError):
        kind = kind_of(folder)
        found = f", but {kind}" if kind not in ("", "a folder") else ""
        fix = "name one with -m" if folder == _USUAL else "give the folder of a model"
        raise FormatError(
            f"{folder}: no nmtalign model here (no {CONFIG}){found}; {fix}, or train one with `nmtalign train`"
        ) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise FormatError(f"{path}: cannot be read: {reason}; the model directory is damaged") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise FormatError(f"{path}: not a model of nmtalign (its format is not '{FORMAT}')")
    if settings.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"{path}: format {_short(settings.get('format_version'))} is not the format {FORMAT_VERSION} that nmtalign "
            f"{__version__} reads; train it again, or use the nmtalign that wrote it"
        )
    _check_settings(path, settings)
    return settings


def _check_settings(path: Path, settings: Mapping[str, Any]) -> None:
    """Raises FormatError for a missing key, a value of the wrong type, and a file name that leaves the folder."""
    if missing := [key for key in _KEYS if key not in settings]:
        raise FormatError(f"{path}: damaged: it has no '{missing[0]}'")
    for key, kind in (_KEYS | _OPTIONAL_KEYS).items():
        if not isinstance(settings.get(key, kind()), kind):
            raise FormatError(f"{path}: damaged: '{key}' is not {'an object' if kind is dict else 'a text'}")
    for name, digest in settings["files"].items():
        if not isinstance(digest, str):
            raise FormatError(f"{path}: damaged: the checksum of '{_short(name)}' is not a text")
        if name in ("", ".", "..") or "\0" in name or "\\" in name or Path(name).name != name:
            raise FormatError(f"{path}: damaged: '{_short(name)}' names no file of this folder")


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def model_config(folder: Path, settings: Mapping[str, Any]) -> ModelConfig:
    """The model's sizes and options in config.json; raises FormatError."""
    try:
        return resolve(ModelConfig, (f"{folder / CONFIG}: model", settings["model"]))
    except UsageError as error:
        raise FormatError(str(error)) from None


def with_first_model(layers: tuple[Layer, ...], folder: Path) -> tuple[Layer, ...]:
    """Adds the architecture of the model that `init_from` names to the layers of a training in `folder`.

    It comes after the first layer, the preset. If the model is gone, the architecture is that of the training which has
    begun in `folder`. Raises UsageError for a later layer that asks for another architecture.
    """
    given = next((values["init_from"] for _, values in reversed(layers) if "init_from" in values), "")
    if not given or not isinstance(given, str | os.PathLike):
        return layers
    first = Path(given)
    there = folder if recorded_weights(folder, first) else first
    model = asdict(model_config(there, read_settings(there)))
    model = {name: value for name, value in model.items() if not definitions(ModelConfig)[name].internal}
    fixed = select(ModelConfig, lambda one: not one.adaptable)
    for origin, values in layers[1:]:
        for name in sorted(fixed.keys() & values.keys()):
            value = definitions(ModelConfig)[name].convert(origin, values[name])
            if value != model[name]:
                raise UsageError(
                    f"{written(origin, name, value)}: the model {first} has {name} = {toml(model[name])}, and a "
                    "training that starts from it has the same; leave this setting out, or train without --init-from"
                )
    return layers[0], (f"MODEL {first}", model), *layers[1:]


def recorded_weights(folder: Path, first: Path) -> str | None:
    """The hash of the first weights of the training in `folder`, if their model `first` is gone; else None."""
    if (first / CONFIG).exists() or not (folder / CONFIG).exists():
        return None
    settings = read_settings(folder)
    same = Path(str(settings["training"].get("init_from"))) == first
    return str(settings.get("given", {}).get("init_from", "")) or None if same else None


def is_aligner(folder: Path) -> bool:
    """Whether a folder has the word aligner of `nmtalign link`, which aligns in both directions."""
    return (folder / ALIGNER).is_file()


def check_files(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raises FormatError with the first vocabulary or tokeniser file that is missing or was edited."""
    pieces = [name for name in _PIECES if (folder / name).exists()]
    if missing := [name for name in (*_WORDS, *pieces) if name not in settings["files"]]:
        raise FormatError(f"{folder / CONFIG}: damaged: 'files' has no checksum of {missing[0]}; restore the original")
    for name, expected in settings["files"].items():
        path = folder / name
        if not path.is_file():
            raise FormatError(f"{path}: missing; the model directory is incomplete: copy all of it")
        try:
            same = sha256_of(path) == expected
        except OSError as error:
            raise FormatError(f"{path}: cannot be read: {error.strerror or error}") from None
        if not same:
            raise FormatError(
                f"{path}: was changed after training and no longer fits the weights; restore the original"
            )


def find_weights(folder: Path, which: Which) -> Path:
    """The file of the requested weights; before the first validation, the best weights are the last ones."""
    for name in (BEST, PREVIOUS_BEST, LAST) if which == "best" else (LAST,):
        path = folder / name
        if path.is_file():
            return path
    raise FormatError(f"{folder}: has no weights yet ({which}.safetensors); let `nmtalign train` reach a checkpoint")


def hash_of(folder: Path, weights: str) -> str:
    """The SHA-256 of a model: the hash of config.json, which contains those of the vocabularies, and of the weights."""
    return hashlib.sha256((sha256_of(folder / CONFIG) + weights).encode()).hexdigest()


def describe_model(folder: Path) -> dict[str, Any]:
    """The description of a model directory for `nmtalign info`; reads all files and verifies their checksums.

    For a damaged file of tensors the key "damaged" describes the damage. Any other damage raises FormatError.
    """
    settings = read_settings(folder)
    check_files(folder, settings)
    files = {path.name: _describe_tensors(path) for path in sorted(folder.glob("*.safetensors"))}
    parameters = next((files[name]["parameters"] for name in (BEST, LAST) if "parameters" in files.get(name, {})), 0)
    state = "kept" if {STATE, PREVIOUS_STATE} & files.keys() else "none"
    return {
        "kind": "model",
        "format_version": settings["format_version"],
        "nmtalign_version": settings.get("nmtalign_version"),
        "preset": settings.get("preset"),
        "languages": f"{settings['source_language']}-{settings['target_language']}",
        "parameters": parameters,
        "weights": files.get(BEST, {}).get("weights", "fp32"),
        "training_state": "none; it was exported" if "exported" in settings else state,
        "files": files,
        "model": settings["model"],
        "training": settings["training"],
        "prep": settings.get("prep", {}),
    }


def _describe_tensors(path: Path) -> dict[str, Any]:
    """Describes a file of weights or a checkpoint after checking all its bytes."""
    try:
        metadata, count = check_tensors(path)
        if "position" in metadata:
            return {**parse_json(metadata["position"]), "checksum": "matches"}
        facts: dict[str, Any] = {"parameters": count, "update": int(metadata.get("update", 0)), "checksum": "matches"}
        if CALIBRATION in metadata:
            facts[CALIBRATION] = parse_json(metadata[CALIBRATION])
        if AVERAGED in metadata:
            facts[AVERAGED] = int(metadata[AVERAGED])
        return facts | ({"weights": metadata["weights"]} if "weights" in metadata else {})
    except (TypeError, ValueError):
        return {"damaged": "its metadata is invalid"}
    except FormatError as error:
        return {"damaged": str(error).removeprefix(f"{path}: ").removeprefix("damaged: ")}
