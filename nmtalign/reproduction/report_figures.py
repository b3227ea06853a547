"""Figures 2 and 3 of the article, its claims about length, learning curves, and translations of long sentences."""

import dataclasses
import math
from collections.abc import Iterator, Sequence
from itertools import combinations
from pathlib import Path

from nmtalign.alignment.heatmap import Panel, draw, heatmap_svg
from nmtalign.alignment.links import AlignmentRecord
from nmtalign.figures import svg_for_page, usual_settings
from nmtalign.report.document import (
    NOTHING,
    Block,
    DataTable,
    Figure,
    Heading,
    NamedText,
    Paragraph,
    SentenceTexts,
    Span,
)
from nmtalign.reproduction.experiments import BASELINE, FLAGSHIP
from nmtalign.reproduction.report_tables import by_name, number, p_value, score
from nmtalign.reproduction.reproduction_results import LONG, LONGEST_DRAWN, Results, Scored, reordering, sure_links
from nmtalign.scoring.figure import breakdown_svg, draw_by_length
from nmtalign.scoring.report import SystemReport, word_counts
from nmtalign.training.curve_figure import curve_figure, draw_curves

FIGURES = "figures"


def what_shows(results: Results) -> Iterator[Block]:
    """The claims of the article (section 5): the numbers of this report, and whether they support the claim."""
    rows = [row for scored in results.scored for row in (*_ahead(scored), *_gap_by_length(scored), *_long(scored))]
    if rows:
        yield Heading("Does the paper's claim show?")
        metric = results.scored[0].paper.metrics[-1]
        caption = f"{metric}; p is that of a paired bootstrap test against {BASELINE}"
        yield DataTable(("test set", "claim", "here", "shows"), rows, caption, words=4)


def _yes(is_so: bool) -> str:
    return "yes" if is_so else "no"


def _ahead(scored: Scored) -> Iterator[tuple[str, ...]]:
    systems = by_name(scored.paper)
    for name in (FLAGSHIP, "RNNsearch-30"):
        if name in systems and BASELINE in systems:
            ours, theirs = (systems[which].everything.whole for which in (name, BASELINE))
            a, b, p = ours.values[-1] or 0.0, theirs.values[-1] or 0.0, p_value(ours, theirs, -1)
            significant = p != NOTHING and float(p) < 0.05
            verdict = "yes, but not significantly" if a > b and not significant else _yes(a > b)
            yield scored.test.name, f"{name} is ahead of {BASELINE}", f"{a:.2f} and {b:.2f}, p {p}", verdict


def _gap_by_length(scored: Scored) -> Iterator[tuple[str, ...]]:
    """The difference of the two models in short and long sentences, and in each bucket of lengths."""
    systems, name = by_name(scored.paper), scored.test.name
    if FLAGSHIP not in systems or BASELINE not in systems:
        return
    buckets, halves = (_gaps(systems[FLAGSHIP], systems[BASELINE], breakdown) for breakdown in (0, 1))
    if len(halves) == 2:
        below, above = halves.values()
        shown = f"{below:.2f} up to {LONG} words, {above:.2f} above"
        yield name, f"the gap between them is wider on over {LONG} words", shown, _yes(above > below)
    if len(buckets) > 2:
        shown = "; ".join(f"{label}: {gap:.2f}" for label, gap in buckets.items())
        tau = trend(list(buckets.values()))
        yield name, "the gap grows from bucket to bucket", f"{shown}; Kendall's tau {tau:.2f}", _yes(tau > 0)


def _long(scored: Scored) -> Iterator[tuple[str, ...]]:
    """The score of the long sentences beside that of the best bucket of lengths."""
    for name, claim, low, high in (
        (FLAGSHIP, "is within 10% of its best bucket", 0.9, math.inf),
        (BASELINE, "is under half of its best bucket", 0.0, 0.5),
    ):
        system = by_name(scored.paper).get(name)
        if system is None:
            continue
        buckets, halves = (breakdown.parts for breakdown in system.everything.breakdowns[:2])
        long = [part for part in halves if part.label != "0"][1]
        value, best = long.values[-1], max((part.values[-1] or 0.0 for part in buckets), default=0.0)
        if value is not None and best:
            shown = f"{value:.2f} of {best:.2f}, {100 * value / best:.1f}%; {long.sentences:,} sentences"
            yield scored.test.name, f"{name} on over {LONG} words {claim}", shown, _yes(low <= value / best < high)


def _gaps(one: SystemReport, other: SystemReport, breakdown: int) -> dict[str, float]:
    """The difference of two systems in each part of a breakdown that has sentences, by the label of the part."""
    parts = [system.everything.breakdowns[breakdown].parts for system in (one, other)]
    pairs = [(mine.label, mine.values[-1], theirs.values[-1]) for mine, theirs in zip(*parts, strict=True)]
    return {label: a - b for label, a, b in pairs if a is not None and b is not None and label != "0"}


def trend(values: Sequence[float]) -> float:
    """Returns Kendall's rank correlation of the values with their order: 1 if each is larger than all before it."""
    pairs = list(combinations(values, 2))
    return sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)


