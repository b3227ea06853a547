"""What a setting is: its definition, its checks, and the errors that name a setting as the user wrote it.

The configuration classes in this folder define every setting once, by `setting` and `common`. The keys of
nmtalign.toml, the options of the commands, the keyword arguments in Python, the errors and the manual come from these
definitions.
"""

import contextlib
import dataclasses
import difflib
import json
import operator
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar, dataclass_transform, get_args, get_origin, get_type_hints

from nmtalign.errors import ResourceError, UsageError
from nmtalign.files import disk_errors, open_regular, parse_toml, read_json
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS

T = TypeVar("T")

Precision = Literal["auto", "fp32", "bf16"]
InferencePrecision = Literal["auto", "fp32", "bf16", "int8"]
Device = Literal["auto", "cpu", "cuda", "mps"]

DEVICE_HELP = "Device: auto is cuda if PyTorch sees a GPU, else cpu; mps is Apple's GPU (untested)."
PRECISION_HELP = "Precision of matrix products; auto is bf16 where it is faster than fp32, else fp32."
INFERENCE_PRECISION_HELP = (
    "Precision of matrix products; auto is bf16 on a GPU or with AMX, else int8 if the processor has instructions for "
    "it (VNNI), else fp32."
)

Affects = Literal["result", "printing", "budget", "machine"]
"""What a setting changes: the numbers and words that are computed, how they are printed or stored (also the exit code),
how long a training takes and how often it is validated, or only how the machine is used."""

Layer = tuple[str, Mapping[str, Any]]  # (where the settings come from, the settings)
Need = tuple[str, tuple[Any, ...], Mapping[str, tuple[Any, ...]]]
"""A setting, some of its values, and the values that other settings need then."""
Rules = Mapping[str, tuple[str, Callable[[Any], bool]]]
"""For settings that can be wrong together: what is allowed (formatted with the configuration), and when it is wrong."""
COMMAND_LINE = "command line"  # the origin of options
SET = "--set"  # the origin of `--set NAME=VALUE`, which belongs to the command line, too
_MOST_INTEGER = 2**31 - 1
_KINDS = {int: "a whole number", float: "a number", bool: "true or false", str: "a text"}


@dataclass(frozen=True)
class Setting:
    """The definition of a setting, and all that the rest of nmtalign distinguishes settings by.

    A `common` setting is an option of its command; every other one is a key of nmtalign.toml and of `--set`.
    """

    help: str
    common: bool = False
    affects: Affects = "result"
    loading: bool = False  # fixed when a model is loaded
    server_only: bool = False  # a client of `serve` may not change it
    adaptable: bool = False  # a model may differ in it from the model that its training starts from
    of_vocabulary: bool = False  # without effect if the vocabularies of a model or of another corpus are used
    since: str = ""  # the version that introduced it, if that was not the first one
    at_least: float = 0
    at_most: float | None = None
    above: float | None = None
    below: float | None = None
    form: Callable[[str, str], object] | None = None  # parses a text that is not empty; raises SettingError
    metavar: str = ""
    unset: str = ""  # the meaning of the default "" or None
    flags: str = ""  # "--on/--off" if the option of a setting that is true or false is not --name/--no-name
    is_path: bool = False  # relative to the folder of nmtalign.toml
    internal: bool = False  # computed by nmtalign: no option and no key of nmtalign.toml
    name: str = ""
    kind: Any = str
    default: Any = None

    def check(self, value: Any) -> None:
        """Raises SettingError for a value outside the bounds, or not a number (NaN)."""
        if self.form is not None and (value or self.default):
            self.form(self.name, value)
        if value is None or self.base not in (int, float):
            return
        largest = _MOST_INTEGER if self.base is int else sys.float_info.max  # the largest one that can be stored
        for bound, kept, rule in (
            (self.above, operator.gt, "greater than"),
            (self.at_least, operator.ge, "at least"),
            (largest if self.at_most is None and self.below is None else self.at_most, operator.le, "at most"),
            (self.below, operator.lt, "less than"),
        ):
            if bound is not None and not kept(value, bound):
                raise SettingError(f"must be {rule} {plain(bound)}", **{self.name: value})

    def convert(self, origin: str, value: Any) -> Any:
        """`value` as the type of the setting; raises UsageError that names the setting and what is allowed."""
        value = value.item() if getattr(value, "ndim", None) == 0 else value  # a number of NumPy or PyTorch
        number = isinstance(value, int | float) and not isinstance(value, bool)
        is_unset = value is None and type(None) in get_args(self.kind)
        if type(value) is self.base or value in self.choices or is_unset:
            return value
        if str(value) in self.choices or (self.base is str and (number or isinstance(value, os.PathLike))):
            return str(value)  # a choice may be an object with its name, such as a device of PyTorch
        if self.base is float and number:
            try:
                return float(value)
            except OverflowError:
                raise UsageError(f"{written(origin, self.name, value)}: is too large") from None
        rule = f"one of {', '.join(self.choices)}" if self.choices else _KINDS.get(self.base, self.base)
        raise UsageError(f"{written(origin, self.name, value)}: must be {rule}")

    def parse(self, text: str) -> Any:
        """The value of a text; a text that is not the number or switch that it should be fails in `convert`."""
        if self.base is bool:
            return {"true": True, "false": False}.get(text.lower(), text)
        if self.base in (int, float):
            with contextlib.suppress(ValueError):
                return self.base(text)
        return text

    @property
    def choices(self) -> tuple[str, ...]:
        """The values of a setting that has only a few; else ()."""
        return get_args(self.base) if get_origin(self.base) is Literal else ()

    @property
    def base(self) -> Any:
        """The type of a value that is not None."""
        kinds = get_args(self.kind)
        return kinds[0] if type(None) in kinds else self.kind

    @property
    def options(self) -> tuple[str, ...]:
        """The option on the command line; for a setting that is true or false also the option that turns it off."""
        if self.flags:
            return tuple(self.flags.split("/"))
        flag = self.name.replace("_", "-")
        return (f"--{flag}", f"--no-{flag}") if self.base is bool else (f"--{flag}",)


