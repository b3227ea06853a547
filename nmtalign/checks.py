"""Checks of settings, errors that name a setting as the user wrote it, and the parsers of sizes, times, intervals."""

import contextlib
import functools
import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from nmtalign.errors import UsageError

Layer = tuple[str, Mapping[str, Any]]  # (where the settings come from, the settings)
COMMAND_LINE = "command line"
# Options that are not `--name-of-the-setting`: (that of True, that of False).
_OPTIONS: Mapping[str, tuple[str, str]] = {
    "bidirectional": ("--bidirectional", "--unidirectional"),
    "cumulative": ("--cumulative", "--apart"),
    "drop_duplicates": ("--drop-duplicates", "--keep-duplicates"),
    "drop_end": ("--drop-end", "--keep-end"),
    "lowercase": ("--lowercase", "--cased"),
    "no_unk": ("--known-words", "--all-words"),
    "readout_previous_word": ("--readout-word", "--no-readout-word"),
    "tokenized": ("--tokenized", "--raw"),
}


class SettingError(UsageError):
    """A setting that cannot have its value, or settings that do not go together; `rule` says what would be right.

    `naming` replaces it by a UsageError that names the settings as the user wrote them.
    """

    def __init__(self, rule: str, **values: Any) -> None:
        self.rule, self.values = rule, values
        super().__init__(self.named())

    def __reduce__(self) -> tuple[Any, ...]:
        return functools.partial(SettingError, self.rule, **self.values), ()  # so that a worker process can raise it

    def named(self, *layers: Layer) -> str:
        """The message, given the layers that the settings come from, later ones over earlier ones.

        The setting that was changed last comes first.
        """
        levels = {
            name: max((i for i, (_, layer) in enumerate(layers, 1) if name in layer), default=0) for name in self.values
        }
        first, *others = (
            _from_layer(layers, levels[name], name, self.values[name])
            for name in sorted(levels, key=lambda name: -levels[name])
        )
        return f"{first}{' does not go with ' + ' and '.join(others) if others else ''}: {self.rule}"


def _from_layer(layers: tuple[Layer, ...], level: int, name: str, value: Any) -> str:
    if not layers:
        return f"{name} = {value!r}"
    if not level:
        return f"{name} = {toml(value)} (the default)"
    origin, values = layers[level - 1]
    return written(origin, name, values[name])


@contextlib.contextmanager
def naming(*layers: Layer) -> Iterator[None]:
    """Makes every SettingError inside name its settings as they are written in these layers."""
    try:
        yield
    except SettingError as error:
        raise UsageError(error.named(*layers)) from None


def written(origin: str, name: str, value: Any) -> str:
    """A setting as the user wrote it: `--n-best 20`, or `nmtalign.toml: [translate] n_best = 20`."""
    if origin != COMMAND_LINE:
        return f"{origin}{' ' if origin.endswith(']') else ': '}{name} = {toml(value)}"
    return option(name, value) if isinstance(value, bool) else f"{option(name)} {value}"


def option(name: str, value: bool = True) -> str:
    """The command-line option of a setting; for a setting that is true or false, the option of that value."""
    flag = name.replace("_", "-")
    return _OPTIONS.get(name, (f"--{flag}", f"--no-{flag}"))[not value]


def toml(value: Any) -> str:
    """A value as TOML has it, shortened where it is very long."""
    text = str(value) if isinstance(value, float) else json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else f"{text[:57]}..."


def at_least(low: float, **values: float) -> None:
    """Raises SettingError for the first value under `low`, or that is no number at all (NaN)."""
    for name, value in values.items():
        if not value >= low:
            raise SettingError(f"must be at least {low:g}", **{name: value})


def at_most(high: float, **values: float) -> None:
    """Raises SettingError for the first value above `high`, or that is no number at all (NaN)."""
    for name, value in values.items():
        if not value <= high:
            raise SettingError(f"must be at most {high:.7g}", **{name: value})


def above_zero(**values: float) -> None:
    """Raises SettingError for the first value that is not greater than 0."""
    for name, value in values.items():
        if not value > 0:
            raise SettingError("must be greater than 0", **{name: value})


def finite(**values: float) -> None:
    """Raises SettingError for the first value that is infinite or no number at all."""
    for name, value in values.items():
        if not math.isfinite(value):
            raise SettingError("must be a finite number", **{name: value})


def fraction(**values: float) -> None:
    """Raises SettingError for the first value outside [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise SettingError("must be at least 0 and less than 1", **{name: value})


def pair_of_sizes(name: str, text: str) -> tuple[int, int]:
    """(N, N) of "N", (N, M) of "N:M"; each at least 3 (`</s>`, `<unk>` and one word)."""
    match = re.fullmatch(r"(\d+)(?::(\d+))?", text.strip())
    if not match or min(sizes := (int(match[1]), int(match[2] or match[1]))) < 3:
        raise SettingError("give N or N:M (source:target), each at least 3", **{name: text})
    return sizes


def seconds(name: str, text: str) -> float:
    """Seconds of "60s", "15m", "2h"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([smh])", text.strip())
    if not match or float(match[1]) == 0:
        raise SettingError("give a time such as 60s, 15m or 2h", **{name: text})
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


def byte_count(name: str, text: str) -> int:
    """Bytes of "500M", "2G", "1.5GB" (powers of 1024) or a plain number."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if not match or float(match[1]) == 0:
        raise SettingError("give a size such as 500M or 2G", **{name: text})
    return int(float(match[1]) * 1024 ** " KMGT".index(match[2].upper() or " "))


def interval(name: str, text: str) -> tuple[Literal["updates", "seconds", "epoch"], float]:
    """("updates", 1000) of "1000", ("seconds", 600) of "10m", ("epoch", 1) of "epoch"."""
    if text == "epoch":
        return "epoch", 1.0
    if re.fullmatch(r"[1-9]\d*", text.strip()):
        return "updates", float(text)
    try:
        return "seconds", seconds(name, text)
    except SettingError:
        raise SettingError("give updates (1000), a time (10m) or `epoch`", **{name: text}) from None
