"""Scores translations: reads the texts, checks them, lets models translate, and makes the report of all figures."""

import contextlib
import csv
import io
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import numpy as np

from nmtalign.errors import FormatError, InputError, NmtalignError, UsageError
from nmtalign.files import CONFIG, SOURCE_VOCABULARY, TARGET_VOCABULARY
from nmtalign.model_directory import check_files, read_settings
from nmtalign.report.document import to_text
from nmtalign.scoring.differences import most_different
from nmtalign.scoring.metrics import METRICS, Lines, MetricOptions, Statistics, measure_systems, tokenizer_for
from nmtalign.scoring.report import Mask, Report, Resampling, Test, UnknownRates, by_length, make_report, parse_buckets
from nmtalign.scoring.score_document import score_document
from nmtalign.settings.command_settings import ScoreConfig, TranslateConfig
from nmtalign.settings.definition import SettingError, StrPath, resolved
from nmtalign.text.languages import check_lines, language_code, not_raw, suffix_language, traces
from nmtalign.text.lines import check_counts, counted, read_lines, shown
from nmtalign.text.tokenizer import TOKENIZER_FILE, Tokenizer, Tokenizers, Vocabulary, is_word

_NUMBER = re.compile(r"\s*[-+]?(\d+(?:\.\d*)?|\.\d+)([eE][-+]?\d+)?\s*", re.ASCII)
_METRIC = re.compile(r"[^\s|,]+")
_RESERVED = frozenset((*METRICS, *(name.lower() for name in METRICS.values())))
_JUDGED = 2000  # lines by which a text is judged
_FEWEST_WORDS = 20

TextOrPath = Path | Lines  # a text file, `-` for stdin; or the lines
Notify = Callable[[str], None]  # called with one line for the user
Advance = Callable[[float], None]  # called with the number of lines done since the last call
Track = Callable[[str, float], contextlib.AbstractContextManager[Advance]]  # (what is done, number of lines)
KnownWords = tuple[tuple[Tokenizer, Vocabulary], tuple[Tokenizer, Vocabulary]]  # of source and target


@dataclass(frozen=True)
class Text:
    """The lines of a text and the name that errors give it."""

    name: str
    lines: Lines


@dataclass(frozen=True)
class ScoreResult:
    """The figures of all systems; `report` contains them by system, subset and metric; `systems` are their texts."""

    report: Report
    systems: Mapping[str, Text] = field(repr=False)
    references: Sequence[Text] = field(repr=False)
    source: Text | None = field(default=None, repr=False)

    def value(self, metric: str = "BLEU", system: str | None = None) -> float | None:
        """The corpus score of a system (None = the first one) by a metric, named as in `report.metrics`."""
        if metric not in self.report.metrics:
            raise UsageError(f"no metric {metric!r}; the result has {', '.join(self.report.metrics)}")
        for one in self.report.systems:
            if system in (None, one.name):
                return one.everything.whole.scores[metric].value
        raise UsageError(f"no system {system!r}; the result has {', '.join(self.systems)}")

    def to_dict(self) -> dict[str, Any]:
        """Everything as one object for JSON."""
        return self.report.as_dict()

    def to_csv(self) -> str:
        """Everything as one table of comma-separated values, one figure per row."""
        stream = io.StringIO()
        writer = csv.DictWriter(stream, Report.CSV_COLUMNS, restval="", lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.report.csv_rows())
        return stream.getvalue()

    def to_text(self, width: int = 0, colour: bool = False) -> str:
        """All tables as plain text, of at most `width` columns (0: any width)."""
        return to_text(score_document(self.report, ""), width, colour)

    def to_html(self, facts: Mapping[str, str] | None = None) -> str:
        """One page with the tables, the figure by length and `facts`; raises UsageError if it needs matplotlib."""
        from nmtalign.report.html_page import to_page
        from nmtalign.scoring.figure import length_svg

        report = self.report
        figures = [(f"{report.metrics[0]} {report.lengths}", length_svg(report))] if report.lengths else []
        texts = {
            "systems": ", ".join(f"{name} ({text.name})" for name, text in self.systems.items()),
            "references": ", ".join(text.name for text in self.references),
            **({"source": self.source.name} if self.source else {}),
        }
        title = f"{', '.join(self.systems)}: scores"
        return to_page(score_document(report, title, figures=figures, facts={**(facts or {}), **texts}))


