"""`nmtalign score`: BLEU, chrF and other metrics of one or several systems, with confidence, by length, by words."""

import contextlib
import os
import shlex
import shutil
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand

from nmtalign.cli import score_options as options
from nmtalign.cli.common import (
    ConfigOption,
    QuietOption,
    bound_caches,
    choose_wait_policy,
    json_text,
    notifier,
    say,
)
from nmtalign.cli.plot import has_colour
from nmtalign.cli.score_plan import ScoreTask, attention_files, make_task
from nmtalign.cli.stopping import Signals, exit_on_signals
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.version import __version__

if TYPE_CHECKING:
    from nmtalign.alignment.heatmap import Panel
    from nmtalign.scoring.evaluation import Track
    from nmtalign.scoring.report import Report, Section
    from nmtalign.scoring.texts import SystemTexts

RENAMED = {
    "--no-unk": "--known-words",
    "--with-unk": "--all-words",
    "--output": "--save-translation",
    "-o": "--save-translation",
    "--alignments": "--attention-from",
}
_NO_COMET = (
    "--comet is no longer an option: compute COMET with its own command, and give its scores, one per line, with "
    "--segment-scores COMET=FILE"
)


class ScoreCommand(TyperCommand):
    """Accepts the option names of version 0.1 for one release, each with a line on stderr."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments after it has replaced old names."""
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(_renamed, args[:end]), *args[end:]])


def _renamed(argument: str) -> str:
    name, equals, value = argument.partition("=")
    if argument.startswith("-o") and argument != "-o":
        name, equals, value = "-o", "=", argument.removeprefix("-o")
    if name == "--comet":
        raise UsageError(_NO_COMET)
    if name not in RENAMED:
        return argument
    say(f"{name} is now {RENAMED[name]}; the old name works only in this release")
    return f"{RENAMED[name]}{equals}{value}"


