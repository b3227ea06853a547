"""`nmtalign align`: soft alignments of given pairs to HDF5, links to stdout, error rates against gold links."""

import contextlib
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

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
    notifier,
)
from nmtalign.cli.counting import counted
from nmtalign.config import AlignConfig
from nmtalign.errors import UsageError
from nmtalign.version import __version__
from nmtalign.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.alignment.gold import GoldFile
    from nmtalign.alignment.record import AlignmentRecord
    from nmtalign.alignment.store import AlignmentWriter
    from nmtalign.model_directory import LoadedModel

STDIN = Path("-")
_DEFAULT_OUTPUT = Path("alignments.h5")
_OUTPUT, _READING = "What comes out", "How the text is read"

Source = Annotated[
    Path | None,
    typer.Argument(
        metavar="SRC", help="Source text or .gz file (default: the workspace's test set).", show_default=False
    ),
]
Target = Annotated[
    Path | None,
    typer.Argument(metavar="TGT", help="Its translation, line by line.", show_default=False),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="FILE.h5",
        help="Soft alignments, HDF5 [dim](default: alignments.h5, without --pharaoh)[/dim].",
        rich_help_panel=_OUTPUT,
    ),
]
Pharaoh = Annotated[
    bool,
    typer.Option(
        "--pharaoh", help="Hard links on stdout, a line a pair: 0-0 2-1 (source first).", rich_help_panel=_OUTPUT
    ),
]
Gold = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Gold links: precision, recall and AER.", rich_help_panel=_OUTPUT),
]
Weights = Annotated[
    str | None,
    typer.Option(metavar="float16|float32", help="How weights are stored.", rich_help_panel=_OUTPUT),
]
Format = Annotated[Literal["text", "json"], typer.Option(help="How the figures are printed.", rich_help_panel=_OUTPUT)]
Tokenized = Annotated[
    bool,
    typer.Option("--tokenized", help="Words stand between spaces: do not tokenise again.", rich_help_panel=_READING),
]
BatchSize = Annotated[int | None, typer.Option(metavar="N", help="Pairs aligned together.", rich_help_panel=MACHINE)]


@dataclass(frozen=True)
class _Task:
    """What is aligned, and what comes out."""

    source: Path
    target: Path
    gold: Path | None
    output: Path | None
    pharaoh: bool
    tokenized: bool


@dataclass
class _Tally:
    """Counts over all pairs."""

    pairs: int = 0
    links: int = 0
    target_words: int = 0  # of pairs that were given to the model
    end_mass: float = 0.0

    def count(self, record: "AlignmentRecord") -> None:
        self.pairs += 1
        self.links += len(record.hard_links)
        if not record.empty():
            self.target_words += len(record.target)
            self.end_mass += record.end_mass()

    def figures(self) -> dict[str, Any]:
        """Counts, and the mean weight of a target word on the source's `</s>`."""
        mean = self.end_mass / self.target_words if self.target_words else 0.0
        return {"pairs": self.pairs, "links": self.links, "end_mass": mean}


