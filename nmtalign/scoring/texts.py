"""The texts to score, one sentence per line, and scores that other programs gave to these lines."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.errors import InputError, UsageError
from nmtalign.text.lines import read_lines, shown

_NUMBER = re.compile(r"\s*[-+]?(\d+\.?\d*|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)


@dataclass(frozen=True)
class Text:
    """The lines of a file and the name that errors give it."""

    name: str
    lines: Sequence[str]


@dataclass(frozen=True)
class SystemTexts:
    """The texts of a scoring, all with the same number of lines."""

    names: tuple[str, ...]  # of the systems
    systems: tuple[Text, ...]
    references: tuple[Text, ...]
    source: Text | None = None
    segment_scores: Mapping[str, Sequence[Sequence[float]]] = field(default_factory=dict)  # metric: for each system

    @property
    def system_lines(self) -> list[Sequence[str]]:
        """The lines of each system."""
        return [system.lines for system in self.systems]

    @property
    def reference_lines(self) -> list[Sequence[str]]:
        """The lines of each reference."""
        return [reference.lines for reference in self.references]

    @property
    def source_lines(self) -> Sequence[str] | None:
        """The lines of the source, if it is given."""
        return self.source.lines if self.source else None


def read_text(path: Path) -> Text:
    """Reads a text or .gz file, or stdin for `-`; raises InputError if it is missing, not UTF-8 or has no line."""
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{shown(path)}: is empty; nothing to score")
    return Text(shown(path), lines)


def check_aligned(texts: Sequence[Text]) -> None:
    """Raises InputError naming the first missing line if a text has another line count than the first text."""
    first = texts[0]
    for text in texts[1:]:
        if len(text.lines) != len(first.lines):
            short, long = sorted((first, text), key=lambda item: len(item.lines))
            raise InputError(
                f"{short.name}: has no line {len(short.lines) + 1}: it has {_count(short)}, "
                f"but {long.name} has {_count(long)}; give files with one line per sentence"
            )


def _count(text: Text) -> str:
    return f"{len(text.lines)} line{'' if len(text.lines) == 1 else 's'}"


def group_segment_scores(
    given: Sequence[tuple[str, Path]], systems: int, reserved: Sequence[str]
) -> dict[str, list[Path]]:
    """The files of each metric: the first file of a metric belongs to the first system, the second to the second.

    Raises UsageError for a metric without a name or with one of the `reserved` names, and for other numbers of files.
    """
    files: dict[str, list[Path]] = {}
    for metric, path in given:
        if not metric or not re.fullmatch(r"[^\s|,]+", metric):
            raise UsageError(f"--segment-scores {path}: give METRIC=FILE, a metric's name without blanks, commas or |")
        if metric.lower() in {name.lower() for name in reserved}:
            raise UsageError(f"--segment-scores {metric}={path}: nmtalign computes {metric}; give another name")
        files.setdefault(metric, []).append(path)
    for metric, paths in files.items():
        if len(paths) != systems:
            raise UsageError(
                f"--segment-scores {metric}: {_plural(len(paths), 'file')} for {_plural(systems, 'system')}; give "
                f"{metric}=FILE once for each system, in the order of the systems"
            )
    return files


def _plural(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"


def read_segment_scores(path: Path, aligned: Text) -> list[float]:
    """The number in each line of a file, one for each line of `aligned`; raises InputError naming file and line."""
    text = read_text(path)
    check_aligned([aligned, text])
    scores = []
    for number, line in enumerate(text.lines, 1):
        value = float(line) if _NUMBER.fullmatch(line) else math.nan
        if not math.isfinite(value):
            raise InputError(f"{text.name}: line {number}: {line[:40]!r} is not a number; give one number per line")
        scores.append(value)
    return scores
