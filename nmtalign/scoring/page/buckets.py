"""Scores cut by a property of the sentences: one table a breakdown, systems beside each other in every bucket."""

from collections.abc import Iterator, Sequence

from nmtalign.scoring.page.grids import Group, bar, grid, top_of, value_cell
from nmtalign.scoring.page.markup import count, figure, section, text
from nmtalign.scoring.page.scores import legend, metric_head, score_cell
from nmtalign.scoring.report import Breakdown, Part, Report, Section

Parts = Sequence[Sequence[Part | None]]  # a row a bucket, a column a system


def breakdowns(report: Report) -> str:
    """A section a breakdown: of all sentences, then of those without unknown words where they were cut as well."""
    pieces = []
    for known, ending in ((False, ""), (True, " (sentences without unknown words)")):
        sections = [system.no_unk if known else system.everything for system in report.systems]
        for number, cut in enumerate(_titles(sections)):
            key = f"{'known-' if known else ''}{cut.by}-{number}"
            found = [_find(each, cut) for each in sections]
            title = cut.title[:1].upper() + cut.title[1:]
            pieces.append(section(key, f"{title}{ending}", _table(report, key, cut, found)))
    return "".join(pieces)


def _titles(sections: Sequence[Section | None]) -> list[Breakdown]:
    """The breakdowns that any of them has, each once."""
    return list({cut.title: cut for each in sections if each for cut in each.breakdowns}.values())


def _find(within: Section | None, wanted: Breakdown) -> Breakdown | None:
    cuts = within.breakdowns if within else ()
    return next((cut for cut in cuts if cut.title == wanted.title), None)


def _table(report: Report, key: str, cut: Breakdown, found: Sequence[Breakdown | None]) -> str:
    labels = list(dict.fromkeys(part.label for each in found if each for part in each.parts))
    columns = [{part.label: part for part in each.parts} if each else {} for each in found]
    parts = [[column.get(label) for column in columns] for label in labels]
    sizes = _sizes(parts) if cut.common else None
    groups = [_metric(report, metric, parts) for metric in range(len(report.metrics))]
    groups += _ratios(parts)
    if sizes is None:
        cells = [[count(part.sentences) if part else value_cell(None) for part in each] for each in parts]
        groups.append(Group("Sentences", cells))
    caption = f"{', '.join(map(text, report.metrics))} {text(cut.title)}"
    if legend(report):
        caption += '; <a href="#signs">what the signs mean</a>'
    shown = ("sentences", sizes) if sizes is not None else None
    return grid(f"{key}-table", caption, report, (cut.heading, labels), shown, groups)


def _sizes(parts: Parts) -> list[int] | None:
    """The sentences of every bucket; None where they are not the same for all systems, as by length of hypothesis."""
    sizes = [{part.sentences for part in each if part} for each in parts]
    return [size.pop() for size in sizes] if all(len(size) == 1 for size in sizes) else None


def _metric(report: Report, metric: int, parts: Parts) -> Group:
    there = [part for each in parts for part in each if part]
    top = top_of((part.values[metric] for part in there), (part.intervals[metric] for part in there if part.intervals))

    def cell(part: Part | None) -> str:
        if part is None or part.values[metric] is None:
            return value_cell(None)
        interval = part.intervals[metric] if part.intervals else None
        drawn = bar(part.values[metric], top, interval)
        return score_cell(part, metric, report.resampling, half=False, drawn=drawn)

    return Group(metric_head(report.metrics[metric]), [[cell(part) for part in each] for each in parts])


def _ratios(parts: Parts) -> Iterator[Group]:
    values = [[part.length_ratio if part else None for part in each] for each in parts]
    if any(value is not None for each in values for value in each):
        yield Group("Length ratio", [[figure(value) for value in each] for each in values])
