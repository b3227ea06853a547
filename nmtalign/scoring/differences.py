"""The sentences in which two systems differ most, with what differs in them."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Segment:
    """Some words of a text: in both systems' texts, or only in this one."""

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
