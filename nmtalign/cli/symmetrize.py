"""`nmtalign symmetrize`: one set of links from those of two directions, texts or alignment files."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from nmtalign.cli.common import QuietOption, notifier, say
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import HardSymmetrization, Symmetrization

if TYPE_CHECKING:
    from nmtalign.alignment.directions import DirectionCounts

STDIO = Path("-")
BackwardOrder = Literal["target-source", "source-target"]

Forward = Annotated[Path, typer.Argument(metavar="FORWARD", help="Links of source and target, text or .h5.")]
Backward = Annotated[Path, typer.Argument(metavar="BACKWARD", help="Links of target and source.")]
Method = Annotated[
    str,
    typer.Option(
        metavar="METHOD",
        help="intersection, union, grow-diag, grow-diag-final, grow-diag-final-and; for two .h5 also product, mutual, "
        "agreement, bayes-risk.",
    ),
]
Order = Annotated[
    BackwardOrder | None,
    typer.Option(
        metavar="ORDER",
        help="Order of the positions in a text BACKWARD: target-source, as in `nmtalign align TGT SRC --pharaoh` "
        "[dim](default)[/dim], or source-target, as in `fast_align -r`.",
    ),
]
Threshold = Annotated[
    float | None,
    typer.Option(
        metavar="P", min=0, max=1, help="For two .h5: smallest weight of a link [dim](default: by method)[/dim]."
    ),
]
Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Links, or for two .h5 a FILE.h5 [dim](stdout)[/dim].")
]


def symmetrize(
    forward: Forward,
    backward: Backward,
    method: Method = "grow-diag-final-and",
    backward_order: Order = None,
    threshold: Threshold = None,
    output: Output = STDIO,
    quiet: QuietOption = False,
) -> None:
    """Make one set of links from two directions: one line per pair on stdout, source first, counted from 0.

    FORWARD are the links of source and target, BACKWARD those that a model of
    the other direction gives for target and source. Both are texts with one
    line per pair, or files of `nmtalign align`; then their directions and words
    must agree. The methods product, mutual, agreement and bayes-risk need the
    weights of such files.

    Examples:

      nmtalign symmetrize en-fr.txt fr-en.txt --method grow-diag > links.txt

      nmtalign symmetrize forward.txt reverse.txt --backward-order source-target

      nmtalign symmetrize en-fr.h5 fr-en.h5 --method agreement -o both.h5
    """
    _check(forward, backward, method, output)
    from nmtalign.alignment import directions

    if directions.both_are_hdf5(forward, backward):
        if backward_order is not None:
            raise UsageError("--backward-order is for texts: an alignment file records its own direction")
        chosen = next(name for name in get_args(Symmetrization) if name == method)
        place = sys.stdout.write if output == STDIO else output
        counts = directions.symmetrize_files(forward, backward, place, chosen, threshold)
    else:
        counts = _texts(forward, backward, method, backward_order, threshold, output)
    where = "" if output == STDIO else f" in {output}"
    notifier(quiet)(f"{counts.pairs:,} pairs, {counts.links:,} links{where}")


def _check(forward: Path, backward: Path, method: str, output: Path) -> None:
    """Raises UsageError for options that do not go together."""
    if method not in get_args(Symmetrization):
        raise UsageError(f"--method {method}: must be one of {', '.join(get_args(Symmetrization))}")
    if forward == backward == STDIO:
        raise UsageError("only one of FORWARD and BACKWARD can be stdin")
    if output != STDIO and output.is_dir():
        raise UsageError(f"{output}: is a folder; give the name of a file")
    exists = output != STDIO and output.exists()
    if exists and any(path.exists() and output.samefile(path) for path in (forward, backward)):
        raise UsageError(f"{output}: is also an input; give -o another name")


def _texts(
    forward: Path, backward: Path, method: str, order: BackwardOrder | None, threshold: float | None, output: Path
) -> "DirectionCounts":
    from nmtalign.alignment.directions import symmetrize_texts

    order = order or "target-source"
    hard = next((name for name in get_args(HardSymmetrization) if name == method), None)
    if threshold is not None:
        raise UsageError("--threshold is for weights, and texts have none: give two .h5 of `nmtalign align`")
    if output.suffix == ".h5":
        raise UsageError(f"{output}: links alone make no HDF5 file; give another name, or two .h5 of `nmtalign align`")
    if hard is None:
        raise UsageError(f"--method {method} needs weights, and texts have none: give two .h5 of `nmtalign align`")
    counts = symmetrize_texts(forward, backward, sys.stdout.write if output == STDIO else output, hard, order)
    if counts.looks_turned():
        other = "source-target" if order == "target-source" else "target-source"
        say(
            f"{backward}: {counts.both:,} links are in both directions, and {counts.turned:,} would be with "
            f"--backward-order {other}: is that how they are written?"
        )
    return counts
