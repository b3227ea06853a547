"""The tables of a report beside those of the article: Table 1 (BLEU), Table 2 (training), seeds, and the claims."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

from nmtalign.report.document import NOTHING, Block, DataTable, Heading, Paragraph
from nmtalign.reproduction.experiments import BASELINE, FLAGSHIP
from nmtalign.reproduction.paper import DATA, MOSES, MOSES_CAVEAT, OTHERS, PAPER, PaperRow
from nmtalign.reproduction.reproduction_results import LONG, Results, Scored
from nmtalign.reproduction.translations import UNKNOWN
from nmtalign.scoring.report import Part, Report, SystemReport

Systems = Mapping[str, SystemReport]


def number(value: float | None, digits: int = 2) -> str:
    """`1,234.56`, or a dash for no value."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def count(value: float | None) -> str:
    """`1,234`."""
    return number(value, 0)


def score(part: Part, metric: int) -> str:
    """`26.75 [26.01, 27.44]`: a score and its 95% interval, if there is one."""
    interval = part.intervals[metric] if part.intervals else None
    value = number(part.values[metric])
    return f"{value} [{interval.low:.2f}, {interval.high:.2f}]" if interval and value != NOTHING else value


def p_value(part: Part, first: Part, metric: int) -> str:
    """The p-value of the paired bootstrap against the first system of the report; a dash for equal scores."""
    values = part.p_values.get("bs", ())
    found = values[metric] if values and part.values[metric] != first.values[metric] else None
    return NOTHING if found is None else f"{found:.3f}"


def mean_and_spread(values: Sequence[float]) -> str:
    """`26.75 ± 0.31`: mean and standard deviation over seeds; only the value if there is one seed."""
    if not values or not all(map(math.isfinite, values)):
        return NOTHING
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def short(value: float) -> str:
    """Three significant digits: `0.0042`, `1.23`, `109`."""
    if not math.isfinite(value) or value >= 1000:
        return count(value)
    return f"{value:.4f}" if value < 0.1 else f"{value:.3g}"


