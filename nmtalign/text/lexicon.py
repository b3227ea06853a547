"""Translation tables of words: `source target` or `source target probability` a line."""

import math
from collections.abc import Iterator
from pathlib import Path

from nmtalign.errors import FormatError, InputError
from nmtalign.text.lines import read_lines

NO_WORD = frozenset(("NULL", "<eps>"))  # how aligners write "no word" in their tables


def read_entries(path: Path) -> Iterator[tuple[str, str, float]]:
    """Source word, target word and probability of each line, in the order of the file.

    Fields are set apart by spaces or tabs; a probability may be a logarithm, and a line without one counts as certain.
    Lines for "no word" are passed over. Raises FormatError naming file and line for anything else.
    """
    try:
        for number, line in enumerate(read_lines(path), 1):
            entry = _entry(path, number, line)
            if NO_WORD.isdisjoint(entry[:2]):
                yield entry
    except InputError as error:
        raise FormatError(str(error)) from None


def _entry(path: Path, number: int, line: str) -> tuple[str, str, float]:
    fields = [field for field in line.replace("\t", " ").split(" ") if field]
    if len(fields) not in (2, 3):
        raise FormatError(
            f"{path}: line {number}: {len(fields)} fields; a lexicon has `source target` or `source target probability`"
        )
    try:
        probability = float(fields[2]) if len(fields) == 3 else 1.0
    except ValueError:
        probability = math.nan
    if math.isnan(probability):
        raise FormatError(f"{path}: line {number}: {fields[2]!r} is not a probability")
    return fields[0], fields[1], probability
