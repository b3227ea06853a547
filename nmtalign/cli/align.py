"""`nmtalign align`: soft alignments of given pairs to HDF5, links to stdout."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.api import align_files
from nmtalign.cli import common
from nmtalign.cli.common import MODEL_DEFAULT, QUIET, output_option, own_argument, own_flag, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.files import is_aligner
from nmtalign.settings.command_settings import AlignConfig
from nmtalign.text.lines import counted, raw_lines

if TYPE_CHECKING:
    from nmtalign.alignment.aligning import AlignmentRun, AlignmentSummary
    from nmtalign.alignment.links import AlignmentRecord

_DEFAULT_OUTPUT = Path("alignments.h5")


@with_settings(AlignConfig)
def align(
    chosen: Chosen[AlignConfig],
    source: Path | None = own_argument("SRC", "Source text or .gz file (default: the workspace's test set)."),
    target: Path | None = own_argument("TGT", "Its translation, line by line."),
    model: list[Path] | None = own_option(
        f"Model directory, or folder of `nmtalign link`; repeat it for the backward model, TGT to SRC {MODEL_DEFAULT}",
        "DIR",
        "--model -m",
    ),
    output: Path | None = output_option(
        "Soft alignments, FILE.h5.partial until complete [dim]\\[default: alignments.h5, or none with --pharaoh]"
        "[/dim].",
        "FILE.h5",
    ),
    resume: bool = own_flag("Continue an interrupted -o FILE.h5.", "--resume"),
    pharaoh: bool = own_flag("Print hard links, one line per pair: 0-0 2-1 (source first).", "--pharaoh"),
    scores: bool = own_flag("Print hard links and, after a tab, the probability of each: 0.9800 0.7143.", "--scores"),
    shard: str | None = common.SHARD,
    quiet: bool = QUIET,
) -> None:
    """Align given sentence pairs: soft alignments to HDF5, hard links to stdout.

    The model reads each target word in turn (forced decoding). Its attention weights show where it read, not why. Each
    target word gets one link, to the source word with the largest weight, or none (NULL) if that is </s>. Positions
    count from 0. Two models, one per direction, align better (--symmetrize joins them), and the aligner of `nmtalign
    link` aligns best. `nmtalign aer` compares with gold links.

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
            fix = 'give SRC TGT, or name a test set in nmtalign.toml ([corpus] test = ["test.en", "test.fr"])'
            raise UsageError(f"no pairs to align: {fix}")
        source, target = chosen.workspace.test_files
    target = common.need_target(source, target)
    if output is None and (resume or not pharaoh):
        output = common.outputs["output"] = _DEFAULT_OUTPUT
    _check(output, resume, pharaoh)
    common.check_inputs(source, target)
    common.sleep_beside_others()
    with contextlib.ExitStack() as loading:
        loading.enter_context(common.live_line("loading the model", quiet))

        def watch(run: "AlignmentRun") -> "Iterator[AlignmentRecord]":
            loading.close()
            common.signals.detail = run.left
            hidden = quiet or (pharaoh and sys.stdout.isatty())
            counts = common.shows_live() and source.is_file() and not (hidden or shard)  # a log does without a total
            total = max(0, sum(1 for _ in raw_lines(source)) - run.summary.done_before) if counts else None
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
    _report(summary, output, common.notifier(quiet))


def _check(output: Path | None, resume: bool, pharaoh: bool) -> None:
    """Raises UsageError for options that do not go together, and for an output that is no file of HDF5."""
    if resume and pharaoh:
        fix = "leave it out, and run `nmtalign export` afterwards"
        raise UsageError(f"--resume continues -o FILE.h5, and --pharaoh would print only the rest: {fix}")
    if output is not None and (output.is_dir() or output.suffix.lower() in (*common.LINK_SUFFIXES, ".json")):
        fix = f"give a name such as {_DEFAULT_OUTPUT}; links are text: --pharaoh > FILE"
        raise UsageError(f"{output}: HDF5 needs a file: {fix}")


def _report(summary: "AlignmentSummary", output: Path | None, tell: Callable[[str], None]) -> None:
    if (done := summary.done_before) and not summary.pairs:
        tell(f"{output}: already complete: it has the alignments of {counted(done, 'pair')}")
        return
    after = f" after the {done:,} that were there" if done else ""
    tell(f"{counted(summary.pairs, 'pair')}{after}, {counted(summary.links, 'link')}")
    if output:
        tell(f"wrote {output}")
