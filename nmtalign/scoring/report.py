"""All figures of one system: of all sentences, by source length, and of the sentences without an unknown word."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nmtalign.scoring.lengths import Bucket
from nmtalign.scoring.metrics import Statistics

Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Part:
    """The corpus scores of some of the sentences, one value a metric; None where there is no sentence."""

    label: str
    sentences: int
    values: tuple[float | None, ...]
    length_ratio: float | None  # tokens of the hypotheses over tokens of the references


@dataclass(frozen=True)
class Section:
    """The scores of a subset as a whole, and by length where that was asked for."""

    whole: Part
    by_length: tuple[Part, ...] | None = None


@dataclass(frozen=True)
class Report:
    """All figures of one system."""

    names: tuple[str, ...]
    signatures: tuple[str, ...]
    everything: Section
    no_unk: Section | None = None

    def record(self) -> dict[str, Any]:
        """The report for JSON: unrounded figures, null where there is nothing to score."""
        record = self._section(self.everything)
        if self.no_unk:
            record["no_unk"] = self._section(self.no_unk)
        return record

    def _section(self, section: Section) -> dict[str, Any]:
        whole = section.whole
        columns = zip(self.names, whole.values, self.signatures, strict=True)
        record: dict[str, Any] = {
            "sentences": whole.sentences,
            "scores": [{"name": name, "value": value, "signature": text} for name, value, text in columns],
            "length_ratio": whole.length_ratio,
        }
        if section.by_length is not None:
            record["by_length"] = [self._row(part) for part in section.by_length]
        return record

    def _row(self, part: Part) -> dict[str, Any]:
        scores = dict(zip(self.names, part.values, strict=True))
        return {"words": part.label, "sentences": part.sentences, **scores, "length_ratio": part.length_ratio}


def make_report(
    table: Sequence[Statistics],
    lengths: NDArray[np.int64] | None = None,
    buckets: Sequence[Bucket] = (),
    known: Mask | None = None,
) -> Report:
    """Scores the statistics of `table`: by `buckets` where `lengths` (N,) are given, `known` (N,) apart where given."""
    everything = np.ones(len(table[0]), dtype=np.bool_)
    return Report(
        tuple(statistics.name for statistics in table),
        tuple(statistics.signature for statistics in table),
        _section(table, everything, lengths, buckets),
        None if known is None else _section(table, known, lengths, buckets),
    )


def _section(
    table: Sequence[Statistics], subset: Mask, lengths: NDArray[np.int64] | None, buckets: Sequence[Bucket]
) -> Section:
    whole = _part("all", table, subset)
    if lengths is None:
        return Section(whole)
    parts = [_part(bucket.label, table, subset & bucket.members(lengths)) for bucket in buckets]
    # Lines without a word are rare: their row is there only when they are.
    return Section(whole, tuple(part for part in parts if part.label != "0" or part.sentences))


def _part(label: str, table: Sequence[Statistics], subset: Mask) -> Part:
    sentences = int(subset.sum())
    values = tuple(statistics.score(subset).value if sentences else None for statistics in table)
    ratios = (statistics.length_ratio(subset) for statistics in table)
    return Part(label, sentences, values, next((ratio for ratio in ratios if ratio is not None), None))