def score(
    hypotheses: StrPath | Sequence[str] | Mapping[str, StrPath | Sequence[str]],
    references: StrPath | Sequence[str] | Sequence[Path | Sequence[str]],
    source: StrPath | Sequence[str] | None = None,
    *,
    model: StrPath | None = None,
    segment_scores: Mapping[str, Sequence[StrPath | Sequence[float]]] | None = None,
    translation: TranslateConfig | None = None,
    config: ScoreConfig | None = None,
    notify: Notify = lambda message: None,
    progress: Track = lambda doing, lines: contextlib.nullcontext(lambda done: None),
    **settings: Any,
) -> ScoreResult:
    """Scores one system, or several (a mapping from names to systems), against one or more references.

    A text is the path of a file or a sequence of lines; several references are a list of paths or of such sequences,
    where a path is a `Path`. A system may also be the path of a model directory: the model translates `source`, with
    the settings `translation`. `settings` are those of section [score]: `metrics="bleu,chrf"`, `by_length=True`.
    `segment_scores` has, for each metric that another program computed, one file or one sequence of numbers per system.
    `model` is a model directory or a prepared corpus whose words are known (else those of the models that translate).
    `notify` gets warnings, `progress` is called with (what is done, number of lines) and returns a context whose
    function gets the number of lines done. Raises UsageError for settings that do not go together, InputError if there
    is nothing to score or the numbers of lines differ.
    """

    def text_or_path(given: Any) -> Any:
        return Path(given) if isinstance(given, str) else given

    named: Mapping[str, Any] = hypotheses if isinstance(hypotheses, Mapping) else {"hypothesis": hypotheses}
    scored: dict[str, TextOrPath] = {name: text_or_path(system) for name, system in named.items()}
    listed: Any = references if isinstance(references, str | Path) else list(references)
    single = isinstance(listed, str | Path) or all(isinstance(line, str | float | None) for line in listed)
    against: list[TextOrPath] = list(map(text_or_path, [listed] if single else listed))
    models = {name: one for name, one in scored.items() if isinstance(one, Path) and one.is_dir()}
    folders = [*models.values()] if model is None else [Path(model)]  # of the words that are known
    with resolved("score", ScoreConfig, config, settings) as config:
        buckets = parse_buckets(config.buckets)
        if source is None:
            _check_no_source(config, bool(models))
        if config.known_words and not folders:
            raise UsageError("--known-words: no model or corpus here; give a model or a prepared corpus with -m")
        language = find_language(config.target_language, [against[0], *scored.values()], folders[:1])
        options = MetricOptions.of(config, language)
        resampling = _resampling(config, len(scored) > 1)
        words = list(map(read_words, folders)) if config.known_words else []
        texts = [read_text(one, f"reference {place}") for place, one in enumerate(against, 1)]
        origin = None if source is None else read_text(text_or_path(source), "source")
        check_aligned([*texts, *([origin] if origin else [])])
        given = {
            metric: read_segment_scores(metric, list(map(text_or_path, files)), len(scored), texts[0])
            for metric, files in (segment_scores or {}).items()
        }
        # All checks that need no translation come before the models translate.
        systems = {
            name: translation_of(origin, models[name], translation, notify, progress)
            if origin and name in models
            else read_text(one, name)
            for name, one in scored.items()
        }
        check_aligned([texts[0], *systems.values()])
        judged = [] if config.tokenize == "none" else systems.values()
        processed = not_raw(((text.name, traces(text.lines[:_JUDGED])) for text in judged), ", or --set tokenize=none")
        for note in (*processed, *_language_notes(systems.values(), texts[0], origin)):
            notify(note)
        if not config.tokenize:
            options = replace(options, tokenize=tokenizer_for(language, texts[0].lines))
        lines, expected = {name: text.lines for name, text in systems.items()}, [text.lines for text in texts]
        sources, size = origin.lines if origin else None, len(expected[0])
        with progress("counting", size) as advance:
            tables = measure_systems([*lines.values()], expected, options, advance=advance)
        for metric, columns in given.items():
            for table, scores in zip(tables, columns, strict=True):
                table.append(Statistics.of_segments(metric, scores))
        if zero := [one.name for one in tables[0] if one.too_short]:
            why = "would be 0, because none of its lines has four tokens"
            fix = "choose another tokeniser, such as --set tokenize=char, or --metrics chrf"
            notify(f"warning: {' and '.join(zero)} of the reference against itself {why}; {fix}")
        if resampling and any(one.lines for one in tables[0]):
            notify("warning: this version of sacrebleu gives no statistics of sentences: no intervals and p-values")
            resampling = None
        parts, title = None, ""
        if config.by_length:
            parts = by_length(sources if sources and config.length_of == "source" else expected[0], buckets)
            title = f"by words of the {config.length_of}"
        known = without_unknown_words(words, sources, expected) if words and sources else None
        with progress("drawing samples", size) if resampling else contextlib.nullcontext(lambda done: None) as drawn:
            report = make_report(
                [*systems],
                tables,
                parts=parts,
                known=known,
                resampling=resampling,
                advance=lambda share: drawn(share * size),
            )
        rates = unknown_rates(words[0], sources, expected, lines) if words and sources else None
        count = config.differences if len(systems) > 1 else 0
        found = most_different(lines, expected, tables, count, sources) if count else ()
        report = replace(report, lengths=title, unknown=rates, differences=found)
        return ScoreResult(report, systems, texts, origin)


