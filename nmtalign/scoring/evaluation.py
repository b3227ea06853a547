"""Scores translations: from lines and settings to a result with every figure."""

import contextlib
import csv
import dataclasses
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nmtalign.errors import NmtalignError, UsageError
from nmtalign.scoring.buckets import Cut, by_length, by_place, parse_buckets
from nmtalign.scoring.differences import Difference, most_different
from nmtalign.scoring.measuring import measure_systems, steps
from nmtalign.scoring.metrics import DEFAULT_METRICS, METRICS, MULTI_BLEU, MetricOptions, Statistics
from nmtalign.scoring.records import CSV_COLUMNS, csv_rows, record
from nmtalign.scoring.report import Report
from nmtalign.scoring.reporting import make_report
from nmtalign.scoring.resampling import Resampling, Test
from nmtalign.scoring.texts import SystemTexts, Text, check_aligned
from nmtalign.scoring.unknowns import KnownWords, WordSources
from nmtalign.settings.command_settings import ScoreConfig
from nmtalign.settings.definition import SettingError
from nmtalign.settings.presets import settings_of
from nmtalign.text.moses import has_rules
from nmtalign.text.tokenizer import Tokenizers

ALL = "all"  # a name that stands for every metric
SEED = "SACREBLEU_SEED"  # sacreBLEU's environment variable
DEFAULT_SEED = 12345  # sacreBLEU's

Lines = Sequence[str]


class Track(Protocol):
    """Shows progress: a context manager whose value is called with the amount of work done since the last call."""

    def __call__(
        self, doing: str, total: float, /
    ) -> contextlib.AbstractContextManager[Callable[[float], None] | None]: ...


@contextlib.contextmanager
def untracked(doing: str, total: float, /) -> Iterator[None]:
    """Shows no progress."""
    yield None


@dataclass(frozen=True)
class ScoreResult:
    """The figures of all systems; `report` holds them by system, subset and metric."""

    report: Report

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


def score(
    hypotheses: Lines | Mapping[str, Lines],
    references: Lines | Sequence[Lines],
    sources: Lines | None = None,
    *,
    segment_scores: Mapping[str, Sequence[Sequence[float]]] | None = None,
    language: str = "",
    words: WordSources | None = None,
    differences: int = 0,
    **settings: Any,
) -> ScoreResult:
    """Scores one system (its lines) or several (a mapping from names to lines) against one or more references.

    `settings` are those of section [score], by name: `metrics="bleu,chrf"`, `by_length=True`, `confidence=True`.
    `segment_scores` holds, for each metric that another program computed, one sequence of numbers per system.
    `language` is that of the translations, for multi-bleu. `words` says which words are known. `differences` is the
    number of sentences to show in which the first two systems differ most. Raises UsageError for settings that do not
    go together, InputError if there is nothing to score or the numbers of lines differ.
    """
    config = settings_of(ScoreConfig, ("score", settings))
    named = hypotheses if isinstance(hypotheses, Mapping) else {"hypothesis": hypotheses}
    several = [references] if all(isinstance(line, str) for line in references) else references
    texts = SystemTexts(
        tuple(named),
        tuple(Text(name, lines) for name, lines in named.items()),
        tuple(Text(f"reference {number}", lines) for number, lines in enumerate(several, 1)),  # type: ignore[arg-type]
        None if sources is None else Text("source", sources),
        segment_scores or {},
    )
    check_aligned([*texts.references, *texts.systems, *([texts.source] if texts.source else [])])
    sources_of_words = words or WordSources(language="" if config.tokenize == "none" else language)
    report = evaluate(
        texts,
        config,
        metric_options(config, language),
        KnownWords(config, sources_of_words, lambda message: None),
        differences=differences,
    )
    return ScoreResult(report)


def evaluate(
    texts: SystemTexts,
    settings: ScoreConfig,
    options: MetricOptions,
    words: KnownWords,
    *,
    intervals: bool | None = None,
    differences: int = 0,
    track: Track = untracked,
) -> Report:
    """All figures; `intervals` None = where figures are compared, unless the setting `confidence` says otherwise."""
    several = len(texts.systems) > 1
    tables = _measured(texts, options, track)
    if intervals is None:
        intervals = wants_intervals(settings, several)
    tests = tests_of(settings, several)
    resampling = resampling_of(settings) if intervals or tests else None
    with track("drawing samples", 1.0) if resampling else untracked("", 0) as advance:
        report = make_report(
            texts.names,
            tables,
            breakdowns=_cuts(texts, settings),
            known=words.known(texts),
            resampling=resampling,
            tests=tests,
            intervals=intervals,
            advance=advance,
        )
    word_tables, unknown = words.tables(texts)
    found: tuple[Difference, ...] = ()
    if differences and several:
        found = most_different(
            texts.system_lines, texts.reference_lines, differences, source=texts.source_lines, statistics=tables
        )
    return dataclasses.replace(report, words=word_tables, unknown=unknown, differences=found)


