"""The tables of the report of `nmtalign score`: corpus scores, Table 1, scores by bucket, words, unknown words."""

from collections.abc import Callable, Iterable, Iterator, Sequence

from nmtalign.report.document import (
    NOTHING,
    SIGNS,
    Bar,
    Block,
    Cell,
    Column,
    DataTable,
    Definitions,
    Heading,
    Inline,
    RowGroup,
    Span,
)
from nmtalign.scoring.report import Breakdown, Part, Report, SystemReport
from nmtalign.scoring.resampling import Interval, Resampling, Test
from nmtalign.scoring.words import WordBreakdown, WordCounts

Row = list[Inline | Cell]
Rows = Sequence[Sequence[Cell]]  # a row for each bucket, a column for each system
TESTS: dict[Test, str] = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


def sentences(number: int) -> str:
    return f"{number:,} sentence{'' if number == 1 else 's'}"


def figure(value: float | None) -> str:
    """Two decimals, as sacreBLEU prints a score."""
    return NOTHING if value is None else f"{value:.2f}"


def name_of(name: str) -> Span:
    return Span(name, "name")


def lower_is_better(metric: str) -> bool:
    """Whether the metric counts errors."""
    return metric == "TER"


def _metric_head(metric: str) -> Inline:
    """The metric and an arrow in the direction of better scores."""
    sign, words = ("↓", "lower is better") if lower_is_better(metric) else ("↑", "higher is better")
    return (Span(f"{metric} "), Span(sign, "arrow", words))


def score_cell(report: Report, part: Part, metric: int, *, half: bool = True, top: float = 0.0) -> Cell:
    """A score with its interval, mark and p-values; with `half` also half width and mean, with `top` also a bar."""
    value, interval = part.values[metric], part.interval(metric)
    if value is None:
        return Cell(NOTHING)
    notes: list[Inline] = []
    if interval:
        notes += [f"mean {interval.mean:.2f}"] if half else []
        notes.append(f"[{interval.low:.2f}, {interval.high:.2f}]")
    width = f"± {interval.half_width:.2f}" if half and interval else ""
    notes += _p_values(report, part, metric)
    return Cell(f"{value:.2f}", width, part.mark(metric), notes, _bar(value, top, interval), value)


def _bar(value: float, top: float, interval: Interval | None = None) -> Bar | None:
    """A bar of `value`, where `top` is the value of the longest bar."""
    if top <= 0:
        return None
    return Bar(value / top, (interval.low / top, interval.high / top) if interval else None)


def _p_values(report: Report, part: Part, metric: int) -> Iterator[Inline]:
    level = report.resampling.level if report.resampling else 0.0
    for test, values in part.p_values.items():
        value = values[metric]
        if value is not None:
            which = (Span(test, "sub", TESTS[test]),) if len(part.p_values) > 1 else ()
            yield ("p", *which, f" {value:.4f}{'*' if value < level else ''}")


def _system(report: Report, number: int) -> Inline:
    """The head of a system's row; the first system is the one against which the others are tested."""
    name = name_of(report.systems[number].name)
    return (name, Span("baseline", "tag")) if report.tests and number == 0 else name


def _has_ratios(report: Report) -> bool:
    return any(system.everything.whole.length_ratio is not None for system in report.systems)


def scores(report: Report) -> Iterator[Block]:
    """A table with a row for each system and a column for each metric, and the meaning of its signs."""
    ratios = _has_ratios(report)
    rows: list[Row] = []
    for number, system in enumerate(report.systems):
        whole = system.everything.whole
        rows.append([_system(report, number), *(score_cell(report, whole, i) for i in range(len(report.metrics)))])
        if ratios:
            rows[-1].append(Cell(figure(whole.length_ratio), value=whole.length_ratio))
    head: list[Inline | Column] = ["System", *map(_metric_head, report.metrics), *(["Length ratio"] if ratios else [])]
    caption = f"Corpus scores over {sentences(report.systems[0].everything.whole.sentences)}"
    yield Heading("Scores", key="scores")
    yield DataTable(head, rows, caption, layout="scores", sortable=True, key="scores")
    yield Definitions(list(_legend(report)), "legend", key="signs")


