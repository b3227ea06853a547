"""`nmtalign link`: from a bitext to word links, with one command."""

import sys
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import nmtalign
from nmtalign.cli import common
from nmtalign.cli.common import QUIET, output_option, own_argument, own_flag
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.processor import keep_memory
from nmtalign.settings.command_settings import LinkConfig
from nmtalign.text.lines import counted, read_lines
from nmtalign.text.tokenizer import LEXICON

if TYPE_CHECKING:
    from nmtalign.alignment.linking import LinkProgress


@with_settings(LinkConfig)
def link(
    chosen: Chosen[LinkConfig],
    source: Path = own_argument("SRC", "Source text or .gz file.", default=...),
    target: Path | None = own_argument("TGT", "Its translation, line by line."),
    output: Path = output_option(
        "Folder of the aligner and of the links, new or to resume.", "FOLDER", folder=True, default=Path("aligner")
    ),
    scores: bool = own_flag(
        "Also print the probability of each link, after a tab: 0-0 2-1<tab>0.9800 0.7143.", "--scores"
    ),
    quiet: bool = QUIET,
) -> None:
    """Learn from a bitext to link its words, and print one line of links per pair: 0-0 2-1.

    No links, models or settings are needed. Positions count the words between spaces, from 0; the source is first. The
    command learns two models that translate words in opposite directions and must agree, and aligns all pairs with
    both. Every pair gets a line, which is empty if a side is empty or has more than 2,900 words and marks. Rerun an
    interrupted command and it resumes; a completed one prints its links again. FOLDER then contains the aligner, with
    which `nmtalign align` links other pairs, and a translation table for `translate --lexicon FOLDER`: lexicon.tsv.

    Examples:
      nmtalign link corpus.en corpus.fr > links.txt
      nmtalign link corpus.en.gz corpus.fr.gz --learn-from 500000 -o large/ --scores > links.tsv
      nmtalign align new.en new.fr -m aligner/ --pharaoh > new-links.txt
    """
    target = common.need_target(source, target)
    if output.suffix.lower() in common.LINK_SUFFIXES:
        raise UsageError(f"{output}: -o is the folder of the aligner; links go to standard output: > {output}")
    keep_memory()
    tell = common.notifier(quiet)
    common.signals.detail = lambda: f"; the same command resumes in {output}"
    steps = set[int]()  # the steps that were not complete before
    with common.live_line("opening the texts", quiet) as show:

        def advance(progress: "LinkProgress") -> None:
            steps.add(progress.step)
            done = "" if progress.done is None else f": {progress.done:.0%}"
            left = progress.seconds_left
            rest = "" if left is None else f", {common.clock(left)} left for all steps"
            show(f"[{progress.step}/{progress.steps}] {progress.doing}{done}{rest}")  # [2/3] learning: 34%, 0:43 left

        links = nmtalign.link(source, target, output, show=advance, notify=common.say, config=chosen.settings)
    pairs = count = 0
    for pairs, line in enumerate(read_lines(links), 1):  # noqa: B007
        pharaoh = line.partition("\t")[0]
        count += len(pharaoh.split())
        sys.stdout.write(f"{line if scores else pharaoh}\n")
    before = "" if steps else "already complete: "
    tell(f"{before}{counted(pairs, 'pair')}, {counted(count, 'link')}; the aligner and {LEXICON} are in {output}")
    tell(f"to align other pairs: nmtalign align NEW_SRC NEW_TGT -m {quote(str(output))} --pharaoh")
