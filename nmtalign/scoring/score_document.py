"""The report of `nmtalign score` as a document, from which the text on the terminal and the page are made."""

import importlib.metadata
import math
from collections.abc import Iterator, Mapping, Sequence

from nmtalign.report import document as doc
from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.report import Estimate, Part, Report, Section, Test
from nmtalign.text.lines import counted
from nmtalign.version import __version__

BAR = 20  # characters of the longest bar
TESTS: dict[Test, str] = {"bs": "paired bootstrap", "ar": "paired approximate randomisation"}
_EIGHTHS = " ▏▎▍▌▋▊▉"
_SIGNS = {"winner": " *", "tie": " =", "": "  "}
_WORDS: dict[tuple[bool, bool], tuple[doc.Style, str]] = {  # (only in this translation, in a reference)
    (True, True): ("right", "only in this translation, and in a reference"),
    (True, False): ("wrong", "only in this translation, and in no reference"),
    (False, False): ("odd", "in both translations, but in no reference"),
}
_GIVEN = "|scores:given|"  # in the signature of scores that another program computed

Columns = list[list[doc.Inline]]  # the head of each column and its cells


def score_document(
    report: Report, title: str, *, figures: Sequence[tuple[str, str]] = (), facts: Mapping[str, str] | None = None
) -> doc.Document:
    """The report as a document; `figures` are (caption, SVG), `facts` what a reader needs besides the versions."""
    total = report.systems[0].everything.whole.sentences
    blocks: list[doc.Block] = [counted(total, "sentence"), doc.Heading("Scores")]
    blocks += _corpus_scores(report)
    if any(system.no_unk for system in report.systems):
        blocks += _known_words(report, total)
    if figures:
        blocks += [doc.Heading("Figures"), *(doc.Figure("", caption, svg) for caption, svg in figures)]
    if report.lengths:
        blocks += _lengths(report, "all sentences", [system.everything for system in report.systems])
        if known := [system.no_unk for system in report.systems if system.no_unk]:
            blocks += _lengths(report, "no unknown word", known)
    if report.differences:
        legend = [span for style, words in _WORDS.values() for span in ("; ", doc.Span(words, style))][1:]
        blocks.append(doc.Heading("Sentences in which the first two systems differ most"))
        blocks += [("Words: ", *legend), *map(_sentence, report.differences)]
    if facts is not None:
        versions = {"nmtalign": __version__, "sacreBLEU": importlib.metadata.version("sacrebleu")}
        rows = [(doc.Span(name), doc.Span(value)) for name, value in {**facts, **versions}.items()]
        blocks += [doc.Heading("How to get these figures again"), doc.Definitions(rows)]
    return doc.Document(title, blocks)


def figure(value: float | None, signature: str = "") -> str:
    """A score with two decimals like `sacrebleu -w 2`, or with four if another program computed it."""
    return doc.NOTHING if value is None else f"{value:.4f}" if _GIVEN in signature else f"{value:.2f}"


def bar(estimate: Estimate, top: float) -> str:
    """A bar of a score, where `top` is the longest; with an interval, full to its low end, then shaded."""
    if estimate.value is None or top <= 0:
        return ""
    if estimate.low is None or estimate.high is None:
        eighths = round(8 * BAR * max(0.0, estimate.value) / top)
        return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
    full, shaded = (round(BAR * max(0.0, end) / top) for end in (estimate.low, estimate.high))
    return "█" * full + "▒" * (shaded - full)


def _table(columns: Columns) -> doc.DataTable:
    head, *rows = zip(*columns, strict=True)
    return doc.DataTable(head, rows)


def _systems(report: Report, parts: Sequence[Part]) -> doc.DataTable:
    """Systems as rows, metrics as columns; `parts` are of all systems."""
    names: Columns = [["system", *(doc.Span(system.name, "name") for system in report.systems)]]
    return _table(names + [column for metric in report.metrics for column in _metric(report, metric, parts)])


def _corpus_scores(report: Report) -> Iterator[doc.Block]:
    """The table of all systems; below, the signatures and the meaning of the signs."""
    yield _systems(report, [system.everything.whole for system in report.systems])
    yield doc.Definitions([(doc.Span(name), doc.Span(text, "code")) for name, text in report.signatures.items()])
    drawn = report.resampling
    if drawn and drawn.intervals:
        yield f"±: half of the 95% interval of {drawn.samples:,} bootstrap samples, seed {drawn.seed}"
    if drawn and drawn.tests:
        sizes = {"bs": f"{drawn.samples:,} samples", "ar": f"{drawn.trials:,} trials"}
        tests = " and ".join(f"{TESTS[test]} of {sizes[test]}" for test in drawn.tests)
        by = f"p < {drawn.level:g} (fewer than {2 - math.ceil(math.log2(drawn.level))} sentences cannot show it)"
        signs = f"* better than every other system, = not shown to be worse than the best, by {by}; "
        yield (signs, "p: against ", doc.Span(report.systems[0].name, "name"), f", by {tests}, seed {drawn.seed}")