SECTIONS: dict[str, dict[str, Setting]] = {}
"""The settings of each section of nmtalign.toml, by name; filled by `Settings`."""
_UNDESCRIBED = Setting("")
_DEFINITIONS: dict[Any, Mapping[str, Setting]] = {}


def setting(default: T, help: str, path: str = "", **details: Any) -> T:  # noqa: A002
    """A field of a configuration dataclass; `details` are fields of `Setting`, `path` is the placeholder of a file."""
    details |= {"is_path": True, "metavar": path} if path else {}
    return dataclasses.field(default=default, metadata={"setting": Setting(help, **details)})


def common(default: T, help: str, path: str = "", **details: Any) -> T:  # noqa: A002
    """A `setting` that is also an option of its command."""
    return setting(default, help, path, common=True, **details)


def threads_setting(**details: Any) -> int:
    return setting(0, "CPU threads; 0 = automatic.", at_most=1000, affects="machine", **details)


@dataclass_transform(frozen_default=True)
class Settings:
    """A configuration dataclass; it raises SettingError for a value outside its bounds.

    `class XConfig(Settings, section="x")` adds its settings to section [x] of nmtalign.toml. Its `needs` and
    `rules` are about several settings together. Its `unused` tell when settings have no effect (`without_effect`).
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]
    section: ClassVar[str]
    needs: ClassVar[Sequence[Need]] = ()
    rules: ClassVar[Rules] = {}
    unused: ClassVar[Rules] = {}

    def __init_subclass__(cls, section: str) -> None:
        dataclass(frozen=True)(cls)
        cls.section = section
        public = {name: one for name, one in definitions(cls).items() if not one.internal}
        SECTIONS.setdefault(section, {}).update(public)

    def __post_init__(self) -> None:
        for name, one in definitions(type(self)).items():
            one.check(getattr(self, name))
        for name, values, needed in self.needs:
            for other, allowed in needed.items() if getattr(self, name) in values else ():
                if getattr(self, other) not in allowed:
                    wanted = " or ".join(str(value).lower() for value in allowed)
                    given = {one: getattr(self, one) for one in (name, other)}
                    raise SettingError(f"needs {other} = {wanted}", **given)
        for names, (rule, is_wrong) in self.rules.items():
            if is_wrong(self):
                raise SettingError(rule.format(self), **{name: getattr(self, name) for name in names.split()})


def definitions(cls: Any) -> Mapping[str, Setting]:
    """The settings of a configuration dataclass, by name and in order; of another dataclass, its fields."""
    if cls not in _DEFINITIONS:
        kinds = get_type_hints(cls)
        _DEFINITIONS[cls] = {
            one.name: dataclasses.replace(
                one.metadata.get("setting", _UNDESCRIBED), name=one.name, kind=kinds[one.name], default=one.default
            )
            for one in dataclasses.fields(cls)
        }
    return _DEFINITIONS[cls]


def select(cls: Any, wanted: Callable[[Setting], bool]) -> dict[str, Setting]:
    """The settings of a configuration dataclass for which `wanted` is true, by name and in order."""
    return {name: one for name, one in definitions(cls).items() if wanted(one)}


class SettingError(UsageError):
    """A setting that cannot have its value, or settings that exclude each other; `rule` states what is allowed.

    `naming` replaces it by a UsageError that names the settings as the user wrote them. Without values the rule is the
    complete message, so that an error can be made from the message of another one, as from a worker process.
    """

    def __init__(self, rule: str, **values: Any) -> None:
        self.rule, self.values = rule, values
        super().__init__(self.named())

    def named(self, *layers: Layer) -> str:
        """The message for settings from these layers, of which later ones have precedence.

        The setting from the last layer comes first, because the user probably changed it last.
        """
        levels = {
            name: max((i for i, (_, values) in enumerate(layers) if name in values), default=-1) for name in self.values
        }
        parts = []
        for name in sorted(levels, key=lambda name: -levels[name]):
            if not layers:
                parts.append(f"{name} = {self.values[name]!r}")
            elif levels[name] < 0:
                parts.append(f"{name} = {shortened(toml(self.values[name]))} (the default)")
            else:
                origin, values = layers[levels[name]]
                parts.append(written(origin, name, values[name]))
        if not parts:
            return self.rule
        first, *others = parts
        return f"{first}{' does not go with ' + ' and '.join(others) if others else ''}: {self.rule}"


@contextlib.contextmanager
def naming(*layers: Layer) -> Iterator[None]:
    """Makes every SettingError inside name its settings as they are written in these layers."""
    try:
        yield
    except SettingError as error:
        raise UsageError(error.named(*layers)) from None


def written(origin: str, name: str, value: Any) -> str:
    """A setting as the user wrote it: `--n-best 20`, or `nmtalign.toml: [translate] n_best = 20`."""
    if origin not in (COMMAND_LINE, SET):
        return f"{origin}{' ' if origin.endswith(']') else ': '}{name} = {shortened(toml(value))}"
    if isinstance(value, bool):
        return option(name, value) if origin == COMMAND_LINE else f"{SET} {name}={toml(value)}"
    text = shortened(plain(value))
    return f"{option(name)} {text}" if origin == COMMAND_LINE else f"{SET} {name}={text}"


def option(name: str, value: bool = True) -> str:
    """The command-line option of a setting; for a setting that is true or false, the option of that value."""
    found = next((one[name] for one in SECTIONS.values() if name in one), dataclasses.replace(_UNDESCRIBED, name=name))
    return found.options[0] if value else found.options[-1]


def toml(value: Any) -> str:
    """A value in TOML's notation."""
    return str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)


