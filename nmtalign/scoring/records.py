"""A report as data for other programs: one JSON object, or one table of comma-separated values.

The object always has the same keys. Figures that were not requested, or that do not exist, are null or an empty list.
Numbers are not rounded, and none is NaN. The shape is shown in nmtalign/docs/formats.md.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from nmtalign.scoring.report import Report, Section
from nmtalign.version import __version__

# `by` is empty for a complete subset; rows of unknown words have no number of sentences.
CSV_COLUMNS = (
    *("system", "subset", "by", "label", "sentences", "metric", "value"),
    *("mean", "low", "high", "p_bs", "p_ar", "mark", "length_ratio", "signature"),
)
Record = dict[str, Any]


def record(report: Report) -> Record:
    """The report as one object."""
    drawn = report.resampling and dataclasses.asdict(report.resampling)
    if drawn:
        del drawn["intervals"]
    return {
        "nmtalign": __version__,
        "sentences": report.systems[0].everything.whole.sentences,
        "metrics": report.metrics,
        "signatures": report.signatures,
        "resampling": drawn,
        "titles": {"length": report.lengths} if report.lengths else {},
        "systems": [
            {"name": system.name, **_section(system.everything), "no_unk": system.no_unk and _section(system.no_unk)}
            for system in report.systems
        ],
        "unknown": report.unknown and dataclasses.asdict(report.unknown),
        "differences": list(map(dataclasses.asdict, report.differences)),
    }


def _section(section: Section) -> Record:
    whole = dataclasses.asdict(section.whole)
    del whole["label"]
    return {**whole, "by_length": list(map(dataclasses.asdict, section.lengths))}


def csv_rows(report: Report) -> Iterator[Record]:
    """The report as the rows of one table, one number each, under the names of CSV_COLUMNS."""
    for system in report.systems:
        for subset, section in (("all", system.everything), ("no-unk", system.no_unk)):
            parts = [("", section.whole), *(("length", part) for part in section.lengths)] if section else []
            for by, part in parts:
                for name, estimate in part.scores.items():
                    score = dataclasses.asdict(estimate)
                    p_values = {f"p_{test}": value for test, value in score.pop("p_values").items()}
                    common: Record = {"system": system.name, "subset": subset, "by": by, "label": part.label}
                    common |= {"sentences": part.sentences, "metric": name, "signature": report.signatures[name]}
                    yield {**common, **score, **p_values, "length_ratio": part.length_ratio}
    if report.unknown:
        shares = [("", "source", report.unknown.source), ("", "reference", report.unknown.reference)]
        shares += [(name, "translation", share) for name, share in report.unknown.systems.items()]
        for name, label, value in shares:
            yield {"system": name, "subset": "all", "by": "unknown", "label": label, "metric": "share", "value": value}
