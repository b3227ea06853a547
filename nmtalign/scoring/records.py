"""A report as data for other programs: one JSON object, or one table of comma-separated values.

The object always has the same keys. Figures that were not requested, or that do not exist, are null or an empty list.
Numbers are not rounded, and none is NaN. The shape is shown in nmtalign/docs/formats.md.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any

from nmtalign.scoring.report import Part, Report, Section
from nmtalign.text.lines import finite
from nmtalign.version import __version__

# `by` is empty for a complete subset; rows of unknown words have no number of sentences.
CSV_COLUMNS = (
    *("system", "subset", "by", "label", "sentences", "metric", "value"),
    *("mean", "low", "high", "p_bs", "p_ar", "mark", "length_ratio", "signature"),
)
Record = dict[str, Any]


def record(report: Report) -> Record:
    """The report as one object."""
    names = [system.name for system in report.systems]
    drawn, unknown, of_drawing = report.resampling, report.unknown, ("samples", "trials", "seed", "level")
    return {
        "nmtalign": __version__,
        "sentences": report.systems[0].everything.whole.sentences,
        "metrics": list(report.metrics),
        "signatures": dict(zip(report.metrics, report.signatures, strict=True)),
        "resampling": drawn and {name: getattr(drawn, name) for name in of_drawing} | {"tests": list(drawn.tests)},
        "titles": {"length": report.lengths} if report.lengths else {},
        "systems": [
            {
                "name": system.name,
                **_section(report, system.everything),
                "no_unk": _section(report, system.no_unk) if system.no_unk else None,
            }
            for system in report.systems
        ],
        "unknown": unknown and {**vars(unknown), "systems": dict(zip(names, unknown.systems, strict=True))},
        "differences": [
            {
                "line": one.line,
                "source": one.source,
                "references": list(one.references),
                "metric": one.metric,
                "systems": [
                    {"name": name, "text": text, "score": score, "segments": list(map(dataclasses.asdict, segments))}
                    for name, text, score, segments in zip(names, one.texts, one.scores, one.segments, strict=False)
                ],
            }
            for one in report.differences
        ],
    }


def _section(report: Report, section: Section) -> Record:
    return {
        **_part(report, section.whole),
        "by_length": [{"label": part.label, **_part(report, part)} for part in section.lengths],
    }


def _part(report: Report, part: Part) -> Record:
    scores = {name: _score(part, number) for number, name in enumerate(report.metrics)}
    return {"sentences": part.sentences, "scores": scores, "length_ratio": part.length_ratio}


def _score(part: Part, metric: int) -> Record:
    interval = part.interval(metric)
    return {
        "value": finite(part.values[metric]),
        "mean": interval and finite(interval.mean),
        "low": interval and finite(interval.low),
        "high": interval and finite(interval.high),
        "p_values": {test: values[metric] for test, values in part.p_values.items()},
        "mark": part.mark(metric),
    }


def csv_rows(report: Report) -> Iterator[Record]:
    """The report as the rows of one table, one number each, under the names of CSV_COLUMNS."""
    for system in report.systems:
        for subset, section in (("all", system.everything), ("no-unk", system.no_unk)):
            parts = [("", section.whole), *(("length", part) for part in section.lengths)] if section else []
            for by, part in parts:
                for number, (name, signature) in enumerate(zip(report.metrics, report.signatures, strict=True)):
                    score = _score(part, number)
                    p_values = {f"p_{test}": value for test, value in score.pop("p_values").items()}
                    common: Record = {"system": system.name, "subset": subset, "by": by, "label": part.label}
                    common |= {"sentences": part.sentences, "metric": name}
                    yield {**common, **score, **p_values, "length_ratio": part.length_ratio, "signature": signature}
    if report.unknown:
        shares = [("", "source", report.unknown.source), ("", "reference", report.unknown.reference)]
        systems = zip(report.systems, report.unknown.systems, strict=True)
        for name, label, value in (*shares, *((system.name, "translation", share) for system, share in systems)):
            yield {"system": name, "subset": "all", "by": "unknown", "label": label, "metric": "share", "value": value}
