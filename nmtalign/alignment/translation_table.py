"""The translation table of `nmtalign link`: which target words translate a source word, and how probably.

The aligner knows the probabilities t(f | e) of words, numbers and marks in lower case. The table has them as the texts
write them: p(F | E) = t(f | e) * (share of the spelling F among the occurrences of f).
"""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nmtalign.alignment.lexical import LexicalModel
from nmtalign.files import atomic_text
from nmtalign.text.tokenizer import EOS, NO_WORD, UNK

MOST = 20  # translations of a source word
LEAST = 1e-3  # the smallest probability of a translation
_BLANKS = frozenset(" \t\r\n")


def write_table(path: Path, model: LexicalModel, spellings: Sequence[Sequence[Counter[str]]]) -> None:
    """Writes a line `source<tab>target<tab>probability` for each entry.

    `spellings` are for each side those of the words of the model. A source word has at most `MOST` entries, the most
    probable first. Words that a line cannot contain, and names for no word such as NULL, are left out.
    """
    table = model.tables(model.cells)[0]
    probabilities = table.counts[:-1] / table.totals[model.cells.source]
    order = np.lexsort((model.cells.target, -probabilities, model.cells.source))
    order = order[probabilities[order] >= LEAST]
    sources = model.cells.source[order]
    order = order[np.arange(len(order)) - np.searchsorted(sources, sources) < MOST]
    entries: dict[str, list[tuple[float, str]]] = {}
    shares = [_shares(counts) for counts in spellings[1]]
    columns = model.cells.source[order], model.cells.target[order], probabilities[order]
    for source, target, probability in zip(*(column.tolist() for column in columns), strict=True):
        found = [(probability * share, spelling) for spelling, share in shares[target] if probability * share >= LEAST]
        for spelling in filter(_writable, spellings[0][source]):
            entries.setdefault(spelling, []).extend(found)
    with atomic_text(path, follow=False) as stream:
        for source_word in sorted(entries):
            best = sorted(entries[source_word], key=lambda entry: (-entry[0], entry[1]))[:MOST]
            stream.writelines(f"{source_word}\t{target_word}\t{value:.5g}\n" for value, target_word in best)


def _shares(counts: Counter[str]) -> list[tuple[str, float]]:
    """Returns the spellings of a word that a line can contain, and the share of each among its occurrences."""
    total = counts.total()
    return [(spelling, count / total) for spelling, count in counts.items() if _writable(spelling)]


def _writable(word: str) -> bool:
    return word not in NO_WORD and word not in (EOS, UNK) and _BLANKS.isdisjoint(word)
