"""Buckets of sentence length (PAPER: Figure 2 plots BLEU over the length of the source sentence)."""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nmtalign.settings.definition import SettingError


@dataclass(frozen=True)
class Bucket:
    """The sentences of `low` to `high` words, both included; `high` None = no limit."""

    low: int
    high: int | None

    @property
    def label(self) -> str:
        """`11-20`, `7` where both ends are the same, `>60`, `<=10` where shorter ones belong to it too, or `all`."""
        if self.high is None:
            return f">{self.low - 1}" if self.low else "all"
        if self.low == self.high:
            return str(self.low)
        return f"{self.low}-{self.high}" if self.low else f"<={self.high}"

    def members(self, lengths: NDArray[np.int64]) -> NDArray[np.bool_]:
        """(N,) True where the sentence's length is in the bucket."""
        inside = lengths >= self.low
        return inside if self.high is None else inside & (lengths <= self.high)


def parse_buckets(text: str, cumulative: bool = False) -> list[Bucket]:
    """Buckets of their upper ends: "10,20" is 1-10, 11-20 and >20, and before them 0 for lines without a word.

    Together they hold every length once. Cumulative ones are <=10, <=20 and all: each holds the ones before it, and a
    line without a word is in every one. "10,20,...,60" is every tenth up to 60. Raises UsageError unless the ends are
    whole numbers that rise.
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
    """The ends with those that `...` stands for, where two numbers before it and the last one say which."""
    match parts:
        case [*before, first, second, "..." | "\N{HORIZONTAL ELLIPSIS}", last] if all(
            re.fullmatch(r"[0-9]{1,3}", part) for part in (first, second, last)
        ):
            step = int(second) - int(first)
            if step > 0 and int(second) < int(last) and (int(last) - int(second)) % step == 0:
                return [*before, first, *map(str, range(int(second), int(last) + 1, step))]
    return parts


def word_counts(lines: Sequence[str]) -> NDArray[np.int64]:
    """(N,) words of each line, set apart by white space, as the text is given (not tokenised)."""
    return np.array([len(line.split()) for line in lines], dtype=np.int64)