def plain(value: Any) -> str:
    """A value as a user would write it."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def shortened(text: str) -> str:
    return text if len(text) <= 60 else f"{text[:57]}..."


def resolve(cls: type[T], *layers: Layer) -> T:
    """Makes `cls` of layers (origin, values); later layers have precedence, keys of other classes are ignored.

    The command line, nmtalign.toml and Python all use this function, so a setting means the same in each of them.
    Values are converted to the types of the fields. Raises UsageError that names each setting as its layer has it.
    """
    known, complete = definitions(cls), with_implied(cls, *layers)
    given = ((origin, key, value) for origin, values in complete for key, value in values.items() if key in known)
    merged = {key: known[key].convert(origin, value) for origin, key, value in given}
    with naming(*complete):
        return cls(**merged)


@contextlib.contextmanager
def resolved(function: str, cls: type[T], config: T | None, arguments: Mapping[str, Any]) -> Iterator[T]:
    """Yields `config`, or else the settings of a public function, whose errors then name them; raises UsageError."""
    if config is not None:
        yield config
        return
    layer = argument_layer(function, arguments, cls)
    with naming(layer):
        yield resolve(cls, layer)


def argument_layer(function: str, arguments: Mapping[str, Any], *classes: type) -> Layer:
    """The keyword arguments of a public function as a layer of settings; raises UsageError for an unknown one."""
    known = [name for cls in classes for name, one in definitions(cls).items() if not one.internal]
    check_keys(f"nmtalign.{function}", arguments, known)
    return f"nmtalign.{function}", arguments


def without_effect(settings: Any, *layers: Layer) -> Iterator[str]:
    """Yields the settings of the command line that have no effect, with the reason; presets may have unused ones."""
    known = definitions(type(settings))
    given = {name: origin for origin, values in layers if origin in (COMMAND_LINE, SET) for name in values}
    for names, (reason, is_unused) in settings.unused.items():
        for name in names.split() if is_unused(settings) else ():
            value = getattr(settings, name)
            if name in given and value != known[name].default:
                yield f"{written(given[name], name, value)} has no effect: {reason}"


@dataclass(frozen=True)
class Implication:
    """What a setting implies for others of its section, once it has `value`, or without `value` any but 0, "" or None.

    `defaults` replace the defaults of other settings. `replaces` selects settings that are ignored in earlier layers;
    if it `excludes` them, they are an error in the same layer or a later one.
    """

    section: str
    name: str
    value: Any = None
    unless: str = ""  # a setting with which nothing is implied
    defaults: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    replaces: Callable[[Setting], bool] = lambda one: False
    excludes: bool = False


IMPLICATIONS = (
    Implication("prep", "vocabulary_from", replaces=lambda one: one.of_vocabulary, excludes=True),
    # The code released with the article maximises the sum of log-probabilities, and forbids `</s>` before half the
    # source length.
    Implication("translate", "search", "paper", defaults={"length_penalty": 0.0, "min_length_ratio": 0.5}),
    # A lexicon restricts the search to its words and the most frequent ones, unless it replaces unknown words.
    Implication("translate", "lexicon", unless="replace_unk", defaults={"candidates": 2000}),
    # A paragraph of a document has several sentences.
    Implication("translate", "markup", defaults={"split_sentences": True}),
    Implication("align", "threshold", replaces=lambda one: one.name == "links"),
)
"""All that settings imply for others."""


def with_implied(cls: Any, *layers: Layer) -> tuple[Layer, ...]:
    """The layers with all that IMPLICATIONS add to them or remove from them."""
    given = {name: value for _, values in layers for name, value in values.items()}
    for rule in (one for one in IMPLICATIONS if one.section == getattr(cls, "section", "")):
        value = given.get(rule.name)
        if not (value == rule.value if rule.value else value) or given.get(rule.unless):
            continue
        replaced = select(cls, rule.replaces)
        places = [place - (origin == SET) for place, (origin, _) in enumerate(layers)]  # options and `--set` are alike
        last = max(place for place, (_, values) in zip(places, layers, strict=True) if rule.name in values)
        kept = []
        for place, (origin, values) in zip(places, layers, strict=True):
            void = {name: values[name] for name in values if name in replaced}
            if void and place >= last and rule.excludes:
                message = f"the vocabularies are those of {given[rule.name]}; leave out either"
                raise UsageError(SettingError(message, **void, **{rule.name: given[rule.name]}).named(*layers))
            kept.append((origin, values if place >= last else {k: v for k, v in values.items() if k not in void}))
        layers = (f"{rule.name} {given[rule.name]}", rule.defaults), *kept
    return layers


def pair_of_sizes(name: str, text: str) -> tuple[int, int]:
    """(N, N) of "N", (N, M) of "N:M"; each at least 3 (`</s>`, `<unk>` and one word)."""
    match = re.fullmatch(r"(\d{1,9})(?::(\d{1,9}))?", text.strip())
    if not match or min(sizes := (int(match[1]), int(match[2] or match[1]))) < 3:
        raise SettingError("give N or N:M (source:target), each at least 3", **{name: text})
    return sizes


def two_columns(name: str, text: str) -> tuple[str, str]:
    """("en", "fr") of "en,fr"."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != 2 or "" in parts or parts[0] == parts[1]:
        raise SettingError("give the source and the target column, such as en,fr or 3,4", **{name: text})
    return parts[0], parts[1]