def share(value: float | None) -> str:
    """`87.3%`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.1f}%"


def by_name(report: Report) -> dict[str, SystemReport]:
    """The systems of a score report by their names."""
    return {system.name: system for system in report.systems}


def opening(results: Results) -> Iterator[Block]:
    """The settings that all models share, the test sets, failures and notes."""
    plan = results.plan
    scale, seeds = plan.request.scale, ", ".join(map(str, plan.seeds))
    yield Paragraph(
        f"Models of one scale, `{scale.name}` ({scale.what}), each trained on the same text with the same budget "
        f"({plan.budget} a model), the same optimiser, batches and search (beam {plan.baseline.search.beam}); seed "
        f"{seeds}. What differs from row to row is what the row says. Weights are those with the least loss on dev "
        f"within the budget. {_unknown_words(results)}"
    )
    tests = ", ".join(f"{test.name} ({len(test.source.lines):,} sentences)" for test in results.outcome.tests)
    yield Paragraph(f"Test sets: {tests}. {DATA} {MOSES_CAVEAT}")
    failures = results.outcome.failures
    if failures:
        rows = [(name, str(seed), problem) for (name, seed), problem in failures.items()]
        yield Heading("What failed", 2)
        yield DataTable(("experiment", "seed", "problem"), rows, words=3)
    for note in results.notes:
        yield Paragraph(note)


def _unknown_words(results: Results) -> str:
    search = results.plan.baseline.search
    if search.replace_unk:
        return "Unknown words are replaced through the alignment, and never written where a sentence has none."
    if search.allow_unk:
        return (
            f"As in the paper, the word for unknown words may be written ({UNKNOWN}, one wrong word), but not in the "
            "column of the sentences that have none."
        )
    return "The word for unknown words is never written, in any column."


def table_one(results: Results) -> Iterator[Block]:
    """Table 1: BLEU of all sentences and of those without an unknown word, for each test set."""
    yield Heading("Table 1: BLEU")
    for scored in results.scored:
        yield _table_one(results, scored)
    if len(results.plan.seeds) > 1:
        yield _seeds(results)


def _table_one(results: Results, scored: Scored) -> DataTable:
    report = scored.paper
    systems = by_name(report)
    first = results.plan.baseline.name
    head = ["model"]
    for metric in report.metrics:
        head += [metric, f"{metric}, no unknown word"]
    head += [f"p against {first}", "paper", "paper, no unknown word"]
    rows = [
        _row_one(systems.get(system.name), system.name, report, PAPER.get(system.name))
        for system in results.plan.of_paper
    ]
    rows += [_row_one(None, name, report, row) for name, row in OTHERS.items()]
    caption = (
        f"{scored.test.name}: {scored.sentences:,} sentences, {scored.sentences_known:,} of them without an unknown "
        "word in source and reference; in brackets 95% intervals. The paper's numbers are tokenised BLEU (multi-bleu) "
        "on other data, after another training."
    )
    return DataTable(head, rows, caption)


def _row_one(system: SystemReport | None, name: str, report: Report, paper: PaperRow | None) -> list[str]:
    cells = []
    for metric, _ in enumerate(report.metrics):
        for section in (system.everything, system.no_unk) if system else (None, None):
            cells.append(score(section.whole, metric) if section else NOTHING)
    first, last = report.systems[0].everything.whole, len(report.metrics) - 1
    p = p_value(system.everything.whole, first, last) if system else NOTHING
    ours = [number(paper.bleu), number(paper.no_unk)] if paper else [NOTHING, NOTHING]
    return [f"{name} (more text)" if name == MOSES else name, *cells, p, *ours]


def _seeds(results: Results) -> DataTable:
    scored = results.scored[0]
    rows = []
    for system in results.plan.systems:
        keys = [key for key in scored.bleu if key[0] == system.name]
        values = [scored.bleu[key] for key in keys]
        known = [scored.known[key] for key in keys if key in scored.known]
        each = ", ".join(number(value) for value in values)
        rows.append((system.name, str(len(keys)), mean_and_spread(values), mean_and_spread(known), each))
    metric = scored.paper.metrics[-1]
    caption = (
        f"{scored.test.name}, over seeds: mean and standard deviation of {metric}. All other tables are of the first "
        "seed."
    )
    return DataTable(("model", "seeds", metric, f"{metric}, no unknown word", "each"), rows, caption)


def table_two(results: Results) -> Iterator[Block]:
    """Table 2: updates, epochs, hours, device, words, losses of train and dev."""
    yield Heading("Table 2: training")
    head = ("model", "seed", "updates", "epochs", "hours", "device", "target words", "parameters", "words/s")
    rows = []
    for (name, seed), trained in results.trained.items():
        facts = [count(trained.updates), number(trained.epochs), short(trained.hours), trained.device]
        facts += [count(trained.words), count(trained.parameters), count(trained.words_per_second)]
        rows.append([name, str(seed), *facts, number(trained.train_loss, 1), number(trained.dev_loss, 1)])
    for name, paper in {**PAPER, **OTHERS}.items():
        if paper.updates is not None:
            losses = [number(paper.train_loss, 1), number(paper.dev_loss, 1)]
            facts = [count(paper.updates), number(paper.epochs, 1), count(paper.hours), paper.device]
            rows.append([f"paper: {name}", NOTHING, *facts, NOTHING, NOTHING, NOTHING, *losses])
    caption = (
        "Losses are nats a sentence: of training the mean over the last tenth of the updates, of dev that of the "
        "weights kept. Hours are of training alone, looks at dev included. Words of a model with subwords are pieces."
    )
    yield DataTable((*head, "train loss", "dev loss"), rows, caption)


def what_shows(results: Results) -> Iterator[Block]:
    """The claims of the article (section 5): the numbers of this report, and whether they support the claim."""
    rows = [row for scored in results.scored for row in _claims(scored)]
    if rows:
        yield Heading("Does the paper's claim show?")
        metric = results.scored[0].paper.metrics[-1]
        caption = f"{metric}; p is that of a paired bootstrap test against {BASELINE}"
        yield DataTable(("test set", "claim", "here", "shows"), rows, caption, words=4)


def _claims(scored: Scored) -> Iterator[tuple[str, str, str, str]]:
    systems, last, name = by_name(scored.paper), len(scored.paper.metrics) - 1, scored.test.name
    search, encdec, short = (systems.get(which) for which in (FLAGSHIP, BASELINE, "RNNsearch-30"))
    for other, claim in ((search, FLAGSHIP), (short, "RNNsearch-30")):
        if other and encdec:
            ours, theirs = (one.everything.whole for one in (other, encdec))
            a, b = ours.values[last] or 0.0, theirs.values[last] or 0.0
            p = p_value(ours, theirs, last)
            significant = p != NOTHING and float(p) < 0.05
            yield name, f"{claim} is ahead of {BASELINE}", f"{a:.2f} and {b:.2f}, p {p}", _yes(a > b, significant)
    if search and encdec:
        gaps = [_gap(search, encdec, number, last) for number in (0, 1)]
        if all(gap is not None for gap in gaps):
            said = f"{gaps[0]:.2f} up to {LONG} words, {gaps[1]:.2f} above"
            claim = f"the gap between them is wider on over {LONG} words"
            yield name, claim, said, _yes((gaps[1] or 0) > (gaps[0] or 0))
        by_bucket = _gaps(search, encdec, last)
        if len(by_bucket) > 2:
            said = "; ".join(f"{label}: {gap:.2f}" for label, gap in by_bucket.items())
            tau = trend(list(by_bucket.values()))
            yield name, "the gap grows from bucket to bucket", f"{said}; Kendall's tau {tau:.2f}", _yes(tau > 0)
    for system, claim, low, high in (
        (search, f"{FLAGSHIP} on over {LONG} words is within 10% of its best bucket", 0.9, math.inf),
        (encdec, f"{BASELINE} on over {LONG} words is under half of its best bucket", 0.0, 0.5),
    ):
        parts = _long_and_best(system, last) if system else None
        if parts:
            long, best, sentences = parts
            said = f"{long:.2f} of {best:.2f}, {share(long / best)}; {count(sentences)} sentences"
            yield name, claim, said, _yes(low <= long / best < high)


def _yes(holds: bool, significant: bool = True) -> str:
    return ("yes" if significant else "yes, but not significantly") if holds else "no"


def _gap(one: SystemReport, other: SystemReport, half: int, metric: int) -> float | None:
    """The difference of two systems in sentences of at most LONG words (`half` 0) or in longer ones (`half` 1)."""
    values = [_halves(system)[half].values[metric] for system in (one, other)]
    return None if values[0] is None or values[1] is None else values[0] - values[1]


def _gaps(one: SystemReport, other: SystemReport, metric: int) -> dict[str, float]:
    """The difference of two systems in each bucket of lengths that has sentences, by the label of the bucket."""
    parts = [system.everything.breakdowns[0].parts for system in (one, other)]
    pairs = [(mine.label, mine.values[metric], theirs.values[metric]) for mine, theirs in zip(*parts, strict=True)]
    return {label: a - b for label, a, b in pairs if a is not None and b is not None and label != "0"}


def trend(values: Sequence[float]) -> float:
    """Returns Kendall's rank correlation of the values with their order: 1 if each is larger than all before it."""
    pairs = list(combinations(values, 2))
    return sum((later > earlier) - (later < earlier) for earlier, later in pairs) / len(pairs)


def _halves(system: SystemReport) -> list[Part]:
    """The scores of the sentences of at most LONG words, and of the longer ones."""
    return [part for part in system.everything.breakdowns[1].parts if part.label != "0"]


def _long_and_best(system: SystemReport, metric: int) -> tuple[float, float, int] | None:
    """The score of the sentences of over LONG words, the score of the best bucket, and the number of long sentences."""
    half = _halves(system)[1]
    long = half.values[metric]
    values = [part.values[metric] for part in system.everything.breakdowns[0].parts]
    best = max((value for value in values if value), default=None)
    return None if long is None or not best else (long, best, half.sentences)
