"""`nmtalign align`: soft alignments of given pairs to HDF5, links to stdout."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from nmtalign.api import align_files
from nmtalign.cli import common
from nmtalign.cli.common import MODEL_DEFAULT, QuietOption, output_option, own_argument, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.files import is_aligner
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.lines import counted

if TYPE_CHECKING:
    from nmtalign.alignment.aligning import AlignmentRun, AlignmentSummary
    from nmtalign.alignment.links import AlignmentRecord

_DEFAULT_OUTPUT = Path("alignments.h5")

Source = Annotated[Path | None, own_argument("SRC", "Source text or .gz file (default: the workspace's test set).")]
Target = Annotated[Path | None, own_argument("TGT", "Its translation, line by line.")]
Models = Annotated[
    list[Path] | None,
    own_option(
        f"Model directory, or folder of `nmtalign link`; repeat it for the backward model, TGT to SRC {MODEL_DEFAULT}",
        "DIR",
        "--model -m",
    ),
]
Output = Annotated[
    Path | None,
    output_option(
        "Soft alignments, FILE.h5.partial until complete [dim]\\[default: alignments.h5, or none with --pharaoh]"
        "[/dim].",
        "FILE.h5",
    ),
]
Resume = Annotated[bool, own_option("Continue an interrupted -o FILE.h5.", names="--resume")]
Pharaoh = Annotated[bool, own_option("Print hard links, one line per pair: 0-0 2-1 (source first).", names="--pharaoh")]
Scores = Annotated[
    bool, own_option("Print hard links and, after a tab, the probability of each: 0.9800 0.7143.", names="--scores")
]


@with_settings(AlignConfig)
def align(
    chosen: Chosen[AlignConfig],
    source: Source = None,
    target: Target = None,
    model: Models = None,
    output: Output = None,
    resume: Resume = False,
    pharaoh: Pharaoh = False,
    scores: Scores = False,
    shard: common.ShardOption = None,
    quiet: QuietOption = False,
) -> None:
    """Align given sentence pairs: soft alignments to HDF5, hard links to stdout.

    The model reads each target word in turn (forced decoding). Its attention weights show where it read, not why. Each
    target word gets one link, to the source word with the largest weight, or none (NULL) if that is </s>. Positions
    count from 0. Two models, one per direction, align better (--symmetrize joins them), and the aligner of `nmtalign
    link` aligns best. Without SRC and TGT the workspace's test set is aligned. `nmtalign aer` compares with gold links.

    Examples:
      nmtalign align
      nmtalign align in.en out.fr -m model/ -o alignments.h5 --pharaoh > links.txt
      nmtalign align in.en out.fr -m en-fr/ -m fr-en/ --pharaoh > links.txt
      nmtalign align test.en test.fr --tokenized --pharaoh | nmtalign aer - test.gold
    """
    models, pharaoh = model or [chosen.workspace.model], pharaoh or scores
    if "symmetrize" in chosen.typed and len(models) == 1 and not is_aligner(models[0]):
        raise UsageError("--symmetrize joins two directions: give a forward and a backward model, -m DIR -m DIR")
    if {"threshold", "links"} <= {*chosen.typed} and chosen.settings.links == "argmax":
        raise UsageError("--threshold: links=argmax takes the largest weight, without a threshold; leave out either")
    if source is None:
        if chosen.workspace.test_files is None:
            raise UsageError(
                "no pairs to align: give SRC TGT, or name a test set in nmtalign.toml "
                '([corpus] test = ["test.en", "test.fr"])'
            )
        source, target = chosen.workspace.test_files
    if target is None:
        raise UsageError(f"{source}: only one text is given; give two files, the source and its translation: SRC TGT")
    output = _DEFAULT_OUTPUT if output is None and (resume or not pharaoh) else output
    _check(output, resume, pharaoh)
    common.check_inputs(source, target)
    common.sleep_beside_others()
    with chosen.naming(), contextlib.ExitStack() as loading:
        loading.enter_context(common.live_line("loading the model", quiet))

        def watch(run: "AlignmentRun") -> "Iterator[AlignmentRecord]":
            loading.close()
            common.signals.detail = run.left
            hidden = quiet or not common.shows_live() or (pharaoh and sys.stdout.isatty())
            total = None if hidden or shard else max(0, (common.lines_of(source) or 0) - run.summary.done_before)
            printing = pharaoh
            with common.advancing(hidden, "aligning", total, "pairs") as advance:
                for record in run:
                    try:
                        if printing:
                            sys.stdout.write(f"{record.scored_links() if scores else record.pharaoh()}\n")
                    except BrokenPipeError:  # the reader of stdout has gone; a file is still completed
                        if output is None:
                            raise
                        printing = False
                    yield record
                    advance(1)

        summary = align_files(
            models, source, target, output,
            resume=resume, shard=shard, watch=watch, notify=common.say, config=chosen.settings,
        )  # fmt: skip
    _report(summary, output, quiet)


def _check(output: Path | None, resume: bool, pharaoh: bool) -> None:
    """Raises UsageError for options that do not go together, and for an output that is no file."""
    if resume and pharaoh:
        raise UsageError(
            "--resume continues -o FILE.h5, and --pharaoh would print only the rest: leave it out, and run "
            "`nmtalign export` afterwards"
        )
    if output is not None:
        if output.is_dir():
            raise UsageError(f"{output}: HDF5 needs a file: give a name such as {_DEFAULT_OUTPUT}")
        common.outputs["output"] = output


def _report(summary: "AlignmentSummary", output: Path | None, quiet: bool) -> None:
    tell, done = common.notifier(quiet), summary.done_before
    if done and not summary.pairs:
        tell(f"{output}: already complete: it has the alignments of {counted(done, 'pair')}")
        return
    after = f" after the {done:,} that were there" if done else ""
    done_now, links = counted(summary.pairs, "pair"), counted(summary.links, "link")
    tell(f"{done_now}{after}, {links}")
    if output:
        tell(f"wrote {output}")
