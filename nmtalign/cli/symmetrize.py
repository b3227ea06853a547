"""`nmtalign symmetrize`: one set of links from those of two directions, texts of links."""

import sys
from pathlib import Path
from typing import Literal

import nmtalign
from nmtalign.cli import common
from nmtalign.settings.command_settings import HardSymmetrization
from nmtalign.text.lines import STDOUT, counted


def symmetrize(
    forward: Path = common.own_argument("FORWARD", "Links from source to target.", default=...),
    backward: Path = common.own_argument("BACKWARD", "Links from target to source.", default=...),
    method: HardSymmetrization = common.own_option(
        "intersection, union, grow-diag, grow-diag-strict, grow-diag-final, grow-diag-final-and.",
        "METHOD",
        "--symmetrize",
        default="grow-diag-final-and",
    ),
    backward_order: Literal["target-source", "source-target"] = common.own_option(
        "Order of the positions in BACKWARD: target-source, as in `nmtalign align TGT SRC --pharaoh`, or "
        "source-target, as in `fast_align -r`.",
        "ORDER",
        default="target-source",
    ),
    output: Path = common.output_option("File of the links; - is stdout.", stdout=True, default=STDOUT),
    quiet: bool = common.QUIET,
) -> None:
    """Make one set of links from two directions: one line per pair on stdout, source first, counted from 0.

    FORWARD contains the links from source to target, BACKWARD those of a model of the other direction. Both are texts
    with one line per pair. `nmtalign align SRC TGT -m DIR -m DIR` joins the weights of two models.

    Examples:
      nmtalign symmetrize en-fr.txt fr-en.txt --symmetrize grow-diag > links.txt
      nmtalign symmetrize forward.txt reverse.txt --backward-order source-target
    """
    common.check_inputs(forward, backward)
    place = sys.stdout if output == STDOUT else output
    with common.live_line("symmetrizing", quiet or (output == STDOUT and sys.stdout.isatty())):
        counts = nmtalign.symmetrize_files(forward, backward, place, method, backward_order=backward_order)
    if counts.exchanged > 2 * counts.both + 10:  # far more links agree in the other order
        other = "target-source" if backward_order == "source-target" else "source-target"
        found = f"{counts.both:,} links are in both directions, and {counts.exchanged:,} would be"
        common.say(f"{backward}: {found} with --backward-order {other}; does that option fit how they are written?")
    where = "" if output == STDOUT else f" in {output}"
    common.notifier(quiet)(f"{counted(counts.pairs, 'pair')}, {counted(counts.links, 'link')}{where}")
