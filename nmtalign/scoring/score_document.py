"""The report of `nmtalign score` as a document, from which its HTML page and its Markdown are made."""

import importlib.metadata
from collections.abc import Iterator, Mapping, Sequence

from nmtalign.report.document import (
    Block,
    Definitions,
    Document,
    Figure,
    Folded,
    Heading,
    NamedText,
    Paragraph,
    ScoreCards,
    SentenceTexts,
    Span,
    Style,
)
from nmtalign.report.html_page import to_page
from nmtalign.scoring.differences import Difference, Segment
from nmtalign.scoring.report import Report
from nmtalign.scoring.score_tables import (
    TESTS,
    breakdowns,
    lower_is_better,
    name_of,
    score_cell,
    scores,
    sentences,
    table_one,
    unknown_rates,
    word_tables,
)
from nmtalign.version import __version__

Pictures = Mapping[int, Sequence[tuple[str, str]]]  # line, counted from 1 -> (system, SVG)

_WORDS: dict[tuple[bool, bool], tuple[Style, str]] = {  # (only in this translation, in a reference)
    (True, True): ("right", "only in this translation, and in a reference"),
    (True, False): ("wrong", "only in this translation, and in no reference"),
    (False, False): ("odd", "in both translations, but in no reference"),
}


def build_page(
    report: Report,
    *,
    title: str,
    figures: Sequence[tuple[str, str]] = (),
    pictures: Pictures | None = None,
    settings: Mapping[str, str] | None = None,
) -> str:
    """Returns the report as one HTML page; the arguments and errors are those of `score_document` and `to_page`."""
    return to_page(score_document(report, title=title, figures=figures, pictures=pictures, settings=settings))


def score_document(
    report: Report,
    *,
    title: str,
    figures: Sequence[tuple[str, str]] = (),
    pictures: Pictures | None = None,
    settings: Mapping[str, str] | None = None,
) -> Document:
    """Returns the report as a document.

    `figures` are (caption, SVG). `pictures` is the attention of sentences. `settings` are facts that a reader needs to
    compute the scores again. Markdown has no pictures: leave `figures` and `pictures` out for it.
    """
    pictures = pictures or {}
    drawn = [Figure("", caption, svg, key=f"figure-{number}") for number, (caption, svg) in enumerate(figures)]
    blocks: list[Block] = [*scores(report), *table_one(report)]
    blocks += [Heading("Figures", key="figures"), *drawn] if drawn else []
    blocks += [*breakdowns(report), *word_tables(report), *unknown_rates(report)]
    blocks += [*_differences(report, pictures), *_about(report, settings or {})]
    return Document(title, blocks, list(_top(report)))


def _top(report: Report) -> Iterator[Block]:
    """The size of the comparison, the best system by the first metric, and the score of each system."""
    systems = f"{len(report.systems)} system{'' if len(report.systems) == 1 else 's'}"
    facts = [systems, sentences(report.systems[0].everything.whole.sentences), ", ".join(report.metrics)]
    facts += [" and ".join(TESTS[test] for test in report.tests)] if report.tests else []
    yield Paragraph(Span(" · ".join(facts)), "counts")
    if verdict := _verdict(report):
        yield Paragraph(verdict, "verdict")
    cards = [(system.name, score_cell(report, system.everything.whole, 0)) for system in report.systems]
    yield ScoreCards(report.metrics[0], cards)


def _verdict(report: Report) -> tuple[str | Span, ...]:
    """Which system is the best by the first metric, and whether significantly; nothing for a single system."""
    metric, wholes = report.metrics[0], {system.name: system.everything.whole for system in report.systems}
    scored = {name: whole.values[0] for name, whole in wholes.items() if whole.values[0] is not None}
    if not scored or len(wholes) == 1:
        return ()
    best = (min if lower_is_better(metric) else max)(scored, key=scored.__getitem__)
    start = name_of(best), " has the best ", Span(metric), f", {scored[best]:.2f}"
    if not any(whole.marks for whole in wholes.values()):
        return (*start, "; no test was made of whether the differences are significant.")
    if wholes[best].mark(0) == "winner":
        return (*start, ", significantly better than every other system.")
    tied = [name for name, whole in wholes.items() if whole.mark(0) == "tie" and name != best]
    return (*start, ", but not significantly better than ", *_listed(tied), ".") if tied else (*start, ".")


