"""`nmtalign reproduce`: the paper's experiments on the workspace's corpus, and the report of them."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmtalign.cli.common import (
    ConfigOption,
    DeviceOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    bound_caches,
    choose_wait_policy,
    notifier,
)
from nmtalign.cli.stopping import REASONS, Stopped, handle_signals
from nmtalign.errors import UsageError
from nmtalign.settings.workspace import load_workspace

if TYPE_CHECKING:
    from nmtalign.reproduction.experiments import EqualBudget
    from nmtalign.reproduction.plan import ReproductionPlan
    from nmtalign.reproduction.running import Outcome, Reproduction

BUDGET, WHAT, REPORT = "Budget of each model (one of the three)", "What is trained", "Report"

Output = Annotated[
    Path, typer.Option("-o", "--output", metavar="FOLDER", help="Folder of the report.", rich_help_panel=REPORT)
]
ScaleOption = Annotated[
    Literal["tiny", "small", "paper"],
    typer.Option(help="Sizes: minutes or hours on a laptop, or the paper's own.", rich_help_panel=WHAT),
]
Updates = Annotated[int | None, typer.Option(metavar="N", help="Updates.", rich_help_panel=BUDGET)]
Words = Annotated[float | None, typer.Option(metavar="N", help="Target words seen, as 1e7.", rich_help_panel=BUDGET)]
Hours = Annotated[float | None, typer.Option(metavar="H", help="Hours of training.", rich_help_panel=BUDGET)]
Models = Annotated[str, typer.Option(metavar="NAME,...", help="Some of the paper's four models.", rich_help_panel=WHAT)]
Ablations = Annotated[
    str, typer.Option(metavar="all|none|NAME,...", help="What is taken out or exchanged.", rich_help_panel=WHAT)
]
Seeds = Annotated[int, typer.Option(metavar="N", help="Models of each kind.", rich_help_panel=WHAT)]
Beam = Annotated[int | None, typer.Option(metavar="N", help="Beam \\[12].", rich_help_panel=WHAT)]
Sentences = Annotated[
    str,
    typer.Option(
        metavar="N,...", help="Lines of the test set that are shown and drawn, from 1.", rich_help_panel=REPORT
    ),
]
Long = Annotated[int, typer.Option(metavar="N", min=0, help="Longest sentences side by side.", rich_help_panel=REPORT)]
Reordered = Annotated[
    int, typer.Option(metavar="N", min=0, help="Most reordered sentences drawn.", rich_help_panel=REPORT)
]
Jobs = Annotated[
    int, typer.Option(metavar="N", help="Models trained at once, each by a process.", rich_help_panel="Machine")
]
Text = Annotated[bool, typer.Option("--text/--no-text", help="Sentences of the corpus.", rich_help_panel=REPORT)]


def reproduce(
    scale: ScaleOption = "small",
    models: Models = "",
    ablations: Ablations = "none",
    seeds: Seeds = 1,
    beam: Beam = None,
    updates: Updates = None,
    words: Words = None,
    hours: Hours = None,
    output: Output = Path("reproduction"),
    sentences: Sentences = "",
    long: Long = 3,
    reordered: Reordered = 4,
    text: Text = True,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    jobs: Jobs = 1,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Train the paper's models under one budget, compare them, and write a report.

    Corpus, test sets and gold links are those of nmtalign.toml, which may name further test sets as
    \\[corpus.tests] news = \\["news.en", "news.fr"]. RNNencdec-30, RNNsearch-30, RNNencdec-50 and RNNsearch-50 are
    trained on the corpus with the same budget, and so are the ablations that --ablations names: encoder, context,
    score, order, cell, readout, reverse, output-rank, vocabulary, beam, loss. The default budget is 3 million target
    words for the scale tiny, 10 million for small, 110 hours for paper. Rerun an interrupted command and it resumes.
    With --jobs 2 two processes train two models at a time and share the threads, which is faster for small models.

    The folder then contains report.md and report.html with the paper's tables and figures, scores.csv, training.csv,
    settings.json, and in work/ corpora, models and translations. With --no-text the report quotes no sentence.

    Examples:

      nmtalign reproduce --scale tiny

      nmtalign reproduce --words 1e7 --ablations all

      nmtalign reproduce --scale paper --hours 110 --device cuda -o paper/
    """
    _choose_environment()
    from nmtalign.reproduction.experiments import scale as named_scale
    from nmtalign.reproduction.plan import ReproductionRequest, make_plan

    request = ReproductionRequest(
        scale=named_scale(scale),
        budget=_budget({"updates": updates, "words": words, "hours": hours}),
        folder=output,
        sentences=_numbers(sentences),
        flags={"beam": beam, "device": device, "precision": precision, "threads": threads},
        models=models,
        ablations=ablations,
        seeds=seeds,
        long=long,
        reordered=reordered,
        jobs=jobs,
        text=text,
    )
    _run(make_plan(request, load_workspace(config)), quiet)


def _choose_environment() -> None:
    choose_wait_policy()
    bound_caches()


def _run(plan: "ReproductionPlan", quiet: bool) -> None:
    from nmtalign.reproduction.reproduction_report import begin_folder, write_report
    from nmtalign.reproduction.reproduction_results import gather
    from nmtalign.reproduction.running import Reproduction

    tell = notifier(quiet)
    begin_folder(plan)
    reproduction = Reproduction(plan, tell, lambda folder: _listener(folder, quiet))
    with _stopped_by_signals(reproduction) as stopped:
        outcome = _reach(reproduction, stopped)
    tell("scoring, drawing")
    report = write_report(gather(outcome))
    failed = len(outcome.failures)
    tell(f"{report}: written" + (f", with {failed} that failed" if failed else ""))
    if failed:
        raise typer.Exit(1)


def _reach(reproduction: "Reproduction", stopped: list[int]) -> "Outcome":
    from nmtalign.reproduction.running import Halted

    try:
        return reproduction.run()
    except Halted:
        raise Stopped(stopped[0] if stopped else signal.SIGINT, "; the same command resumes") from None


def _budget(given: dict[str, float | None]) -> "EqualBudget | None":
    from nmtalign.reproduction.experiments import EqualBudget

    chosen = [(unit, amount) for unit, amount in given.items() if amount is not None]
    if len(chosen) > 1:
        raise UsageError(f"--{chosen[0][0]} and --{chosen[1][0]}: give one budget, the same for every model")
    unit: Any
    for unit, amount in chosen:
        return EqualBudget(unit, amount)
    return None


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(part.isascii() and part.isdigit() and int(part) for part in parts):
        raise UsageError(f"--sentences {text!r}: give lines of the test set, counted from 1, as in 3,17")
    return tuple(map(int, parts))


def _listener(folder: Path, quiet: bool) -> Any:
    from nmtalign.cli.display import make_listener

    return make_listener(folder, quiet, None)


@contextmanager
def _stopped_by_signals(reproduction: "Reproduction") -> Iterator[list[int]]:
    """Yields the signals that came: the first ends it as soon as nothing is lost, a second one leaves at once."""
    came: list[int] = []

    def handle(number: int, _: object) -> None:
        if came:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        came.append(number)
        reproduction.stop(REASONS[number])

    before = handle_signals(handle)
    try:
        yield came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
