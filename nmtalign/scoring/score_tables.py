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
from nmtalign.scoring.report import Breakdown, Part, Report, Section, SystemReport
from nmtalign.scoring.resampling import Interval, Resampling, Test
from nmtalign.scoring.words import WordCounts, WordTable

Parts = Sequence[Sequence[Part | None]]  # a row for each bucket, a column for each system
TESTS: dict[Test, str] = {"bs": "paired bootstrap", "ar": "approximate randomisation"}


def count(number: int) -> str:
    return f"{number:,}"


def sentences(number: int) -> str:
    return f"{number:,} sentence{'' if number == 1 else 's'}"


def figure(value: float | None) -> str:
    """Two decimals, as sacreBLEU prints a score."""
    return NOTHING if value is None else f"{value:.2f}"


def _upper_first(title: str) -> str:
    return title[:1].upper() + title[1:]


def name_of(name: str) -> Span:
    return Span(name, "name")


def lower_is_better(metric: str) -> bool:
    """Whether the metric counts errors."""
    return metric.upper().startswith("TER")


def metric_head(metric: str) -> Inline:
    """The metric and an arrow in the direction of better scores."""
    sign, words = ("↓", "lower is better") if lower_is_better(metric) else ("↑", "higher is better")
    return (Span(f"{metric} "), Span(sign, "arrow", words))


def score_cell(report: Report, part: Part, metric: int, *, half: bool = True, bar: Bar | None = None) -> Cell:
    """A score with its half width and mean (if `half`), mark, interval, p-values and bar."""
    value = part.values[metric]
    if value is None:
        return Cell(NOTHING)
    interval = part.intervals[metric] if part.intervals else None
    notes: list[Inline] = []
    if interval:
        notes += [f"mean {interval.mean:.2f}"] if half else []
        notes.append(f"[{interval.low:.2f}, {interval.high:.2f}]")
    return Cell(
        f"{value:.2f}",
        f"± {interval.half_width:.2f}" if half and interval else "",
        part.marks[metric] if part.marks else "",
        [*notes, *_p_values(report, part, metric)],
        bar,
        value,
    )


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
    rows: list[list[Inline | Cell]] = []
    for number, system in enumerate(report.systems):
        whole = system.everything.whole
        rows.append([_system(report, number), *(score_cell(report, whole, i) for i in range(len(report.metrics)))])
        if ratios:
            rows[-1].append(Cell(figure(whole.length_ratio), value=whole.length_ratio))
    size = report.systems[0].everything.whole.sentences if report.systems else 0
    head: list[Inline | Column] = ["System", *map(metric_head, report.metrics), *(["Length ratio"] if ratios else [])]
    caption = f"Corpus scores over {sentences(size)}"
    yield Heading("Scores", key="scores")
    yield DataTable(head, rows, caption, layout="scores", sortable=True, key="scores")
    yield Definitions(list(legend(report)), "legend", key="signs")


def legend(report: Report) -> Iterator[tuple[Inline, Inline]]:
    """The meaning of the signs that the report contains."""
    parts = [part for system in report.systems for part in _parts(system)]
    resampling = report.resampling or Resampling()
    if any(part.intervals for part in parts):
        yield "±", f"half the width of the 95% interval over {count(resampling.samples)} bootstrap samples"
        yield Span("[low, high]"), "that interval; the mean is the mean of the samples"
    several = len(report.tests) > 1
    if any(part.marks for part in parts):
        by = f"significantly (p < {resampling.level:g}) by {'both tests' if several else 'the test'}"
        yield f"{SIGNS['winner']} winner", f"better than every other system, {by}"
        by = "some test" if several else "the test"
        yield f"{SIGNS['tie']} tie", f"no winner, but not shown to be worse than the best system by {by}"
    if report.tests:
        tests = " and ".join(_test(test, resampling) for test in report.tests)
        against = f", by {tests}; * is below {resampling.level:g}"
        yield "p", ("of the difference against ", name_of(report.systems[0].name), against)


