"""Computes all numbers of a report: scores with intervals and tests, training, alignment error rates, reordering."""

import dataclasses
import math
import statistics
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from nmtalign.alignment.aligning import align
from nmtalign.alignment.link_files import ErrorRates, GoldFile
from nmtalign.alignment.links import AlignmentRecord, Link
from nmtalign.data.batches import eligible
from nmtalign.data.corpus import Corpus
from nmtalign.errors import NmtalignError
from nmtalign.model_directory import LoadedModel, load_model
from nmtalign.reproduction.experiments import FLAGSHIP
from nmtalign.reproduction.plan import TOGETHER, ReproductionPlan, SystemPlan, languages
from nmtalign.reproduction.running import Key, Outcome, TestSet, Translations
from nmtalign.scoring.metrics import MetricOptions, Statistics, measure_systems, tokenizer_for
from nmtalign.scoring.report import Cut, Report, Resampling, by_length, make_report, parse_buckets
from nmtalign.scoring.scoring_run import Text
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.definition import resolve
from nmtalign.settings.workspace import given
from nmtalign.text.languages import has_no_spaces
from nmtalign.text.moses import has_rules
from nmtalign.training.curves import Curves, read_curves

LONG = 50  # words; no training pair of the article's models is longer
_SEED = 12345  # sacreBLEU's seed of the bootstrap

_FEWEST = 6  # linked words on each side of a picture, at least
LONGEST_DRAWN = 30  # words on each side of a picture, at most

Table = list[Statistics]


@dataclass(frozen=True)
class Scored:
    """One test set: the score reports of the models of the first seed, and the BLEU of the models of every seed."""

    test: TestSet
    paper: Report  # the models of the article, the baseline first
    bases: Mapping[str, Report]  # by the name of a base: the base, which comes first, and its ablations
    bleu: Mapping[Key, float]  # the last metric of the report: tokenised BLEU if the language is known
    known: Mapping[Key, float]  # the same for the models of the article on the sentences without an unknown word
    sentences: int
    sentences_known: int
    too_short: bool  # no reference has a 4-gram, so that BLEU is 0 for every translation


@dataclass(frozen=True)
class Trained:
    """The cost and the loss of a training, from its log."""

    updates: int
    epochs: float
    hours: float
    words: float
    device: str
    parameters: int
    train_loss: float  # nats per sentence, nan if it is not known
    dev_loss: float  # at the validation whose weights were kept
    words_per_second: float


@dataclass
class Results:
    """All numbers of a reproduction."""

    outcome: Outcome
    scored: list[Scored]  # with several test sets, the first entry is of all of them together
    trained: dict[Key, Trained] = field(default_factory=dict)
    curves: dict[Key, Curves] = field(default_factory=dict)
    rates: dict[Key, ErrorRates] = field(default_factory=dict)  # alignment error rates, if there are gold links
    pictures: list[tuple[str, AlignmentRecord]] = field(default_factory=list)  # (system, alignment to draw)
    notes: list[str] = field(default_factory=list)

    @property
    def plan(self) -> ReproductionPlan:
        """The plan."""
        return self.outcome.plan


def gather(outcome: Outcome) -> Results:
    """Computes all numbers."""
    results = Results(outcome, [_scored(outcome, test) for test in _tests(outcome)])
    for name, seed in outcome.finished:
        system = outcome.plan.named(name)
        curves = read_curves(outcome.plan.model_folder(system, seed))
        results.curves[name, seed] = curves
        if len(curves.ends) > 1:
            results.notes.append(
                f"{name}, seed {seed}, continued after a smaller budget was spent (at update "
                f"{', '.join(map(str, curves.ends[:-1]))}). If the learning rate follows the budget, one training with "
                "the complete budget gives another result."
            )
        results.trained[name, seed] = _trained(curves, _words_an_epoch(outcome.plan, system))
    for scored in results.scored:
        if scored.too_short:
            results.notes.append(f"{scored.test.name}: no reference has four tokens; BLEU is 0 for every translation.")
    _align(results)
    return results


def _tests(outcome: Outcome) -> list[TestSet]:
    """The test sets; several test sets are preceded by all of them together."""
    if len(outcome.tests) == 1:
        return outcome.tests
    source = [line for test in outcome.tests for line in test.source.lines]
    reference = [line for test in outcome.tests for line in test.reference.lines]
    return [TestSet(TOGETHER, Text(TOGETHER, source), Text(TOGETHER, reference)), *outcome.tests]


