"""Buckets of sentences: by their number of words (Figure 2 of Bahdanau et al. 2015), or by their place in the text."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.settings.definition import SettingError

Mask = NDArray[np.bool_]
Side = Literal["source", "reference", "hypothesis"]
FIFTHS = 5


@dataclass(frozen=True)
class Bucket:
    """The sentences of `low` to `high` words, both included; `high` None = no limit."""

    low: int
    high: int | None

    @property
    def label(self) -> str:
        """For example `11-20`, `7`, `>60`; cumulative buckets are `<=10` and `all`."""
        if self.high is None:
            return f">{self.low - 1}" if self.low else "all"
        if self.low == self.high:
            return str(self.low)
        return f"{self.low}-{self.high}" if self.low else f"<={self.high}"

    def members(self, lengths: NDArray[np.int64]) -> Mask:
        """(N,) True where the length of the sentence is in the bucket."""
        inside = lengths >= self.low
        return inside if self.high is None else inside & (lengths <= self.high)


@dataclass(frozen=True)
class Cut:
    """All sentences, divided into parts by one property."""

    by: Literal["length", "place"]
    title: str  # `by words of the source`
    heading: str  # of the column of labels: `words`
    labels: tuple[str, ...]  # of the parts, in order
    # For each part an (N,) mask: once for all systems, or for each system if the systems have different parts.
    masks: tuple[tuple[Mask, ...], ...]
    # Parts with these labels are left out if no system has a sentence in them.
    rare: frozenset[str] = frozenset()

    @property
    def common(self) -> bool:
        """Whether the parts contain the same sentences for every system, so that systems can be compared."""
        return len(self.masks) == 1

    def part(self, number: int) -> tuple[Mask, ...]:
        """The masks of one part: one for all systems, or one for each system."""
        return tuple(masks[number] for masks in self.masks)


def by_length(texts: Sequence[Sequence[str]], buckets: Sequence[Bucket], side: Side = "source") -> Cut:
    """Divides the sentences by the number of words of one side.

    `texts` contains the lines of the source, of the first reference, or of every system. The bucket of lines without a
    word is left out if it is empty.
    """
    lengths = [word_counts(lines) for lines in texts]
    cumulative = ", cumulative" if buckets[-1].low == 0 else ""
    return Cut(
        "length",
        f"by words of the {side}{cumulative}",
        "words",
        tuple(bucket.label for bucket in buckets),
        tuple(tuple(bucket.members(counts) for bucket in buckets) for counts in lengths),
        frozenset({Bucket(0, 0).label}),
    )


def by_place(sentences: int, parts: int = FIFTHS) -> Cut:
    """Divides the text into `parts` runs of lines, whose sizes differ by at most one line.

    The labels are line numbers from 1, both ends included (`1-200`). A text of fewer lines has one part per line.
    """
    numbers = np.arange(sentences)
    runs = np.array_split(numbers, min(parts, sentences))
    labels = (str(run[0] + 1) if len(run) == 1 else f"{run[0] + 1}-{run[-1] + 1}" for run in runs)
    masks = tuple((numbers >= run[0]) & (numbers <= run[-1]) for run in runs)
    return Cut("place", "by place in the text", "lines", tuple(labels), (masks,))


def parse_buckets(text: str, cumulative: bool = False) -> list[Bucket]:
    """Makes buckets of their upper ends: "10,20" is 0 (lines without a word), 1-10, 11-20 and >20.

    "10,20,...,60" is every tenth number up to 60. Cumulative buckets are <=10, <=20 and all; each contains those before
    it. Raises SettingError unless the ends are whole numbers that rise.
    """
    parts = _filled([part.strip() for part in text.split(",")])
    if not all(re.fullmatch(r"[0-9]{1,9}", part) for part in parts):
        raise SettingError("give the upper ends as whole numbers, as in 10,20,30", buckets=text)
    ends = [0, *map(int, parts)]
    if any(second <= first for first, second in itertools.pairwise(ends)):
        raise SettingError("each upper end must be greater than the one before, the first at least 1", buckets=text)
    if cumulative:
        return [Bucket(0, end) for end in (*ends[1:], None)]
    closed = [Bucket(first + 1, second) for first, second in itertools.pairwise(ends)]
    return [Bucket(0, 0), *closed, Bucket(ends[-1] + 1, None)]


def _filled(parts: list[str]) -> list[str]:
    """The ends with the numbers that `...` abbreviates: those between two numbers before it and the last one."""
    match parts:
        case [*before, first, second, "..." | "\N{HORIZONTAL ELLIPSIS}", last] if all(
            re.fullmatch(r"[0-9]{1,3}", part) for part in (first, second, last)
        ):
            step = int(second) - int(first)
            if step > 0 and int(second) < int(last) and (int(last) - int(second)) % step == 0:
                return [*before, first, *map(str, range(int(second), int(last) + 1, step))]
    return parts


def word_counts(lines: Sequence[str]) -> NDArray[np.int64]:
    """(N,) the number of words of each line as given, separated by white space (not tokenised)."""
    return np.array([len(line.split()) for line in lines], dtype=np.int64)
