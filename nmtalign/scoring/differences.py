"""The sentences in which two systems differ most, and the words in which they differ."""

import difflib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import regex

from nmtalign.scoring.metrics import MetricOptions, Statistics, measure_systems
from nmtalign.text.tokenizer import CLUSTER, UNSPACED

CHRF = "chrF2"
_MANY, _MOST = 500, 2000  # pieces of a line: in longer ones no frequent piece begins a shared run; the most compared
# Blanks and after them one letter of a script without spaces, a word with the marks of its letters, or one mark. The
# blanks at the end of a line are a piece, too.
_PIECE = regex.compile(rf"\s*(?:(?=[{UNSPACED}])\X\p{{M}}*|[^\W{UNSPACED}]+|{CLUSTER})")


@dataclass(frozen=True)
class Segment:
    """Some words of a translation that are in both translations (`same`), or only in this one.

    The texts of a line's segments, joined with nothing between them, are the line.
    """

    text: str
    kind: Literal["same", "only"]
    in_reference: bool  # every word is in a reference


@dataclass(frozen=True)
class SystemText:
    """One sentence as a system translated it."""

    name: str  # of the system
    text: str
    score: float  # of the sentence
    segments: tuple[Segment, ...]


@dataclass(frozen=True)
class Difference:
    """One sentence in which the first two systems differ."""

    line: int  # from 1
    source: str | None
    references: tuple[str, ...]
    metric: str  # of the scores: chrF2
    systems: tuple[SystemText, ...]  # two


def most_different(
    systems: Mapping[str, Sequence[str]],
    references: Sequence[Sequence[str]],
    statistics: Sequence[Sequence[Statistics]],
    n: int,
    source: Sequence[str] | None = None,
) -> tuple[Difference, ...]:
    """At most `n` sentences, those whose chrF differs most between the first two systems, in either direction.

    Equal differences are in the order of their lines; lines that are the same in both systems are left out.
    `statistics` are those of each system; chrF is computed if it is not among them.
    """
    names, (one, other) = list(systems), list(systems.values())[:2]
    lines = [line for line, (first, second) in enumerate(zip(one, other, strict=True)) if first != second]
    chrf = [found for table in statistics[:2] for found in table if found.name == CHRF]
    if len(chrf) < 2:
        chrf = [found for (found,) in measure_systems([one, other], references, MetricOptions(("chrf",)))]
    scores = np.array([[found.score(np.array([line])) for line in lines] for found in chrf])
    # Rounded, because equal scores can differ in the last bits.
    order = np.argsort(-np.abs(scores[0] - scores[1]).round(9), kind="stable")[:n]
    differences = []
    for line, pair in ((lines[place], scores[:, place].tolist()) for place in order):
        texts, against = (one[line], other[line]), tuple(reference[line] for reference in references)
        both = map(SystemText, names, texts, pair, split_segments(*texts, against))
        context = None if source is None else source[line]
        differences.append(Difference(line + 1, context, against, CHRF, tuple(both)))
    return tuple(differences)


def split_segments(
    first: str, second: str, references: Sequence[str]
) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """The segments of both lines: words that they share in the same order, and words of only one line."""
    known = {piece.strip() for line in references for piece in _PIECE.findall(line)}
    pieces = _PIECE.findall(first), _PIECE.findall(second)
    words = [[piece.strip() for piece in line[:_MOST]] for line in pieces]
    is_long = max(map(len, words)) > _MANY
    matches = difflib.SequenceMatcher(None, words[0], words[1], is_long).get_matching_blocks()
    shared = [{match[side] + i for match in matches for i in range(match.size)} for side in (0, 1)]
    return tuple(_joined(pieces[0], shared[0], known)), tuple(_joined(pieces[1], shared[1], known))


def _joined(pieces: Sequence[str], same: set[int], known: set[str]) -> Iterator[Segment]:
    """Runs of words of one kind; a shared run is one segment, wherever its words are found."""
    marked = [
        (number in same or piece.isspace(), piece.isspace() or piece.strip() in known, piece)
        for number, piece in enumerate(pieces)
    ]
    for (shared, _), group in itertools.groupby(marked, lambda one: (one[0], one[0] or one[1])):
        run = [*group]
        text, in_reference = "".join(piece for *_, piece in run), all(found for _, found, _ in run)
        yield Segment(text, "same" if shared else "only", in_reference)
