"""Figures 2 and 3 of the article, learning curves, error rates, ablations, and translations of long sentences."""

import dataclasses
from collections.abc import Iterator
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
from nmtalign.reproduction.plan import SystemPlan
from nmtalign.reproduction.report_tables import by_name, count, mean_and_spread, number, p_value, score
from nmtalign.reproduction.reproduction_results import Results, Scored, reordering, sure_links
from nmtalign.scoring.buckets import word_counts
from nmtalign.scoring.figure import breakdown_svg, draw_by_length
from nmtalign.training.curve_figure import curve_figure, draw_curves

FIGURES = "figures"


def lengths(results: Results, folder: Path) -> Iterator[Block]:
    """Figure 2: BLEU over the length of the source, as a picture and as a table."""
    yield Heading("Figure 2: BLEU by length of the sentence")
    for scored in results.scored:
        metric = scored.paper.metrics[-1]
        file = f"{FIGURES}/length-{scored.test.name}.png"
        draw_by_length(scored.paper, folder / file, metric)
        caption = f"{metric} by words of the source, {scored.test.name}; bands are 95% intervals"
        yield Figure(file, caption, breakdown_svg(scored.paper, metric))
        yield _length_table(scored, results.plan.baseline.name)


def _length_table(scored: Scored, baseline: str) -> DataTable:
    report = scored.paper
    last = len(report.metrics) - 1
    names = [system.name for system in report.systems]
    head = ["words", "sentences"]
    for name in names:
        head += [name] if name == baseline else [name, "p"]
    rows = []
    for number_, part in enumerate(report.systems[0].everything.breakdowns[0].parts):
        cells = [part.label, count(part.sentences)]
        for system in report.systems:
            own = system.everything.breakdowns[0].parts[number_]
            cells += [score(own, last)] if system.name == baseline else [score(own, last), p_value(own, part, last)]
        rows.append(cells)
    return DataTable(head, rows, f"{scored.test.name}: {report.metrics[-1]} by length; p is against {baseline}")


def error_rates(results: Results) -> Iterator[Block]:
    """The alignment error rates of the models against links made by hand."""
    if not results.rates:
        return
    yield Heading("Alignment error rate")
    rows = [
        (name, str(seed), *(number(100 * value, 1) for value in (rates.aer, rates.precision, rates.recall, rates.f1)))
        for (name, seed), rates in results.rates.items()
    ]
    caption = "Links of the largest weight of each target word, between source and reference of the test set, percent."
    yield DataTable(("model", "seed", "AER", "precision", "recall", "F1"), rows, caption)


def curves(results: Results, folder: Path) -> Iterator[Block]:
    """Loss, perplexity, dev BLEU and speed during the training of the article's models, in the colours of Figure 2."""
    names = by_name(results.scored[0].paper)
    seed = results.plan.seeds[0]
    drawn = {name: results.curves[name, seed] for name in names if (name, seed) in results.curves}
    if not drawn:
        return
    yield Heading("Learning curves")
    file = f"{FIGURES}/curves.png"
    draw_curves(list(drawn.values()), list(drawn), folder / file)
    with usual_settings(list(drawn), "svg"):
        svg = svg_for_page(curve_figure(list(drawn.values()), list(drawn)), "learning curves")
    yield Figure(file, "Learning curves of the paper's models; a ring is the look at dev whose weights were kept", svg)


def ablations(results: Results) -> Iterator[Block]:
    """The effect of each ablation: its score minus the score of its base."""
    variants = [system for system in results.plan.systems if system.experiment.ablation]
    if not variants:
        return
    yield Heading("Ablations")
    yield Paragraph(
        "Each row changes one thing in its base and is trained with the same budget. The difference is that of the "
        "first seed; p is that of a paired bootstrap test against the base."
    )
    for scored in results.scored:
        metric = scored.paper.metrics[-1]
        head = ("ablation", "variant", "base", metric, "difference", "p", "words/s", "lines/s", "parameters")
        rows = [_ablation_row(results, scored, system) for system in variants]
        yield DataTable(head, rows, f"{scored.test.name}; words/s of training, lines/s of translation", words=3)