def _test(test: Test, resampling: Resampling) -> str:
    draws = f"{count(resampling.samples)} samples" if test == "bs" else f"{count(resampling.trials)} trials"
    return f"{TESTS[test]} ({test}, {draws})"


def _parts(system: SystemReport) -> Iterator[Part]:
    for section in (system.everything, system.no_unk):
        if section:
            yield section.whole
            for breakdown in section.breakdowns:
                yield from breakdown.parts


def table_one(report: Report) -> Iterator[Block]:
    """Table 1 of Bahdanau et al. (2015): all sentences, and those without an unknown word, for every metric."""
    systems = [(system, system.no_unk.whole) for system in report.systems if system.no_unk]
    if not systems:
        return
    ratios = _has_ratios(report)
    over: list[Inline] = [*map(metric_head, report.metrics), *(["Length ratio"] if ratios else []), "Sentences"]
    rows: list[list[Inline | Cell]] = []
    for number, system in enumerate(report.systems):
        pair = [system.everything.whole, system.no_unk.whole if system.no_unk else None]
        row: list[Inline | Cell] = [_system(report, number)]
        for metric in range(len(report.metrics)):
            row += [score_cell(report, part, metric, half=False) if part else Cell(NOTHING) for part in pair]
        row += [figure(part.length_ratio if part else None) for part in pair if ratios]
        rows.append([*row, *(count(part.sentences) if part else NOTHING for part in pair)])
    head: list[Inline | Column] = ["System", *(Column(kind, title) for title in over for kind in ("All", "No UNK"))]
    sizes = {(system.everything.whole.sentences, known.sentences) for system, known in systems}
    caption = "All sentences, and those with no unknown word in source and reference"
    if len(sizes) == 1:
        ((everything, known),) = sizes
        share = f" ({100 * known / everything:.1f}%)" if everything else ""
        caption = (
            f"All {sentences(everything)}, and the {count(known)}{share} with no unknown word in source and reference"
        )
    yield Heading("With and without unknown words", key="table1")
    yield DataTable(head, rows, caption, layout="scores paired", key="table1")


def breakdowns(report: Report) -> Iterator[Block]:
    """A section for each breakdown: of all sentences, and of those without unknown words where they are broken down."""
    for known, ending in ((False, ""), (True, " (sentences without unknown words)")):
        sections = [system.no_unk if known else system.everything for system in report.systems]
        titles = {cut.title: cut for each in sections if each for cut in each.breakdowns}
        for number, cut in enumerate(titles.values()):
            key = f"{'known-' if known else ''}{cut.by}-{number}"
            yield Heading(f"{_upper_first(cut.title)}{ending}", key=key)
            yield _bucket_table(report, key, cut, [_find(each, cut) for each in sections])


def _find(within: Section | None, wanted: Breakdown) -> Breakdown | None:
    cuts = within.breakdowns if within else ()
    return next((cut for cut in cuts if cut.title == wanted.title), None)


def _bucket_table(report: Report, key: str, cut: Breakdown, found: Sequence[Breakdown | None]) -> DataTable:
    labels = list(dict.fromkeys(part.label for each in found if each for part in each.parts))
    columns = [{part.label: part for part in each.parts} if each else {} for each in found]
    parts = [[column.get(label) for column in columns] for label in labels]
    sizes = _common_sizes(parts) if cut.common else None
    groups = [(metric_head(name), _metric_rows(report, metric, parts)) for metric, name in enumerate(report.metrics)]
    ratios = [[Cell(figure(part.length_ratio if part else None)) for part in each] for each in parts]
    groups += (
        [("Length ratio", ratios)]
        if any(part and part.length_ratio is not None for each in parts for part in each)
        else []
    )
    if sizes is None:
        groups.append(
            ("Sentences", [[Cell(count(part.sentences) if part else NOTHING) for part in each] for each in parts])
        )
    caption: tuple[str | Span, ...] = (Span(f"{', '.join(report.metrics)} {cut.title}"),)
    if any(legend(report)):
        caption += (Span(" (what the signs mean)", target="signs"),)
    shown = ("sentences", sizes) if sizes is not None else None
    return _grid(report, key, caption, (cut.heading, labels), shown, groups)


