"""The tables of a report: the article's Table 1 (BLEU) and Table 2 (training), systems, seeds, ablations, AER."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from nmtalign.report.document import NOTHING, Block, DataTable, Heading, Inline, Paragraph, Span
from nmtalign.reproduction.plan import SystemPlan
from nmtalign.reproduction.reproduction_results import Results, Scored
from nmtalign.reproduction.running import UNKNOWN
from nmtalign.scoring.report import Part, Report, SystemReport


@dataclass(frozen=True)
class PaperRow:
    """A row of Tables 1 and 2 of Bahdanau et al. (2015); None if the article has no number."""

    bleu: float  # tokenised BLEU of all sentences of newstest2014
    no_unk: float  # of the sentences without an unknown word, where the model must not write <unk>
    updates: int | None = None
    epochs: float | None = None
    hours: int | None = None
    device: str = ""
    train_loss: float | None = None  # nats per sentence
    dev_loss: float | None = None


PAPER: Mapping[str, PaperRow] = {
    "RNNencdec-30": PaperRow(13.93, 24.19, 846_000, 6.4, 109, "TITAN BLACK", 28.1, 53.0),
    "RNNsearch-30": PaperRow(21.50, 31.44, 471_000, 3.6, 113, "TITAN BLACK", 26.7, 47.2),
    "RNNencdec-50": PaperRow(17.82, 26.71, 600_000, 4.5, 108, "Quadro K-6000", 44.0, 43.6),
    "RNNsearch-50": PaperRow(26.75, 34.16, 288_000, 2.2, 111, "Quadro K-6000", 40.7, 38.1),
}
OTHERS: Mapping[str, PaperRow] = {
    "RNNsearch-50*": PaperRow(28.45, 36.15, 667_000, 5.0, 252, "Quadro K-6000", 36.7, 35.2),
    "Moses (more text)": PaperRow(33.30, 35.63),
}
_DATA = (
    "The paper's numbers are of another experiment: WMT14 English-French, 348M words chosen from 850M, 30,000 words "
    "per side, layers of 1,000 units, about 110 hours on a GPU for each model, tested on the 3,003 sentences of "
    "newstest2014. Compare the shape of the results, not the numbers. RNNsearch-50* was trained until it stopped "
    "improving on dev. Moses, the phrase-based system of the paper, had 418M words of monolingual text more than the "
    "neural models."
)


def number(value: float | None, digits: int = 2) -> str:
    """`1,234.56`, or a dash for no value."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def score(part: Part, metric: int) -> str:
    """`26.75 [26.01, 27.44]`: a score and its 95% interval, if there is one."""
    interval = part.intervals[metric] if part.intervals else None
    value = number(part.values[metric])
    return f"{value} [{interval.low:.2f}, {interval.high:.2f}]" if interval and value != NOTHING else value


def p_value(part: Part, first: Part, metric: int) -> str:
    """The p-value of the paired bootstrap against the first system of the report; a dash for equal scores."""
    values = part.p_values.get("bs", ())
    found = values[metric] if values and part.values[metric] != first.values[metric] else None
    return number(found, 3)


def by_name(report: Report | None) -> dict[str, SystemReport]:
    """The systems of a score report by their names."""
    return {system.name: system for system in report.systems} if report else {}


def _mean_and_spread(values: Sequence[float]) -> str:
    """`26.75 ± 0.31`: mean and standard deviation over seeds; only the value if there is one seed."""
    if not values or not all(map(math.isfinite, values)):
        return NOTHING
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def _short(value: float) -> str:
    """Three significant digits: `0.0042`, `1.23`, `109`."""
    if not math.isfinite(value) or value >= 1000:
        return number(value, 0)
    return f"{value:.4f}" if value < 0.1 else f"{value:.3g}"


def opening(results: Results) -> Iterator[Block]:
    """The settings that all models share, the test sets, failures and notes."""
    plan = results.plan
    scale, seeds = plan.request.scale, ", ".join(map(str, plan.seeds))
    yield Paragraph(
        f"All models have the scale `{scale.name}` ({scale.what}), the same training text, the same budget "
        f"({plan.budget} for each model), the same optimiser and batches, and the same search (beam "
        f"{plan.baseline.search.beam}). Seeds of the models: {seeds}. Each row names its differences. A "
        "model is tested with the weights that had the smallest loss on dev within the budget. "
        f"{_unknown_words(results)}"
    )
    tests = ", ".join(f"{test.name} ({len(test.source.lines):,} sentences)" for test in results.outcome.tests)
    yield Paragraph(f"Test sets: {tests}." + (f" {_DATA}" if plan.of_paper else ""))
    failures = results.outcome.failures
    if failures:
        rows = [(name, str(seed), problem) for (name, seed), problem in failures.items()]
        yield Heading("What failed", 2)
        yield DataTable(("experiment", "seed", "problem"), rows, words=3)
    yield from map(Paragraph, results.notes)