def lengths(results: Results, folder: Path) -> Iterator[Block]:
    """Figure 2: BLEU over the length of the source, as a picture and as a table."""
    yield Heading("Figure 2: BLEU by length of the sentence")
    for scored in results.scored:
        metric = scored.paper.metrics[-1]
        file = f"{FIGURES}/length-{scored.test.name}.png"
        draw_by_length(scored.paper, folder / file, metric)
        caption = f"{metric} by words of the source, {scored.test.name}"
        yield Figure(file, caption, breakdown_svg(scored.paper, metric))
        if not any(system.experiment.system for system in results.plan.systems):  # else it is in their table
            yield _length_table(scored)


def _length_table(scored: Scored) -> DataTable:
    systems = scored.paper.systems
    baseline = systems[0]
    head = ["words", "sentences", baseline.name]
    for system in systems[1:]:
        head += [system.name, "p"]
    rows = []
    for parts in zip(*(system.everything.breakdowns[0].parts for system in systems), strict=True):
        cells = [parts[0].label, number(parts[0].sentences, 0)]
        for system, part in zip(systems, parts, strict=True):
            cells += [score(part, -1)] if system is baseline else [score(part, -1), p_value(part, parts[0], -1)]
        rows.append(cells)
    caption = f"{scored.test.name}: {scored.paper.metrics[-1]} by length; p is against {baseline.name}"
    return DataTable(head, rows, caption)


def heat_maps(results: Results, folder: Path) -> Iterator[Block]:
    """Figure 3: soft alignments of the chosen or of the most reordered sentences."""
    request = results.plan.request
    if not results.pictures:
        if request.reordered and any(system.attends for system in results.outcome.translated()):
            yield Heading("Figure 3: soft alignments")
            yield Paragraph(f"No sentence of at most {LONGEST_DRAWN} words has enough links of large weight.")
        return
    which = "chosen sentences" if request.sentences else "the most reordered sentences"
    yield Heading("Figure 3: soft alignments")
    yield Paragraph(
        f"{results.pictures[0][0]}, {which} of {results.outcome.tests[0].name} and its own translations. The source is "
        "along x, the translation along y; white is a weight of 1. A weight shows which words the model read, not why "
        "it wrote a word."
        + ("" if request.text else " Numbers replace the words, because the report must not quote the text.")
    )
    for _, record in results.pictures:
        shown = record if request.text else _without_words(record)
        line, turned = record.sentence_id + 1, reordering(sure_links(record))
        file = f"{FIGURES}/alignment-{line}.png"
        panel = Panel(shown)
        draw([panel], folder / file)
        caption = f"line {line}; {100 * turned:.0f}% of the pairs of sure links cross"
        yield Figure(file, caption, heatmap_svg([panel], caption), "natural")


def _without_words(record: AlignmentRecord) -> AlignmentRecord:
    """The record with numbers, counted from 1, in place of words."""
    source, target = (tuple(str(place + 1) for place in range(len(side))) for side in (record.source, record.target))
    return dataclasses.replace(record, source=source, target=target)


def side_by_side(results: Results) -> Iterator[Block]:
    """The translations of the longest or of the chosen sentences by the models of the article (section 5.2.2)."""
    request, test, seed = results.plan.request, results.outcome.tests[0], results.plan.seeds[0]
    if not request.text or not (request.long or request.sentences):
        return
    lengths = word_counts(test.source.lines)
    longest = sorted(range(len(lengths)), key=lambda place: (-int(lengths[place]), place))[: request.long]
    yield Heading("Long sentences, side by side")
    yield Paragraph("What a model forgets of a long sentence is seen best at its end (the paper's section 5.2.2).")
    systems = [system for system in results.outcome.translated() if not system.experiment.ablation]
    for line in [line - 1 for line in request.sentences] or longest:
        texts = [
            NamedText("source", Span(test.source.lines[line])),
            NamedText("reference", Span(test.reference.lines[line])),
        ]
        for system in systems:
            translation = results.outcome.translations[system.name, seed][test.name][line]
            texts.append(NamedText(system.name, Span(translation), system=True))
        yield SentenceTexts(f"Line {line + 1}, {lengths[line]} words", texts)


def curves(results: Results, folder: Path) -> Iterator[Block]:
    """Loss, perplexity, dev BLEU and speed during the training of the models, in the colours of Figure 2."""
    names, seed = by_name(results.scored[0].paper), results.plan.seeds[0]
    drawn = {name: results.curves[name, seed] for name in names if (name, seed) in results.curves}
    if not drawn:
        return
    yield Heading("Learning curves")
    file = f"{FIGURES}/curves.png"
    draw_curves(list(drawn.values()), list(drawn), folder / file)
    with usual_settings(list(drawn), "svg"):
        svg = svg_for_page(curve_figure(list(drawn.values()), list(drawn)), "learning curves")
    caption = f"Learning curves of {', '.join(drawn)}; a ring is the validation whose weights were kept"
    yield Figure(file, caption, svg)
