"""Translations that a model has made before, kept in its folder and found again without PyTorch.

| file in `translations/` | content                                                                           |
|-------------------------|-----------------------------------------------------------------------------------|
| 0123456789abcdef.txt    | the translation, a line for each line of the text                                 |
| 0123456789abcdef.json   | what it was made of, and the SHA-256 of the translation; the first 16 hex digits  |
|                         | of the SHA-256 over all that it was made of are the name                          |
| weights.json            | the SHA-256 of the weights, and by which size and times it is known to hold still |

A translation is used again only where model, text, options and the version of nmtalign are the same, and the file is
as it was written. Which options count is said at `_WITHOUT_EFFECT`.
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nmtalign.config import TranslateConfig
from nmtalign.errors import FormatError, ResourceError
from nmtalign.files import atomic_path, disk_errors, exclusive, sha256_of, sweep
from nmtalign.model_files import hash_of
from nmtalign.untrusted import read_json, read_regular
from nmtalign.version import __version__

FOLDER = "translations"
_FORMAT = "nmtalign translation"
_WEIGHTS = "weights.json"
_NAME = re.compile(r"[0-9a-f]{16}\.json")
# What changes no word of the one best translation by one model: which others are kept, how it is printed, how lines are
# cut into batches and who computes them. A setting that is not named here counts, and so does one that is new.
_OTHERS = ("n_best", "sample", "temperature", "top_k", "seed", "ensemble")
_PRINTED = ("format", "input_format", "word_scores", "alignment")
_WITHOUT_EFFECT = frozenset((*_OTHERS, *_PRINTED, "batch_size", "max_memory", "threads"))
_SETTLED = 2.0  # seconds after which a file cannot change any more without a change of its times
_BF16_FLAGS = ("avx512_bf16", "amx_tile")


def sha256_of_lines(lines: Sequence[str]) -> str:
    """The SHA-256 of a text of these lines, each ended by `\\n`."""
    return hashlib.sha256(_joined(lines)).hexdigest()


@dataclass(frozen=True)
class Origin:
    """All that the words of a translation depend on."""

    model: str  # its hash
    source_sha256: str
    options: Mapping[str, Any]
    nmtalign_version: str = __version__

    @property
    def key(self) -> str:
        """SHA-256 over all of it."""
        return hashlib.sha256(json.dumps(dataclasses.asdict(self), sort_keys=True).encode()).hexdigest()


class KeptTranslations:
    """The translations that are kept of one model, with the weights that are in its folder now."""

    def __init__(self, folder: Path, weights: Path) -> None:
        """Raises FormatError where the weights cannot be read."""
        self._folder, self._weights = folder / FOLDER, weights
        try:
            self._state = _state(weights)
            self._model = hash_of(folder, self._hash_of_weights())
        except OSError as error:
            raise FormatError(f"{weights}: cannot be read: {error.strerror or error}") from None

    def is_current(self) -> bool:
        """Whether the weights are still those that this was made with: training may replace them at any moment."""
        try:
            return _state(self._weights) == self._state
        except OSError:
            return False

    def path(self, origin: Origin) -> Path:
        """Where a translation is kept, or would be."""
        return self._folder / f"{origin.key[:16]}.txt"

    def origin(self, lines: Sequence[str], config: TranslateConfig) -> Origin:
        """What the translation of these lines depends on."""
        return Origin(self._model, sha256_of_lines(lines), options_that_count(config))

    def find(self, origin: Origin) -> list[str] | None:
        """The lines of a translation that is kept; None where there is none, or it is not as it was written."""
        path = self.path(origin)
        record = _read_record(path.with_suffix(".json"))
        try:
            text = read_regular(path)
            lines = text.decode().split("\n")[:-1]
        except (OSError, ValueError):
            return None
        whole = record.get("text_sha256") == hashlib.sha256(text).hexdigest() and record.get("lines") == len(lines)
        return lines if whole and record.get("key") == origin.key else None

    def keep(self, origin: Origin, lines: Sequence[str], source_name: str) -> Path:
        """Writes a translation, whole or not at all, and removes those by weights that are not here any more.

        Raises ResourceError for what the disk refuses.
        """
        path, text = self.path(origin), _joined(lines)
        if self._folder.is_dir():
            with disk_errors(self._folder):
                sweep(self._folder)
                self._remove_others(origin.model)
        record = {
            "format": _FORMAT,
            "key": origin.key,
            **dataclasses.asdict(origin),
            "source": source_name,
            "lines": len(lines),
            "text_sha256": hashlib.sha256(text).hexdigest(),
        }
        # The record comes last: without it, or with an older one, the text is not used.
        _write(path, text)
        _write(path.with_suffix(".json"), _json(record))
        return path

    def _remove_others(self, model: str) -> None:
        """Removes the translations by other weights: they could never be used again."""
        for path in self._folder.iterdir():
            if not _NAME.fullmatch(path.name):
                continue
            record = _read_record(path)
            if record.get("format") == _FORMAT and record.get("model") != model:
                with contextlib.suppress(OSError):
                    path.unlink()
                    path.with_suffix(".txt").unlink(missing_ok=True)

    def _hash_of_weights(self) -> str:
        """The SHA-256 of the weights, which are read unless size, times and place on the disk are as they were.

        It is noted only of a file that has lain still for a while: times are too coarse for what follows at once.
        """
        path, started, state = self._folder / _WEIGHTS, time.time(), self._state
        noted = _read_record(path).get(self._weights.name)
        if isinstance(noted, dict) and noted == {**state, "sha256": noted.get("sha256")}:
            return str(noted["sha256"])
        found = sha256_of(self._weights)
        still = started - max(state["mtime_ns"], state["ctime_ns"]) / 1e9 > _SETTLED
        if still and self.is_current():
            with contextlib.suppress(ResourceError):  # it will be read again
                _write(path, _json({self._weights.name: {**state, "sha256": found}}))
        return found


def options_that_count(config: TranslateConfig) -> dict[str, Any]:
    """The settings that words of a translation depend on; a lexicon by its content, the machine by how it rounds.

    The same sums, rounded otherwise on a GPU or in bf16, may tip a choice between two words that are nearly as good.
    """
    options = {name: value for name, value in dataclasses.asdict(config).items() if name not in _WITHOUT_EFFECT}
    path, used = Path(config.lexicon), config.lexicon and (config.replace_unk or config.candidates)
    options["lexicon"] = sha256_of(path) if used and path.is_file() else ""
    if config.device == "auto":
        options["device"] = "cuda" if _shows_gpu() else "cpu"
    if config.precision == "auto" and options["device"] == "cpu":
        options["precision"] = "bf16" if _multiplies_bf16() else "fp32"
    return options


def _shows_gpu() -> bool:
    """Whether the system shows a GPU, as far as it can be told without PyTorch."""
    if os.environ.get("CUDA_VISIBLE_DEVICES", "0") in ("", "-1"):
        return False
    return any(Path("/dev").glob("nvidia[0-9]*")) or Path("/dev/kfd").exists()


def _multiplies_bf16() -> bool:
    try:
        with Path("/proc/cpuinfo").open(encoding="utf-8", errors="replace") as stream:
            flags = next((line for line in stream if line.startswith("flags")), "")
    except OSError:
        return False
    return any(flag in flags.split() for flag in _BF16_FLAGS)


def _state(path: Path) -> dict[str, int]:
    """What changes with a file."""
    seen = path.stat()
    return {"size": seen.st_size, "mtime_ns": seen.st_mtime_ns, "ctime_ns": seen.st_ctime_ns, "inode": seen.st_ino}


def _joined(lines: Sequence[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()


def _json(record: Mapping[str, Any]) -> bytes:
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    return text.encode(errors="replace")  # the name of a text may hold bytes that are no letters


def _read_record(path: Path) -> dict[str, Any]:
    """The JSON object of a file; {} where there is none."""
    try:
        record = read_json(path)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def _write(path: Path, content: bytes) -> None:
    with atomic_path(path) as temporary, temporary.open("wb") as stream, exclusive(stream):
        stream.write(content)
        stream.flush()
