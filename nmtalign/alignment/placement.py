"""Where the tags of a text belong in its translation, by the links between the words of both."""

from bisect import bisect
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Range = tuple[int, int]  # the first word, and the one behind the last
# Chosen on the sample corpus and the gold links of four language pairs (`bench markup`).
_NULL = 0.1  # the loss for a word without links in an element
_LEAST = 0.02  # the smallest sum of an element that has links
_DECAY = 0.3  # the factor by which the weight of a source word falls with each word of distance
_TAKEN = -1e6  # the gain of a word that belongs to another element


class TagSpan(NamedTuple):
    """An element that encloses source words `first` to `stop`, or an empty one, before word `first`."""

    first: int
    stop: int
    parent: int = -1  # the number of the span that contains it
    line: bool = False  # ends a line: no two are put at one place, and at an edge of the text only those from an edge
    cut: bool = False  # an empty one that no element beside it passes: what is inside its tag stays inside


def place(spans: Sequence[TagSpan], weights: NDArray[np.float32], glued: Sequence[bool] = ()) -> list[Range]:
    """Returns the target words that each element encloses; parents come before their children in `spans`.

    `weights` (Ty, Tx) are the probabilities of links; rows sum to at most 1. An element encloses the contiguous words
    with the largest sum of (probability of a link into its span - probability of a link out of it). If that is hardly
    above 0, it encloses the one word that is linked nearest. Elements beside each other are disjoint: the one with the
    largest sum is placed first. An empty element is where words with links to the words before it end, and those with
    links to the words behind it begin; near words count more. A line does not end before a target word that is `glued`
    to the one before it, if it can end elsewhere. An element encloses the words on both sides of a line end inside it.
    """
    families: dict[int, list[int]] = {}
    for number, span in enumerate(spans):
        families.setdefault(span.parent, []).append(number)
    spans, found = [*spans, TagSpan(0, weights.shape[1])], [(0, len(weights))] * (len(spans) + 1)  # -1 is the text
    ends = _place_ends(spans, weights, glued)
    for parent, members in families.items():
        low, high = found[parent]
        inside = {line: min(max(end, low), high) - low for line, end in ends.items()}
        for number, (start, stop) in _place_family(spans, parent, members, weights[low:high], inside).items():
            found[number] = low + start, low + stop
    return found[:-1]


def _place_ends(spans: Sequence[TagSpan], weights: NDArray[np.float32], glued: Sequence[bool]) -> dict[int, int]:
    """Returns where each line ends and where each cut is, whatever element contains it."""
    ends, left, last = dict[int, int](), sum(span.line for span in spans), 0
    at_end = any(span.line and span.first >= spans[-1].stop for span in spans)
    breaks = ((number, span) for number, span in enumerate(spans) if span.line or span.cut)
    for number, (first, _, _, line, _) in breaks:
        scores = _scores(first, spans[-1], weights)
        scores[1 : len(glued)] -= len(weights) * np.array(glued[1:], float)
        start, left = last + (line and first > 0), left - line
        free = scores[start : len(weights) - left + (at_end or not line)]
        ends[number] = last = start + int(np.argmax(free)) if len(free) else last
    return ends


def _place_family(
    spans: Sequence[TagSpan], parent: int, members: Sequence[int], weights: NDArray[np.float32], ends: dict[int, int]
) -> dict[int, Range]:
    """Returns the ranges of the children of one element among its words; `ends` are those of `_place_ends`."""
    words, outer, gains = len(weights), spans[parent], dict[int, NDArray[np.float64]]()
    found = {number: (ends[number], ends[number]) for number in members if number in ends}
    totals, columns = weights.sum(1, dtype=np.float64), np.arange(weights.shape[1])
    for number in members:
        first, stop = spans[number][:2]
        if (first, stop) == outer[:2]:
            gains[number] = np.ones(words)  # it encloses all that its parent encloses
        elif first < stop:
            gains[number] = 2 * weights[:, first:stop].sum(1, dtype=np.float64) - totals - _NULL * (1 - totals)
        for line in ends:
            if first < spans[line].first < stop:  # it encloses the words on both sides
                gains[number][max(ends[line] - 1, 0) : ends[line] + 1] += 2 * words
    taken, allowed = np.zeros(words, bool), np.ones(words + 1, bool)
    cuts = [number for number in members if spans[number].cut]
    cuts_before = np.searchsorted([ends[number] for number in cuts], range(words), "right")  # each word
    for number in sorted(gains, key=lambda number: -best_range(gains[number])[0]):
        closed = taken | (cuts_before != bisect(cuts, number))
        free, (first, end) = np.where(closed, _TAKEN, gains[number]), spans[number][:2]
        edges = [0, *(place for line, place in ends.items() if not first < spans[line].first < end), words]
        pieces = [(low, *best_range(free[low:high])) for low, high in pairwise(edges) if not closed[low:high].all()]
        if not pieces:
            continue
        gain, start, stop = max((gain, low + start, low + stop) for low, gain, start, stop in pieces)
        if gain < _LEAST:  # the word that is linked nearest
            far = np.maximum(0, np.maximum(first - columns, columns - end + 1))
            start = int(np.argmax(np.where(closed, -1.0, weights @ _DECAY**far)))
            stop = start + 1
        found[number] = start, stop
        taken[start:stop], allowed[start + 1 : stop] = True, False
    last = 0
    for number in members:
        if number not in found:
            end = next((ends[line] for line in members if line > number and line in ends), words)
            scores = np.where(allowed, _scores(spans[number].first, outer, weights), -np.inf)
            found[number] = (last + int(np.argmax(scores[last : end + 1])),) * 2
        last = last if number in gains else found[number][0]
    return found


def _scores(first: int, outer: TagSpan, weights: NDArray[np.float32]) -> NDArray[np.float64]:
    """Returns how well an empty element before source word `first` fits before each target word, and at the end."""
    if not outer.first < first < outer.stop:  # at an edge
        return np.linspace(0.0, 1.0 if first > outer.first else -1.0, len(weights) + 1)
    distances = np.arange(outer.first, outer.stop) - first + 0.5
    near = -np.sign(distances) * _DECAY ** np.abs(distances)
    return np.concatenate(([0.0], np.cumsum(weights[:, outer.first : outer.stop] @ near)))


def best_range(gains: NDArray[np.float64]) -> tuple[float, int, int]:
    """Returns the largest sum of contiguous numbers (-inf without any), and the shortest such range: start, stop."""
    if not len(gains):
        return -np.inf, 0, 0
    sums = np.concatenate(([0.0], np.cumsum(gains)))
    lowest = np.minimum.accumulate(sums[:-1])
    stop = int(np.argmax(sums[1:] - lowest)) + 1
    start = int(np.flatnonzero(sums[:stop] == lowest[stop - 1])[-1])
    return float(sums[stop] - sums[start]), start, stop