def _measured(texts: SystemTexts, options: MetricOptions, track: Track) -> list[list[Statistics]]:
    """The statistics of each system: counted metrics, then the given scores of segments."""
    count = len(texts.references[0].lines) if texts.references else 0
    with track("counting", steps(len(texts.systems), count, options)) as advance:
        tables = measure_systems(texts.system_lines, texts.reference_lines, options, advance=advance)
    for metric, columns in texts.segment_scores.items():
        if len(columns) != len(tables) or any(len(column) != count for column in columns):
            raise UsageError(f"{metric}: give {count} numbers for each of {len(tables)} systems")
        for table, column in zip(tables, columns, strict=True):
            if not np.isfinite(column).all():
                raise UsageError(f"{metric}: every score of a segment must be a finite number")
            table.append(Statistics.of_segments(metric, column))
    return tables


def _cuts(texts: SystemTexts, settings: ScoreConfig) -> list[Cut]:
    """The breakdowns by length and by place, as far as they are asked for."""
    cuts = []
    if settings.by_length:
        sides: dict[str, Sequence[Lines]] = {
            "source": [texts.source.lines] if texts.source else [],
            "reference": [texts.references[0].lines],
            "hypothesis": texts.system_lines,
        }
        if not sides[settings.length_of]:
            raise UsageError("by_length: give the source, or length_of = reference")
        buckets = parse_buckets(settings.buckets, settings.cumulative)
        cuts.append(by_length(sides[settings.length_of], buckets, settings.length_of))
    if settings.by_place:
        cuts.append(by_place(len(texts.references[0].lines)))
    return cuts


def wants_intervals(settings: ScoreConfig, several: bool) -> bool:
    """Whether every figure has its interval: unless a setting says so, where figures are compared."""
    if settings.confidence is not None:
        return settings.confidence
    return several or settings.by_length or settings.by_place


def tests_of(settings: ScoreConfig, several: bool) -> tuple[Test, ...]:
    """The tests of significance between systems."""
    if not several or settings.significance == "none":
        return ()
    return ("bs", "ar") if settings.significance == "both" else (settings.significance,)


def resampling_of(settings: ScoreConfig) -> Resampling:
    """How samples are drawn; a seed that is not given is sacreBLEU's: $SACREBLEU_SEED, or 12345."""
    seed = settings.seed
    if seed is None:
        text = os.environ.get(SEED, str(DEFAULT_SEED))
        if not (text.isascii() and text.isdigit()):
            raise UsageError(f"{SEED} = {text!r}: must be a whole number; set it so, or give --seed")
        seed = int(text)
    return Resampling(settings.bootstrap, settings.trials, seed)


def metric_options(settings: ScoreConfig, language: str) -> MetricOptions:
    """The metrics of a setting such as "bleu,chrf", "all", or "" for the usual ones; multi-bleu needs the language."""
    names = [name.strip().lower() for name in settings.metrics.split(",")] if settings.metrics else []
    old_bleu = [MULTI_BLEU] if language or settings.tokenize == "none" else []
    if ALL in names:
        names = [name for name in METRICS if name != MULTI_BLEU or old_bleu]
    elif not names:
        names = [*DEFAULT_METRICS, *([MULTI_BLEU] if language else [])]
    if MULTI_BLEU in names and not old_bleu:
        raise SettingError(
            "multi-bleu needs the language of the translation; give it with --target-language", metrics=MULTI_BLEU
        )
    return MetricOptions(tuple(names), settings.lowercase, settings.tokenize, language)


def find_language(given: str, folders: Sequence[Path], reference: Path) -> str:
    """The language of the translation: the given one, the model's, or the ending of the reference; "" if unknown."""
    if given:
        return given
    if folders:
        with contextlib.suppress(NmtalignError):  # if the model's words are needed, the same error comes again
            if language := Tokenizers.load(folders[0]).target_language:
                return language
    ending = reference.name.removesuffix(".gz").rpartition(".")[2].lower()
    return ending if ending.isalpha() and has_rules(ending) else ""
