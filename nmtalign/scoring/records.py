"""A report as data for other programs: one JSON object, or one tidy table of comma-separated values.

The object always has the same keys; what was not asked for is null or an empty list, and so is what cannot be scored.
Figures are not rounded, and none is NaN. The shape is shown in nmtalign/docs/formats.md.
"""

import math
from collections.abc import Iterator
from typing import Any

from nmtalign.scoring.differences import Difference
from nmtalign.scoring.report import Breakdown, Part, Report, Section
from nmtalign.scoring.words import UnknownRates, WordBreakdown, WordRow
from nmtalign.version import __version__

CSV_COLUMNS = (
    "system",
    "subset",  # all, no-unk
    "by",  # nothing for the subset as a whole, length, place; frequency, word-place, unknown of words
    "label",
    "sentences",  # of words: how many there are in the references
    "metric",
    "value",
    "mean",
    "low",
    "high",
    "p_bs",
    "p_ar",
    "mark",
    "length_ratio",
    "signature",
)
Record = dict[str, Any]


def record(report: Report) -> Record:
    """The report as one object, of the shape that stands above."""
    names = [system.name for system in report.systems]
    return {
        "nmtalign": __version__,
        "sentences": report.systems[0].everything.whole.sentences,
        "metrics": list(report.metrics),
        "signatures": dict(zip(report.metrics, report.signatures, strict=True)),
        "resampling": _resampling(report),
        "titles": {one.by: one.title for one in report.systems[0].everything.breakdowns},
        "systems": [
            {
                "name": system.name,
                **_section(report, system.everything),
                "no_unk": _section(report, system.no_unk) if system.no_unk else None,
            }
            for system in report.systems
        ],
        "words": [_words(table, names) for table in report.words],
        "unknown": _unknown(report.unknown, names) if report.unknown else None,
        "differences": [_difference(one, names) for one in report.differences],
    }


def csv_rows(report: Report) -> Iterator[Record]:
    """The report as the rows of one table: a figure each, under the names of CSV_COLUMNS; None where there is none."""
    for system in report.systems:
        for subset, section in (("all", system.everything), ("no-unk", system.no_unk)):
            for by, part in _parts(section) if section else ():
                for row in _figures(report, part):
                    yield {"system": system.name, "subset": subset, "by": by, "label": part.label, **row}
    yield from _word_rows(report)


def _parts(section: Section) -> Iterator[tuple[str, Part]]:
    yield "", section.whole
    for breakdown in section.breakdowns:
        for part in breakdown.parts:
            yield breakdown.by, part


def _figures(report: Report, part: Part) -> Iterator[Record]:
    for name, signature, score in zip(report.metrics, report.signatures, _scores(report, part).values(), strict=True):
        p_values = score.pop("p_values")
        yield {
            "sentences": part.sentences,
            "metric": name,
            **score,
            **{f"p_{test}": value for test, value in p_values.items()},
            "length_ratio": finite(part.length_ratio),
            "signature": signature,
        }


def _word_rows(report: Report) -> Iterator[Record]:
    for table in report.words:
        by = "word-place" if table.by == "place" else table.by
        for row in table.rows:
            for system, counts in zip(report.systems, row.counts, strict=True):
                common = {"system": system.name, "subset": "all", "by": by, "label": row.label}
                for metric in ("precision", "recall", "f1"):
                    value = finite(getattr(counts, metric))
                    yield {**common, "sentences": counts.reference, "metric": metric, "value": value}
    if report.unknown:
        common = {"subset": "all", "by": "unknown", "metric": "share"}
        for label, value in (("source", report.unknown.source), ("reference", report.unknown.reference)):
            yield {**common, "system": "", "label": label, "value": finite(value)}
        for system, share in zip(report.systems, report.unknown.systems, strict=True):
            yield {**common, "system": system.name, "label": "translation", "value": finite(share)}


def _resampling(report: Report) -> Record | None:
    drawn = report.resampling
    if drawn is None:
        return None
    return {
        "samples": drawn.samples,
        "trials": drawn.trials,
        "seed": drawn.seed,
        "level": drawn.level,
        "tests": list(report.tests),
    }


def _section(report: Report, section: Section) -> Record:
    return {
        **_part(report, section.whole),
        "by_length": _breakdown(report, section, "length"),
        "by_place": _breakdown(report, section, "place"),
    }


def _breakdown(report: Report, section: Section, by: str) -> list[Record]:
    found: list[Breakdown] = [one for one in section.breakdowns if one.by == by]
    return [{"label": part.label, **_part(report, part)} for one in found for part in one.parts]


def _part(report: Report, part: Part) -> Record:
    return {
        "sentences": part.sentences,
        "scores": _scores(report, part),
        "length_ratio": finite(part.length_ratio),
    }


def _scores(report: Report, part: Part) -> dict[str, Record]:
    return {name: _score(part, number) for number, name in enumerate(report.metrics)}


def _score(part: Part, number: int) -> Record:
    """The figures of one metric."""
    interval = part.intervals[number] if part.intervals else None
    return {
        "value": finite(part.values[number]),
        "mean": finite(interval.mean) if interval else None,
        "low": finite(interval.low) if interval else None,
        "high": finite(interval.high) if interval else None,
        "p_values": {test: finite(values[number]) for test, values in part.p_values.items()},
        "mark": part.marks[number] if part.marks else "",
    }


def _words(table: WordBreakdown, names: list[str]) -> Record:
    rows = [_word_row(row, names) for row in table.rows]
    return {"by": table.by, "title": table.title, "heading": table.heading, "rows": rows}


def _word_row(row: WordRow, names: list[str]) -> Record:
    systems = {
        name: {
            "hypothesis": counts.hypothesis,
            "matches": counts.matches,
            "precision": finite(counts.precision),
            "recall": finite(counts.recall),
            "f1": finite(counts.f1),
        }
        for name, counts in zip(names, row.counts, strict=True)
    }
    return {"label": row.label, "reference": row.counts[0].reference, "systems": systems}


def _unknown(rates: UnknownRates, names: list[str]) -> Record:
    systems = {name: finite(share) for name, share in zip(names, rates.systems, strict=True)}
    return {"source": finite(rates.source), "reference": finite(rates.reference), "systems": systems}


def _difference(one: Difference, names: list[str]) -> Record:
    columns = zip(names, one.texts, one.scores, one.segments, strict=False)  # of the first two systems
    return {
        "line": one.line,
        "source": one.source,
        "references": list(one.references),
        "metric": one.metric,
        "systems": [
            {
                "name": name,
                "text": text,
                "score": finite(score),
                "segments": [
                    {"text": part.text, "kind": part.kind, "in_reference": part.in_reference} for part in segments
                ],
            }
            for name, text, score, segments in columns
        ],
    }


def finite(value: float | None) -> float | None:
    """A figure that JSON can hold; None for none, and for what is no number."""
    return None if value is None or not math.isfinite(value) else float(value)