def _check_no_source(settings: ScoreConfig, translates: bool) -> None:
    """Raises UsageError if the source, which is missing, is needed."""
    if translates:
        raise UsageError("nothing to translate: give the source with -s")
    if settings.by_length and settings.length_of == "source":
        raise UsageError("scores by length: give the source with -s, or add --set length_of=reference")
    if settings.known_words:
        raise UsageError("known words: give the source with -s")


def translation_of(
    source: Text, folder: Path, settings: TranslateConfig | None, notify: Notify, progress: Track
) -> Text:
    """The best translation of each line by a model.

    Raises FormatError for a damaged model, UsageError if the settings do not fit the model.
    """
    from nmtalign.translating.translator import Translator, load_models

    settings = replace(settings or TranslateConfig(), n_best=1, sample=False, alignment="none", word_scores=False)
    with progress(f"translating {source.name} with {folder}", len(source.lines)) as advance:
        translator = Translator(load_models([folder], settings), settings, alignments=False)
        fit, lines = translator.loaded.text_fit(0, settings.tokenized), list[str]()
        translations = translator.translate(source.lines)
        for translation in check_lines(translations, lambda one: one.source, source.name, fit, notify):
            lines.append(translation.text)
            advance(1)
    return Text(f"the translation of {source.name} by {folder}", lines)


def read_text(given: TextOrPath, name: str) -> Text:
    """Reads a text or .gz file, or stdin for `-`, or takes lines, whose text is called `name`.

    Raises InputError for a file that is missing, not UTF-8 or has no line, and UsageError for a line that is no text,
    such as a missing value of pandas.
    """
    if isinstance(given, Path):
        if not (lines := list(read_lines(given))):
            raise InputError(f"{shown(given)}: is empty; give a text with one line per sentence")
        return Text(shown(given), lines)
    lines = list(given)
    if wrong := [number for number, line in enumerate(lines) if not isinstance(line, str)]:
        raise UsageError(f"{name}: line {wrong[0] + 1}: {str(lines[wrong[0]])[:60]!r} is not a text")
    return Text(name, lines)


def check_aligned(texts: Sequence[Text]) -> None:
    """Raises InputError naming the first missing line if a text has another line count than the first text."""
    check_counts((text.name, len(text.lines)) for text in texts)


def read_segment_scores(
    metric: str, given: Sequence[Path | Sequence[float]], systems: int, aligned: Text
) -> list[Sequence[float]]:
    """The scores of each system by a metric of another program, one score for each line of `aligned`.

    `given` has a file or the numbers for each system, in order. Raises UsageError for a metric without a usable name
    and for another number of files, InputError naming file and line for text that is no number.
    """
    if not _METRIC.fullmatch(metric):
        raise UsageError(f"--segment-scores {metric}: a metric's name has no blanks, commas or |; give another name")
    if metric.lower() in _RESERVED:
        raise UsageError(f"--segment-scores {metric}: nmtalign computes {metric}; give another name")
    if len(given) != systems:
        raise UsageError(
            f"--segment-scores {metric}: {counted(len(given), 'file')} for {counted(systems, 'system')}; give "
            f"{metric}=FILE once for each system, in the order of the systems"
        )
    found: list[Any] = [np.asarray(_numbers(one, aligned) if isinstance(one, Path) else one, float) for one in given]
    if not all(scores.shape == (len(aligned.lines),) and np.isfinite(scores).all() for scores in found):
        raise InputError(f"{metric}: give one finite number for each of {counted(len(aligned.lines), 'line')}")
    return found


def _numbers(path: Path, aligned: Text) -> list[float]:
    text = read_text(path, "")
    check_aligned([aligned, text])
    scores = [float(line) if _NUMBER.fullmatch(line) else math.nan for line in text.lines]
    for number, (score, line) in enumerate(zip(scores, text.lines, strict=True), 1):
        if not math.isfinite(score):
            raise InputError(f"{text.name}: line {number}: {line[:40]!r} is not a number; give one number per line")
    return scores


