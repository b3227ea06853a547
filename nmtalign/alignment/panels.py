"""What is drawn of an alignment: words, weights, gold links and hard links, whether in a file or in the terminal.

What a heat map is not: an explanation. The weights say from where the model read when it wrote a word, not why it wrote
it. Jain & Wallace (2019) changed attention weights of text classifiers without a change of what these answered;
Wiegreffe & Pinter (2019) showed limits of that finding, and neither paper makes weights a reason.
"""

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from nmtalign.alignment.gold import GoldLinks
from nmtalign.alignment.record import AlignmentRecord, Link, Matrix
from nmtalign.text.vocabulary import EOS

_JOINERS = "\u200c\u200d"  # seen only in how the letters beside them are drawn
_DOT = "·"


@dataclass(frozen=True)
class Panel:
    """One alignment to draw, with what is drawn over it."""

    record: AlignmentRecord
    caption: str = ""
    gold: GoldLinks | None = None
    links: bool = False  # with the hard links of the record

    def no_words(self) -> str:
        """Why there is nothing to draw; "" where there is something."""
        if not self.record.empty():
            return ""
        return f"nothing to draw: {len(self.record.source)} source words, {len(self.record.target)} target words"

    def labels(self, *, end: bool = True) -> tuple[list[str], list[str], Matrix]:
        """(source words, target words, weights) to draw, with or without the row and the column of `</s>`.

        Where the record has neither, they are not drawn.
        """
        source, target = ([printable(word) for word in side] for side in (self.record.source, self.record.target))
        if not self.record.end:
            return source, target, self.record.weights
        if end:
            return [*source, EOS], [*target, EOS], self.record.weights
        return source, target, self.record.weights[:-1, :-1]

    def marks(self) -> "Iterator[tuple[Link, bool | None, bool]]":
        """Of each mark: link, whether it is a sure gold link (None: it is no gold link), whether it is a hard link."""
        hard = set(self.record.hard_links) if self.links else set()
        gold = self.gold.possible if self.gold else frozenset()
        for link in sorted(gold | hard):
            yield link, (link in self.gold.sure if self.gold and link in gold else None), link in hard


def printable(word: str) -> str:
    """The word with its accents composed, and what would move the cursor or show nothing replaced by a dot."""
    composed = unicodedata.normalize("NFC", word)
    shown = "".join(letter if letter.isprintable() or letter in _JOINERS else _DOT for letter in composed)
    return shown if shown.strip(_JOINERS + " ") else _DOT