def _parts(test: TestSet, outcome: Outcome) -> list[str]:
    """The names of the test sets of which a test set consists."""
    return [test.name] if test.name in outcome.known else [each.name for each in outcome.tests]


def metrics_of(plan: ReproductionPlan, reference: Sequence[str] = ()) -> MetricOptions:
    """BLEU, and the article's multi-bleu if its tokeniser finds the words of the language."""
    language = languages(plan.workspace)[1]
    names = ("bleu", "multi-bleu") if has_rules(language) and not has_no_spaces(language) else ("bleu",)
    tokenize = plan.scoring.tokenize or tokenizer_for(language, reference)
    return MetricOptions(names, plan.scoring.lowercase, tokenize, language)


def _scored(outcome: Outcome, test: TestSet) -> Scored:
    plan, parts = outcome.plan, _parts(test, outcome)
    known = np.concatenate([outcome.known[name] for name in parts])
    tables = _measure(plan, parts, outcome.translations, test.reference.lines)
    first, there = plan.seeds[0], outcome.translated()
    paper = [system for system in there if not system.experiment.ablation]
    paper.sort(key=lambda system: system.name != plan.baseline.name)  # the others are tested against the first one
    paper = paper or there
    report = _report(plan, paper, tables, first, _cuts(plan, test.source.lines))
    tables_known: dict[Key, Table] = {}
    if known.any() and all((system.name, first) in outcome.of_known for system in paper):
        source, reference = (list(compress(text.lines, known)) for text in (test.source, test.reference))
        tables_known = _measure(plan, parts, outcome.of_known, reference)
        alone = _report(plan, paper, tables_known, first, _cuts(plan, source))
        both = zip(report.systems, alone.systems, strict=True)
        systems = tuple(dataclasses.replace(one, no_unk=same.everything) for one, same in both)
        report = dataclasses.replace(report, systems=systems)
    variants = [system for system in there if system.experiment.ablation]
    bases = {}
    for base in there:
        compared = [system for system in variants if system.experiment.base == base.name]
        if compared:
            bases[base.name] = _report(plan, [base, *compared], tables, first)
    return Scored(
        test,
        report,
        bases,
        {key: table[-1].score().value for key, table in tables.items()},
        {key: table[-1].score().value for key, table in tables_known.items()},
        len(known),
        int(known.sum()),
        any(table[-1].score().too_short for table in tables.values()),
    )


def _measure(
    plan: ReproductionPlan, parts: Sequence[str], translations: Mapping[Key, Translations], reference: Sequence[str]
) -> dict[Key, Table]:
    """The statistics of every model's translations of some test sets, joined."""
    texts = [[line for name in parts for line in found[name]] for found in translations.values()]
    return dict(zip(translations, measure_systems(texts, [reference], metrics_of(plan, reference)), strict=True))


def _cuts(plan: ReproductionPlan, source: Sequence[str]) -> list[Cut]:
    return [by_length([source], parse_buckets(ends)) for ends in (plan.scoring.buckets, str(LONG))]


def _report(
    plan: ReproductionPlan,
    systems: Sequence[SystemPlan],
    tables: Mapping[Key, Table],
    seed: int,
    cuts: Sequence[Cut] = (),
) -> Report:
    names, scoring = [system.name for system in systems], plan.scoring
    resampling = Resampling(scoring.bootstrap, scoring.trials, _SEED if scoring.seed is None else scoring.seed)
    chosen = [tables[name, seed] for name in names]
    return make_report(names, chosen, breakdowns=cuts, resampling=resampling, tests=("bs",))


def _words_an_epoch(plan: ReproductionPlan, system: SystemPlan) -> int:
    """The number of target words, with `</s>`, of the pairs that are short enough for training."""
    corpus = Corpus.open(plan.corpus_folder(system))
    train = corpus.splits["train"]
    chosen = eligible(train, corpus.tokenizers.most_tokens(system.training.max_length))
    return int(train.target_lengths[chosen].sum()) + len(chosen)


def _trained(curves: Curves, words_an_epoch: int) -> Trained:
    last, best = curves.last, curves.best
    speeds = [point.words_per_second for point in curves.progress if math.isfinite(point.words_per_second)]
    return Trained(
        updates=last.update,
        epochs=last.epoch,
        hours=last.seconds / 3600,
        words=last.epoch * words_an_epoch,
        device=f"{curves.start.get('device', '')}, {curves.start.get('precision', '')}",
        parameters=int(curves.start.get("parameters", 0)),
        train_loss=_last_loss(curves),
        dev_loss=best.loss_sentence if best else math.nan,
        words_per_second=statistics.median(speeds) if speeds else math.nan,
    )


