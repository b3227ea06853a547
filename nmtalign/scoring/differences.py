"""The sentences in which two systems differ most, and the words in which they differ."""

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from nmtalign.scoring.metrics import MetricOptions, Statistics, measure_systems

CHRF = "chrF2"
# Blanks and after them a word, one ideograph or kana (they are written without spaces), or one mark.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_PIECE = re.compile(rf"(\s*)([{_UNSPACED}]|[^\W{_UNSPACED}]+|\S|$)")


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
    scores = np.array([[found.score(np.array([line])).value for line in lines] for found in chrf])
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
    known = {word for line in references for _, word in _pieces(line)}
    pieces = [list(_pieces(line)) for line in (first, second)]
    words = [[word for _, word in line] for line in pieces]
    matches = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False).get_matching_blocks()
    shared = (
        {match.a + i for match in matches for i in range(match.size)},
        {match.b + i for match in matches for i in range(match.size)},
    )
    return _joined(pieces[0], shared[0], known), _joined(pieces[1], shared[1], known)


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """(blanks before the word, word) of a line; the last word is empty if the line ends with blanks."""
    return ((match[1], match[2]) for match in _PIECE.finditer(line) if match[0])


def _joined(pieces: Sequence[tuple[str, str]], same: set[int], known: set[str]) -> tuple[Segment, ...]:
    """Runs of words of one kind; blanks between two runs belong to the run that both texts share."""
    runs: list[tuple[bool, bool, str]] = []
    for number, (blanks, word) in enumerate(pieces):
        shared, found = number in same or not word, word in known or not word
        # A shared run is one segment, wherever its words are found.
        if runs and runs[-1][0] == shared and (shared or runs[-1][1] == found):
            runs[-1] = shared, runs[-1][1] and found, runs[-1][2] + blanks + word
        elif runs and not shared and runs[-1][0]:
            runs[-1] = *runs[-1][:2], runs[-1][2] + blanks
            runs.append((shared, found, word))
        else:
            runs.append((shared, found, blanks + word))
    return tuple(Segment(text, "same" if shared else "only", found) for shared, found, text in runs)