def _unknown_words(results: Results) -> str:
    search = results.plan.baseline.search
    if search.replace_unk:
        return (
            "Unknown words are replaced through the alignment. The models never write an unknown word for a sentence "
            "that has none."
        )
    if search.allow_unk:
        return (
            f"As in the paper, the models may write the word for unknown words ({UNKNOWN}, one wrong word), but not in "
            "the column of the sentences that have none."
        )
    return "The models never write the word for unknown words, in any column."


def table_one(results: Results) -> Iterator[Block]:
    """Table 1: BLEU of all sentences and of those without an unknown word, for each test set."""
    if not results.plan.of_paper:
        return
    yield Heading("Table 1: BLEU")
    for scored in results.scored:
        report, found = scored.paper, by_name(scored.paper)
        head = ["model"]
        for metric in report.metrics:
            head += [metric, f"{metric}, no unknown word"]
        head += [f"p against {report.systems[0].name}", "paper", "paper, no unknown word"]
        names = [system.name for system in results.plan.of_paper]
        rows = [_row_one(found.get(name), name, report, PAPER[name]) for name in names]
        rows += [_row_one(None, name, report, row) for name, row in OTHERS.items()]
        caption = (
            f"{scored.test.name}: {scored.sentences:,} sentences, {scored.sentences_known:,} of them without an "
            "unknown word in source and reference; in brackets 95% intervals. The paper's numbers are tokenised BLEU "
            "(multi-bleu) on other data, after another training."
        )
        yield DataTable(head, rows, caption)


def _row_one(system: SystemReport | None, name: str, report: Report, paper: PaperRow) -> list[str]:
    cells = []
    for metric, _ in enumerate(report.metrics):
        for section in (system.everything, system.no_unk) if system else (None, None):
            cells.append(score(section.whole, metric) if section else NOTHING)
    first, last = report.systems[0].everything.whole, len(report.metrics) - 1
    p = p_value(system.everything.whole, first, last) if system else NOTHING
    return [name, *cells, p, number(paper.bleu), number(paper.no_unk)]


def systems(results: Results) -> Iterator[Block]:
    """The systems around the article: their settings, and for each test set BLEU, BLEU by length, AER, speed, size."""
    compared = results.plan.compared if any(one.experiment.system for one in results.plan.systems) else ()
    if not compared:
        return
    yield Heading("Systems")
    rows = [(Span(system.name), Span(system.experiment.what)) for system in compared]
    yield DataTable(("system", "settings that differ from those of RNNsearch at this scale"), rows, words=2)
    for scored in results.scored:
        metric, parts = scored.paper.metrics[-1], _buckets(scored.paper.systems[0])
        head = [
            "system",
            *scored.paper.metrics,
            f"{metric}, no unknown word",
            f"p against {scored.paper.systems[0].name}",
        ]
        head += [f"{part.label} words" for part in parts] + ["AER"] * bool(results.rates)
        head += ["words/s", "updates", "hours", "parameters"]
        caption = (
            f"{scored.test.name}: {scored.sentences:,} sentences; in brackets 95% intervals. The columns of words are "
            f"{metric} by the length of the source. AER is that of the links of `test` in percent, with the largest "
            "weight of each target word. Words/s are target words of training (for bytes, bytes), and hours include "
            "validations."
        )
        yield DataTable(head, [_system_row(results, scored, system) for system in compared], caption)


def _buckets(system: SystemReport) -> list[Part]:
    """The parts by length that have sentences."""
    return [part for part in system.everything.breakdowns[0].parts if part.sentences]