def _metric(report: Report, metric: str, parts: Sequence[Part]) -> Columns:
    """Scores with their marks, half widths of intervals, and p-values: a column for each."""
    scores, drawn, signature = [part.scores[metric] for part in parts], report.resampling, report.signatures[metric]
    signs = _SIGNS if drawn and drawn.tests else {}
    cells = (figure(one.value, signature) + signs.get(one.mark, "") for one in scores)
    columns: Columns = [[metric + signs.get("", ""), *cells]]
    if drawn and drawn.intervals:
        halves = (None if one.low is None or one.high is None else (one.high - one.low) / 2 for one in scores)
        columns.append(["±", *(figure(half, signature) for half in halves)])
    return [*columns, *_p_values(scores)]


def _p_values(scores: Sequence[Estimate]) -> Iterator[list[doc.Inline]]:
    """A column of p-values for each test; the first system has none."""
    tests = scores[-1].p_values
    for test in tests:
        values = (one.p_values.get(test) for one in scores)
        cells = (doc.NOTHING if value is None else f"{value:.4f}" for value in values)
        yield ["p" if len(tests) == 1 else f"p ({test})", *cells]


def _known_words(report: Report, total: int) -> Iterator[doc.Block]:
    """The scores of the sentences without an unknown word, as in Table 1 of Bahdanau et al. (2015), and their rates."""
    known = [system.no_unk.whole for system in report.systems if system.no_unk]
    yield doc.Heading(f"Sentences without an unknown word ({known[0].sentences:,} of {total:,})")
    yield _systems(report, known)
    if rates := report.unknown:
        shares: list[tuple[str | doc.Span, float]] = [("source", rates.source), ("reference", rates.reference)]
        shares += [(doc.Span(name), rate) for name, rate in rates.systems.items()]
        yield doc.Heading("Words that are not in the vocabulary")
        yield doc.Definitions([(name, f"{share:.2%}") for name, share in shares])


def _lengths(report: Report, subset: str, sections: Sequence[Section]) -> Iterator[doc.Block]:
    """One table per system, and before them one that compares the systems, if there are several."""
    rows = [[*one.lengths, one.whole] for one in sections]
    first = report.metrics[0]
    if len(sections) > 1:
        yield doc.Heading(f"{first} {report.lengths} ({subset}, all systems)")
        columns = _buckets(rows[0])
        for system, parts in zip(report.systems, rows, strict=True):
            figures, scores = _metric(report, first, parts)[0], [part.scores[first] for part in parts]
            columns += [[doc.Span(system.name, "name"), *figures[1:]], *_p_values(scores)]
        yield _table(columns)
    shown = [part.scores[first] for parts in rows for part in parts]
    top = max(end or 0.0 for one in shown for end in (one.value, one.high))
    for system, parts in zip(report.systems, rows, strict=True):
        name = (", ", doc.Span(system.name, "name")) if len(sections) > 1 else ()
        yield doc.Heading((f"{report.lengths[:1].upper()}{report.lengths[1:]} ({subset}", *name, ")"))
        columns = _buckets(parts)
        for metric in report.metrics:
            scores = [part.scores[metric] for part in parts]
            columns.append([metric, *(figure(one.value, report.signatures[metric]) for one in scores)])
            if metric == first and report.resampling and report.resampling.intervals:
                bounds = (doc.NOTHING if one.low is None else f"[{one.low:.2f}, {one.high:.2f}]" for one in scores)
                columns.append(["[low, high]", *bounds])
        if any(part.length_ratio is not None for part in parts):
            columns.append(["length ratio", *(figure(part.length_ratio) for part in parts)])
        # Bars are aligned left; columns of figures are aligned right.
        bars = (bar(part.scores[first], top) for part in parts)
        yield _table([*columns, [first.ljust(BAR), *(one.ljust(BAR) for one in bars)]])


def _buckets(parts: Sequence[Part]) -> Columns:
    """The first two columns of a breakdown."""
    return [["words", *(part.label for part in parts)], ["sentences", *(f"{part.sentences:,}" for part in parts)]]


def _sentence(difference: Difference) -> doc.SentenceTexts:
    texts = [doc.NamedText("source", doc.Span(difference.source))] if difference.source is not None else []
    several = len(difference.references) > 1
    for number, reference in enumerate(difference.references, 1):
        texts.append(doc.NamedText(f"reference {number}" if several else "reference", doc.Span(reference)))
    worse, best = sorted(one.score for one in difference.systems)
    for one in difference.systems:
        words = tuple(span for segment in one.segments for span in _segment(segment))
        note = f"{difference.metric} {one.score:.2f}"
        texts.append(doc.NamedText(one.name, words, note, one.score == best > worse))
    title = (f"Line {difference.line:,} ", doc.Span(f"{difference.metric} {best - worse:.2f} apart", "muted"))
    return doc.SentenceTexts(title, texts)


def _segment(segment: Segment) -> list[doc.Span]:
    """The words of a segment in their style, without the spaces around them."""
    style, tip = _WORDS.get((segment.kind == "only", segment.in_reference), ("", ""))
    before, words, after = segment.text.partition(segment.text.strip() or segment.text)
    return [doc.Span(before), doc.Span(words, style if words.strip() else "", tip), doc.Span(after)]
