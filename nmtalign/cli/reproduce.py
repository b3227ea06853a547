"""`nmtalign reproduce`: the paper's experiments on the workspace's corpus, and a report on them."""

import contextlib
from pathlib import Path

import typer

from nmtalign.cli.common import QUIET, notifier, output_option, signals
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.files import folder_lock
from nmtalign.settings.command_settings import ReproduceConfig


@with_settings(ReproduceConfig)
def reproduce(
    chosen: Chosen[ReproduceConfig],
    output: Path = output_option("Folder of the report.", "FOLDER", folder=True, default=Path("reproduction")),
    quiet: bool = QUIET,
) -> None:
    """Train the paper's models or other systems under one budget, compare them, and write a report.

    Corpus, test sets and gold links are those of nmtalign.toml, which may name further test sets as
    \\[corpus.tests] news = \\["news.en", "news.fr"]. If it names no train text, the prepared corpus in its data
    folder is used. In \\[train] only device, precision, threads and checkpoint_every apply. In \\[translate] and
    \\[score] settings that change only what is printed, such as n_best, are ignored. RNNencdec-30, RNNsearch-30,
    RNNencdec-50 and RNNsearch-50 are trained with the same budget: 3 million target words for the scale tiny, 10
    million for small, 110 hours for paper. --systems all trains the systems around the article instead, such as
    transformer. With --jobs 2 two models are trained at a time, which is faster for small models.

    All work is done by shell commands such as `nmtalign train`, which the report prints. Rerun an interrupted command
    and it resumes. The folder then contains report.md and report.html with Table 1 and Figures 2 and 3 of the article,
    scores/, figures/, settings/, and in work/ corpus, models and translations.

    Examples:
      nmtalign reproduce --scale tiny
      nmtalign reproduce --systems all --words 1e7 --jobs 2 -o systems/
      nmtalign reproduce --scale paper --hours 110 -o paper/
    """
    from nmtalign.reproduction.reproduction_report import write_report
    from nmtalign.reproduction.steps import Halted, Reproduction

    tell = notifier(quiet)
    made = Reproduction(chosen.workspace, chosen.settings, output, tell, silent=quiet)
    signals.detail = lambda: "; the same command resumes"
    with folder_lock(output), signals.stopping(made.stop), contextlib.suppress(Halted):
        made.run()
    signals.check()
    failed = sum(map(bool, made.failures.values()))
    tell(f"{write_report(made)}: written" + (f", but {failed} of the commands failed" if failed else ""))
    if failed:
        raise typer.Exit(1)
