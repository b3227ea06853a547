"""Scores translations: from files, lines or models to a result with every figure. `nmtalign.score` is `score` here."""

import contextlib
import csv
import dataclasses
import io
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nmtalign.errors import FormatError, InputError, NmtalignError, UsageError
from nmtalign.scoring.buckets import Cut, by_length, by_place, parse_buckets
from nmtalign.scoring.differences import Difference, most_different
from nmtalign.scoring.measuring import measure_systems, steps
from nmtalign.scoring.metrics import DEFAULT_METRICS, METRICS, MULTI_BLEU, MetricOptions, Statistics, tokenizer_for
from nmtalign.scoring.models import Notify, Track, ignore, translation_of, untracked
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, record
from nmtalign.scoring.report import Report, make_report
from nmtalign.scoring.resampling import Resampling, Test
from nmtalign.scoring.texts import (
    Lines,
    SystemTexts,
    Text,
    check_aligned,
    language_notes,
    raw_notes,
    read_segment_scores,
    read_text,
)
from nmtalign.scoring.unknowns import KnownWords, WordSources
from nmtalign.settings.command_settings import ScoreConfig, TranslateConfig
from nmtalign.settings.definition import SettingError, resolve
from nmtalign.text.direction import InputCheck, TextFit
from nmtalign.text.languages import has_no_spaces, language_code, suffix_language
from nmtalign.text.lines import STDIN
from nmtalign.text.tokenizer import Tokenizers, has_rules

ALL = "all"  # a name for all metrics
SEED = "SACREBLEU_SEED"  # sacreBLEU's environment variable
DEFAULT_SEED = 12345  # sacreBLEU's

Given = Path | Lines  # a text file, `-` for stdin; or the lines


@dataclass(frozen=True)
class ScoreRequest:
    """What to score, and how. A system may also be a model directory: the model translates the source."""

    systems: Mapping[str, Given]
    references: Sequence[Given]
    source: Given | None = None
    settings: ScoreConfig = field(default_factory=ScoreConfig)
    segment_scores: Mapping[str, Sequence[Path | Sequence[float]]] = field(default_factory=dict)  # one per system
    words: WordSources = field(default_factory=WordSources)
    translation: TranslateConfig = field(default_factory=TranslateConfig)  # how models translate
    skip_models: bool = False  # leave out a model that cannot translate, with a warning
    language: str = ""  # of the translations, unless a setting or the name of the reference tells it

    @property
    def paths(self) -> list[Path]:
        """All files and folders that are read."""
        segments = (one for given in self.segment_scores.values() for one in given)
        given = (*self.systems.values(), *self.references, self.source, self.words.train_text, *segments)
        return [one for one in given if isinstance(one, Path)]

    @property
    def models(self) -> dict[str, Path]:
        """The systems that are models, by name."""
        return {name: one for name, one in self.systems.items() if isinstance(one, Path) and one.is_dir()}

    def check(self) -> None:
        """Raises UsageError where a text is missing that the settings need, InputError if there is nothing to score."""
        if not self.systems or not self.references:
            raise InputError("no sentence to score")
        if self.paths.count(STDIN) > 1:
            raise UsageError("only one of HYP, -r and -s can be stdin")
        if self.source is None:
            if self.models:
                raise UsageError("nothing to translate: give the source with -s")
            if self.settings.by_length and self.settings.length_of == "source":
                raise UsageError("scores by length: give the source with -s, or --length-of reference")
            if self.settings.no_unk:
                raise UsageError("known words: give the source with -s")