def align(
    source: Source = None,
    target: Target = None,
    model: ModelOption = None,
    output: Output = None,
    pharaoh: Pharaoh = False,
    gold: Gold = None,
    weights: Weights = None,
    format: Format = "text",
    tokenized: Tokenized = False,
    which: WhichOption = "best",
    batch_size: BatchSize = None,
    device: DeviceOption = None,
    precision: PrecisionOption = None,
    threads: ThreadsOption = None,
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Align given sentence pairs: soft alignments to HDF5, hard links to stdout, error rates.

    The model reads each target word in turn (forced decoding), and its
    weights are where it looked. Each target word has one link, to the source
    word with the largest weight, or none where that is </s>. Positions count
    from 0. Without SRC and TGT the test set of the workspace is aligned and
    compared with its gold links.

    Examples:

      nmtalign align

      nmtalign align in.en out.fr -m model/ -o alignments.h5

      nmtalign align in.en out.fr --pharaoh > links.txt

      nmtalign align test.en test.fr --tokenized --gold test.gold --format json
    """
    workspace = load_workspace(config)
    flags = {
        "batch_size": batch_size, "weights": weights, "device": device, "precision": precision, "threads": threads,
    }  # fmt: skip
    settings = workspace.resolve(AlignConfig, "align", flags)
    task = _task(workspace, source, target, gold, output, pharaoh, tokenized)
    say = notifier(quiet)

    choose_wait_policy()
    from nmtalign.core.devices import use_threads
    from nmtalign.model_directory import load_model

    use_threads(settings.threads)
    loaded = load_model(model or workspace.model, device=settings.device, precision=settings.precision, which=which)
    task = _without_foreign_gold(task, loaded, given=gold is not None, say=say)
    tally, gold_file = _align(task, loaded, settings, quiet)
    figures = tally.figures() | (_rates(gold_file, loaded) if gold_file else {})
    if task.gold or format == "json":
        _print_figures(figures, format, sys.stderr if task.pharaoh else sys.stdout)
    else:
        say(f"{figures['pairs']} pairs, {figures['links']} links, </s> mass {figures['end_mass']:.3f}")
    if task.output:
        say(f"wrote {task.output}")


def _task(
    workspace: Workspace,
    source: Path | None,
    target: Path | None,
    gold: Path | None,
    output: Path | None,
    pharaoh: bool,
    tokenized: bool,
) -> _Task:
    """Fills in what was not given: the workspace's test set and gold links, and the name of the output."""
    if source is None:
        if "test" not in workspace.pairs:
            raise UsageError(
                "no pairs to align: give SRC TGT, or name a test set in nmtalign.toml "
                '([corpus] test = ["test.en", "test.fr"])'
            )
        source, target = workspace.pairs["test"]
        gold = gold or workspace.gold
    if target is None:
        raise UsageError(f"{source}: one text is given; give the source and its translation: SRC TGT")
    if [source, target, gold].count(STDIN) > 1:
        raise UsageError("only one of SRC, TGT and --gold can be stdin")
    if output is None and not pharaoh:
        output = _DEFAULT_OUTPUT
    if output is not None and (output == STDIN or output.is_dir()):
        raise UsageError(f"{output}: HDF5 needs a file: give a name such as {_DEFAULT_OUTPUT}")
    return _Task(source, target, gold, output, pharaoh, tokenized)


def _without_foreign_gold(task: _Task, loaded: "LoadedModel", given: bool, say: Callable[[str], None]) -> _Task:
    """The task without the workspace's gold links where the model's words are not those that the links count.

    A subword model reads raw text, so its words stand between spaces; the gold links are over Moses words.
    """
    if task.gold is None or given or task.tokenized or loaded.tokenizers.kind != "sentencepiece":
        return task
    say(f"{task.gold}: not compared: its links count Moses words, and a subword model's words stand between spaces")
    return _Task(task.source, task.target, None, task.output, task.pharaoh, task.tokenized)


def _align(task: _Task, loaded: "LoadedModel", settings: AlignConfig, quiet: bool) -> "tuple[_Tally, GoldFile | None]":
    """Aligns all pairs, each result going where it belongs as it comes."""
    from nmtalign.alignment.forced import align_pairs
    from nmtalign.alignment.gold import GoldFile
    from nmtalign.alignment.links import format_links
    from nmtalign.text.lines import read_pairs

    tally, gold = _Tally(), GoldFile(task.gold) if task.gold else None
    records = align_pairs(loaded, read_pairs(task.source, task.target), settings, tokenized=task.tokenized)
    with _writer(task, loaded, settings) as writer:
        for record in counted(records, "aligning", "pairs", quiet or (task.pharaoh and sys.stdout.isatty())):
            tally.count(record)
            if gold:
                gold.compare(record.links(), len(record.source), len(record.target))
            if writer is not None:
                writer.add(record)
            if task.pharaoh:
                sys.stdout.write(format_links(record.links()) + "\n")
        if gold:
            gold.finish()
    return tally, gold


def _writer(
    task: _Task, loaded: "LoadedModel", settings: AlignConfig
) -> "contextlib.AbstractContextManager[AlignmentWriter | None]":
    """The file of soft alignments, or nothing."""
    from nmtalign.alignment.store import AlignmentWriter

    if task.output is None:
        return contextlib.nullcontext()
    options = {**asdict(settings), "tokenized": task.tokenized, "weights_of": loaded.weights_file.name}
    attributes = {
        "model_hash": loaded.hash,
        "direction": f"{loaded.source_language}-{loaded.target_language}",
        "made_by": "forced decoding",
        "links_method": "argmax",
        "source_file": str(task.source),
        "target_file": str(task.target),
        "options": json.dumps(options),
    }
    return AlignmentWriter(task.output, attributes, settings.weights)


def _rates(gold: "GoldFile", loaded: "LoadedModel") -> dict[str, Any]:
    counts = gold.counts
    signature = (
        f"AER|links:argmax|gold:{gold.path.name}|pairs:{gold.pairs}|sure:{counts.sure}|model:{loaded.hash[:12]}"
        f"|nmtalign:{__version__}"
    )
    return {**asdict(counts.rates()), "signature": signature}


def _print_figures(figures: dict[str, Any], format: str, stream: Any) -> None:
    if format == "json":
        stream.write(json.dumps(figures) + "\n")
        return
    names = {"end_mass": "</s> mass", "aer": "AER", "f1": "F1"}
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        stream.write(f"{names.get(name, name):<10} {shown}\n")
