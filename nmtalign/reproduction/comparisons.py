"""Figure 2 and what goes with it: scores by length, alignment error rates, learning curves, ablations."""

from collections.abc import Iterator
from pathlib import Path

from nmtalign.figures import svg_for_page, usual_settings
from nmtalign.reproduction.cells import NOTHING, count, mean_and_spread, number, p_value, score
from nmtalign.reproduction.chapters import by_name
from nmtalign.reproduction.document import Block, Figure, Heading, Paragraph, Table
from nmtalign.reproduction.plan import System
from nmtalign.reproduction.results import Results, Scored
from nmtalign.scoring.figure import by_length_svg, draw_by_length
from nmtalign.training.curve_figure import curve_figure, draw_curves

FIGURES = "figures"


def lengths(results: Results, folder: Path) -> Iterator[Block]:
    """BLEU over the length of the source, drawn and as a table."""
    yield Heading("Figure 2: BLEU by length of the sentence")
    for scored in results.scored:
        metric = scored.paper.metrics[-1]
        file = f"{FIGURES}/length-{scored.test.name}.png"
        draw_by_length(scored.paper, folder / file, metric)
        caption = f"{metric} by words of the source, {scored.test.name}; bands are 95% intervals"
        yield Figure(file, caption, by_length_svg(scored.paper, metric))
        yield _length_table(scored, results.plan.baseline.name)


def _length_table(scored: Scored, baseline: str) -> Table:
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
    return Table(head, rows, f"{scored.test.name}: {report.metrics[-1]} by length; p is against {baseline}")


def error_rates(results: Results) -> Iterator[Block]:
    """How far the models' links are from links made by hand."""
    if not results.rates:
        return
    yield Heading("Alignment error rate")
    rows = [
        (name, str(seed), *(number(100 * value, 1) for value in (rates.aer, rates.precision, rates.recall, rates.f1)))
        for (name, seed), rates in results.rates.items()
    ]
    caption = "Links of the largest weight of each target word, between source and reference of the test set, percent."
    yield Table(("model", "seed", "AER", "precision", "recall", "F1"), rows, caption)


def curves(results: Results, folder: Path) -> Iterator[Block]:
    """Loss, perplexity, dev BLEU and speed while the paper's models were trained, coloured as in Figure 2."""
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
    """What each part is worth, against its base."""
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
        yield Table(head, rows, f"{scored.test.name}; words/s of training, lines/s of translation", words=3)


def _ablation_row(results: Results, scored: Scored, system: System) -> list[str]:
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
