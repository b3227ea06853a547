"""`nmtalign score`: BLEU, chrF and TER of one or several systems, with confidence, by length, without unknown words."""

import io
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import typer

from nmtalign.cli import score_options as options
from nmtalign.cli.common import ConfigOption, QuietOption, say
from nmtalign.cli.score_job import make_report_of
from nmtalign.cli.score_plan import make_task

if TYPE_CHECKING:
    from nmtalign.scoring.report import Report


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

Without HYP and -r the test set of the workspace is translated and scored. With
-r alone (and no -m) HYP is stdin.

Several systems are tested against the first one, in every table: * is better
than every other system, = not significantly worse than the best one.

Examples:

  nmtalign score --by-length

  nmtalign score out.fr -r test.fr -s test.en --by-length --no-unk -m model/

  nmtalign score ours=a.fr theirs=b.fr -r test.fr -s test.en --plot figure2.pdf

  nmtalign score a.fr b.fr -r test.fr --differences 5 --html report.html

  nmtalign translate < test.en | tee out.fr | nmtalign score -r test.fr --fail-under 30

  nmtalign score out.fr -r test.fr --format json | jq .systems[0].scores.BLEU.value
"""


def _run(given: Mapping[str, Any]) -> None:
    """Scores as the options, by their names, say."""
    task = make_task(given)
    report, _ = make_report_of(task)
    if isinstance(sys.stdout, io.TextIOWrapper):  # words go out whatever the locale claims
        sys.stdout.reconfigure(encoding="utf-8", newline="\n")
    from nmtalign.cli import score_output

    if task.settings.format == "text":
        score_output.print_text(report, task.table1)
    else:
        {"json": score_output.print_json, "csv": score_output.print_csv}[task.settings.format](report)
    if task.fail_under is not None:
        _judge(report, task.fail_under)


def _judge(report: "Report", least: float) -> None:
    """Exits with 1, after one line that says why, where a system's BLEU, or else its first metric, is below `least`."""
    number = report.metrics.index("BLEU") if "BLEU" in report.metrics else 0
    values = [(system.name, system.everything.whole.values[number]) for system in report.systems]
    low = [f"{name} {value:.2f}" for name, value in values if value is not None and value < least]
    if low:
        sys.stdout.flush()
        say(f"{report.metrics[number]} below {least:g}: {', '.join(low)}")
        raise typer.Exit(1)