def _legend(report: Report) -> Iterator[tuple[Inline, Inline]]:
    """The meaning of the signs that the report contains."""
    parts = [part for system in report.systems for part in _parts(system)]
    resampling = report.resampling or Resampling()
    if any(part.intervals for part in parts):
        yield "±", f"half the width of the 95% interval over {resampling.samples:,} bootstrap samples"
        yield Span("[low, high]"), "that interval; the mean is the mean of the samples"
    several = len(report.tests) > 1
    if any(part.marks for part in parts):
        by = f"significantly (p < {resampling.level:g}) by {'both tests' if several else 'the test'}"
        yield f"{SIGNS['winner']} winner", f"better than every other system, {by}"
        by = "some test" if several else "the test"
        yield f"{SIGNS['tie']} tie", f"no winner, but not shown to be worse than the best system by {by}"
    if report.tests:
        draws = {"bs": f"{resampling.samples:,} samples", "ar": f"{resampling.trials:,} trials"}
        tests = " and ".join(f"{TESTS[test]} ({test}, {draws[test]})" for test in report.tests)
        against = f", by {tests}; * is below {resampling.level:g}"
        yield "p", ("of the difference against ", name_of(report.systems[0].name), against)


def _parts(system: SystemReport) -> Iterator[Part]:
    for section in (system.everything, system.no_unk):
        if section:
            yield section.whole
            for breakdown in section.breakdowns:
                yield from breakdown.parts


def table_one(report: Report) -> Iterator[Block]:
    """Table 1 of Bahdanau et al. (2015): all sentences, and those without an unknown word, for every metric."""
    pairs = [(system.everything.whole, system.no_unk.whole) for system in report.systems if system.no_unk]
    if not pairs:
        return
    ratios = _has_ratios(report)
    rows: list[Row] = []
    for number, pair in enumerate(pairs):
        row: Row = [_system(report, number)]
        for metric in range(len(report.metrics)):
            row += [score_cell(report, part, metric, half=False) for part in pair]
        row += [figure(part.length_ratio) for part in pair if ratios]
        rows.append([*row, *(f"{part.sentences:,}" for part in pair)])
    over: list[Inline] = [*map(_metric_head, report.metrics), *(["Length ratio"] if ratios else []), "Sentences"]
    head: list[Inline | Column] = ["System", *(Column(kind, title) for title in over for kind in ("All", "No UNK"))]
    everything, known = (part.sentences for part in pairs[0])
    share = f" ({100 * known / everything:.1f}%)" if everything else ""
    caption = f"All {sentences(everything)}, and the {known:,}{share} with no unknown word in source and reference"
    yield Heading("With and without unknown words", key="table1")
    yield DataTable(head, rows, caption, layout="scores paired", key="table1")


def breakdowns(report: Report) -> Iterator[Block]:
    """A section for each breakdown: of all sentences, and of those without unknown words if there are any."""
    for kind, ending in (("", ""), ("known-", " (sentences without unknown words)")):
        sections = [system.no_unk if kind else system.everything for system in report.systems]
        cuts = zip(*(section.breakdowns for section in sections if section), strict=True)
        for number, of_systems in enumerate(cuts):
            key = f"{kind}{of_systems[0].by}-{number}"
            yield Heading(f"{_upper_first(of_systems[0].title)}{ending}", key=key)
            yield _bucket_table(report, key, of_systems)


def _upper_first(title: str) -> str:
    return title[:1].upper() + title[1:]


def _bucket_table(report: Report, key: str, cuts: Sequence[Breakdown]) -> DataTable:
    """The table of a breakdown; `cuts` contains that of each system."""
    first = cuts[0]
    parts = list(zip(*(cut.parts for cut in cuts), strict=True))  # a row for each bucket, a column for each system
    groups: list[tuple[Inline, Rows]] = []
    for metric, name in enumerate(report.metrics):
        every = [part for row in parts for part in row]
        top = _longest([part.values[metric] for part in every], [part.interval(metric) for part in every])
        rows = [[score_cell(report, part, metric, half=False, top=top) for part in row] for row in parts]
        groups.append((_metric_head(name), rows))
    if any(part.length_ratio is not None for row in parts for part in row):
        groups.append(("Length ratio", [[Cell(figure(part.length_ratio)) for part in row] for row in parts]))
    if not first.common:
        groups.append(("Sentences", [[Cell(f"{part.sentences:,}") for part in row] for row in parts]))
    caption: tuple[str | Span, ...] = (Span(f"{', '.join(report.metrics)} {first.title}"),)
    if any(_legend(report)):
        caption += (Span(" (what the signs mean)", target="signs"),)
    starts: list[Row] = [[Span(row[0].label), *([f"{row[0].sentences:,}"] if first.common else [])] for row in parts]
    head: list[Inline | Column] = [first.heading, *([Column("sentences", size=True)] if first.common else [])]
    return _grid(report, key, caption, head, starts, groups)