def score(
    hypotheses: options.Hypotheses = None,
    reference: options.References = None,
    source: options.Source = None,
    by_length: options.ByLength = None,
    length_of: options.LengthOf = None,
    buckets: options.Buckets = None,
    cumulative: options.Cumulative = None,
    no_unk: options.NoUnk = None,
    table1: options.Table1 = False,
    by_frequency: options.ByFrequency = None,
    train_text: options.TrainText = None,
    by_place: options.ByPlace = None,
    differences: options.Differences = 0,
    attention: options.Attention = False,
    attention_from: options.AttentionFrom = None,
    metrics: options.Metrics = None,
    segment_scores: options.SegmentScores = None,
    lowercase: options.Lowercase = None,
    tokenize: options.Tokenize = None,
    tokenized: options.Tokenized = False,
    target_language: options.TargetLanguage = None,
    confidence: options.Confidence = None,
    bootstrap: options.Bootstrap = None,
    seed: options.Seed = None,
    significance: options.Significance = None,
    trials: options.Trials = None,
    format: options.Format = None,
    plot: options.Plot = None,
    html: options.Html = None,
    fail_under: options.FailUnder = None,
    model: options.Model = None,
    all_models: options.AllModels = False,
    data: options.Data = None,
    save_translation: options.SaveTranslation = None,
    beam: options.Beam = None,
    device: options.Device = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Score translations with sacreBLEU's BLEU, chrF and chrF++, and their signatures.

    Without HYP and -r, nmtalign translates the test set of the workspace. With
    only -r, HYP is stdin. Several systems are compared in every table; p is
    against the first. The exit code does not depend on scores, except with
    --fail-under.

    Examples:

      nmtalign score out.fr -r test.fr -s test.en --by-length --known-words -m model/

      nmtalign score ours=a.fr theirs=b.fr -r test.fr --differences 5 --html report.html

      nmtalign score out.fr -r test.fr --segment-scores COMET=comet.txt --format json
    """
    exit_on_signals()
    _run(make_task(dict(locals())))


def _run(task: ScoreTask) -> None:
    """Reads or makes the texts, scores them, and prints, draws and writes the report."""
    from nmtalign.scoring.evaluation import ScoreResult, evaluate
    from nmtalign.scoring.unknowns import KnownWords

    words = KnownWords(task.settings, task.words, notifier(task.quiet))
    attending = attention_files(task) if task.attention and task.systems else {}
    texts, folders = _read(task)
    report = evaluate(
        texts,
        task.settings,
        task.options,
        words,
        intervals=task.intervals,
        differences=task.differences,
        track=progress(task.quiet),
    )
    panels = _panels(task, report, texts, {**folders, **attending})
    if task.plot:
        from nmtalign.scoring.figure import draw_by_length

        for note in (*draw_by_length(report, task.plot, report.metrics[0]), f"wrote {task.plot}"):
            notifier(task.quiet)(note)
    if task.html:
        with atomic_text(task.html) as stream:
            stream.write(_page(task, report, texts, panels))
        notifier(task.quiet)(f"wrote {task.html}")
    asked = without(report, task.page_only)
    if task.settings.format == "json":
        sys.stdout.write(json_text(ScoreResult(asked).to_dict(), indent=2) + "\n")
    elif task.settings.format == "csv":
        sys.stdout.write(ScoreResult(asked).to_csv())
    else:
        _print_text(task, asked, panels)
    if task.fail_under is not None:
        _judge(report, task.fail_under)


def _read(task: ScoreTask) -> "tuple[SystemTexts, Mapping[str, Path]]":
    """The texts, and the folder of each model that translated; files are checked before a translation that is long."""
    from nmtalign.scoring.measuring import looks_tokenized
    from nmtalign.scoring.texts import SystemTexts, check_aligned, read_segment_scores, read_text

    references = tuple(read_text(path) for path in task.references)
    source = read_text(task.source) if task.source else None
    check_aligned([*references, *([source] if source else [])])
    segments = {
        metric: [read_segment_scores(path, references[0]) for path in paths]
        for metric, paths in task.segment_scores.items()
    }
    folders: dict[str, Path] = {}
    if task.systems:
        names = tuple(name for name, _ in task.systems)
        systems = tuple(read_text(path) for _, path in task.systems)
    else:
        from nmtalign.scoring.models import Surroundings, translate_with

        if source is None:
            raise UsageError("nothing to translate: give the source with -s")
        around = Surroundings(say, notifier(task.quiet), progress(task.quiet), _prepare_torch, Signals)
        done = translate_with(task.models, source, task.search, every=task.all_models, around=around)
        names, systems = tuple(one.name for one in done), tuple(one.text for one in done)
        folders = {one.name: one.folder for one in done}
        if task.save_translation:
            with atomic_text(task.save_translation) as stream:
                stream.writelines(f"{line}\n" for line in systems[0].lines)
    check_aligned([references[0], *systems])
    for text in systems if task.options.tokenize != "none" else ():
        if count := looks_tokenized(text.lines):
            notifier(task.quiet)(
                f"{text.name}: {count} lines end in ' .': it looks tokenised, and such a BLEU cannot be compared; "
                "score raw text, or give --tokenize none"
            )
    return SystemTexts(names, systems, references, source, segments), folders


def _prepare_torch() -> None:
    choose_wait_policy()
    bound_caches()


def progress(quiet: bool) -> "Track":
    """Shows progress on stderr if that is a terminal."""

    @contextlib.contextmanager
    def track(doing: str, total: float, /) -> Iterator[Any]:
        if quiet or not sys.stderr.isatty():
            yield None
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as shown:
            task = shown.add_task(doing, total=total)
            yield lambda done: shown.advance(task, done)

    return track


def _panels(
    task: ScoreTask, report: "Report", texts: "SystemTexts", where: Mapping[str, Path]
) -> "Mapping[int, Sequence[tuple[str, Panel]]]":
    """The attention of the first two systems in the sentences in which they differ most, by line from 0."""
    if not task.attention or not report.differences or texts.source is None:
        return {}
    if any(path.is_dir() for path in where.values()):
        _prepare_torch()
    from nmtalign.scoring.system_attention import Attending, attention_panels

    systems = [
        Attending(name, where[name], text.lines) for name, text in zip(texts.names[:2], texts.systems[:2], strict=True)
    ]
    settings = task.workspace.resolve(AlignConfig, "align", {"device": task.device})
    return attention_panels(systems, texts.source.lines, [one.line - 1 for one in report.differences], settings, say)


def _print_text(task: ScoreTask, report: "Report", panels: "Mapping[int, Sequence[tuple[str, Panel]]]") -> None:
    from nmtalign.cli.score_output import print_text
    from nmtalign.scoring.system_attention import drawn

    width, colour = shutil.get_terminal_size().columns, has_colour(sys.stdout, os.environ)
    attention = {line + 1: drawn(several, width, colour=colour) for line, several in panels.items()}
    several = len(report.systems) > 1
    differences = bool(task.differences) and several and "differences" not in task.page_only
    print_text(report, table1=task.table1, differences=differences, attention=attention)


def _page(
    task: ScoreTask, report: "Report", texts: "SystemTexts", panels: "Mapping[int, Sequence[tuple[str, Panel]]]"
) -> str:
    """The page of --html: all tables and figures, and the settings that it takes to get it again."""
    from nmtalign.scoring.figure import breakdown_svg, words_svg
    from nmtalign.scoring.score_document import build_page
    from nmtalign.scoring.system_attention import svgs

    metric, figures = report.metrics[0], []
    for cut in report.systems[0].everything.breakdowns:
        figures.append((f"{metric} {cut.title}", breakdown_svg(report, metric, cut.by)))
    names = [system.name for system in report.systems]
    figures += [(f"F1 of {table.title}", words_svg(table, names)) for table in report.words]
    settings = {
        "command": shlex.join(["nmtalign", *sys.argv[1:]]),
        "systems": ", ".join(f"{name} ({text.name})" for name, text in zip(texts.names, texts.systems, strict=True)),
        "references": ", ".join(text.name for text in texts.references),
        **({"source": texts.source.name} if texts.source else {}),
    }
    if task.words.folders and (task.settings.no_unk or task.settings.by_frequency):
        settings["known words"] = ", ".join(map(str, task.words.folders))
    return build_page(
        report,
        title=f"{', '.join(texts.names)}: scores of {len(texts.references[0].lines):,} sentences",
        figures=figures,
        pictures=svgs(panels) if panels else {},
        settings={**settings, "nmtalign": __version__},
    )


def without(report: "Report", parts: Collection[str]) -> "Report":
    """The report without the parts of these names: by_length, by_place, differences."""
    cut = {name.removeprefix("by_") for name in parts}

    def shorter(section: "Section") -> "Section":
        return replace(section, breakdowns=tuple(one for one in section.breakdowns if one.by not in cut))

    systems = tuple(
        replace(system, everything=shorter(system.everything), no_unk=system.no_unk and shorter(system.no_unk))
        for system in report.systems
    )
    words = tuple(table for table in report.words if table.by not in cut)
    return replace(report, systems=systems, words=words, differences=() if "differences" in cut else report.differences)


def _judge(report: "Report", least: float) -> None:
    """Exits with 1, after one line that says why, if a system's BLEU (or else first metric) is below `least`."""
    rising = [name for name in report.metrics if name != "TER"]
    number = report.metrics.index("BLEU" if "BLEU" in rising else rising[0])
    values = [(system.name, system.everything.whole.values[number]) for system in report.systems]
    low = [f"{name} {_below(value, least)}" for name, value in values if value is not None and value < least]
    if low:
        sys.stdout.flush()
        say(f"{report.metrics[number]} below {least:g}: {', '.join(low)}")
        raise typer.Exit(1)


def _below(value: float, least: float) -> str:
    """The value with two digits, or with as many as show that it is less than `least`."""
    return next((text for digits in range(2, 16) if float(text := f"{value:.{digits}f}") < least), repr(value))
