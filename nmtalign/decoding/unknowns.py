"""Unknown words in a translation: replaced through the alignment (PAPER section 8)."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from nmtalign.text.lexicon import read_entries
from nmtalign.text.vocabulary import UNK_ID


def read_lexicon(path: Path) -> dict[str, str]:
    """The best translation of each source word in a file that `read_entries` reads; the first of equally probable ones.

    Raises FormatError naming file and line.
    """
    best: dict[str, tuple[float, str]] = {}
    for source, target, probability in read_entries(path):
        if source not in best or probability > best[source][0]:
            best[source] = probability, target
    return {source: target for source, (_, target) in best.items()}


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