_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)\s*"  # so that no size and no time is too large to compute with
_DURATION = re.compile(
    rf"(?:{_NUMBER}h(?:ours?|rs?)?\s*)?(?:{_NUMBER}m(?:in(?:utes?|s)?)?\s*)?(?:{_NUMBER}s(?:ec(?:onds?|s)?)?)?"
)


def seconds(name: str, text: str) -> float:
    """Seconds of "60s", "15m", "2h", "1h30m", "90 min", "1.5 hours" or "01:30:00"."""
    clock = re.fullmatch(r"(\d{1,12}):([0-5]\d):([0-5]\d)", text.strip())
    match = clock or _DURATION.fullmatch(text.strip().lower())
    parts = [float(part or 0) for part in match.groups()] if match else [0.0]
    if not any(parts):
        raise SettingError("give a time such as 60s, 15m, 2h or 1h30m", **{name: text})
    return sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=True))


def byte_count(name: str, text: str) -> int:
    """Bytes of "500M", "2G", "1.5GB" (powers of 1024) or a plain number."""
    match = re.fullmatch(rf"{_NUMBER}([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    size = int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " ")) if match else 0
    if not size:
        raise SettingError("give a size such as 500M or 2G", **{name: text})
    return size


def interval(name: str, text: str) -> tuple[Literal["updates", "seconds", "epoch"], float]:
    """("updates", 1000) of "1000", ("seconds", 600) of "10m", ("epoch", 1) of "epoch"."""
    if text == "epoch":
        return "epoch", 1.0
    if re.fullmatch(r"[1-9]\d{0,11}", text.strip()):
        return "updates", float(text)
    try:
        return "seconds", seconds(name, text)
    except SettingError:
        raise SettingError("give updates (1000), a time (10m) or `epoch`", **{name: text}) from None


StrPath = str | Path
FilePair = tuple[Path, Path]  # (source, target)
PathPair = tuple[Path, Path | None]  # the same, or (one file of both languages, None)

FILE_NAME = "nmtalign.toml"
SUMMARY_FILE = "summary.json"  # the numbers of prep, beside the corpus
_MOST_BYTES = 1 << 20  # the largest settings file
_TOP = ("source_language", "target_language", "data", "model")  # the keys before the first section
_PAIRS = ("train", "dev", "test")
_LONGEST_NAME = 255  # bytes, on most file systems


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
    def test_files(self) -> FilePair | None:
        """The test set as two files: those of nmtalign.toml, else those that prep wrote into the data folder."""
        source, target = self.pairs.get("test", (None, None))
        if source and target:
            return source, target
        names = stored_texts(self.data).get("test")
        return (self.data / names[0], self.data / names[1]) if names else None

    def section(self, name: str) -> Layer:
        """The layer of section `name`: where the settings come from, and the settings."""
        return f"{self.file or FILE_NAME}: [{name}]", self.sections.get(name, {})


def stored_texts(data: Path) -> dict[str, tuple[str, str]]:
    """The names of the text files (source, target) that prep wrote into its folder, by set."""
    with contextlib.suppress(OSError, ResourceError, ValueError, KeyError, TypeError, AttributeError):
        found = {name: (str(pair[0]), str(pair[1])) for name, pair in read_json(data / SUMMARY_FILE)["texts"].items()}
        return {name: pair for name, pair in found.items() if all(Path(one).name == one for one in pair)}
    return {}


def load_workspace(config: Path | None) -> Workspace:
    """Reads `config`, or nmtalign.toml if it is in the current folder; raises UsageError that names file and key."""
    path = config or Path(FILE_NAME)
    if config is None and not (path.exists() or path.is_symlink()):
        return Workspace()
    table, lines = _read_toml(path, given=config is not None)
    known = {"corpus": [*_PAIRS, "gold", "tests"], **{name: [*settings] for name, settings in SECTIONS.items()}}
    known = {"": [*_TOP, *known], **known, "train": ["preset", *known["train"]]}
    for name in known:
        keys = _table(path, table, name) if name else table
        if unknown := [key for key in keys if key not in known[name]]:
            _refuse_key(path, lines, known, name, unknown[0])
    corpus = _table(path, table, "corpus")
    tests = _table(path, {"corpus.tests": corpus.get("tests", {})}, "corpus.tests")
    names: dict[str, Any] = {key: _text(str(path), key, table[key]) for key in _TOP if key in table}
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


def _refuse_key(path: Path, lines: Sequence[str], known: Mapping[str, Sequence[str]], name: str, key: str) -> None:
    """Raises UsageError for an unknown key of a section ("" is the part before the first one), with its line."""
    origin = f"{path}{_line_of(lines, name, key)}: {f'[{name}]: ' if name else ''}"
    if homes := [section for section, keys in known.items() if section and key in keys]:
        raise UsageError(f"{origin}'{key}' belongs in {' or '.join(f'[{home}]' for home in homes)}")
    if name and key in _TOP:
        raise UsageError(f"{origin}'{key}' belongs before the first [section]")
    check_keys(origin.removesuffix(": "), [key], known[name])


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
        # --config may name a pipe: --config <(...)
        with disk_errors(path, "read"), path.open("rb") if given else open_regular(path) as stream:
            data = stream.read(_MOST_BYTES)
            if stream.read(1):
                raise ValueError("larger than 1 MiB")
        return parse_toml(data), data.decode("utf-8-sig").split("\n")
    except OSError as error:
        raise UsageError(f"{path}: cannot read: {error.strerror}; give an existing file with --config") from None
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise UsageError(f"{path}: not a TOML file: {reason}{_hint(data, reason)}") from None


def _hint(data: bytes, reason: str) -> str:
    """How to correct the line that is no TOML, if its mistake is a usual one; else ""."""
    place = re.search(r"at line (\d+)", reason)
    line = data.decode("utf-8-sig", "replace").split("\n")[int(place[1]) - 1].strip() if place else ""
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