def _longest(values: Iterable[float | None], intervals: Iterable[Interval | None] = ()) -> float:
    """The value of the longest bar."""
    known = [value for value in values if value is not None]
    return max([*known, *(interval.high for interval in intervals if interval)], default=0.0)


def _grid(
    report: Report,
    key: str,
    caption: Inline,
    head: Sequence[Inline | Column],
    starts: Sequence[Row],
    groups: Sequence[tuple[Inline, Rows]],
) -> DataTable:
    """A table with a column for each system, and in every group a row for each bucket.

    `head` and `starts` are the columns before the systems: their heads, and their cells for each bucket. A bucket
    without any value is a row of the first group only.
    """
    bodies = []
    for number, (title, rows) in enumerate(groups):
        lines = list(zip(starts, rows, strict=True))
        if number:
            lines = [(start, cells) for start, cells in lines if any(cell.text != NOTHING for cell in cells)]
        bodies.append(RowGroup(title, [[*start, *cells] for start, cells in lines]))
    names = [name_of(system.name) for system in report.systems]
    return DataTable([*head, *names], caption=caption, groups=bodies, layout="grid", key=key)


def word_tables(report: Report) -> Iterator[Block]:
    """A section for each table of words: F1, precision and recall of every bucket and system."""
    for number, words in enumerate(report.words):
        key = f"words-{number}"
        groups: list[tuple[Inline, Rows]] = [
            ("F1", _word_rows(words, lambda counts: (counts.f1, ""))),
            ("Precision", _word_rows(words, lambda counts: (counts.precision, _of(counts.matches, counts.hypothesis)))),
            ("Recall", _word_rows(words, lambda counts: (counts.recall, _of(_found(counts), counts.reference)))),
        ]
        starts: list[Row] = [[Span(row.label), f"{row.counts[0].reference:,}"] for row in words.rows]
        caption = Span(f"F1, precision and recall in percent: {words.title}")
        yield Heading(Span(_upper_first(words.title)), key=key)
        yield _grid(report, key, caption, [words.heading, Column("reference words", size=True)], starts, groups)


def _of(matches: float, words: int) -> str:
    """The matches, which by place in the sentence can have a fraction, of a number of words."""
    return f"{matches:,.{0 if float(matches).is_integer() else 1}f} of {words:,}"


def _found(counts: WordCounts) -> float:
    return counts.matches if counts.found is None else counts.found


def _word_rows(words: WordBreakdown, value_of: Callable[[WordCounts], tuple[float | None, str]]) -> Rows:
    """The cells of one quantity; `value_of` returns the value and its small print."""
    top = _longest(value_of(counts)[0] for row in words.rows for counts in row.counts)

    def cell(counts: WordCounts) -> Cell:
        value, note = value_of(counts)
        if value is None:
            return Cell(NOTHING)
        return Cell(figure(value), notes=[note] if note else (), bar=_bar(value, top), value=value)

    return [[cell(counts) for counts in row.counts] for row in words.rows]


def unknown_rates(report: Report) -> Iterator[Block]:
    """The share of words that are not in the vocabulary, a row for each text."""
    rates = report.unknown
    if rates is None:
        return
    texts: list[tuple[Inline, float]] = [] if rates.source is None else [("Source", rates.source)]
    texts.append(("References", rates.reference))
    texts += [(name_of(system.name), rate) for system, rate in zip(report.systems, rates.systems, strict=True)]
    rows = [(name, f"{100 * rate:.2f}%") for name, rate in texts]
    caption = "Share of words that are not in the vocabulary"
    yield Heading("Unknown words", key="unknown")
    yield DataTable(("Text", "Unknown words"), rows, caption, layout="scores narrow", key="unknown")