def _common_sizes(parts: Parts) -> list[int] | None:
    """The sentences of every bucket; None if they differ between systems, as by the length of the translations."""
    sizes = [{part.sentences for part in each if part} for each in parts]
    return [size.pop() for size in sizes] if all(len(size) == 1 for size in sizes) else None


def _metric_rows(report: Report, metric: int, parts: Parts) -> list[list[Cell]]:
    there = [part for each in parts for part in each if part]
    intervals = [part.intervals[metric] for part in there if part.intervals]
    top = _longest([part.values[metric] for part in there], intervals)

    def cell(part: Part | None) -> Cell:
        if part is None or part.values[metric] is None:
            return Cell(NOTHING)
        bar = _bar(part.values[metric], top, part.intervals[metric] if part.intervals else None)
        return score_cell(report, part, metric, half=False, bar=bar)

    return [[cell(part) for part in each] for each in parts]


def _longest(values: Iterable[float | None], intervals: Iterable[Interval | None] = ()) -> float:
    """The value at the end of the longest bar."""
    known = [value for value in values if value is not None]
    return max([*known, *(interval.high for interval in intervals if interval)], default=0.0)


def _bar(value: float | None, top: float, interval: Interval | None = None) -> Bar | None:
    if value is None or top <= 0:
        return None
    return Bar(value / top, (interval.low / top, interval.high / top) if interval else None)


def _grid(
    report: Report,
    key: str,
    caption: Inline,
    buckets: tuple[str, Sequence[str]],
    sizes: tuple[str, Sequence[int]] | None,
    groups: Sequence[tuple[Inline, Sequence[Sequence[Cell]]]],
) -> DataTable:
    """A table with a column for each system and in every group a row for each bucket.

    `buckets` and `sizes` are (heading, column). A bucket without any value is a row of the first group only.
    """
    heading, labels = buckets
    head: list[Inline | Column] = [heading, *([Column(sizes[0], size=True)] if sizes else [])]
    head += [name_of(system.name) for system in report.systems]
    starts: list[list[Inline | Cell]] = [[Span(label)] for label in labels]
    for start, size in zip(starts, sizes[1] if sizes else (), strict=False):
        start.append(count(size))
    bodies = [
        RowGroup(
            title,
            [
                [*start, *cells]
                for start, cells in zip(starts, rows, strict=True)
                if not number or any(cell.text != NOTHING for cell in cells)
            ],
        )
        for number, (title, rows) in enumerate(groups)
    ]
    return DataTable(head, caption=caption, groups=bodies, layout="grid", key=key)


def word_tables(report: Report) -> Iterator[Block]:
    """A section for each table of words: F1, precision and recall of every bucket and system."""
    for number, words in enumerate(report.words):
        key = f"words-{number}"
        groups: list[tuple[Inline, Sequence[Sequence[Cell]]]] = [
            ("F1", _word_rows(words, lambda counts: (counts.f1, ""))),
            ("Precision", _word_rows(words, lambda counts: (counts.precision, _of(counts.matches, counts.hypothesis)))),
            ("Recall", _word_rows(words, lambda counts: (counts.recall, _of(_found(counts), counts.reference)))),
        ]
        sizes = [row.counts[0].reference if row.counts else 0 for row in words.rows]
        caption = Span(f"F1, precision and recall in percent: {words.title}")
        labels = [row.label for row in words.rows]
        yield Heading(Span(_upper_first(words.title)), key=key)
        yield _grid(report, key, caption, (words.heading, labels), ("reference words", sizes), groups)


def _of(matches: float, words: float) -> str:
    return f"{_words(matches)} of {_words(words)}"


def _found(counts: WordCounts) -> float:
    return counts.matches if counts.found is None else counts.found


def _words(number: float) -> str:
    """A number of words; by place in the sentence it can have a fraction."""
    return count(int(number)) if float(number).is_integer() else f"{number:,.1f}"


def _word_rows(words: WordTable, value_of: Callable[[WordCounts], tuple[float | None, str]]) -> list[list[Cell]]:
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
