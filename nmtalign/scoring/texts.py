"""The texts to score: read whole, named in errors, with one line a sentence each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from nmtalign.errors import InputError
from nmtalign.text.lines import read_lines, shown


@dataclass(frozen=True)
class Text:
    """The lines of a file and the name that errors give it."""

    name: str
    lines: Sequence[str]


def read_text(path: Path) -> Text:
    """Reads a text or .gz file, or stdin for `-`; InputError where it is missing, not UTF-8 or has no line."""
    lines = list(read_lines(path))
    if not lines:
        raise InputError(f"{shown(path)}: is empty; nothing to score")
    return Text(shown(path), lines)


def check_aligned(texts: Sequence[Text]) -> None:
    """InputError for the first text whose line count differs from the first one's, naming the first missing line."""
    first = texts[0]
    for text in texts[1:]:
        if len(text.lines) != len(first.lines):
            short, long = sorted((first, text), key=lambda item: len(item.lines))
            raise InputError(
                f"{short.name}: has no line {len(short.lines) + 1}: it has {_count(short)}, "
                f"but {long.name} has {_count(long)}; give files with one line a sentence"
            )


def _count(text: Text) -> str:
    return f"{len(text.lines)} line{'' if len(text.lines) == 1 else 's'}"
