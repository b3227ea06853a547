"""`nmtalign.toml`: a file that names corpus, languages, folders and settings, so that commands need no arguments."""

import contextlib
import difflib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from nmtalign.errors import UsageError
from nmtalign.files import parse_toml, read_json, read_regular
from nmtalign.settings.definition import COMMAND_LINE, SECTIONS, Layer, written
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS

T = TypeVar("T")
FilePair = tuple[Path, Path]  # (source, target)
PathPair = tuple[Path, Path | None]  # the same, or (a TSV or TMX file, None)

FILE_NAME = "nmtalign.toml"
SUMMARY_FILE = "summary.json"  # the numbers of prep, beside the corpus
_MOST_BYTES = 16 << 20  # the largest settings file
_TOP = ("source_language", "target_language", "data", "model", "corpus", *SECTIONS)
_PAIRS = ("train", "dev", "test")
_LONGEST_NAME = 255  # bytes, on most file systems
_KEYS: Mapping[str, Iterable[str]] = {  # of each section
    "corpus": (*_PAIRS, "gold", "tests"),
    **SECTIONS,
    "train": ("preset", *SECTIONS["train"]),
}


@dataclass(frozen=True)
class Workspace:
    """The content of nmtalign.toml. Relative paths start at the folder of the file.

    If the file does not name `data` and `model`, they are folders in the current folder.
    """

    file: Path | None = None
    source_language: str | None = None
    target_language: str | None = None
    data: Path = Path("data")
    model: Path = Path("model")
    pairs: Mapping[str, PathPair] = field(default_factory=dict)  # train, dev, test
    tests: Mapping[str, FilePair] = field(default_factory=dict)  # further test sets, by name
    gold: Path | None = None
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def file_pairs(self) -> Mapping[str, FilePair]:
        """The texts of `pairs` that are two files."""
        return {name: (source, target) for name, (source, target) in self.pairs.items() if target is not None}

    @property
    def own(self) -> tuple[Path | None, ...]:
        """What no command may replace by another file: nmtalign.toml, and the files of the corpus and the model."""
        return self.file, self.data, self.model

    @property
    def test_files(self) -> FilePair | None:
        """The test set as two files: those of nmtalign.toml, else those that prep wrote into the data folder."""
        if "test" in self.file_pairs:
            return self.file_pairs["test"]
        names = stored_texts(self.data).get("test")
        return (self.data / names[0], self.data / names[1]) if names else None

    def section(self, name: str) -> Layer:
        """The layer of section `name`: where the settings come from, and the settings."""
        return f"{self.file or FILE_NAME}: [{name}]", self.sections.get(name, {})

    def preset(self, name: str | None) -> str:
        """The name of the preset: `name`, or that of section [train]."""
        return name or str(self.section("train")[1].get("preset", DEFAULT_PRESET))


def stored_texts(data: Path) -> dict[str, tuple[str, str]]:
    """The names of the text files (source, target) that prep wrote into its folder, by set."""
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
        found = {name: (str(pair[0]), str(pair[1])) for name, pair in read_json(data / SUMMARY_FILE)["texts"].items()}
        return {name: pair for name, pair in found.items() if all(Path(one).name == one for one in pair)}
    return {}


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
    table, lines = _read_toml(path, given=config is not None)
    _check_section(path, lines, "", table, _TOP)
    for name, keys in _KEYS.items():
        _check_section(path, lines, name, _table(path, table, name), keys)
    corpus = _table(path, table, "corpus")
    tests = _table(path, {"corpus.tests": corpus.get("tests", {})}, "corpus.tests")
    names: dict[str, Any] = {key: _text(str(path), key, table[key]) for key in _TOP[:4] if key in table}
    pairs: dict[str, PathPair] = {}
    for name in (name for name in _PAIRS if name in corpus):
        one_file = isinstance(corpus[name], str) and corpus[name]  # a TSV or TMX file
        file = path.parent / _text(f"{path}: [corpus]", name, corpus[name]) if one_file else None
        pairs[name] = (file, None) if file else _pair(path, name, corpus[name])
    return Workspace(
        path,
        **{key: path.parent / name if key in ("data", "model") else name for key, name in names.items()},
        pairs=pairs,
        tests={name: _pair(path, f"tests.{name}", pair) for name, pair in tests.items()},
        gold=path.parent / _text(f"{path}: [corpus]", "gold", corpus["gold"]) if "gold" in corpus else None,
        sections={name: _section(path, name, _table(path, table, name)) for name in SECTIONS},
    )


