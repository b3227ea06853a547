"""`nmtalign score`: BLEU, chrF and TER of one or several systems, with confidence, by length, without unknown words."""

import os
import sys
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer

from nmtalign.cli import score_options as options
from nmtalign.cli import score_pictures as pictures
from nmtalign.cli.common import ConfigOption, QuietOption, say
from nmtalign.cli.plot import has_colour
from nmtalign.cli.score_job import make_report_of
from nmtalign.cli.score_plan import make_task
from nmtalign.cli.stopping import exit_on_signals

if TYPE_CHECKING:
    from nmtalign.scoring.report import Report, Section


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
    alignments: options.Alignments = None,
    metrics: options.Metrics = None,
    lowercase: options.Lowercase = None,
    tokenize: options.Tokenize = None,
    tokenized: options.Tokenized = False,
    target_language: options.TargetLanguage = None,
    comet: options.Comet = None,
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
    output: options.Output = None,
    beam: options.Beam = None,
    device: options.Device = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    _run(locals())


score.__doc__ = """Score translations: sacreBLEU's BLEU, chrF, chrF++ and TER with their signatures.

Without HYP and -r the test set of the workspace is translated, or what was
made of it before is found again, and scored. With -r alone HYP is stdin.

Several systems are tested in every table, p is against the first: * is better
than every other system, = not significantly worse than the best one.

It exits with 0 whatever the scores are; with --fail-under X with 1 below X.

Examples:

  nmtalign score --by-length

  nmtalign score out.fr -r test.fr -s test.en --by-length --no-unk -m model/

  nmtalign score ours=a.fr theirs=b.fr -r test.fr -s test.en --plot figure2.pdf

  nmtalign score a.fr b.fr -r test.fr --differences 5 --html report.html

  nmtalign translate < test.en | tee out.fr | nmtalign score -r test.fr --fail-under 30

  nmtalign score out.fr -r test.fr --format json | jq .systems[0].scores.BLEU.value
"""


def _run(given: Mapping[str, Any]) -> None:
    """Scores as the options, by their names, say; SIGTERM or SIGHUP ends it, and its processes, cleanly."""
    exit_on_signals()
    task = make_task(given)
    report, read = make_report_of(task)
    panels = pictures.attention_of(task, report, read)
    pictures.write_figure(task, report)
    pictures.write_page(task, report, read, panels)
    from nmtalign.cli import score_output

    asked = without(report, task.page_only)
    if task.settings.format == "text":
        colour = has_colour(sys.stdout, os.environ)
        differences = bool(task.differences) and len(read.names) > 1 and "differences" not in task.page_only
        attention = pictures.drawn_on_terminal(panels, colour)
        score_output.print_text(asked, table1=task.table1, differences=differences, attention=attention)
    else:
        {"json": score_output.print_json, "csv": score_output.print_csv}[task.settings.format](asked)
    if task.fail_under is not None:
        _judge(report, task.fail_under)


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
    """Exits with 1, after one line that says why, where a system's BLEU, or else its first metric, is below `least`."""
    rising = [name for name in report.metrics if name != "TER"]
    number = report.metrics.index("BLEU" if "BLEU" in rising else rising[0])
    values = [(system.name, system.everything.whole.values[number]) for system in report.systems]
    low = [f"{name} {_below(value, least)}" for name, value in values if value is not None and value < least]
    if low:
        sys.stdout.flush()
        say(f"{report.metrics[number]} below {least:g}: {', '.join(low)}")
        raise typer.Exit(1)


def _below(value: float, least: float) -> str:
    """The value with two digits, or where these would not show that it is less than `least`, with as many as do."""
    return next((text for digits in range(2, 16) if float(text := f"{value:.{digits}f}") < least), repr(value))
