"""`nmtalign.toml`: a file that names corpus, languages, folders and settings, so that commands need no arguments."""

import difflib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nmtalign.errors import UsageError
from nmtalign.settings.definition import COMMAND_LINE, SECTIONS, Layer, written
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS, settings_of
from nmtalign.untrusted import parse_toml, read_regular

T = TypeVar("T")
PathPair = tuple[Path, Path]  # (source, target)

FILE_NAME = "nmtalign.toml"
_MOST_BYTES = 16 << 20  # the largest settings file
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
    pairs: Mapping[str, PathPair] = field(default_factory=dict)  # train, dev, test
    tests: Mapping[str, PathPair] = field(default_factory=dict)  # further test sets, by name
    gold: Path | None = None
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def section(self, name: str) -> Layer:
        """The layer of section `name`: where the settings come from, and the settings."""
        return f"{self.file or FILE_NAME}: [{name}]", self.sections.get(name, {})

    def layers(self, name: str, flags: Mapping[str, Any]) -> tuple[Layer, ...]:
        """The layers of the settings of section `name`: the file, then the command line, which has precedence."""
        return self.section(name), given(flags)

    def resolve(self, cls: type[T], name: str, flags: Mapping[str, Any]) -> T:
        """The settings `cls` of section `name`; flags that are not None have precedence."""
        return settings_of(cls, *self.layers(name, flags))

    def preset(self, name: str | None) -> str:
        """The name of the preset: `name`, or that of section [train]."""
        return name or str(self.section("train")[1].get("preset", DEFAULT_PRESET))


def given(flags: Mapping[str, Any]) -> Layer:
    """The layer of the command line: the flags that are not None."""
    return COMMAND_LINE, {key: value for key, value in flags.items() if value is not None}


def load_workspace(config: Path | None) -> Workspace:
    """Reads `config`, or nmtalign.toml in the current folder, or returns an empty workspace if there is none.

    Raises UsageError that names the file and the key of any mistake.
    """
    path = config or Path(FILE_NAME)
    if config is None and not path.exists():
        return Workspace()
    table = _read_toml(path, given=config is not None)
    check_keys(str(path), table, _TOP)
    corpus = _table(path, table, "corpus")
    check_keys(f"{path}: [corpus]", corpus, (*_PAIRS, "gold", "tests"))
    tests = _table(path, {"corpus.tests": corpus.get("tests", {})}, "corpus.tests")
    found = {key: _text(path, key, table[key]) for key in _TOP[:4] if key in table}
    folders = {key: path.parent / found[key] for key in ("data", "model") if key in found}
    return Workspace(
        path,
        found.get("source_language"),
        found.get("target_language"),
        folders.get("data", Workspace.data),
        folders.get("model", Workspace.model),
        {name: _pair(path, name, corpus[name]) for name in _PAIRS if name in corpus},
        {name: _pair(path, f"tests.{name}", pair) for name, pair in tests.items()},
        path.parent / _text(path, "[corpus] gold", corpus["gold"]) if "gold" in corpus else None,
        {name: _section(path, name, _table(path, table, name)) for name in SECTIONS},
    )


def _section(path: Path, name: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a section, with paths relative to the current folder; raises UsageError for an unknown key."""
    origin, known = f"{path}: [{name}]", SECTIONS[name]
    check_keys(origin, table, (*known, "preset") if name == "train" else known)
    if name == "train" and table.get("preset", DEFAULT_PRESET) not in PRESETS:
        raise UsageError(f"{written(origin, 'preset', table['preset'])}: must be one of {', '.join(PRESETS)}")
    paths = {key for key, value in table.items() if value and key in known and known[key].is_path}
    return {**table, **{key: str(path.parent / _text(origin, key, table[key])) for key in paths}}


def check_keys(origin: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first unknown key; the message names the most similar known one."""
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
        raise UsageError(f"{path}: {name} must be a table: write [{name}] on a separate line")
    return value


def _text(origin: Path | str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{origin}: {key} = {value!r}: must be a text in quotes")
    return value


def _pair(path: Path, key: str, value: Any) -> PathPair:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) and part for part in value)):
        raise UsageError(f'{path}: [corpus] {key} = {value!r}: must be two files, as in ["{key}.en", "{key}.fr"]')
    return path.parent / value[0], path.parent / value[1]
