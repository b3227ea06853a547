"""The sentences in which two systems differ most, with what differs in them."""

import difflib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.errors import UsageError
from nmtalign.scoring.measuring import measure
from nmtalign.scoring.metrics import MetricOptions, Statistics

CHRF = "chrF2"
# A word, one ideograph or kana (they are written without spaces), one mark; with the blanks in front of it.
_UNSPACED = r"\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff"
_PIECE = re.compile(rf"(\s*)([{_UNSPACED}]|[^\W{_UNSPACED}]+|\S|$)")


@dataclass(frozen=True)
class Segment:
    """Some words of a text: in both systems' texts, or only in this one.

    The texts of a line's segments, joined with nothing between them, are the line.
    """

    text: str
    kind: Literal["same", "only"]
    in_reference: bool  # every word of it is found in a reference


@dataclass(frozen=True)
class Difference:
    """One sentence in which the first two systems differ."""

    line: int  # from 1
    source: str | None
    references: tuple[str, ...]
    texts: tuple[str, str]
    scores: tuple[float, float]  # of the sentence, by `metric`
    metric: str  # chrF2
    segments: tuple[tuple[Segment, ...], tuple[Segment, ...]]


def most_different(
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    n: int,
    *,
    source: Sequence[str] | None = None,
    statistics: Sequence[Sequence[Statistics]] = (),
) -> tuple[Difference, ...]:
    """The `n` sentences at most whose chrF differs most between the first two systems, whichever is better.

    Ties stand in the order of their lines; a line that is the same in both systems never comes. `statistics` holds
    what `measure` gave for each system; where it has no chrF, that is measured here. Raises UsageError for fewer than
    two systems, or `n` below 1.
    """
    if len(systems) < 2:
        raise UsageError("the most different sentences are those of two systems; give two")
    if n < 1:
        raise UsageError(f"{n} most different sentences; give 1 or more")
    pair = systems[0], systems[1]
    unequal = np.array([first != second for first, second in zip(*pair, strict=True)], dtype=np.bool_)
    lines = np.flatnonzero(unequal)
    scores = np.array([_scores(number, pair, references, statistics, lines) for number in (0, 1)])
    # Rounded: scores that are equal but for the order of a sum stay in the order of their lines.
    order = np.argsort(-np.abs(scores[0] - scores[1]).round(9), kind="stable")[:n]
    return tuple(_difference(int(lines[i]), (scores[0, i], scores[1, i]), pair, references, source) for i in order)


def split_segments(
    first: str, second: str, references: Sequence[str]
) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """The segments of both lines: what they share in one order of words, and what only the one has."""
    known = {word for line in references for _, word in _pieces(line)}
    pieces = [list(_pieces(line)) for line in (first, second)]
    words = [[word for _, word in line] for line in pieces]
    matches = difflib.SequenceMatcher(None, words[0], words[1], autojunk=False).get_matching_blocks()
    shared = (
        {match.a + i for match in matches for i in range(match.size)},
        {match.b + i for match in matches for i in range(match.size)},
    )
    return _joined(pieces[0], shared[0], known), _joined(pieces[1], shared[1], known)


def _scores(
    number: int,
    systems: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    statistics: Sequence[Sequence[Statistics]],
    lines: NDArray[np.int64],
) -> NDArray[np.float64]:
    """The chrF of some lines of one system."""
    for column in statistics[number] if len(statistics) > number else ():
        if column.name == CHRF:
            return column.values(column.rows[lines])
    if not len(lines):
        return np.zeros(0)
    chosen = [[text[i] for i in lines] for text in (systems[number], *references)]
    (column,) = measure(chosen[0], chosen[1:], MetricOptions(("chrf",)))
    return column.values(column.rows)


def _difference(
    line: int,
    scores: tuple[float, float],
    systems: tuple[Sequence[str], Sequence[str]],
    references: Sequence[Sequence[str]],
    source: Sequence[str] | None,
) -> Difference:
    texts = systems[0][line], systems[1][line]
    against = tuple(reference[line] for reference in references)
    first, second = split_segments(*texts, against)
    return Difference(
        line=line + 1,
        source=None if source is None else source[line],
        references=against,
        texts=texts,
        scores=(float(scores[0]), float(scores[1])),
        metric=CHRF,
        segments=(first, second),
    )


def _pieces(line: str) -> Iterator[tuple[str, str]]:
    """(blanks in front, word) of a line; the last word is empty where the line ends with blanks."""
    return ((match[1], match[2]) for match in _PIECE.finditer(line) if match[0])


def _joined(pieces: Sequence[tuple[str, str]], same: set[int], known: set[str]) -> tuple[Segment, ...]:
    """Runs of words of one kind; blanks between two runs go with the one that both texts share."""
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
