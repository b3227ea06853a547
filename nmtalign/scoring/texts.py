"""The texts to score, one sentence per line, and the scores that other programs gave to these lines."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.errors import InputError, UsageError
from nmtalign.scoring.metrics import METRICS
from nmtalign.text.direction import SPACED_MARKS, not_raw, traces
from nmtalign.text.languages import suffix_language
from nmtalign.text.lines import read_lines, shown

_NUMBER = re.compile(r"\s*[-+]?(\d+(?:\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_METRIC = re.compile(r"[^\s|,]+")
_JUDGED = 2000  # lines by which the language of a text is judged
_FEWEST_WORDS = 20
_MANY = 100  # lines; sacreBLEU's own threshold
_RESERVED = frozenset((*METRICS, "chrf2", "chrf2++"))

Lines = Sequence[str]
SegmentScores = Mapping[str, Mapping[str, Sequence[float]]]  # metric: system: one score per line


@dataclass(frozen=True)
class Text:
    """The lines of a text and the name that errors give it."""

    name: str
    lines: Lines


@dataclass(frozen=True)
class SystemTexts:
    """The texts of a scoring, all with the same number of lines."""

    systems: Mapping[str, Text]
    references: tuple[Text, ...]
    source: Text | None = None
    segment_scores: SegmentScores = field(default_factory=dict)

    @property
    def system_lines(self) -> list[Lines]:
        """The lines of each system."""
        return [system.lines for system in self.systems.values()]

    @property
    def reference_lines(self) -> list[Lines]:
        """The lines of each reference."""
        return [reference.lines for reference in self.references]

    @property
    def source_lines(self) -> Lines | None:
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
                f"{short.name}: has no line {len(short.lines) + 1}: it has {_counted(len(short.lines), 'line')}, "
                f"but {long.name} has {_counted(len(long.lines), 'line')}; give files with one line per sentence"
            )


def language_notes(texts: SystemTexts) -> Iterator[str]:
    """Warnings on translations that seem to be in another language than the references.

    A translation shares most of its words with the reference, and hardly any with the source.
    """
    reference = texts.references[0]
    for system in texts.systems.values():
        words = [word for line in system.lines[:_JUDGED] for word in line.lower().split()]
        to_reference, to_source = (_shared(words, text) for text in (reference, texts.source))
        named = suffix_language(Path(system.name)), suffix_language(Path(reference.name))
        if len(words) >= _FEWEST_WORDS and to_source > max(0.5, to_reference + 0.2):
            yield (
                f"warning: {system.name}: {to_source:.0%} of its words are in the source, {to_reference:.0%} in the "
                "reference: is it translated, and are source and reference in the right order?"
            )
        elif all(named) and named[0] != named[1] and to_reference < 0.5:
            yield (
                f"warning: {system.name} is {named[0]} by its name, and the reference {reference.name} is {named[1]}; "
                f"give a reference in {named[0]}"
            )


def raw_notes(texts: SystemTexts, tokenize: str) -> list[str]:
    """Warnings that texts are not raw.

    Texts that are all tokenised are scored like raw text, except that sacreBLEU's figures are not comparable. They are
    reported only if there are many lines, and not with the tokeniser "none".
    """
    found = [(text.name, traces(text.lines[:_JUDGED])) for text in (*texts.systems.values(), *texts.references)]
    alike = len({tuple(one) for _, one in found}) == 1
    few = len(texts.references[0].lines) < _MANY and [*found[0][1]] == [SPACED_MARKS]
    if alike and (few or tokenize == "none"):
        return []
    instead = ", because scores of such text cannot be compared; or give --tokenize none"
    return list(not_raw(found, "" if tokenize == "none" else instead))


def _shared(words: Sequence[str], text: Text | None) -> float:
    """The share of the words that are in a text."""
    found = {word for line in text.lines[:_JUDGED] for word in line.lower().split()} if text else set()
    return sum(word in found for word in words) / max(len(words), 1)


def read_segment_scores(
    metric: str, given: Sequence[Path | Sequence[float]], systems: Sequence[str], aligned: Text
) -> dict[str, Sequence[float]]:
    """The scores of each system by a metric of another program, one score for each line of `aligned`.

    `given` holds a file or the numbers for each system, in order. Raises UsageError for a metric without a usable name
    and for another number of files, InputError naming file and line for text that is no number.
    """
    if not _METRIC.fullmatch(metric):
        raise UsageError(f"--segment-scores {metric}: a metric's name has no blanks, commas or |; give another name")
    if metric.lower() in _RESERVED:
        raise UsageError(f"--segment-scores {metric}: nmtalign computes {metric}; give another name")
    if len(given) != len(systems):
        raise UsageError(
            f"--segment-scores {metric}: {_counted(len(given), 'file')} for {_counted(len(systems), 'system')}; give "
            f"{metric}=FILE once for each system, in the order of the systems"
        )
    return {
        system: _numbers(one, aligned) if isinstance(one, Path) else _checked(metric, one, aligned)
        for system, one in zip(systems, given, strict=True)
    }


def _numbers(path: Path, aligned: Text) -> list[float]:
    text = read_text(path)
    check_aligned([aligned, text])
    scores = []
    for number, line in enumerate(text.lines, 1):
        value = float(line) if _NUMBER.fullmatch(line) else math.nan
        if not math.isfinite(value):
            raise InputError(f"{text.name}: line {number}: {line[:40]!r} is not a number; give one number per line")
        scores.append(value)
    return scores


def _checked(metric: str, scores: Sequence[float], aligned: Text) -> Sequence[float]:
    if len(scores) != len(aligned.lines) or not all(map(math.isfinite, scores)):
        raise InputError(f"{metric}: give one finite number for each of {_counted(len(aligned.lines), 'line')}")
    return scores


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
