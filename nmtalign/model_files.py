"""The files of a model directory and what they say without PyTorch: names, settings, checksums, the hash of a model."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from nmtalign.errors import FormatError
from nmtalign.files import sha256_of
from nmtalign.version import __version__

FORMAT = "nmtalign model"
FORMAT_VERSION = 1
CONFIG = "config.json"
SOURCE_VOCABULARY, TARGET_VOCABULARY = "source.vocabulary.txt", "target.vocabulary.txt"
BEST, PREVIOUS_BEST, LAST = "best.safetensors", "best.previous.safetensors", "last.safetensors"
STATE, PREVIOUS_STATE = "training_state.safetensors", "training_state.previous.safetensors"
Which = Literal["best", "last"]


def read_settings(folder: Path) -> dict[str, Any]:
    """config.json of a model directory, checked; raises FormatError for a folder that holds none or a foreign one."""
    path = folder / CONFIG
    try:
        settings = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FormatError(
            f"{folder}: no nmtalign model here (no {CONFIG}); name one with -m, or train one with `nmtalign train`"
        ) from None
    except (OSError, ValueError) as error:
        raise FormatError(f"{path}: cannot be read: {error}; the model directory is damaged") from None
    if not isinstance(settings, dict) or settings.get("format") != FORMAT:
        raise FormatError(f"{path}: not a model of nmtalign (its format is not '{FORMAT}')")
    if settings.get("format_version") != FORMAT_VERSION:
        raise FormatError(
            f"{path}: format {settings.get('format_version')} is not the format {FORMAT_VERSION} that nmtalign "
            f"{__version__} reads; use the version that wrote it ({settings.get('nmtalign_version')})"
        )
    if missing := [
        key for key in ("model", "training", "files", "source_language", "target_language") if key not in settings
    ]:
        raise FormatError(f"{path}: damaged: it has no '{missing[0]}'")
    return settings


def check_files(folder: Path, settings: Mapping[str, Any]) -> None:
    """Raises FormatError naming the first vocabulary or tokeniser file that is missing or was edited."""
    for name, expected in settings["files"].items():
        path = folder / Path(name).name  # a name from a file never leads out of the folder
        if not path.is_file():
            raise FormatError(f"{path}: missing; the model directory is not whole: copy all of it")
        if sha256_of(path) != expected:
            raise FormatError(
                f"{path}: was changed after training, and no longer fits the weights; put the original back"
            )


def find_weights(folder: Path, which: Which) -> Path:
    """The weights asked for; the last where there is no best yet."""
    for name in (BEST, PREVIOUS_BEST, LAST) if which == "best" else (LAST,):
        path = folder / name
        if path.is_file():
            return path
    raise FormatError(f"{folder}: holds no weights yet ({which}.safetensors); let `nmtalign train` reach a checkpoint")


def hash_of(folder: Path, weights: str) -> str:
    """The hash of a model: SHA-256 over that of config.json, which holds those of the words, and of its weights."""
    return hashlib.sha256((sha256_of(folder / CONFIG) + weights).encode()).hexdigest()
