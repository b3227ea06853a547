"""Unknown words in a translation: replaced through the alignment (PAPER section 8)."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmtalign.errors import FormatError, InputError
from nmtalign.text.lines import read_lines
from nmtalign.text.vocabulary import UNK_ID

_NO_WORD = frozenset(("NULL", "<eps>"))  # how aligners write "no word" in their tables


def read_lexicon(path: Path) -> dict[str, str]:
    """The best translation of each source word.

    Lines are `source target` or `source target probability`, set apart by spaces or tabs; a probability may be a
    logarithm, and a line without one counts as certain. The first of equally probable ones wins; lines for "no word"
    are passed over. Raises FormatError naming file and line for anything else.
    """
    best: dict[str, tuple[float, str]] = {}
    try:
        for number, line in enumerate(read_lines(path), 1):
            source, target, probability = _entry(f"{path}: line {number}", line)
            if not _NO_WORD.isdisjoint((source, target)):
                continue
            if source not in best or probability > best[source][0]:
                best[source] = probability, target
    except InputError as error:
        raise FormatError(str(error)) from None
    return {source: target for source, (_, target) in best.items()}


def _entry(where: str, line: str) -> tuple[str, str, float]:
    fields = line.replace("\t", " ").split(" ")
    fields = [field for field in fields if field]
    if len(fields) not in (2, 3):
        raise FormatError(
            f"{where}: {len(fields)} fields; a lexicon has `source target` or `source target probability`"
        )
    try:
        probability = float(fields[2]) if len(fields) == 3 else 1.0
    except ValueError:
        probability = math.nan
    if math.isnan(probability):
        raise FormatError(f"{where}: {fields[2]!r} is not a probability")
    return fields[0], fields[1], probability


def replace_unknowns(
    ids: Sequence[int],
    tokens: Sequence[str],
    weights: npt.NDArray[np.float32],
    words: Sequence[str],
    copies: Sequence[str],
    lexicon: Mapping[str, str],
    word_start: str = "",
) -> list[str]:
    """The target tokens with each unknown one replaced by a translation or a copy of what it is aligned with.

    ids and tokens are the target's, weights (Ty + 1, Tx), columns the source tokens and last its `</s>`, which is left
    out. For the source token with the largest weight: the lexicon's translation of the word that it is part of
    (words[i]), marked as a word with `word_start`; else its copy (copies[i]).
    """
    replaced = list(tokens)
    for row, number in enumerate(ids):
        if number == UNK_ID and copies:
            place = int(weights[row, : len(copies)].argmax())
            translation = lexicon.get(words[place])
            replaced[row] = copies[place] if translation is None else word_start + translation
    return replaced