def _last_loss(curves: Curves) -> float:
    """The mean loss of the last tenth of the updates, in nats per sentence."""
    total = weight = 0.0
    before = 0
    for point in curves.progress:
        if point.update > 0.9 * curves.last.update:
            total += (point.update - before) * point.loss_sentence
            weight += point.update - before
        before = point.update
    return total / weight if weight else math.nan


def _align(results: Results) -> None:
    """Adds the error rates of every model with attention, and the alignments to draw."""
    outcome, plan = results.outcome, results.plan
    gold = plan.workspace.gold if "test" in plan.tests else None
    attentive = [system for system in outcome.translated() if system.attends]
    seen = min(attentive, key=lambda system: system.name != FLAGSHIP, default=None)
    for key in outcome.finished:
        system = plan.named(key[0])
        if not system.attends or (gold is None and system is not seen):
            continue
        loaded = load_model(plan.model_folder(system, key[1]), system.training.device)
        if gold is not None and system.prep.vocabulary in ("bpe", "unigram", "bytes"):
            results.notes.append(
                f"{system.name} has no alignment error rate: its words are not those of the gold links."
            )
        elif gold is not None:
            try:
                results.rates[key] = _error_rates(loaded, outcome.tests[0], GoldFile(gold), _align_config(plan))
            except NmtalignError as error:
                results.notes.append(f"{system.name}: no alignment error rate: {error}")
        if system is seen and key[1] == plan.seeds[0]:
            results.pictures = _pictures(results, system, loaded)


def _align_config(plan: ReproductionPlan) -> AlignConfig:
    flags = {name: plan.request.flags.get(name) for name in ("device", "threads")}
    return resolve(AlignConfig, plan.workspace.section("align"), given({**flags, "tokenized": False}))


def _error_rates(loaded: LoadedModel, test: TestSet, gold: GoldFile, config: AlignConfig) -> ErrorRates:
    """Compares a model's links between source and reference with links made by hand."""
    for record in align([loaded], zip(test.source.lines, test.reference.lines, strict=True), config):
        gold.compare(record.links(), len(record.source), len(record.target))
    return gold.finish()


def _pictures(results: Results, system: SystemPlan, loaded: LoadedModel) -> list[tuple[str, AlignmentRecord]]:
    """The alignments of the model's own translations, for the chosen or for the most reordered sentences."""
    outcome, request = results.outcome, results.plan.request
    test = outcome.tests[0]
    lines = outcome.translations[system.name, results.plan.seeds[0]][test.name]
    numbers = [number - 1 for number in request.sentences] or list(range(len(lines)))
    pairs = [(test.source.lines[number], lines[number]) for number in numbers]
    config = dataclasses.replace(_align_config(results.plan), drop_end=False)
    records = [
        dataclasses.replace(record, sentence_id=number)
        for number, record in zip(numbers, align([loaded], pairs, config), strict=True)
    ]
    chosen = records if request.sentences else most_reordered(records, request.reordered)
    return [(system.name, record) for record in chosen if not record.empty()]


def reordering(links: Collection[Link]) -> float:
    """Returns the share of pairs of links that cross: (1 - Kendall's tau) / 2, from 0 (same order) to 1 (reversed).

    Pairs of links that share a word do not count; without other pairs the share is 0.
    """
    ordered = sorted(links)
    crossing = counted = 0
    for number, (source, target) in enumerate(ordered):
        for other_source, other_target in ordered[number + 1 :]:
            if other_source != source and other_target != target:
                counted += 1
                crossing += other_target < target
    return crossing / counted if counted else 0.0


def most_reordered(records: Iterable[AlignmentRecord], most: int) -> list[AlignmentRecord]:
    """Returns the `most` records with the most reordering, the most reordered first.

    A record counts if it has enough links and if its sentences are short enough for a picture. Of records with the
    same words only the first one counts.
    """
    chosen: dict[tuple[Sequence[str], Sequence[str]], AlignmentRecord] = {}
    for record in records:
        links = sure_links(record)
        fewest = min(len({link[side] for link in links}) for side in (0, 1))
        if fewest >= _FEWEST and max(len(record.source), len(record.target)) <= LONGEST_DRAWN:
            chosen.setdefault((record.source, record.target), record)
    return sorted(chosen.values(), key=lambda record: (-reordering(sure_links(record)), record.sentence_id))[:most]


def sure_links(record: AlignmentRecord) -> list[Link]:
    """Returns the links that have at least half of the weight of their target word.

    Smaller weights say little about the order of the words.
    """
    return record.links("threshold", 0.5)
