"""A report as lines and tables of text, for a terminal or a pipe."""

from collections.abc import Iterable, Iterator, Sequence

from nmtalign.scoring.report import Breakdown, Part, Report, Section
from nmtalign.scoring.resampling import Test
from nmtalign.scoring.words import UnknownRates, WordBreakdown
from nmtalign.text.text_table import Row, TextTable

BAR, SHORT_BAR = 20, 12  # columns of the screen
WIDE = 100  # columns of a terminal from which bars are long
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SIGNS = {"winner": " *", "tie": " =", "": "  "}
_TESTS = {"bs": "paired bootstrap of {samples} samples", "ar": "paired approximate randomisation of {trials} trials"}
_GIVEN = "|scores:given|"  # in the signature of scores that another program computed


def report_blocks(
    report: Report, *, table1: bool = False, terminal: bool = False, columns: int = 80
) -> Iterator[str | TextTable]:
    """Lines and tables: the number of sentences, the scores of all sentences, then the rest of the report."""
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
            yield from _breakdown(report, subset, sections, number, width, terminal)
    for words in report.words:
        yield f"\n{words.title}:"
        yield _words_table(report, words)


def figure(value: float | None, signature: str = "") -> str:
    """A score with two decimals like `sacrebleu -w 2`, or with four if it was given; `-` without a score."""
    return "-" if value is None else f"{value:.4f}" if _GIVEN in signature else f"{value:.2f}"


def bar(value: float | None, low: float | None, high: float | None, top: float, width: int = BAR) -> str:
    """A bar of `value`, where `top` fills `width` columns; with an interval, full to its low end, then shaded."""
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
    system = report.systems[0]
    columns: list[Row] = [("metric", *report.metrics)]
    for name, section in (("all", system.everything), ("no-unk", system.no_unk)):
        if section:
            part = section.whole
            columns.append((name, *map(figure, part.values, report.signatures)))
            if part.intervals:
                columns.append(("mean ± 95%", *(_mean(report, part, i) for i in range(len(report.metrics)))))
    if not terminal:
        columns.append(("signature", *report.signatures))
    head, *rows = zip(*columns, strict=True)
    yield TextTable(head, rows, left=frozenset({0} if terminal else {0, len(head) - 1}))
    if terminal:
        yield from report.signatures


def _mean(report: Report, part: Part, metric: int) -> str:
    interval, signature = part.interval(metric), report.signatures[metric]
    return f"{figure(interval.mean, signature)} ± {figure(interval.half_width, signature)}" if interval else "-"


def _several_systems(report: Report) -> Iterator[str | TextTable]:
    """Systems as rows and metrics as columns, for each subset."""
    for subset, sections in _subsets(report):
        if subset != "all":
            yield f"\n{subset} ({sections[0].whole.sentences} sentences):"
        parts = [section.whole for section in sections]
        yield _beside("system", report, [(name, number, parts) for number, name in enumerate(report.metrics)])


def _beside(heading: str, report: Report, scores: Iterable[tuple[str, int, Sequence[Part]]]) -> TextTable:
    """Systems as rows; for each of `scores` (name, metric, part of every system) a group of columns."""
    columns: list[Row] = [(heading, *(system.name for system in report.systems))]
    groups = []
    for name, metric, parts in scores:
        group: list[Row] = [_values(name, report, parts, metric)]
        if any(part.intervals for part in parts):
            widths = [interval.half_width if interval else None for interval in (one.interval(metric) for one in parts)]
            group.append(("±", *(figure(width, report.signatures[metric]) for width in widths)))
        group += [_p_values(report, test, parts, metric) for test in report.tests]
        columns += group
        groups.append(len(group))
    head, *rows = zip(*columns, strict=True)
    return TextTable(head, rows, groups)


def _values(name: str, report: Report, parts: Sequence[Part], metric: int) -> Row:
    """A column of scores and their marks under a name."""
    marked = any(part.marks for part in parts)
    cells = (
        figure(part.values[metric], report.signatures[metric]) + (_SIGNS[part.mark(metric)] if marked else "")
        for part in parts
    )
    return (name + ("  " if marked else ""), *cells)


def _p_values(report: Report, test: Test, parts: Sequence[Part], metric: int) -> Row:
    """The column of a test."""
    values = [part.p_values[test][metric] if part.p_values else None for part in parts]
    name = "p" if len(report.tests) == 1 else f"p ({test})"
    return (name, *("-" if value is None else f"{value:.4f}" for value in values))


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
    """The article's Table 1: systems as rows, BLEU of all sentences and of those without unknown words as columns."""
    titles = {"all": "All", "no unknown word": "No UNK"}
    subsets = [(titles[name], [section.whole for section in sections]) for name, sections in _subsets(report)]
    chosen = [(number, name) for number, name in enumerate(report.metrics) if "bleu" in name.lower()]
    columns = [
        (title if metric == "BLEU" else f"{title} ({metric})", number, parts)
        for number, metric in chosen or [(0, report.metrics[0])]
        for title, parts in subsets
    ]
    return _beside("model", report, columns)


