"""How `score` prints its report: tables, one JSON object, or comma-separated values."""

import csv
import shutil
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from nmtalign.cli.common import escaped, json_text
from nmtalign.cli.score_differences import print_differences
from nmtalign.cli.tables import Row, Table, print_table
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, record
from nmtalign.scoring.report import Breakdown, Part, Report, Section
from nmtalign.scoring.words import UnknownRates, WordTable

BAR, SHORT_BAR = 20, 12  # places on the screen
WIDE = 100  # columns of a terminal from which bars are not short
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SIGNS = {"winner": " *", "tie": " =", "": "  "}
_TESTS = {"bs": "paired bootstrap of {samples} samples", "ar": "paired approximate randomisation of {trials} trials"}


def print_json(report: Report) -> None:
    """One JSON object; nmtalign.scoring.records says of what shape."""
    sys.stdout.write(json_text(record(report), indent=2) + "\n")


def print_csv(report: Report) -> None:
    """One table with a head, a figure a row."""
    writer = csv.DictWriter(sys.stdout, CSV_COLUMNS, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(csv_rows(report))


def print_text(
    report: Report, *, table1: bool = False, differences: bool = False, attention: Mapping[int, str] | None = None
) -> None:
    """Counts, the scores of all sentences, then what else was asked for; `attention` is drawn, by line from 1."""
    report = replace(report, systems=tuple(replace(one, name=escaped(one.name)) for one in report.systems))
    first = report.systems[0]
    total = first.everything.whole.sentences
    sys.stdout.write(f"sentences: {total}\n")
    if first.no_unk:
        sys.stdout.write(f"no unknown word: {first.no_unk.whole.sentences} of {total} sentences\n")
    if table1:
        print_table(_table1(report))
    elif len(report.systems) == 1:
        _print_one(report)
    else:
        _print_several(report)
    if table1 or len(report.systems) > 1:
        _print_legend(report)
        only_bleu = table1 and not first.everything.breakdowns
        _print_lines([one for one in report.signatures if not only_bleu or "bleu" in one.partition("|")[0].lower()])
    if report.unknown:
        _print_unknown(report, report.unknown)
    for subset, sections in _subsets(report):
        for number in range(len(sections[0].breakdowns)):
            _print_breakdown(report, subset, [section.breakdowns[number] for section in sections], sections)
    for words in report.words:
        sys.stdout.write(f"\n{escaped(words.title)}:\n")
        print_table(_words_table(report, words))
    if differences:
        print_differences(report, attention or {})


def figure(value: float | None) -> str:
    """A score as it is printed: two decimals, as `sacrebleu -w 2`; `-` where there is nothing to score."""
    return "-" if value is None else f"{value:.2f}"


def bar(value: float | None, low: float | None, high: float | None, top: float, width: int = BAR) -> str:
    """A bar of `value` where `top` fills `width` places; with an interval, full to its low end, then shaded."""
    if value is None or top <= 0:
        return ""
    if low is None or high is None:
        eighths = round(8 * width * max(0.0, value) / top)
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    full, shaded = (round(width * max(0.0, end) / top) for end in (low, high))
    return "█" * full + "▒" * (shaded - full)


def _print_lines(lines: Sequence[str]) -> None:
    sys.stdout.writelines(f"{escaped(line)}\n" for line in lines)


def _subsets(report: Report) -> Iterator[tuple[str, list[Section]]]:
    """What a subset is called, and it of every system."""
    yield "all", [system.everything for system in report.systems]
    without = [system.no_unk for system in report.systems if system.no_unk]
    if without:
        yield "no unknown word", without


def _print_one(report: Report) -> None:
    """A row a metric; signatures beside them in a pipe, under the table on a terminal, where no column breaks them."""
    sections = [("all", report.systems[0].everything)]
    if report.systems[0].no_unk:
        sections.append(("no-unk", report.systems[0].no_unk))
    head, columns = ["metric"], [list(report.metrics)]
    for name, section in sections:
        part = section.whole
        head.append(name)
        columns.append([figure(value) for value in part.values])
        if part.intervals:
            head.append("mean ± 95%")
            columns.append([_mean(part, number) for number in range(len(report.metrics))])
    if sys.stdout.isatty():
        print_table(Table(head, list(zip(*columns, strict=True))))
        _print_lines(report.signatures)
    else:
        rows: list[Row] = list(zip(*columns, report.signatures, strict=True))
        print_table(Table([*head, "signature"], rows, left=frozenset({0, len(head)})))


def _mean(part: Part, number: int) -> str:
    interval = part.intervals[number]
    return f"{interval.mean:.2f} ± {interval.half_width:.2f}" if interval else "-"


def _print_several(report: Report) -> None:
    """Systems as rows, metrics as columns, for each subset."""
    for subset, sections in _subsets(report):
        if subset != "all":
            sys.stdout.write(f"\n{subset} ({sections[0].whole.sentences} sentences):\n")
        parts = [section.whole for section in sections]
        print_table(_systems_table(report, parts, [(name, number) for number, name in enumerate(report.metrics)]))


def _systems_table(report: Report, parts: Sequence[Part], metrics: Sequence[tuple[str, int]]) -> Table:
    """Systems as rows; of each metric its value and mark, ± and p-values."""
    return _beside("system", report, [(name, number, parts) for name, number in metrics])


def _beside(heading: str, report: Report, columns: Iterable[tuple[str, int, Sequence[Part]]]) -> Table:
    """Systems as rows, and beside each other the columns of each (name, metric, part of every system)."""
    head, groups = [heading], []
    rows = [[system.name] for system in report.systems]
    for name, number, parts in columns:
        names, cells = _metric_columns(report, name, number, parts)
        head += names
        groups.append(len(names))
        for row, more in zip(rows, cells, strict=True):
            row += more
    return Table(head, rows, groups)


def _metric_columns(report: Report, name: str, number: int, parts: Sequence[Part]) -> tuple[list[str], list[list[str]]]:
    """(names of the columns of one metric, the cells of each part)."""
    marked = any(part.marks for part in parts)
    names, cells = [name + ("  " if marked else "")], [[_marked(part, number, marked)] for part in parts]
    if any(part.intervals for part in parts):
        names.append("±")
        for row, part in zip(cells, parts, strict=True):
            interval = part.intervals[number] if part.intervals else None
            row.append(figure(interval.half_width if interval else None))
    for test in report.tests:
        names.append("p" if len(report.tests) == 1 else f"p ({test})")
        for row, part in zip(cells, parts, strict=True):
            row.append(_p_value(part, test, number))
    return names, cells


def _marked(part: Part, number: int, marked: bool) -> str:
    return figure(part.values[number]) + (_SIGNS[part.marks[number]] if part.marks else "  " if marked else "")


def _p_value(part: Part, test: str, number: int) -> str:
    values = {**part.p_values}.get(test)  # type: ignore[call-overload]
    value = values[number] if values else None
    return "-" if value is None else f"{value:.4f}"


def _print_legend(report: Report) -> None:
    """What marks and p-values mean, where there are any."""
    if not report.tests or report.resampling is None:
        return
    drawn = report.resampling
    tests = " and ".join(_TESTS[test].format(samples=drawn.samples, trials=drawn.trials) for test in report.tests)
    sys.stdout.write(
        f"* better than every other system, = not shown to be worse than the best, by p < {drawn.level:g}; p: against "
        f"{report.systems[0].name}; {tests}, seed {drawn.seed}\n"
    )


def _table1(report: Report) -> Table:
    """The paper's Table 1: systems as rows, BLEU of all sentences and of those without unknown words as columns."""
    subsets = [(name, [section.whole for section in sections]) for name, sections in _subsets(report)]
    titles = {"all": "All", "no unknown word": "No UNK"}
    chosen = [(number, name) for number, name in enumerate(report.metrics) if "bleu" in name.lower()]
    columns = [
        (titles[subset] if metric == "BLEU" else f"{titles[subset]} ({metric})", number, parts)
        for number, metric in chosen or [(0, report.metrics[0])]
        for subset, parts in subsets
    ]
    return _beside("model", report, columns)


def _print_breakdown(report: Report, subset: str, cuts: Sequence[Breakdown], sections: Sequence[Section]) -> None:
    """A table a system, and one that sets the systems side by side where there are several."""
    values = [
        end
        for section, cut in zip(sections, cuts, strict=True)
        for part in (*cut.parts, section.whole)
        for end in (part.values[0], part.intervals[0].high if part.intervals and part.intervals[0] else None)
        if end is not None
    ]
    top = max(values, default=0.0)
    if len(sections) > 1 and cuts[0].common:
        sys.stdout.write(f"\n{report.metrics[0]} {cuts[0].title} ({subset}, all systems):\n")
        print_table(_comparison(report, cuts, sections))
    for system, cut, section in zip(report.systems, cuts, sections, strict=True):
        of = f", {system.name}" if len(sections) > 1 else ""
        sys.stdout.write(f"\n{cut.title} ({subset}{of}):\n")
        terminal = sys.stdout.isatty()
        short = terminal and shutil.get_terminal_size().columns < WIDE
        table = _parts_table(report, cut, section, top, SHORT_BAR if short else BAR)
        print_table(_bar_first(table, len(report.metrics)) if terminal else table)


def _with_whole(cut: Breakdown, section: Section) -> list[Part]:
    """The parts, and at the end the whole, which the last one of cumulative parts is already."""
    return [*cut.parts] if cut.parts and cut.parts[-1].label == section.whole.label else [*cut.parts, section.whole]


def _bar_first(table: Table, metrics: int) -> Table:
    """The table for a terminal, which may have to break it: the bar, at the end of a line in a pipe, by its figure."""
    last = len(table.head) - 1
    ratio = [last - 1] if table.head[-2] == "ratio" else []
    others = list(range(last - len(ratio) - metrics + 1, last - len(ratio)))
    first = list(range(others[0] if others else last - len(ratio)))
    return table.columns([*first, last, *others[:1], *ratio, *others[1:]])


def _parts_table(report: Report, cut: Breakdown, section: Section, top: float, width: int) -> Table:
    """Words, sentences, the scores, the length ratio, and a bar of the first score."""
    parts = _with_whole(cut, section)
    confident = any(part.intervals for part in parts)
    has_ratio = any(part.length_ratio is not None for part in parts)
    first, *others = report.metrics
    head = [cut.heading, "sentences", first, *(["[low, high]"] if confident else []), *others]
    head += [*(["ratio"] if has_ratio else []), first]
    rows = []
    for part in parts:
        interval = part.intervals[0] if part.intervals else None
        row = [part.label, str(part.sentences), figure(part.values[0])]
        if confident:
            row.append(f"[{interval.low:.2f}, {interval.high:.2f}]" if interval else "-")
        row += [figure(value) for value in part.values[1:]]
        row += [figure(part.length_ratio)] if has_ratio else []
        low, high = (interval.low, interval.high) if interval else (None, None)
        rows.append([*row, bar(part.values[0], low, high, top, width)])
    return Table(head, rows, fixed=2, left=frozenset({0, len(head) - 1}))


def _comparison(report: Report, cuts: Sequence[Breakdown], sections: Sequence[Section]) -> Table:
    """Buckets as rows; of every system the first metric with its mark, and p."""
    columns = [_with_whole(cut, section) for cut, section in zip(cuts, sections, strict=True)]
    head, groups = [cuts[0].heading, "sentences"], []
    rows = [[part.label, str(part.sentences)] for part in columns[0]]
    for number, (system, parts) in enumerate(zip(report.systems, columns, strict=True)):
        marked = any(part.marks for part in parts)
        head.append(system.name + ("  " if marked else ""))
        tests = report.tests if number else ()
        head += ["p" if len(report.tests) == 1 else f"p ({test})" for test in tests]
        groups.append(1 + len(tests))
        for row, part in zip(rows, parts, strict=True):
            row += [_marked(part, 0, marked), *(_p_value(part, test, 0) for test in tests)]
    return Table(head, rows, groups, fixed=2)


def _words_table(report: Report, words: WordTable) -> Table:
    """Of one system precision, recall and F1; of several F1, side by side."""
    if len(report.systems) == 1:
        head = [words.heading, "words", "F1", "precision", "recall"]
        rows = [
            [row.label, str(row.counts[0].reference), *map(figure, (one.f1, one.precision, one.recall))]
            for row in words.rows
            for one in row.counts
        ]
        return Table(head, rows)
    head = [words.heading, "words", *(f"F1 {system.name}" for system in report.systems)]
    return Table(
        head, [[row.label, str(row.counts[0].reference), *(figure(one.f1) for one in row.counts)] for row in words.rows]
    )


def _print_unknown(report: Report, rates: UnknownRates) -> None:
    shares = [("source", rates.source), ("reference", rates.reference)]
    shares += zip((system.name for system in report.systems), rates.systems, strict=True)
    known = ", ".join(f"{name} {share:.2%}" for name, share in shares if share is not None)
    sys.stdout.write(f"unknown words: {known}\n")
