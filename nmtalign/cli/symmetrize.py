"""`nmtalign symmetrize`: one set of links from those of two directions, texts or alignment files."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from nmtalign.api import symmetrize_files
from nmtalign.cli.common import QuietOption, notifier, own_argument, own_option, say, status_line, writes
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import Symmetrization
from nmtalign.text.lines import STDIN, STDOUT

Forward = Annotated[Path, own_argument("FORWARD", "Links of source and target, text or .h5.")]
Backward = Annotated[Path, own_argument("BACKWARD", "Links of target and source.")]
Method = Annotated[
    Symmetrization,
    own_option(
        "intersection, union, grow-diag, grow-diag-strict, grow-diag-final, grow-diag-final-and; for two .h5 also "
        "product, agreement.",
        "METHOD",
        "--symmetrize",
    ),
]
Order = Annotated[
    Literal["target-source", "source-target"] | None,
    own_option(
        "Order of the positions in a text BACKWARD: target-source, as in `nmtalign align TGT SRC --pharaoh` "
        "[dim](default)[/dim], or source-target, as in `fast_align -r`.",
        "ORDER",
    ),
]
Threshold = Annotated[
    float | None,
    own_option("For two .h5: smallest weight of a link [dim](default: by method)[/dim].", "P", min=0, max=1),
]
Output = Annotated[
    Path,
    own_option(
        "Links, or for two .h5 a FILE.h5 [dim](stdout)[/dim].",
        "FILE",
        "--output -o",
        callback=writes("a file", stdout=True),
    ),
]


def symmetrize(
    forward: Forward,
    backward: Backward,
    method: Method = "grow-diag-final-and",
    backward_order: Order = None,
    threshold: Threshold = None,
    output: Output = STDOUT,
    quiet: QuietOption = False,
) -> None:
    """Make one set of links from two directions: one line per pair on stdout, source first, counted from 0.

    FORWARD are the links of source and target, BACKWARD those that a model of
    the other direction gives for target and source. Both are texts with one
    line per pair, or files of `nmtalign align`; then their directions and words
    must agree. The methods product and agreement need the weights of
    these files.

    Examples:

      nmtalign symmetrize en-fr.txt fr-en.txt --symmetrize grow-diag > links.txt

      nmtalign symmetrize forward.txt reverse.txt --backward-order source-target

      nmtalign symmetrize en-fr.h5 fr-en.h5 --symmetrize agreement -o both.h5
    """
    if forward == backward == STDIN:
        raise UsageError("only one of FORWARD and BACKWARD can be stdin")
    if output != STDOUT and output.is_dir():
        raise UsageError(f"{output}: is a folder; give the name of a file")
    place = sys.stdout if output == STDOUT else output
    with status_line("symmetrizing", quiet or (output == STDOUT and sys.stdout.isatty())):
        counts = symmetrize_files(forward, backward, place, method, threshold=threshold, backward_order=backward_order)
    if counts.looks_exchanged():
        other = "target-source" if backward_order == "source-target" else "source-target"
        say(
            f"{backward}: {counts.both:,} links are in both directions, and {counts.exchanged:,} would be with "
            f"--backward-order {other}; does that option fit how they are written?"
        )
    where = "" if output == STDOUT else f" in {output}"
    notifier(quiet)(f"{counts.pairs:,} pairs, {counts.links:,} links{where}")
