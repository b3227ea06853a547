"""`nmtalign align`: soft alignments of given pairs to HDF5, links to stdout, error rates against gold links."""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TextIO

import typer

from nmtalign.cli.common import (
    MACHINE,
    ConfigOption,
    DeviceOption,
    ModelOption,
    PrecisionOption,
    QuietOption,
    ThreadsOption,
    WhichOption,
    choose_wait_policy,
    counted,
    notifier,
    say,
)
from nmtalign.cli.stopping import Signals
from nmtalign.errors import UsageError
from nmtalign.model_files import check_ahead
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.alignment.aligning import AlignmentRun, AlignmentSummary
    from nmtalign.alignment.links import AlignmentRecord
    from nmtalign.model_directory import LoadedModel

STDIN = Path("-")
_DEFAULT_OUTPUT = Path("alignments.h5")
_BOTH, _LINKS, _OUTPUT = "Both directions", "How weights and links are read", "What comes out"


def _option(panel: str, help: str, metavar: str | None = None, names: str = "", **more: Any) -> Any:
    return typer.Option(*names.split(), help=help, metavar=metavar, rich_help_panel=panel, **more)


Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SRC", help="Source text or .gz file (default: the workspace's test set).", show_default=False
    ),
]
Target = Annotated[
    Path | None, typer.Argument(metavar="TGT", help="Its translation, line by line.", show_default=False)
]
Forward = Annotated[Path | None, _option(_BOTH, "Model that reads SRC and writes TGT (or -m).", "DIR")]
Backward = Annotated[Path | None, _option(_BOTH, "Model that reads TGT and writes SRC.", "DIR")]
Symmetrize = Annotated[
    str | None,
    _option(
        _BOTH,
        "How both are joined. Methods of links: intersection, union, grow-diag, grow-diag-final, grow-diag-final-and; "
        "of weights: product, mutual, agreement (the default), bayes-risk.",
        "METHOD",
    ),
]
Links = Annotated[
    str | None,
    _option(_LINKS, "One link per target word or NULL, or all of some weight (argmax).", "argmax|threshold"),
]
Threshold = Annotated[
    float | None,
    _option(
        _LINKS,
        "Smallest weight that counts as a link; the weights of a target word sum to 1 (0.3; for --symmetrize product "
        "0.15, agreement 0.6, ...).",
        "P",
    ),
]
Reading = Annotated[
    str | None,
    _option(
        _LINKS,
        "Weights of the step that writes the word, of the step that reads it, or given the word; auto: current with "
        "one model, posterior with two (auto).",
        "auto|current|shifted|posterior",
    ),
]
Temperature = Annotated[
    float | None, _option(_LINKS, "Weights to the power 1/T: below 1 sharper, above 1 flatter (1).", "T")
]
DropEnd = Annotated[
    bool | None,
    _option(_LINKS, "Without </s>: rows sum to 1 over words, and no word is NULL.", names="--drop-end/--keep-end"),
]
Tokenized = Annotated[bool, _option(_LINKS, "Words stand between spaces: do not tokenise again.", names="--tokenized")]
Output = Annotated[
    Path | None,
    _option(
        _OUTPUT,
        "Soft alignments, HDF5 [dim](default: alignments.h5, without --pharaoh)[/dim]; FILE.h5.partial until it is "
        "complete.",
        "FILE.h5",
        "--output -o",
    ),
]
Resume = Annotated[bool, _option(_OUTPUT, "Continue an interrupted -o FILE.h5.", names="--resume")]
Pharaoh = Annotated[
    bool, _option(_OUTPUT, "Hard links on stdout, one line per pair: 0-0 2-1 (source first).", names="--pharaoh")
]
Gold = Annotated[Path | None, _option(_OUTPUT, "Gold links: precision, recall and AER.", "FILE")]
GoldBase = Annotated[
    Literal["0", "1"] | None,
    _option(_OUTPUT, "First position in the gold links [dim](default: 0, of numbered lines 1)[/dim].", "0|1"),
]
Weights = Annotated[str | None, _option(_OUTPUT, "How weights are stored.", "float16|float32")]
Format = Annotated[Literal["text", "json"], _option(_OUTPUT, "How the figures are printed.")]
BatchSize = Annotated[int | None, _option(MACHINE, "Pairs aligned together.", "N")]


