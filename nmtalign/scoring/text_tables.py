"""A report as lines and tables of text, for a terminal or a pipe."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmtalign.scoring.report import Breakdown, Part, Report, Section
from nmtalign.scoring.words import UnknownRates, WordBreakdown

BAR, SHORT_BAR = 20, 12  # columns of the screen
WIDE = 100  # columns of a terminal from which bars are long
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SIGNS = {"winner": " *", "tie": " =", "": "  "}
_TESTS = {"bs": "paired bootstrap of {samples} samples", "ar": "paired approximate randomisation of {trials} trials"}
_GIVEN = "|scores:given|"  # in the signature of scores that another program computed

Row = Sequence[str]


@dataclass(frozen=True)
class TextTable:
    """Rows under a head. If the table is too wide, it may be broken between groups of columns."""

    head: Row
    rows: Sequence[Row]
    groups: Sequence[int] = ()  # numbers of columns that stay together, after the fixed ones; () = each by itself
    fixed: int = 1  # first columns, which every piece of a broken table repeats
    left: frozenset[int] = field(default=frozenset({0}))  # columns of text; the others are figures


def report_blocks(
    report: Report, *, table1: bool = False, terminal: bool = False, columns: int = 80
) -> Iterator[str | TextTable]:
    """Lines and tables: the number of sentences, the scores of all sentences, then what else the report has."""
    first = report.systems[0]
    total = first.everything.whole.sentences
    yield f"sentences: {total}"
    if first.no_unk:
        yield f"no unknown word: {first.no_unk.whole.sentences} of {total} sentences"
    if table1:
        yield _table1(report)
    elif len(report.systems) == 1:
        yield from _one_system(report, terminal)
    else:
        yield from _several_systems(report)
    if table1 or len(report.systems) > 1:
        yield from _legend(report)
        only_bleu = table1 and not first.everything.breakdowns
        yield from (one for one in report.signatures if not only_bleu or "bleu" in one.partition("|")[0].lower())
    if report.unknown:
        yield _unknown(report, report.unknown)
    width = SHORT_BAR if terminal and columns < WIDE else BAR
    for subset, sections in _subsets(report):
        for number in range(len(sections[0].breakdowns)):
            cuts = [section.breakdowns[number] for section in sections]
            yield from _breakdown(report, subset, cuts, sections, width, bar_first=terminal)
    for words in report.words:
        yield f"\n{words.title}:"
        yield _words_table(report, words)


def figure(value: float | None, signature: str = "") -> str:
    """A score with two decimals, as `sacrebleu -w 2`, or four if it is of another program; `-` without a score."""
    return "-" if value is None else f"{value:.4f}" if _GIVEN in signature else f"{value:.2f}"


def bar(value: float | None, low: float | None, high: float | None, top: float, width: int = BAR) -> str:
    """A bar of `value` where `top` fills `width` places; with an interval, full to its low end, then shaded."""
    if value is None or top <= 0:
        return ""
    if low is None or high is None:
        eighths = round(8 * width * max(0.0, value) / top)
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    full, shaded = (round(width * max(0.0, end) / top) for end in (low, high))
    return "█" * full + "▒" * (shaded - full)


def _subsets(report: Report) -> Iterator[tuple[str, list[Section]]]:
    """The name of each subset, and its section of every system."""
    yield "all", [system.everything for system in report.systems]
    without = [system.no_unk for system in report.systems if system.no_unk]
    if without:
        yield "no unknown word", without


def _one_system(report: Report, terminal: bool) -> Iterator[str | TextTable]:
    """One row per metric; signatures are beside the scores in a pipe, and below the table on a terminal."""
    sections = [("all", report.systems[0].everything)]
    if report.systems[0].no_unk:
        sections.append(("no-unk", report.systems[0].no_unk))
    head, columns = ["metric"], [list(report.metrics)]
    for name, section in sections:
        part = section.whole
        head.append(name)
        columns.append([figure(value, one) for value, one in zip(part.values, report.signatures, strict=True)])
        if part.intervals:
            head.append("mean ± 95%")
            columns.append([_mean(report, part, number) for number in range(len(report.metrics))])
    if terminal:
        yield TextTable(head, list(zip(*columns, strict=True)))
        yield from report.signatures
    else:
        rows: list[Row] = list(zip(*columns, report.signatures, strict=True))
        yield TextTable([*head, "signature"], rows, left=frozenset({0, len(head)}))


def _mean(report: Report, part: Part, number: int) -> str:
    interval, signature = part.intervals[number], report.signatures[number]
    return f"{figure(interval.mean, signature)} ± {figure(interval.half_width, signature)}" if interval else "-"


def _several_systems(report: Report) -> Iterator[str | TextTable]:
    """Systems as rows and metrics as columns, for each subset."""
    for subset, sections in _subsets(report):
        if subset != "all":
            yield f"\n{subset} ({sections[0].whole.sentences} sentences):"
        parts = [section.whole for section in sections]
        yield _beside("system", report, [(name, number, parts) for number, name in enumerate(report.metrics)])


def _beside(heading: str, report: Report, columns: Iterable[tuple[str, int, Sequence[Part]]]) -> TextTable:
    """Systems as rows, and beside each other the columns of each (name, metric, part of every system)."""
    head, groups = [heading], []
    rows = [[system.name] for system in report.systems]
    for name, number, parts in columns:
        names, cells = _metric_columns(report, name, number, parts)
        head += names
        groups.append(len(names))
        for row, more in zip(rows, cells, strict=True):
            row += more
    return TextTable(head, rows, groups)


def _metric_columns(report: Report, name: str, number: int, parts: Sequence[Part]) -> tuple[list[str], list[list[str]]]:
    """(names of the columns of one metric, the cells of each part)."""
    marked = any(part.marks for part in parts)
    names, cells = [name + ("  " if marked else "")], [[_marked(report, part, number, marked)] for part in parts]
    if any(part.intervals for part in parts):
        names.append("±")
        for row, part in zip(cells, parts, strict=True):
            interval = part.intervals[number] if part.intervals else None
            row.append(figure(interval.half_width if interval else None, report.signatures[number]))
    for test in report.tests:
        names.append("p" if len(report.tests) == 1 else f"p ({test})")
        for row, part in zip(cells, parts, strict=True):
            row.append(_p_value(part, test, number))
    return names, cells


def _marked(report: Report, part: Part, number: int, marked: bool) -> str:
    shown = figure(part.values[number], report.signatures[number])
    return shown + (_SIGNS[part.marks[number]] if part.marks else "  " if marked else "")


def _p_value(part: Part, test: str, number: int) -> str:
    values = {**part.p_values}.get(test)  # type: ignore[call-overload]
    value = values[number] if values else None
    return "-" if value is None else f"{value:.4f}"


def _legend(report: Report) -> Iterator[str]:
    """The meaning of marks and p-values, if there are any."""
    if not report.tests or report.resampling is None:
        return
    drawn = report.resampling
    tests = " and ".join(_TESTS[test].format(samples=drawn.samples, trials=drawn.trials) for test in report.tests)
    yield (
        f"* better than every other system, = not shown to be worse than the best, by p < {drawn.level:g}; p: against "
        f"{report.systems[0].name}; {tests}, seed {drawn.seed}"
    )


def _table1(report: Report) -> TextTable:
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


def _breakdown(
    report: Report, subset: str, cuts: Sequence[Breakdown], sections: Sequence[Section], width: int, bar_first: bool
) -> Iterator[str | TextTable]:
    """One table per system, and before them one that compares the systems, if there are several."""
    ends = [
        end
        for section, cut in zip(sections, cuts, strict=True)
        for part in (*cut.parts, section.whole)
        for end in (part.values[0], part.intervals[0].high if part.intervals and part.intervals[0] else None)
        if end is not None
    ]
    top = max(ends, default=0.0)
    if len(sections) > 1 and cuts[0].common:
        yield f"\n{report.metrics[0]} {cuts[0].title} ({subset}, all systems):"
        yield _comparison(report, cuts, sections)
    for system, cut, section in zip(report.systems, cuts, sections, strict=True):
        of = f", {system.name}" if len(sections) > 1 else ""
        yield f"\n{cut.title} ({subset}{of}):"
        table = _parts_table(report, cut, section, top, width)
        yield _bar_first(table, len(report.metrics)) if bar_first else table


def _with_whole(cut: Breakdown, section: Section) -> list[Part]:
    """The parts and, unless the last of them is the whole already, the whole."""
    return [*cut.parts] if cut.parts and cut.parts[-1].label == section.whole.label else [*cut.parts, section.whole]


def _bar_first(table: TextTable, metrics: int) -> TextTable:
    """The table with the bar beside its figure, for a terminal, which may have to break the table."""
    last = len(table.head) - 1
    ratio = [last - 1] if table.head[-2] == "ratio" else []
    others = list(range(last - len(ratio) - metrics + 1, last - len(ratio)))
    first = list(range(others[0] if others else last - len(ratio)))
    order = [*first, last, *others[:1], *ratio, *others[1:]]
    left = frozenset(place for place, number in enumerate(order) if number in table.left)
    rows = [[row[number] for number in order] for row in table.rows]
    return TextTable([table.head[number] for number in order], rows, (), table.fixed, left)


def _parts_table(report: Report, cut: Breakdown, section: Section, top: float, width: int) -> TextTable:
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
        row += [figure(value, one) for value, one in zip(part.values[1:], report.signatures[1:], strict=True)]
        row += [figure(part.length_ratio)] if has_ratio else []
        low, high = (interval.low, interval.high) if interval else (None, None)
        rows.append([*row, bar(part.values[0], low, high, top, width)])
    return TextTable(head, rows, fixed=2, left=frozenset({0, len(head) - 1}))


def _comparison(report: Report, cuts: Sequence[Breakdown], sections: Sequence[Section]) -> TextTable:
    """Buckets as rows; for every system the first metric with its mark, and p."""
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
            row += [_marked(report, part, 0, marked), *(_p_value(part, test, 0) for test in tests)]
    return TextTable(head, rows, groups, fixed=2)


def _words_table(report: Report, words: WordBreakdown) -> TextTable:
    """For one system precision, recall and F1; for several systems F1, side by side."""
    if len(report.systems) == 1:
        head = [words.heading, "words", "F1", "precision", "recall"]
        rows = [
            [row.label, str(row.counts[0].reference), *map(figure, (one.f1, one.precision, one.recall))]
            for row in words.rows
            for one in row.counts
        ]
        return TextTable(head, rows)
    head = [words.heading, "words", *(f"F1 {system.name}" for system in report.systems)]
    return TextTable(
        head, [[row.label, str(row.counts[0].reference), *(figure(one.f1) for one in row.counts)] for row in words.rows]
    )


def _unknown(report: Report, rates: UnknownRates) -> str:
    shares = [("source", rates.source), ("reference", rates.reference)]
    shares += zip((system.name for system in report.systems), rates.systems, strict=True)
    known = ", ".join(f"{name} {share:.2%}" for name, share in shares if share is not None)
    return f"unknown words: {known}"
