"""`nmtalign reproduce`: the paper's experiments on the workspace's corpus, and a report on them."""

import contextlib
import functools
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmtalign.cli.common import (
    QuietOption,
    Stopped,
    advancing,
    bound_caches,
    choose_wait_policy,
    notifier,
    own_option,
    stopping,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.settings.command_settings import ReproduceConfig, line_numbers
from nmtalign.training.events import Listener

if TYPE_CHECKING:
    from nmtalign.reproduction.plan import ReproductionPlan

Output = Annotated[Path, own_option("Folder of the report.", "FOLDER", "-o --output", callback=writes("a folder"))]


@with_settings(ReproduceConfig)
def reproduce(
    chosen: Chosen[ReproduceConfig], output: Output = Path("reproduction"), quiet: QuietOption = False
) -> None:
    """Train the paper's models or other systems under one budget, compare them, and write a report.

    Corpus, test sets and gold links are those of nmtalign.toml, which may name further test sets as
    \\[corpus.tests] news = \\["news.en", "news.fr"]. If it names no train text, the prepared corpus in its data
    folder is used. RNNencdec-30, RNNsearch-30, RNNencdec-50 and RNNsearch-50 are trained on the corpus with the
    same budget, and so are the ablations that --ablations names: encoder, context, score, attention, order, cell,
    readout, width, reverse, output-rank, vocabulary, beam, loss. The default budget is 3 million target words for the
    scale tiny, 10 million for small, 110 hours for paper. Rerun an interrupted command and it resumes. --systems all
    trains the systems around the article instead, such as transformer, and compares them in one table. With --jobs 2
    two processes train two models at a time and share the threads, which is faster for small models.

    The folder then contains report.md and report.html with the paper's tables and figures, scores.csv, training.csv,
    settings.json, and in work/ corpora, models and translations. With --no-text the report quotes no sentence.

    Examples:

      nmtalign reproduce --scale tiny

      nmtalign reproduce --words 1e7 --ablations all

      nmtalign reproduce --systems all --words 1e7 --jobs 2 -o systems/

      nmtalign reproduce --scale paper --hours 110 --device cuda -o paper/
    """
    choose_wait_policy()
    bound_caches()
    from nmtalign.reproduction.experiments import SCALES, EqualBudget
    from nmtalign.reproduction.plan import ReproductionRequest, make_plan

    settings = chosen.settings
    budgets = [EqualBudget("updates", settings.updates)] if settings.updates else []
    budgets += [EqualBudget("words", settings.words)] if settings.words else []
    budgets += [EqualBudget("hours", settings.hours)] if settings.hours else []
    request = ReproductionRequest(
        scale=SCALES[settings.scale],
        budget=budgets[0] if budgets else None,
        folder=output,
        sentences=line_numbers("sentences", settings.sentences),
        flags={name: getattr(settings, name) for name in ("beam", "device", "precision", "threads")},
        models=settings.models,
        systems=settings.systems,
        ablations=settings.ablations,
        seeds=settings.seeds,
        long=settings.long,
        reordered=settings.reordered,
        jobs=settings.jobs,
        text=settings.text,
    )
    _run(make_plan(request, chosen.workspace), quiet)


def _run(plan: "ReproductionPlan", quiet: bool) -> None:
    from nmtalign.cli.display import TrainingDisplay
    from nmtalign.processor import keep_memory
    from nmtalign.reproduction.reproduction_report import begin_folder, write_report
    from nmtalign.reproduction.reproduction_results import gather
    from nmtalign.reproduction.running import Halted, Reproduction

    tell = notifier(quiet)
    keep_memory()
    begin_folder(plan)

    @contextlib.contextmanager
    def listener_of(folder: Path) -> Iterator[Listener]:
        with TrainingDisplay(folder, quiet) as display:
            yield display.take

    reproduction = Reproduction(plan, tell, listener_of, functools.partial(advancing, quiet))
    with stopping(reproduction.stop) as came:
        try:
            outcome = reproduction.run()
        except Halted:
            raise Stopped(came[0] if came else signal.SIGINT, "; the same command resumes") from None
    tell("scoring, drawing")
    report = write_report(gather(outcome))
    failed = len(outcome.failures)
    tell(f"{report}: written" + (f", with {failed} that failed" if failed else ""))
    if failed:
        raise typer.Exit(1)