def find_language(chosen: str, texts: Sequence[TextOrPath], folders: Iterable[Path]) -> str:
    """The language of the translations: the one of the settings, the ending of the reference, or a model's.

    `texts` are the reference and the translations, whose endings count only for languages with another tokeniser of
    BLEU.
    """
    if chosen:
        with contextlib.suppress(UsageError):
            return language_code(chosen)
        raise SettingError("is not a language; give a code such as en, de or zh", target_language=chosen)
    reference, *systems = (suffix_language(one) if isinstance(one, Path) else "" for one in texts)
    others = [one for one in systems if one and tokenizer_for(one) != MetricOptions.tokenize]
    if reference or others:
        return reference or others[0]
    for folder in folders:
        with contextlib.suppress(NmtalignError):  # if the model's words are needed, the same error comes again
            return Tokenizers.load(folder).target_language
    return ""


def read_words(place: Path) -> KnownWords:
    """Reads the words of a model or a prepared corpus; `place` is its folder, or a file in it such as corpus.h5.

    Raises FormatError where one of the files is missing, damaged, or not as the model was trained with it.
    """
    folder = place.parent if place.is_file() else place
    for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY, TOKENIZER_FILE):
        if not (folder / name).is_file():
            raise FormatError(f"{place}: no vocabularies here (no {name}); give a model or a corpus with -m")
    if (folder / CONFIG).exists():  # a corpus has none
        check_files(folder, read_settings(folder))  # refuses a vocabulary that was edited after training
    source, target = (Vocabulary.load(folder / name) for name in (SOURCE_VOCABULARY, TARGET_VOCABULARY))
    tokenizers = Tokenizers.load(folder)
    return (tokenizers.source, source), (tokenizers.target, target)


def without_unknown_words(models: Sequence[KnownWords], source: Lines, references: Sequence[Lines]) -> Mask:
    """(N,) True for the sentences whose words all models know, in the source and in every reference."""
    known = np.ones(len(source), dtype=np.bool_)
    for of_source, of_target in models:
        for (tokenizer, vocabulary), lines in ((of_source, source), *((of_target, lines) for lines in references)):
            tokens = (vocabulary.known_tokens(line, tokenizer.tokenize) for line in lines)
            known &= [all(map(vocabulary.__contains__, line)) for line in tokens]
    return known


def unknown_rates(
    model: KnownWords, source: Lines, references: Sequence[Lines], systems: Mapping[str, Lines]
) -> UnknownRates:
    """The share of the words of the texts (pieces where those are subwords) that the model does not know."""

    def share(side: int, texts: Sequence[Lines]) -> float:
        tokenizer, vocabulary = model[side]
        tokens = (vocabulary.known_tokens(line, tokenizer.tokenize) for lines in texts for line in lines)
        words = list(filter(is_word, chain.from_iterable(tokens)))
        return sum(word not in vocabulary for word in words) / max(1, len(words))

    translations = {name: share(1, [lines]) for name, lines in systems.items()}
    return UnknownRates(share(0, [source]), share(1, references), translations)


def _resampling(settings: ScoreConfig, several: bool) -> Resampling | None:
    """What is drawn: tests between systems, and intervals where systems or lengths are compared or settings say so."""
    intervals = several or settings.by_length if settings.confidence is None else settings.confidence
    tests: tuple[Test, ...] = tuple(one for one in get_args(Test) if settings.significance in (one, "both") and several)
    if not intervals and not tests:
        return None
    return Resampling(settings.bootstrap, settings.trials, settings.seed, tests=tests, intervals=intervals)


def _language_notes(systems: Iterable[Text], reference: Text, source: Text | None) -> Iterator[str]:
    """Warnings on translations that seem to be in another language than the reference.

    A translation shares most of its words with the reference, and hardly any with the source.
    """
    texts = (text.lines[:_JUDGED] if text else () for text in (reference, source))
    known = [{word for line in lines for word in line.lower().split()} for lines in texts]
    for system in systems:
        words = [word for line in system.lines[:_JUDGED] for word in line.lower().split()]
        to_reference, to_source = (sum(word in own for word in words) / max(len(words), 1) for own in known)
        named = suffix_language(Path(system.name)), suffix_language(Path(reference.name))
        if len(words) >= _FEWEST_WORDS and to_source > max(0.5, to_reference + 0.2):
            yield (
                f"warning: {system.name}: {to_source:.0%} of its words are in the source, {to_reference:.0%} in the "
                "reference: is it translated, and are source and reference in the right order?"
            )
        elif all(named) and named[0] != named[1] and to_reference < 0.5:
            yield (
                f"warning: {system.name} is {named[0]} by its name, and the reference {reference.name} is {named[1]}; "
                f"give a reference in {named[0]}"
            )