def _ablation_row(results: Results, scored: Scored, system: SystemPlan) -> list[str]:
    experiment, seed = system.experiment, results.plan.seeds[0]
    key = system.name, seed
    report = scored.bases.get(experiment.base)
    systems = by_name(report) if report else {}
    values = [value for (name, _), value in scored.bleu.items() if name == system.name]
    difference = p = NOTHING
    if report and system.name in systems:
        last = len(report.metrics) - 1
        own, base = systems[system.name].everything.whole, report.systems[0].everything.whole
        difference = f"{(own.values[last] or 0.0) - (base.values[last] or 0.0):+.2f}"
        p = p_value(own, base, last)
    elif key in results.outcome.failures:
        difference = "failed"
    trained = results.trained.get((system.trained_as, seed))
    return [
        experiment.ablation,
        experiment.what if system.trained_as == system.name else f"{experiment.what} (trained as {system.trained_as})",
        experiment.base,
        mean_and_spread(values),
        difference,
        p,
        count(trained.words_per_second if trained else None),
        number(results.outcome.lines_per_second.get(key), 1),
        count(trained.parameters if trained else None),
    ]


def heat_maps(results: Results, folder: Path) -> Iterator[Block]:
    """Figure 3: soft alignments of the chosen or of the most reordered sentences."""
    request = results.plan.request
    if not results.pictures:
        if request.reordered and any(system.model.attention != "none" for system in results.outcome.translated()):
            yield Heading("Figure 3: soft alignments")
            yield Paragraph("No sentence to draw: in none of 30 words or less does the model look at a word surely.")
        return
    name = results.pictures[0][0]
    which = "chosen sentences" if request.sentences else "the most reordered sentences"
    yield Heading("Figure 3: soft alignments")
    yield Paragraph(
        f"{name}, {which} of {results.outcome.tests[0].name} and its own translations: source along x, translation "
        "along y, white is a weight of 1. A weight says from where the model read, and not why it wrote a word."
        + ("" if request.text else " Words are shown by their places: the text may not be passed on.")
    )
    for _, record in results.pictures:
        shown = record if request.text else without_words(record)
        line, turned = record.sentence_id + 1, reordering(sure_links(record))
        file = f"{FIGURES}/alignment-{line}.png"
        panel = Panel(shown)
        draw([panel], folder / file)
        caption = f"line {line}; {100 * turned:.0f}% of the pairs of sure links cross"
        yield Figure(file, caption, heatmap_svg([panel], caption), "natural")


def without_words(record: AlignmentRecord) -> AlignmentRecord:
    """The record with numbers, counted from 1, in place of words."""
    source, target = (tuple(str(place + 1) for place in range(len(side))) for side in (record.source, record.target))
    return dataclasses.replace(record, source=source, target=target)


def side_by_side(results: Results) -> Iterator[Block]:
    """The translations of the longest or of the chosen sentences by the models of the article (section 5.2.2)."""
    request, test = results.plan.request, results.outcome.tests[0]
    if not request.text or not (request.long or request.sentences):
        return
    lengths = word_counts(test.source.lines)
    longest = sorted(range(len(lengths)), key=lambda number: (-int(lengths[number]), number))[: request.long]
    chosen = [number - 1 for number in request.sentences] or longest
    yield Heading("Long sentences, side by side")
    yield Paragraph("What a model forgets of a long sentence is seen best at its end (the paper's section 5.2.2).")
    seed = results.plan.seeds[0]
    systems = [system for system in results.outcome.translated() if not system.experiment.ablation]
    for line in chosen:
        texts = [
            NamedText("source", Span(test.source.lines[line])),
            NamedText("reference", Span(test.reference.lines[line])),
        ]
        for system in systems:
            translation = results.outcome.translations[system.name, seed][test.name][line]
            texts.append(NamedText(system.name, Span(translation), system=True))
        yield SentenceTexts(f"Line {line + 1}, {lengths[line]} words", texts)
