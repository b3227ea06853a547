"""The sentences cut by one property of them: how long they are, or where in the text they stand."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.lengths import Bucket, word_counts

Mask = NDArray[np.bool_]
Side = Literal["source", "reference", "hypothesis"]
FIFTHS = 5


@dataclass(frozen=True)
class Cut:
    """What belongs to each part of the sentences, before anything is scored."""

    by: Literal["length", "place"]
    title: str  # `by words of the source`
    heading: str  # of the column of labels: `words`
    labels: tuple[str, ...]  # one a part, in order
    # One sequence of masks for all systems, or one a system where each system has parts of its own; (N,) a part.
    masks: tuple[tuple[Mask, ...], ...]
    # Labels of parts that are left out where no system has a sentence in them.
    rare: frozenset[str] = frozenset()

    @property
    def common(self) -> bool:
        """The parts hold the same sentences of every system, so that systems can be compared in them."""
        return len(self.masks) == 1

    def part(self, number: int) -> tuple[Mask, ...]:
        """The masks of one part: one for all systems, or one a system."""
        return tuple(masks[number] for masks in self.masks)


def by_length(texts: Sequence[Sequence[str]], buckets: Sequence[Bucket], side: Side = "source") -> Cut:
    """Cuts by words of a line: the source's, those of the first of several references, or each system's own.

    `texts` holds the lines of the source, or of the first reference, or of every system in turn. Lines without a word
    are rare, so that their part (of the bucket 0) is there only where there are any.
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
    """Cuts by place in the text: `parts` runs of lines as long as each other, or longer by one line, in order.

    The labels are line numbers from 1, both ends included (`1-200`); a text of fewer lines has a part a line.
    """
    runs = np.array_split(np.arange(sentences), min(parts, sentences))
    masks = []
    for run in runs:
        mask = np.zeros(sentences, dtype=np.bool_)
        mask[run] = True
        masks.append(mask)
    labels = (str(run[0] + 1) if len(run) == 1 else f"{run[0] + 1}-{run[-1] + 1}" for run in runs)
    return Cut("place", "by place in the text", "lines", tuple(labels), (tuple(masks),))
