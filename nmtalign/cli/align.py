"""`nmtalign align`: soft alignments of given pairs to HDF5, links to stdout, error rates against gold links."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

from nmtalign.cli.common import (
    GoldBaseOption,
    ModelOption,
    QuietOption,
    ReverseGoldOption,
    ShardOption,
    Signals,
    WhichOption,
    check_inputs,
    choose_wait_policy,
    counted,
    json_text,
    lines_of,
    notifier,
    outputs,
    own_argument,
    own_option,
    say,
    status_line,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.model_files import is_aligner
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.text.lines import STDIN
from nmtalign.text.shard import Shard

if TYPE_CHECKING:
    from nmtalign.alignment.aligning import AlignmentRun, AlignmentSummary

_DEFAULT_OUTPUT = Path("alignments.h5")

Source = Annotated[Path | None, own_argument("SRC", "Source text or .gz file (default: the workspace's test set).")]
Target = Annotated[Path | None, own_argument("TGT", "Its translation, line by line.")]
Forward = Annotated[Path | None, own_option("Model that reads SRC and writes TGT (or -m).", "DIR")]
Backward = Annotated[Path | None, own_option("Model that reads TGT and writes SRC.", "DIR")]
Output = Annotated[
    Path | None,
    own_option(
        "Soft alignments, FILE.h5.partial until complete [dim]\\[default: alignments.h5, or none with --pharaoh]"
        "[/dim].",
        "FILE.h5",
        "--output -o",
        callback=writes("a file"),
    ),
]
Resume = Annotated[bool, own_option("Continue an interrupted -o FILE.h5.", names="--resume")]
Pharaoh = Annotated[bool, own_option("Print hard links, one line per pair: 0-0 2-1 (source first).", names="--pharaoh")]
Scores = Annotated[
    bool, own_option("Print hard links and, after a tab, the probability of each: 0.9800 0.7143.", names="--scores")
]
Gold = Annotated[Path | None, own_option("Gold links: print precision, recall and AER.", "FILE")]
Format = Annotated[Literal["text", "json"], own_option("Format of the figures.")]


@with_settings(AlignConfig)
def align(
    chosen: Chosen[AlignConfig],
    source: Source = None,
    target: Target = None,
    model: ModelOption = None,
    forward: Forward = None,
    backward: Backward = None,
    output: Output = None,
    resume: Resume = False,
    pharaoh: Pharaoh = False,
    scores: Scores = False,
    gold: Gold = None,
    gold_base: GoldBaseOption = None,
    reverse_gold: ReverseGoldOption = False,
    format: Format = "text",
    which: WhichOption = "best",
    shard: ShardOption = None,
    quiet: QuietOption = False,
) -> None:
    """Align given sentence pairs: soft alignments to HDF5, hard links to stdout, error rates.

    The model reads each target word in turn (forced decoding). Its attention weights show where it read, not why. Each
    target word gets one link, to the source word with the largest weight, or none (NULL) if that is </s>. Positions
    count from 0. Two models, one per direction, align better (--symmetrize joins them), and the aligner of `nmtalign
    link` aligns best. Without SRC and TGT the workspace's test set is aligned and compared with its gold links.

    Examples:

      nmtalign align

      nmtalign align in.en out.fr -m model/ -o alignments.h5

      nmtalign align in.en out.fr --pharaoh > links.txt

      nmtalign align in.en out.fr --forward en-fr/ --backward fr-en/ --pharaoh > links.txt

      nmtalign align test.en test.fr --tokenized --gold test.gold --format json
    """
    folders, pharaoh = _folders(chosen, model, forward, backward), pharaoh or scores
    source, target, links = _texts(chosen.workspace, source, target, gold, resume or shard is not None)
    output = _DEFAULT_OUTPUT if output is None and (resume or not pharaoh) else output
    _check(output, [source, target, links], resume, pharaoh, gold, shard)
    choose_wait_policy()
    with Signals() as signals, chosen.naming():
        with status_line("loading the model", quiet):
            from nmtalign.alignment.aligning import AlignmentRun, forward_of, load_models

            models = load_models(folders, chosen.settings, which)
            kind = forward_of(models).tokenizers.kind
        if links != gold and not chosen.settings.tokenized and kind not in ("moses", "spaced"):
            notifier(quiet)(f"{links}: not compared: its links count Moses words, and the model has subwords")
            links = None
        run = AlignmentRun(
            models, source, target, chosen.settings, output=output, resume=resume, gold=links, gold_base=gold_base,
            reverse_gold=reverse_gold, notify=say, shard=shard,
        )  # fmt: skip
        signals.detail = run.left
        _run(run, output, pharaoh, scores, quiet, lambda: None if shard else lines_of(source))
    _report(run.summary, output, format, pharaoh, quiet)


def _folders(
    chosen: Chosen[AlignConfig], model: Path | None, forward: Path | None, backward: Path | None
) -> list[Path]:
    """Returns the folder of the model, or of the forward and the backward model; UsageError for wrong combinations."""
    if forward and model:
        raise UsageError("--forward and --model are both given: the forward model is one of them; leave out the other")
    if forward and not backward:
        raise UsageError("--forward is one of two directions: give --backward DIR too, or only one model with -m")
    first = forward or model or chosen.workspace.model
    folders = [first, backward] if backward else [first]
    if "symmetrize" in chosen.typed and len(folders) == 1 and not is_aligner(first):
        raise UsageError("--symmetrize joins two directions: give --forward DIR and --backward DIR")
    return folders


def _texts(
    workspace: Workspace, source: Path | None, target: Path | None, gold: Path | None, in_part: bool
) -> tuple[Path, Path, Path | None]:
    """Returns source, target and gold links: those given, or those of the workspace's test set.

    A run that aligns only a part of the pairs is not compared with the gold links of the workspace.
    """
    if source is None:
        if workspace.test_files is None:
            raise UsageError(
                "no pairs to align: give SRC TGT, or name a test set in nmtalign.toml "
                '([corpus] test = ["test.en", "test.fr"])'
            )
        return *workspace.test_files, gold or (None if in_part else workspace.gold)
    if target is None:
        raise UsageError(f"{source}: only one text is given; give the source and its translation: SRC TGT")
    return source, target, gold


def _check(
    output: Path | None,
    inputs: Sequence[Path | None],
    resume: bool,
    pharaoh: bool,
    gold: Path | None,
    shard: Shard | None,
) -> None:
    """Raises UsageError for options that do not go together, and for an output that is an input."""
    if inputs.count(STDIN) > 1:
        raise UsageError("only one of SRC, TGT and --gold can be stdin")
    if output is not None:
        if output.is_dir():
            raise UsageError(f"{output}: HDF5 needs a file: give a name such as {_DEFAULT_OUTPUT}")
        outputs["output"] = output
    check_inputs(*inputs)
    if shard and gold:
        raise UsageError("--gold has the links of all pairs: leave out --shard, or run `nmtalign aer` afterwards")
    for option, given, instead in (("--pharaoh", pharaoh, "export"), ("--gold", gold, "aer")):
        if resume and given:
            raise UsageError(
                f"--resume continues -o FILE.h5, and {option} would use only the rest: leave it out, and run "
                f"`nmtalign {instead}` afterwards"
            )


def _run(
    run: "AlignmentRun",
    output: Path | None,
    pharaoh: bool,
    scores: bool,
    quiet: bool,
    total: Callable[[], int | None],
) -> None:
    """Aligns all pairs and prints their links; if the reader of stdout has gone, a file is still completed."""
    with run:
        if note := run.note():
            say(note)
        quiet, done = quiet or (pharaoh and sys.stdout.isatty()), run.summary.done_before
        for record in counted(run, "aligning", "pairs", quiet, lambda: max(0, (total() or 0) - done)):
            try:
                if pharaoh:
                    sys.stdout.write(f"{record.scored_links() if scores else record.pharaoh()}\n")
            except BrokenPipeError:
                if output is None:
                    raise
                pharaoh = False


def _report(summary: "AlignmentSummary", output: Path | None, format: str, pharaoh: bool, quiet: bool) -> None:
    tell, done = notifier(quiet), summary.done_before
    if summary.rates is not None or format == "json":
        _print_figures(summary, format, sys.stderr if pharaoh else sys.stdout)
    if done and not summary.pairs:
        tell(f"{output}: already complete: it has the alignments of all {done:,} pairs")
        return
    if summary.rates is None and format != "json":
        after = f" after the {done:,} that were there" if done else ""
        tell(f"{summary.pairs} pairs{after}, {summary.links} links, </s> mass {summary.end_mass:.3f}")
    if output:
        tell(f"wrote {output}")


def _print_figures(summary: "AlignmentSummary", format: str, stream: TextIO) -> None:
    figures: dict[str, object] = {"pairs": summary.pairs, "links": summary.links, "end_mass": summary.end_mass}
    if summary.rates is not None:
        figures |= {**vars(summary.rates), "signature": summary.signature}
    if format == "json":
        stream.write(json_text(figures) + "\n")
        return
    names = {"end_mass": "</s> mass", "aer": "AER", "f1": "F1"}
    for name, value in figures.items():
        shown = f"{value:.4f}" if isinstance(value, float) else str(value)
        stream.write(f"{names.get(name, name):<10} {shown}\n")