def _listed(names: Sequence[str]) -> list[str | Span]:
    return [part for name in names for part in (", ", name_of(name))][1:]


def _differences(report: Report, pictures: Pictures) -> Iterator[Block]:
    """The sentences in which the first two systems differ most."""
    if report.differences:
        names = [system.name for system in report.systems[:2]]
        yield Heading("Most different sentences", key="differences")
        yield Paragraph(("Sentences in which ", name_of(names[0]), " and ", name_of(names[1]), " differ most."), "lead")
        yield Paragraph(
            tuple(part for style, words in _WORDS.values() for part in (" ", Span(words, style)))[1:], "key"
        )
        for difference in report.differences:
            yield _sentence(difference, names, pictures.get(difference.line, ()))


def _sentence(difference: Difference, names: Sequence[str], pictures: Sequence[tuple[str, str]]) -> SentenceTexts:
    first, second = difference.scores
    apart = Span(f"{difference.metric} {abs(first - second):.2f} apart", "muted")
    texts = [NamedText("Source", Span(difference.source))] if difference.source is not None else []
    several = len(difference.references) > 1
    for number, reference in enumerate(difference.references, 1):
        texts.append(NamedText(f"Reference {number}" if several else "Reference", Span(reference)))
    parts = zip(names, difference.texts, difference.segments, difference.scores, strict=True)
    for name, whole, segments, score in parts:
        better = score == max(difference.scores) and first != second
        coloured = tuple(span for segment in segments for span in _segment(segment)) if segments else Span(whole)
        texts.append(NamedText(name, coloured, f"{difference.metric} {score:.2f}", better, system=True))
    attention = _attention(difference.line, pictures) if pictures else None
    title = (f"Line {difference.line:,} ", apart)
    return SentenceTexts(title, texts, attention, key=f"line-{difference.line}")


def _segment(segment: Segment) -> list[Span]:
    """The words of a segment in their style, without the spaces around them."""
    style, tip = _WORDS.get((segment.kind == "only", segment.in_reference), ("", ""))
    before, words, after = segment.text.partition(segment.text.strip() or segment.text)
    return [Span(before), Span(words, style if words.strip() else "", tip), Span(after)]


def _attention(line: int, pictures: Sequence[tuple[str, str]]) -> Folded:
    figures = [Figure("", name, svg, "attention", f"attention-{line}-{i}") for i, (name, svg) in enumerate(pictures)]
    return Folded(("Attention of ", *_listed([name for name, _ in pictures])), figures)


def _about(report: Report, settings: Mapping[str, str]) -> Iterator[Block]:
    """What a reader needs to compute the scores again: signatures, seeds, settings, versions."""
    versions = {"nmtalign": __version__, "sacreBLEU": importlib.metadata.version("sacrebleu")}
    facts = {**_resampling(report), **settings, **versions}
    yield Heading("How to get these figures again", key="about")
    yield Heading("Signatures", 3)
    pairs = zip(report.metrics, report.signatures, strict=True)
    yield Definitions([(Span(name), Span(text, "code")) for name, text in pairs], "signatures", key="signature")
    yield Heading("Settings", 3)
    yield Definitions([(Span(name), Span(value)) for name, value in facts.items()], "facts")


def _resampling(report: Report) -> dict[str, str]:
    drawn = report.resampling
    if drawn is None:
        return {}
    facts = {"Bootstrap samples": f"{drawn.samples:,}"}
    if report.tests:
        facts["Tests"] = ", ".join(f"{TESTS[test]} ({test})" for test in report.tests)
    if "ar" in report.tests:
        facts["Trials of approximate randomisation"] = f"{drawn.trials:,}"
    return {**facts, "Seed": str(drawn.seed), "Level of significance": f"{drawn.level:g}"}