def _breakdown(
    report: Report, subset: str, sections: Sequence[Section], number: int, width: int, terminal: bool
) -> Iterator[str | TextTable]:
    """One table per system, and before them one that compares the systems, if there are several."""
    cuts = [section.breakdowns[number] for section in sections]
    columns = [_with_whole(cut, section) for cut, section in zip(cuts, sections, strict=True)]
    if len(sections) > 1 and cuts[0].common:
        yield f"\n{report.metrics[0]} {cuts[0].title} ({subset}, all systems):"
        yield _comparison(report, cuts[0].heading, columns)
    every = [part for parts in columns for part in parts]
    ends = [part.values[0] for part in every] + [one.high for part in every if (one := part.interval(0))]
    top = max((end for end in ends if end is not None), default=0.0)
    for system, cut, parts in zip(report.systems, cuts, columns, strict=True):
        of = f", {system.name}" if len(sections) > 1 else ""
        yield f"\n{cut.title} ({subset}{of}):"
        yield _parts_table(report, cut.heading, parts, top, width, terminal)


def _with_whole(cut: Breakdown, section: Section) -> list[Part]:
    """The parts and the complete subset, unless the last part is the complete subset."""
    return [*cut.parts] if cut.parts and cut.parts[-1].label == section.whole.label else [*cut.parts, section.whole]


def _comparison(report: Report, heading: str, columns: Sequence[Sequence[Part]]) -> TextTable:
    """Buckets as rows; for every system the first metric with its mark, and p."""
    texts = _labels(heading, columns[0])
    groups = []
    for number, (system, parts) in enumerate(zip(report.systems, columns, strict=True)):
        tests = report.tests if number else ()
        texts += [_values(system.name, report, parts, 0), *(_p_values(report, test, parts, 0) for test in tests)]
        groups.append(1 + len(tests))
    head, *rows = zip(*texts, strict=True)
    return TextTable(head, rows, groups, fixed=2)


def _labels(heading: str, parts: Sequence[Part]) -> list[Row]:
    """The first two columns of a breakdown."""
    return [(heading, *(part.label for part in parts)), ("sentences", *(str(part.sentences) for part in parts))]


def _parts_table(
    report: Report, heading: str, parts: Sequence[Part], top: float, width: int, terminal: bool
) -> TextTable:
    """Words, sentences, the scores, the length ratio, and a bar of the first score.

    On a terminal, where the table may have to be broken, the bar is beside its score.
    """
    intervals = [part.interval(0) for part in parts]
    scores: list[Row] = [
        (name, *(figure(part.values[number], report.signatures[number]) for part in parts))
        for number, name in enumerate(report.metrics)
    ]
    start = [*_labels(heading, parts), scores[0]]
    if any(part.intervals for part in parts):
        start.append(("[low, high]", *(f"[{one.low:.2f}, {one.high:.2f}]" if one else "-" for one in intervals)))
    ratios: list[Row] = []
    if any(part.length_ratio is not None for part in parts):
        ratios.append(("ratio", *(figure(part.length_ratio) for part in parts)))
    bars = (
        bar(part.values[0], one.low if one else None, one.high if one else None, top, width)
        for part, one in zip(parts, intervals, strict=True)
    )
    drawn = (report.metrics[0], *bars)
    if terminal:
        columns, place = [*start, drawn, *scores[1:2], *ratios, *scores[2:]], len(start)
    else:
        columns, place = [*start, *scores[1:], *ratios, drawn], len(start) + len(scores) - 1 + len(ratios)
    head, *rows = zip(*columns, strict=True)
    return TextTable(head, rows, fixed=2, left=frozenset({0, place}))


def _words_table(report: Report, words: WordBreakdown) -> TextTable:
    """For one system precision, recall and F1; for several systems F1, side by side."""
    starts = [(row.label, str(row.counts[0].reference)) for row in words.rows]
    if len(report.systems) == 1:
        head = [words.heading, "words", "F1", "precision", "recall"]
        counts = [row.counts[0] for row in words.rows]
        cells = [[figure(one.f1), figure(one.precision), figure(one.recall)] for one in counts]
    else:
        head = [words.heading, "words", *(f"F1 {system.name}" for system in report.systems)]
        cells = [[figure(one.f1) for one in row.counts] for row in words.rows]
    return TextTable(head, [(*start, *row) for start, row in zip(starts, cells, strict=True)])


def _unknown(report: Report, rates: UnknownRates) -> str:
    shares = [("source", rates.source), ("reference", rates.reference)]
    shares += zip((system.name for system in report.systems), rates.systems, strict=True)
    known = ", ".join(f"{name} {share:.2%}" for name, share in shares if share is not None)
    return f"unknown words: {known}"