def align(
    source: Source = None,
    target: Target = None,
    model: ModelOption = None,
    quiet: QuietOption = False,
    forward: Forward = None,
    backward: Backward = None,
    symmetrize: Symmetrize = None,
    links: Links = None,
    threshold: Threshold = None,
    reading: Reading = None,
    temperature: Temperature = None,
    drop_end: DropEnd = None,
    tokenized: Tokenized = False,
    output: Output = None,
    resume: Resume = False,
    pharaoh: Pharaoh = False,
    gold: Gold = None,
    gold_base: GoldBase = None,
    weights: Weights = None,
    format: Format = "text",
    batch_size: BatchSize = None,
    which: WhichOption = "best",
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    config: ConfigOption = None,
) -> None:
    """Align given sentence pairs: soft alignments to HDF5, hard links to stdout, error rates.

    The model reads each target word in turn (forced decoding). Its attention
    weights show where it read, not why. Each target word gets one link, to the
    source word with the largest weight, or none (NULL) if that is </s>.
    Positions count from 0. Two models, one per direction, align better than
    one: --symmetrize chooses how they are joined, and their weights are read
    given the word (--reading posterior). Without SRC and TGT the test set of
    the workspace is aligned and compared with its gold links.

    Examples:

      nmtalign align

      nmtalign align in.en out.fr -m model/ -o alignments.h5

      nmtalign align in.en out.fr --pharaoh > links.txt

      nmtalign align in.en out.fr --forward en-fr/ --backward fr-en/ --pharaoh > links.txt

      nmtalign align test.en test.fr --tokenized --gold test.gold --format json
    """
    workspace = load_workspace(config)
    folders = _folders(workspace, model, forward, backward, symmetrize)
    given = {
        "links": links, "threshold": threshold, "reading": reading, "temperature": temperature, "drop_end": drop_end,
        "symmetrize": symmetrize, "batch_size": batch_size, "weights": weights, "device": device,
        "precision": precision, "threads": threads,
    }  # fmt: skip
    settings = workspace.resolve(AlignConfig, "align", given)
    task = _Task(source, target, gold, gold_base, output, resume, pharaoh, tokenized, format, quiet)
    _run(task.complete(workspace), folders, which, settings)


def _folders(
    workspace: Workspace, model: Path | None, forward: Path | None, backward: Path | None, symmetrize: str | None
) -> list[Path]:
    """Returns the folder of the model, or of the forward and the backward model; UsageError for wrong combinations."""
    if forward and model:
        raise UsageError("--forward and --model are both given: the forward model is one of them; leave out the other")
    if forward and not backward:
        raise UsageError("--forward is one of two directions: give --backward DIR too, or only one model with -m")
    if symmetrize and not backward:
        raise UsageError("--symmetrize joins two directions: give --forward DIR and --backward DIR")
    return [forward or model or workspace.model, *([backward] if backward else [])]