def _section(path: Path, name: str, table: Mapping[str, Any]) -> Mapping[str, Any]:
    """The settings of a section, with paths relative to the current folder; raises UsageError for an unknown preset."""
    origin, known = f"{path}: [{name}]", SECTIONS[name]
    if name == "train" and table.get("preset", DEFAULT_PRESET) not in [*PRESETS]:
        raise UsageError(f"{written(origin, 'preset', table['preset'])}: must be one of {', '.join(PRESETS)}")
    paths = {key for key, value in table.items() if value and key in known and known[key].is_path}
    return {**table, **{key: str(path.parent / _text(origin, key, table[key])) for key in paths}}


def _check_section(path: Path, lines: Sequence[str], name: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first unknown key of a section ("" is the part before the first one), with its line."""
    known = list(known)
    for key in keys:
        if key in known:
            continue
        origin = f"{path}{_line_of(lines, name, key)}: {f'[{name}]: ' if name else ''}"
        homes = [section for section, keys in _KEYS.items() if key in keys]
        if homes:
            raise UsageError(f"{origin}'{key}' belongs in {' or '.join(f'[{home}]' for home in homes)}")
        if name and key in _TOP[:4]:
            raise UsageError(f"{origin}'{key}' belongs before the first [section]")
        check_keys(origin.removesuffix(": "), [key], known)


def _line_of(lines: Sequence[str], section: str, key: str) -> str:
    """The line of a key of a section, or of a section, as ": line 3"; "" if it is written in an unusual way."""
    current = ""
    for number, line in enumerate(lines, 1):
        head = re.match(r"\s*\[([^\[\]]+)\]", line)
        current = head[1].strip() if head else current
        assigned = re.match(rf"\s*[\"']?{re.escape(key)}[\"']?\s*=", line)
        if (current == section and assigned) or (head and not section and current.split(".")[0] == key):
            return f": line {number}"
    return ""


def check_keys(origin: str, keys: Iterable[str], known: Iterable[str]) -> None:
    """Raises UsageError for the first unknown key; the message names the most similar known one."""
    names = list(known)
    for key in keys:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1, cutoff=0.0)
            raise UsageError(f"{origin}: unknown setting '{key}'; the nearest known one is '{near[0]}'")


def _read_toml(path: Path, given: bool) -> tuple[dict[str, Any], Sequence[str]]:
    """The table of the file, and its lines."""
    data = b""
    try:
        if given:
            with path.open("rb") as stream:  # --config may name a pipe: --config <(...)
                data = stream.read(_MOST_BYTES)
        else:
            data = read_regular(path)
        return parse_toml(data), data.decode().split("\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}; give an existing file with --config") from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: not a TOML file: {reason}{_hint(data, reason)}") from None


def _hint(data: bytes, reason: str) -> str:
    """How to correct the line that is no TOML, if its mistake is a usual one; else ""."""
    place = re.search(r"at line (\d+)", reason)
    line = data.decode(errors="replace").split("\n")[int(place[1]) - 1].strip() if place else ""
    key, equals, value = (part.strip() for part in line.partition("="))
    if value in ("True", "False"):
        return f"; write {key} = {value.lower()}"
    if equals and re.match(r"[^\W\d]|[./~\\]|\d+[smh]", value):
        return f'; a text is written in quotes: {key} = "{value}"'
    if not equals and (match := re.fullmatch(r"([\w-]+)\s*[: ]\s*(.+)", line)):
        return f"; write {match[1]} = {match[2]}"
    return ""


def _table(path: Path, table: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = table.get(name, {})
    if isinstance(value, list | str) and name in _PAIRS:
        raise UsageError(f"{path}: '{name}' names texts, and belongs in [corpus]")
    if not isinstance(value, dict):
        raise UsageError(f"{path}: {name} must be a table: write [{name}] on a separate line")
    return value


def _text(origin: str, key: str, value: Any) -> str:
    if not isinstance(value, str) or not value:
        raise UsageError(f"{written(origin, key, value)}: must be a text in quotes")
    if "\0" in value or value == "-" or any(len(os.fsencode(part)) > _LONGEST_NAME for part in value.split("/")):
        raise UsageError(f"{written(origin, key, value)}: cannot be the name of a file")
    return value


def _pair(path: Path, key: str, value: Any) -> FilePair:
    origin = f"{path}: [corpus]"
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) and part for part in value)):
        raise UsageError(f'{written(origin, key, value)}: must be two files, as in ["{key}.en", "{key}.fr"]')
    source, target = (path.parent / _text(origin, key, part) for part in value)
    return source, target
