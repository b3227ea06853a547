"""`nmtalign.toml`: one file that names corpus, languages, folders and settings, so that every command runs bare."""

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nmtalign.errors import UsageError
from nmtalign.settings.definition import COMMAND_LINE, SECTIONS, Layer, resolve
from nmtalign.settings.presets import preset, settings_of
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.untrusted import parse_toml, read_regular

T = TypeVar("T")

FILE_NAME = "nmtalign.toml"
_MOST_BYTES = 16 << 20  # of a settings file
_TOP = ("source_language", "target_language", "data", "model", "corpus", *SECTIONS)
_PAIRS = ("train", "dev", "test")


@dataclass(frozen=True)
class Workspace:
    """The content of nmtalign.toml; relative paths start at the folder of the file."""

    file: Path | None = None
    source_language: str | None = None
    target_language: str | None = None
    data: Path = Path("data")
    model: Path = Path("model")
    pairs: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)  # train, dev, test
    tests: Mapping[str, tuple[Path, Path]] = field(default_factory=dict)  # further test sets, by name
    gold: Path | None = None
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def section(self, name: str) -> tuple[str, Mapping[str, Any]]:
        """A layer for `resolve`: where the settings come from, and the settings."""
        return f"{self.file or FILE_NAME}: [{name}]", self.sections.get(name, {})

    def resolve(self, cls: type[T], name: str, flags: Mapping[str, Any]) -> T:
        """The settings `cls`: those of section `name`, overridden by the flags that are not None."""
        return settings_of(cls, *self.layers(name, flags))

    def resolve_training(
        self, preset_name: str | None, flags: Mapping[str, Any]
    ) -> tuple[str, ModelConfig, TrainingConfig]:
        """(preset, model, training); precedence: flag, then file, then preset."""
        name = self.preset(preset_name)
        layers = self.training_layers(name, flags)
        return name, resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers)

    def preset(self, name: str | None) -> str:
        """The name of the preset: as given, or that of section [train]."""
        return name or str(self.section("train")[1].get("preset", "small"))

    def training_layers(self, preset_name: str, flags: Mapping[str, Any]) -> tuple[Layer, ...]:
        """The layers of the settings of training, the one with the highest precedence last: preset, file, flags."""
        return (f"preset {preset_name}", preset(preset_name)), self.section("train"), given(flags)

    def layers(self, name: str, flags: Mapping[str, Any]) -> tuple[Layer, ...]:
        """The layers of the settings of section `name`, the one with the highest precedence last: file, flags."""
        return self.section(name), given(flags)


def given(flags: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The layer of the command line: the flags that are not None."""
    return COMMAND_LINE, {key: value for key, value in flags.items() if value is not None}


def load_workspace(config: Path | None) -> Workspace:
    """Reads `config`, or nmtalign.toml in the current folder, or returns an empty workspace if there is none.

    Raises UsageError naming the file and the key for anything wrong in it.
    """
    path = config or Path(FILE_NAME)
    if config is None and not path.exists():
        return Workspace()
    table = _read_toml(path, given=config is not None)
    check_keys(str(path), table, _TOP)
    for name, known in SECTIONS.items():
        own = ("preset",) if name == "train" else ()
        check_keys(f"{path}: [{name}]", _table(path, table, name), (*own, *known))
    corpus = _table(path, table, "corpus")
    check_keys(f"{path}: [corpus]", corpus, (*_PAIRS, "gold", "tests"))
    pairs = {name: _pair(path, name, corpus[name]) for name in _PAIRS if name in corpus}
    more = _table(path, {"corpus.tests": corpus.get("tests", {})}, "corpus.tests")
    tests = {name: _pair(path, f"tests.{name}", pair) for name, pair in more.items()}
    settings: dict[str, Any] = {
        key: path.parent / _text(path, key, table[key]) for key in ("data", "model") if key in table
    }
    settings |= {key: _text(path, key, table[key]) for key in ("source_language", "target_language") if key in table}
    if "gold" in corpus:
        settings["gold"] = path.parent / _text(path, "gold", corpus["gold"])
    sections = {name: dict(_table(path, table, name)) for name in SECTIONS}
    for name, values in sections.items():
        for key in values:
            if key in SECTIONS[name] and SECTIONS[name][key].is_path and values[key]:
                values[key] = str(path.parent / _text(path, key, values[key]))
    return dataclasses.replace(Workspace(file=path, pairs=pairs, tests=tests, sections=sections), **settings)


def check_keys(origin: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first key that is not known; the message names the nearest known one."""
    names = list(known)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.0)
            raise UsageError(f"{origin}: unknown setting '{key}'; the nearest known one is '{near[0]}'")


def _read_toml(path: Path, given: bool) -> dict[str, Any]:
    try:
        if not given:
            return parse_toml(read_regular(path))
        with path.open("rb") as stream:  # --config may name a pipe: --config <(...)
            return parse_toml(stream.read(_MOST_BYTES))
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}; give an existing file with --config") from None
    except ValueError as error:
        raise UsageError(f"{path}: not a TOML file: {' '.join(str(error).split())}") from None


def _table(path: Path, table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = table.get(name, {})
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be a table: write [{name}] on a line of its own")
    return value


def _text(path: Path, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{path}: {key} = {value!r}: must be a text in quotes")
    return value


def _pair(path: Path, key: str, value: Any) -> tuple[Path, Path]:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) and part for part in value)):
        raise UsageError(f'{path}: [corpus] {key} = {value!r}: must be two files, as in ["{key}.en", "{key}.fr"]')
    return path.parent / value[0], path.parent / value[1]
