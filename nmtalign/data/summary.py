"""What prep did, in numbers: pairs kept and dropped and why, and how well the vocabularies cover the text."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from nmtalign.data.spool import PairSpool, SideSpool
from nmtalign.text.vocabulary import UNK_ID


@dataclass(frozen=True)
class SideSummary:
    """One side of one split, as tokenised; `</s>` is not counted."""

    tokens: int
    types: int  # different words
    known_types: int  # of them in the vocabulary
    unknown_tokens: int  # tokens that are not in the vocabulary

    @property
    def coverage(self) -> float:
        """The share of tokens that are in the vocabulary (1 where there are none)."""
        return 1.0 - self.unknown_rate

    @property
    def unknown_rate(self) -> float:
        """The share of tokens that are not."""
        return self.unknown_tokens / self.tokens if self.tokens else 0.0


@dataclass(frozen=True)
class SplitSummary:
    """One split: pairs read, kept, and dropped by reason ("empty", "duplicate", "too long")."""

    pairs: int
    dropped: Mapping[str, int]
    source: SideSummary
    target: SideSummary

    @property
    def kept(self) -> int:
        """Pairs in the corpus."""
        return self.pairs - sum(self.dropped.values())


@dataclass(frozen=True)
class Summary:
    """What prep did; `splits` holds train, and dev and test where they were given."""

    source_language: str
    target_language: str
    source_vocabulary_size: int  # ids, `</s>` and `<unk>` counted
    target_vocabulary_size: int
    settings: Mapping[str, Any]
    splits: Mapping[str, SplitSummary]

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values, derived figures too, for JSON."""
        plain = dataclasses.asdict(self)
        for name, split in self.splits.items():
            plain["splits"][name]["kept"] = split.kept
            for side in ("source", "target"):
                values: SideSummary = getattr(split, side)
                plain["splits"][name][side] |= {"coverage": values.coverage, "unknown_rate": values.unknown_rate}
        return plain


def summarize_side(side: SideSpool, table: npt.NDArray[np.uint32]) -> SideSummary:
    """Counts of a side; `table` (types,) gives the vocabulary's id of each provisional one."""
    unknown = table == UNK_ID
    return SideSummary(
        tokens=side.tokens,
        types=len(side.index),
        known_types=int((~unknown).sum()),
        unknown_tokens=int(side.counts[unknown].sum()),
    )


def summarize_split(
    spool: PairSpool, pairs: int, dropped: Mapping[str, int], tables: tuple[npt.NDArray[np.uint32], ...]
) -> SplitSummary:
    """Counts of both sides."""
    source, target = tables
    return SplitSummary(
        pairs, dict(dropped), summarize_side(spool.source, source), summarize_side(spool.target, target)
    )