@dataclass(frozen=True)
class ScoreResult:
    """The figures of all systems; `report` contains them by system, subset and metric; `texts` are the scored texts."""

    report: Report
    texts: SystemTexts

    def value(self, metric: str = "BLEU", system: str | None = None) -> float | None:
        """The corpus score of a system (None = the first one) by a metric, named as in `report.metrics`."""
        if metric not in self.report.metrics:
            raise UsageError(f"no metric {metric!r}; the result has {', '.join(self.report.metrics)}")
        for one in self.report.systems:
            if system in (None, one.name):
                return one.everything.whole.values[self.report.metrics.index(metric)]
        raise UsageError(f"no system {system!r}; the result has {', '.join(one.name for one in self.report.systems)}")

    def to_dict(self) -> dict[str, Any]:
        """Everything as one object that JSON can hold."""
        return record(self.report)

    def to_csv(self) -> str:
        """Everything as one table of comma-separated values, one figure per row."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, CSV_COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(csv_rows(self.report))
        return stream.getvalue()

    def to_html(
        self, facts: Mapping[str, str] | None = None, pictures: Mapping[int, Sequence[tuple[str, str]]] | None = None
    ) -> str:
        """One page with all tables and figures; raises UsageError where matplotlib is missing.

        `facts` are shown beside the settings. `pictures` are (system, SVG) of the attention, by line from 1.
        """
        from nmtalign.scoring.figure import breakdown_svg, words_svg
        from nmtalign.scoring.score_document import build_page

        texts, metric, figures = self.texts, self.report.metrics[0], []
        for cut in self.report.systems[0].everything.breakdowns:
            figures.append((f"{metric} {cut.title}", breakdown_svg(self.report, metric, cut.by)))
        figures += [(f"F1 of {table.title}", words_svg(table, [*texts.systems])) for table in self.report.words]
        settings = {
            "systems": ", ".join(f"{name} ({text.name})" for name, text in texts.systems.items()),
            "references": ", ".join(text.name for text in texts.references),
            **({"source": texts.source.name} if texts.source else {}),
        }
        title = f"{', '.join(texts.systems)}: scores of {len(texts.references[0].lines):,} sentences"
        return build_page(
            self.report, title=title, figures=figures, pictures=pictures or {}, settings={**(facts or {}), **settings}
        )


def score(
    hypotheses: Given | Mapping[str, Given],
    references: Given | Sequence[Given],
    source: Given | None = None,
    *,
    segment_scores: Mapping[str, Sequence[Path | Sequence[float]]] | None = None,
    words: str | Path | None = None,
    train_text: str | Path | None = None,
    **settings: Any,
) -> ScoreResult:
    """Scores one system, or several (a mapping from names to systems), against one or more references.

    A text is the path of a file or a sequence of lines; several references are a list of paths or of such sequences,
    where a path is a `Path`. A system may also be the path of a model directory: the model translates `source`.
    `settings` are those of section [score], by name: `metrics="bleu,chrf"`, `by_length=True`, `differences=5`.
    `segment_scores` holds, for each metric that another program computed, one file or one sequence of numbers per
    system. `words` is a model directory or a prepared corpus that says which words are known (else the models that
    translate do), `train_text` the training text of the target language. Raises UsageError for settings that do not go
    together, InputError if there is nothing to score or the numbers of lines differ.
    """
    systems = hypotheses if isinstance(hypotheses, Mapping) else {"hypothesis": hypotheses}
    one = isinstance(references, str | Path) or all(isinstance(line, str) for line in references)
    several: Any = [references] if one else references
    request = ScoreRequest(
        {name: _given(system) for name, system in systems.items()},
        [_given(each) for each in several],
        None if source is None else _given(source),
        resolve(ScoreConfig, ("score", settings)),
        segment_scores or {},
    )
    folders = (Path(words),) if words else tuple(request.models.values())
    sources = WordSources(folders, Path(train_text) if train_text else None)
    return run_scoring(dataclasses.replace(request, words=sources))


def _given(text: Given) -> Given:
    return Path(text) if isinstance(text, str) else text


def run_scoring(
    request: ScoreRequest, *, notify: Notify = ignore, warn: Notify = ignore, track: Track = untracked
) -> ScoreResult:
    """Computes the requested scores. All possible checks are made before models translate.

    `notify` and `warn` are called with lines for the user, `track` shows progress.
    """
    settings, several = request.settings, len(request.systems) > 1
    if request.words.train_text:
        settings = dataclasses.replace(settings, by_frequency=True)
    parse_buckets(settings.buckets, settings.cumulative)
    request.check()
    language = find_language(request)
    options = metric_options(settings, language)
    resampling, tests, intervals = _resampling(settings, several)
    words = KnownWords(settings, request.words, language, notify)

    texts = _read(request, notify, warn, track)
    if not settings.tokenize:
        options = dataclasses.replace(options, tokenize=tokenizer_for(language, texts.references[0].lines))
    tables = _measured(texts, options, track)
    if zero := [one.name for one in tables[0] if one.score().too_short]:
        warn(
            f"warning: {' and '.join(zero)} of the reference against itself would be 0, because none of its lines has "
            "four tokens; choose another tokeniser, such as --tokenize char, or --metrics chrf"
        )
    with track("drawing samples", 1.0) if resampling else untracked("", 0) as advance:
        report = make_report(
            [*texts.systems],
            tables,
            breakdowns=_cuts(texts, settings),
            known=words.known(texts),
            resampling=resampling,
            tests=tests,
            intervals=intervals,
            advance=advance,
        )
    word_tables, unknown = words.tables(texts)
    found = _differences(texts, settings.differences, tables)
    return ScoreResult(dataclasses.replace(report, words=word_tables, unknown=unknown, differences=found), texts)


def _read(request: ScoreRequest, notify: Notify, warn: Notify, track: Track) -> SystemTexts:
    """Reads all texts; models translate after everything else has been read and checked."""
    references = tuple(_text(one, f"reference {number}") for number, one in enumerate(request.references, 1))
    source = None if request.source is None else _text(request.source, "source")
    check_aligned([*references, *([source] if source else [])])
    segment_scores = {
        metric: read_segment_scores(metric, given, [*request.systems], references[0])
        for metric, given in request.segment_scores.items()
    }
    models, systems = request.models, {}
    for name, given in request.systems.items():
        if name not in models:
            systems[name] = _text(given, name)
            continue
        try:
            text = source or references[0]
            systems[name] = translation_of(text, models[name], request.translation, notify=notify, track=track)
            fit = TextFit.load(models[name], tokenized=request.translation.tokenized)
            InputCheck(fit, text.name, warn).add_all(text.lines)
        except (FormatError, UsageError) as error:
            if not request.skip_models:
                raise
            warn(f"{error}; it is left out")
    if not systems:
        raise FormatError("no model could translate; the lines above say why")
    check_aligned([references[0], *systems.values()])
    texts = SystemTexts(systems, references, source, segment_scores)
    for note in (*raw_notes(texts, request.settings.tokenize), *language_notes(texts)):
        warn(note)
    return texts


def _text(given: Given, name: str) -> Text:
    return read_text(given) if isinstance(given, Path) else Text(name, given)


def _measured(texts: SystemTexts, options: MetricOptions, track: Track) -> list[list[Statistics]]:
    """The statistics of each system: counted metrics, then the given scores of segments."""
    with track("counting", steps(len(texts.systems), len(texts.references[0].lines), options)) as advance:
        tables = measure_systems(texts.system_lines, texts.reference_lines, options, advance=advance)
    for metric, columns in texts.segment_scores.items():
        for system, table in zip(texts.systems, tables, strict=True):
            table.append(Statistics.of_segments(metric, columns[system]))
    return tables


def _cuts(texts: SystemTexts, settings: ScoreConfig) -> list[Cut]:
    """The breakdowns by length and by place, as far as they are requested."""
    cuts = []
    if settings.by_length:
        sides = {
            "source": [texts.source_lines or []],
            "reference": texts.reference_lines[:1],
            "hypothesis": texts.system_lines,
        }
        buckets = parse_buckets(settings.buckets, settings.cumulative)
        cuts.append(by_length(sides[settings.length_of], buckets, settings.length_of))
    if settings.by_place:
        cuts.append(by_place(len(texts.references[0].lines)))
    return cuts


def _differences(texts: SystemTexts, count: int, tables: Sequence[Sequence[Statistics]]) -> tuple[Difference, ...]:
    if not count or len(tables) < 2:
        return ()
    return most_different(
        texts.system_lines, texts.reference_lines, count, source=texts.source_lines, statistics=tables
    )


def _resampling(settings: ScoreConfig, several: bool) -> tuple[Resampling | None, tuple[Test, ...], bool]:
    """(how samples are drawn, the tests between systems, whether every figure has its interval).

    Figures have intervals where systems or parts are compared, unless a setting decides. A seed that is not given is
    sacreBLEU's: $SACREBLEU_SEED, or 12345.
    """
    intervals, seed = settings.confidence, settings.seed
    tests: tuple[Test, ...] = ()
    if intervals is None:
        intervals = several or settings.by_length or settings.by_place
    if several and settings.significance != "none":
        tests = ("bs", "ar") if settings.significance == "both" else (settings.significance,)
    if not intervals and not tests:
        return None, tests, intervals
    if seed is None:
        text = os.environ.get(SEED, str(DEFAULT_SEED))
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"{SEED} = {text!r}: must be a whole number; set it so, or give --seed")
        seed = int(text)
    return Resampling(settings.bootstrap, settings.trials, seed), tests, intervals


def metric_options(settings: ScoreConfig, language: str) -> MetricOptions:
    """The metrics of a setting such as "bleu,chrf", "all", or "" for the usual ones; multi-bleu needs the language."""
    names = [name.strip().lower() for name in settings.metrics.split(",")] if settings.metrics else []
    usual = bool(language) and not has_no_spaces(language)  # Moses finds no words where there are no spaces
    if ALL in names:
        names = [name for name in METRICS if name != MULTI_BLEU or usual or settings.tokenize == "none"]
    elif not names:
        names = [*DEFAULT_METRICS, *([MULTI_BLEU] if usual else [])]
    if MULTI_BLEU in names and not language and settings.tokenize != "none":
        raise SettingError(
            "multi-bleu needs the language of the translation; give it with --target-language", metrics=MULTI_BLEU
        )
    return MetricOptions(tuple(names), settings.lowercase, settings.tokenize or MetricOptions.tokenize, language)


def find_language(request: ScoreRequest) -> str:
    """The language of the translations: the setting, the ending of the reference, the request's, or the model's.

    Endings of the translations count only for languages with another tokeniser of BLEU.
    """
    told = request.language and language_code(request.language)
    if request.settings.target_language:
        return language_code(request.settings.target_language)
    for folder in () if told else request.words.folders[:1]:
        with contextlib.suppress(NmtalignError):  # if the model's words are needed, the same error comes again
            told = Tokenizers.load(folder).target_language
    reference, *texts = (
        suffix_language(one) if isinstance(one, Path) else ""
        for one in (request.references[0], *request.systems.values())
    )
    if reference and has_rules(reference):
        return reference
    others = (one for one in (reference, *texts) if one and tokenizer_for(one) != MetricOptions.tokenize)
    return next(others, "") or told