def _system_row(results: Results, scored: Scored, system: SystemPlan) -> list[Inline]:
    key = system.name, results.plan.seeds[0]
    found, trained = by_name(scored.paper).get(system.name), results.trained.get((system.trained_as, key[1]))
    first, last = scored.paper.systems[0], len(scored.paper.metrics) - 1
    cells: list[Inline] = [Span(system.name)]
    if found:
        cells += [score(found.everything.whole, metric) for metric in range(last + 1)]
        cells += [number(found.no_unk.whole.values[last]) if found.no_unk else NOTHING]
        cells += [p_value(found.everything.whole, first.everything.whole, last)]
        cells += [number(part.values[last]) for part in _buckets(found)]
    else:
        cells += [NOTHING] * (last + 3 + len(_buckets(first)))
    if results.rates:
        rates = results.rates.get((system.trained_as, key[1]))
        cells += [number(100 * rates.aer, 1) if rates else NOTHING if system.attends else "none"]
    if trained is None:
        return [*cells, *[NOTHING] * 4]
    cells += [number(trained.words_per_second, 0), number(trained.updates, 0), _short(trained.hours)]
    return [*cells, number(trained.parameters, 0)]


def seeds(results: Results) -> Iterator[Block]:
    """The scores of several seeds."""
    if len(results.plan.seeds) > 1:
        yield _seeds(results, results.scored[0])


def _seeds(results: Results, scored: Scored) -> DataTable:
    rows = []
    for system in results.plan.systems:
        values = [value for (name, _), value in scored.bleu.items() if name == system.name]
        known = [value for (name, _), value in scored.known.items() if name == system.name]
        each = ", ".join(map(number, values))
        rows.append((system.name, str(len(values)), _mean_and_spread(values), _mean_and_spread(known), each))
    metric = scored.paper.metrics[-1]
    caption = (
        f"{scored.test.name}: mean and standard deviation of {metric} over seeds. All other tables are of the first "
        "seed."
    )
    return DataTable(("model", "seeds", metric, f"{metric}, no unknown word", "each"), rows, caption)


def table_two(results: Results) -> Iterator[Block]:
    """Table 2: updates, epochs, hours, device, words, losses of train and dev."""
    yield Heading("Table 2: training")
    head = ("model", "seed", "updates", "epochs", "hours", "device", "target words", "parameters", "words/s")
    rows = []
    for (name, seed), trained in results.trained.items():
        facts = [number(trained.updates, 0), number(trained.epochs), _short(trained.hours), trained.device]
        facts += [number(value, 0) for value in (trained.words, trained.parameters, trained.words_per_second)]
        rows.append([name, str(seed), *facts, number(trained.train_loss, 1), number(trained.dev_loss, 1)])
    for name, paper in {**PAPER, **OTHERS}.items() if results.plan.of_paper else ():
        if paper.updates is not None:
            losses = [number(paper.train_loss, 1), number(paper.dev_loss, 1)]
            facts = [number(paper.updates, 0), number(paper.epochs, 1), number(paper.hours, 0), paper.device]
            rows.append([f"paper: {name}", NOTHING, *facts, NOTHING, NOTHING, NOTHING, *losses])
    caption = (
        "Losses are nats per sentence. The training loss is the mean over the last tenth of the updates, the dev loss "
        "is that of the weights kept. Hours are of training with its validations. The words of a model with subwords "
        "are pieces."
    )
    yield DataTable((*head, "train loss", "dev loss"), rows, caption)


def error_rates(results: Results) -> Iterator[Block]:
    """The alignment error rates of the models against links made by hand."""
    if not results.rates:
        return
    yield Heading("Alignment error rate")
    rows = [
        (name, str(seed), *(number(100 * value, 1) for value in (rates.aer, rates.precision, rates.recall, rates.f1)))
        for (name, seed), rates in results.rates.items()
    ]
    caption = (
        "Percentages. The links are those of the largest weight of each target word, between source and reference of "
        "the test set."
    )
    yield DataTable(("model", "seed", "AER", "precision", "recall", "F1"), rows, caption)


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
    systems = by_name(scored.bases.get(experiment.base))
    difference = p = NOTHING
    if system.name in systems:
        own, base = (systems[name].everything.whole for name in (system.name, experiment.base))
        last = len(own.values) - 1
        difference = f"{(own.values[last] or 0.0) - (base.values[last] or 0.0):+.2f}"
        p = p_value(own, base, last)
    elif key in results.outcome.failures:
        difference = "failed"
    trained = results.trained.get((system.trained_as, seed))
    return [
        experiment.ablation,
        experiment.what if system.trained_as == system.name else f"{experiment.what} (trained as {system.trained_as})",
        experiment.base,
        _mean_and_spread([value for (name, _), value in scored.bleu.items() if name == system.name]),
        difference,
        p,
        number(trained.words_per_second if trained else None, 0),
        number(results.outcome.lines_per_second.get(key), 1),
        number(trained.parameters if trained else None, 0),
    ]
