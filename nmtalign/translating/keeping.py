"""Translations of complete texts that are kept in the model's folder, where later runs find them without PyTorch.

| file in `translations/` | content                                                                           |
|-------------------------|-----------------------------------------------------------------------------------|
| 0123456789abcdef.txt    | the translation, one line per line of the text                                    |
| 0123456789abcdef.json   | its origin and its SHA-256; the name consists of the first 16 hexadecimal digits  |
|                         | of the SHA-256 of the origin                                                      |
| weights.json            | the SHA-256 of the weights file, with the size and the times for which it is valid |

A translation is used again only if the model, the text, the options and the version of nmtalign are the same, and its
file is unchanged. All options count except those in `_WITHOUT_EFFECT`.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from nmtalign.errors import FormatError, ResourceError
from nmtalign.files import atomic_path, check_no_link, disk_errors, lock, read_json, read_regular, sha256_of, sweep
from nmtalign.model_directory import LAST, check_files, find_weights, hash_of, read_settings
from nmtalign.processor import fastest_precision
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.version import __version__

FOLDER = "translations"
_FORMAT = "nmtalign translation"
_WEIGHTS = "weights.json"
_NAME = re.compile(r"[0-9a-f]{16}\.json")
# Settings that change no word of the best translation by one model: other translations, the output format, batches and
# threads. All other settings count, including new ones.
_OTHERS = ("n_best", "sample", "temperature", "top_k", "seed", "ensemble")
_PRINTED = ("format", "input_format", "word_scores", "alignment")
_WITHOUT_EFFECT = frozenset((*_OTHERS, *_PRINTED, "batch_size", "max_memory", "threads"))
_SETTLED = 2.0  # seconds after a change; before, a further change might leave the times of a file as they are


class KeepingTranslator:
    """Makes and keeps the best translation of each line by one model; imports PyTorch only to make one."""

    def __init__(self, folder: Path, settings: TranslateConfig) -> None:
        """Raises FormatError for a model that is missing, damaged or without weights."""
        check_files(folder, read_settings(folder))
        self._folder, self._settings = folder, settings
        self._weights = find_weights(folder, "best")
        try:
            self._state = _state(self._weights)
            self._model = hash_of(folder, self._hash_of_weights())
        except OSError as error:
            raise FormatError(f"{self._weights}: cannot be read: {error.strerror or error}") from None
        self._unchanged = True

    @property
    def has_best(self) -> bool:
        """Whether the weights belong to the best validation or the one before it, not to the last checkpoint."""
        return self._weights.name != LAST

    def path(self, lines: Sequence[str]) -> Path:
        """The file of the translation of these lines, whether it exists or not."""
        return self._path(origin_of(self._model, lines, self._settings))

    def find(self, lines: Sequence[str]) -> list[str] | None:
        """The lines of the kept translation; None if there is none or its file was changed."""
        origin = origin_of(self._model, lines, self._settings)
        record = _read_record(self._path(origin).with_suffix(".json"))
        try:
            text = read_regular(self._path(origin))
            found = text.decode().split("\n")[:-1]
        except (OSError, ValueError):
            return None
        complete = record.get("lines") == len(found) == len(lines)
        unchanged = record.get("text_sha256") == hashlib.sha256(text).hexdigest()
        return found if complete and unchanged and record.get("key") == key_of(origin) else None

    def make(self, lines: Sequence[str], searched: Callable[[int], None] | None = None) -> Iterator[str]:
        """Translates the lines; raises UsageError if the settings do not fit the model.

        `searched` is that of `Translator`.
        """
        from nmtalign.translating.translator import Translator, load_models

        translator = Translator(
            load_models([self._folder], self._settings), self._settings, alignments=False, searched=searched
        )
        self._unchanged = self._is_current()  # training may have replaced the weights before they were loaded
        for translation in translator.translate(lines):
            yield translation.text

    def keep(self, lines: Sequence[str], translation: Sequence[str], source_name: str) -> None:
        """Keeps a result of `make` atomically and removes the translations by earlier weights.

        Keeps nothing if the weights have changed since. Raises ResourceError if the disk refuses.
        """
        if not self._unchanged:
            return
        origin, text = origin_of(self._model, lines, self._settings), _joined(translation)
        path = self._path(origin)
        if path.parent.is_dir():
            with disk_errors(path.parent):
                sweep(path.parent)
                self._remove_others(path.parent)
        record = {
            "format": _FORMAT,
            "key": key_of(origin),
            **origin,
            "source": source_name,
            "lines": len(translation),
            "text_sha256": hashlib.sha256(text).hexdigest(),
        }
        # The record is written last: a text without its record is not used.
        _write(path, text)
        _write(path.with_suffix(".json"), _json(record))

    def _path(self, origin: Mapping[str, Any]) -> Path:
        return self._folder / FOLDER / f"{key_of(origin)[:16]}.txt"

    def _remove_others(self, folder: Path) -> None:
        """Removes the translations by other weights, which cannot be used again."""
        for path in folder.iterdir():
            if not _NAME.fullmatch(path.name):
                continue
            record = _read_record(path)
            if record.get("format") == _FORMAT and record.get("model") != self._model:
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.with_suffix(".txt").unlink(missing_ok=True)

    def _is_current(self) -> bool:
        """Whether the weights file has not changed since construction; training may replace it at any moment."""
        try:
            return _state(self._weights) == self._state
        except OSError:
            return False

    def _hash_of_weights(self) -> str:
        """The SHA-256 of the weights; they are read unless size, times and inode equal those of the stored SHA-256.

        It is stored only if the file has not changed for a while, because two quick changes may have equal times.
        """
        path, started, state = self._folder / FOLDER / _WEIGHTS, time.time(), self._state
        noted = _read_record(path).get(self._weights.name)
        if isinstance(noted, dict) and noted == {**state, "sha256": noted.get("sha256")}:
            return str(noted["sha256"])
        found = sha256_of(self._weights)
        still = started - max(state["mtime_ns"], state["ctime_ns"]) / 1e9 > _SETTLED
        if still and self._is_current():
            with contextlib.suppress(ResourceError):  # the next run will read the weights again
                _write(path, _json({self._weights.name: {**state, "sha256": found}}))
        return found


def origin_of(model: str, lines: Sequence[str], config: TranslateConfig) -> dict[str, Any]:
    """Everything that the words of a translation depend on, given the hash of the model."""
    return {
        "model": model,
        "source_sha256": hashlib.sha256(_joined(lines)).hexdigest(),
        "options": options_that_count(config),
        "nmtalign_version": __version__,
    }


def key_of(origin: Mapping[str, Any]) -> str:
    """The SHA-256 of an origin; the files of its translation are named after it."""
    return hashlib.sha256(json.dumps(origin, sort_keys=True).encode()).hexdigest()


def options_that_count(config: TranslateConfig) -> dict[str, Any]:
    """The settings that may change words; a file is represented by its content, the machine by its rounding.

    Sums that are rounded differently, on a GPU, in bf16 or in int8, may change a choice between two nearly equal words.
    """
    options = {name: value for name, value in dataclasses.asdict(config).items() if name not in _WITHOUT_EFFECT}
    options |= {"lexicon": "", "glossary": "", **hashes_of_files(config)}
    if config.device == "auto":
        options["device"] = "cuda" if has_gpu() else "cpu"
    if config.precision == "auto" and options["device"] == "cpu":
        options["precision"] = fastest_precision()
    return options


def hashes_of_files(config: TranslateConfig, **others: Path | None) -> dict[str, str]:
    """The SHA-256 of the files of the settings, and of others, whose content may change words.

    A stream, which can be read only once, has none.
    """
    files = {
        "lexicon": Path(config.lexicon) if config.lexicon and (config.replace_unk or config.candidates) else None,
        "glossary": Path(config.glossary) if config.glossary else None,
        **others,
    }
    return {name: sha256_of(path) for name, path in files.items() if path and path.is_file()}


def has_gpu() -> bool:
    """Whether the system has a GPU, as far as this is visible without PyTorch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def _state(path: Path) -> dict[str, int]:
    """The properties that change when a file changes."""
    seen = path.stat()
    return {"size": seen.st_size, "mtime_ns": seen.st_mtime_ns, "ctime_ns": seen.st_ctime_ns, "inode": seen.st_ino}


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _json(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="replace")  # a file name may contain bytes that are not UTF-8


def _read_record(path: Path) -> dict[str, Any]:
    """The JSON object of a file; {} if there is none."""
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(path: Path, content: bytes) -> None:
    check_no_link(path.parent)
    with atomic_path(path, follow=False) as temporary, temporary.open("wb") as stream:
        lock(stream)
        stream.write(content)
        stream.flush()