@dataclass(frozen=True)
class _Task:
    """What is aligned, and what comes out."""

    source: Path | None
    target: Path | None
    gold: Path | None
    gold_base: Literal["0", "1"] | None
    output: Path | None
    resume: bool
    pharaoh: bool
    tokenized: bool
    format: Literal["text", "json"]
    quiet: bool
    gold_of_workspace: bool = False

    def complete(self, workspace: Workspace) -> "_Task":
        """Fills in the test set and the gold links of the workspace, and the output; UsageError if they do not fit."""
        task = self if self.source is not None else self._of_test_set(workspace)
        if task.target is None:
            raise UsageError(f"{task.source}: only one text is given; give the source and its translation: SRC TGT")
        inputs = [task.source, task.target, task.gold]
        if inputs.count(STDIN) > 1:
            raise UsageError("only one of SRC, TGT and --gold can be stdin")
        output = _DEFAULT_OUTPUT if task.output is None and (task.resume or not task.pharaoh) else task.output
        if output is not None and (output == STDIN or output.is_dir()):
            raise UsageError(f"{output}: HDF5 needs a file: give a name such as {_DEFAULT_OUTPUT}")
        exists = output is not None and output.exists()
        if output and exists and any(path and path.exists() and output.samefile(path) for path in inputs):
            raise UsageError(f"{output}: is also an input; give -o another name")
        if task.resume and task.pharaoh:
            raise UsageError(
                "--resume continues -o FILE.h5, and --pharaoh would print only the rest: leave it out, and export the "
                "links afterwards (`nmtalign export`)"
            )
        if task.resume and task.gold:
            raise UsageError(
                "--resume continues -o FILE.h5, and --gold would count only the rest: leave it out, and compare "
                "afterwards (`nmtalign aer`)"
            )
        return replace(task, output=output)

    def _of_test_set(self, workspace: Workspace) -> "_Task":
        if "test" not in workspace.pairs:
            raise UsageError(
                "no pairs to align: give SRC TGT, or name a test set in nmtalign.toml "
                '([corpus] test = ["test.en", "test.fr"])'
            )
        source, target = workspace.pairs["test"]
        if self.gold is not None or self.resume or workspace.gold is None:
            return replace(self, source=source, target=target)
        return replace(self, source=source, target=target, gold=workspace.gold, gold_of_workspace=True)

    def run(self, models: "Sequence[LoadedModel]", settings: AlignConfig) -> "AlignmentRun":
        """Returns the run of these models, without gold links of the workspace that count other words."""
        from nmtalign.alignment.aligning import AlignmentRun

        gold = self.gold
        if self.gold_of_workspace and not self.tokenized and models[0].tokenizers.kind == "sentencepiece":
            notifier(self.quiet)(
                f"{gold}: not compared: its links count Moses words, and the words of a subword model stand between "
                "spaces"
            )
            gold = None
        return AlignmentRun(
            models, self.source or STDIN, self.target or STDIN, settings,
            output=self.output, tokenized=self.tokenized, resume=self.resume, gold=gold,
            gold_base=None if self.gold_base is None else int(self.gold_base),
        )  # fmt: skip


def _run(task: _Task, folders: list[Path], which: Literal["best", "last"], settings: AlignConfig) -> None:
    """Loads the models, aligns all pairs and prints links and figures."""
    choose_wait_policy()
    check_ahead(folders, which)
    with Signals() as signals:
        from nmtalign.core.devices import use_threads
        from nmtalign.model_directory import load_model

        use_threads(settings.threads)
        models = [
            load_model(folder, device=settings.device, precision=settings.precision, which=which) for folder in folders
        ]
        run = task.run(models, settings)
        signals.detail = run.left
        with run:
            if run.kept is not None:
                say(f"{run.partial} existed; it is now {run.kept}, and --resume would have continued it")
            printing = task.pharaoh
            for record in counted(run, "aligning", "pairs", task.quiet or (task.pharaoh and sys.stdout.isatty())):
                printing = printing and _print_links(record, task.output)
    _report(run.summary, task)


def _print_links(record: "AlignmentRecord", output: Path | None) -> bool:
    """Prints the links of a pair; returns False if the reader of stdout has gone, but a file is being written."""
    from nmtalign.alignment.links import format_links

    try:
        sys.stdout.write(format_links(record.hard_links) + "\n")
    except BrokenPipeError:
        if output is None:
            raise
        return False
    return True


def _report(summary: "AlignmentSummary", task: _Task) -> None:
    tell, done = notifier(task.quiet), summary.done_before
    if summary.rates is not None or task.format == "json":
        _print_figures(summary, task.format, sys.stderr if task.pharaoh else sys.stdout)
    if done and not summary.pairs:
        tell(f"{task.output}: already complete: it has the alignments of all {done:,} pairs")
        return
    if summary.rates is None and task.format != "json":
        after = f" after the {done:,} that were there" if done else ""
        tell(f"{summary.pairs} pairs{after}, {summary.links} links, </s> mass {summary.end_mass:.3f}")
    if task.output:
        tell(f"wrote {task.output}")


def _print_figures(summary: "AlignmentSummary", format: str, stream: TextIO) -> None:
    figures: dict[str, object] = {"pairs": summary.pairs, "links": summary.links, "end_mass": summary.end_mass}
    if summary.rates is not None:
        figures |= {**asdict(summary.rates), "signature": summary.signature}
    if format == "json":
        stream.write(json.dumps(figures) + "\n")
        return
    names = {"end_mass": "</s> mass", "aer": "AER", "f1": "F1"}
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        stream.write(f"{names.get(name, name):<10} {shown}\n")
