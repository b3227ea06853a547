"""`nmtalign export`: an alignment file as Pharaoh's links, JSON lines, Marian's soft alignments, NumPy arrays."""

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from nmtalign.cli.common import say
from nmtalign.errors import UsageError

STDOUT = Path("-")


def export(
    file: Annotated[Path, typer.Argument(metavar="FILE.h5", help="Alignment file.", show_default=False)],
    format: Annotated[
        Literal["pharaoh", "json", "numpy", "marian"], typer.Option("--format", "-f", help="What to write.")
    ] = "pharaoh",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="OUT", help="Write here, not to stdout; a name in .gz compresses text."),
    ] = None,
    entries: Annotated[
        Literal["best", "all"] | None,
        typer.Option(
            help="Of n-best lists: a line a sentence, or one an entry [dim](default: all for json and numpy)[/dim].",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Write an alignment file in another format.

    pharaoh: hard links, a line a sentence, 0-0 2-1, source first, from 0.
    json: an object a line: id, rank, source, target, weights, links,
    log_prob, token_log_probs. marian: target words ||| soft weights, a group
    for each target word and </s>. numpy: an .npz archive of the arrays.

    Examples:

      nmtalign export alignments.h5 > links.txt

      nmtalign export alignments.h5 --format json | jq .links

      nmtalign export alignments.h5 --format numpy -o alignments.npz
    """
    to_file = None if output == STDOUT else output
    if to_file is not None and to_file.resolve() == file.resolve():
        raise UsageError(f"{output}: is the file that is read; give another name with -o")
    if format == "numpy" and (to_file is None or entries == "best"):
        raise UsageError(
            "NumPy arrays need a file: give -o FILE.npz"
            if to_file is None
            else "the NumPy arrays are those of all entries, told apart by the array `rank`; leave out --entries best"
        )
    from nmtalign.alignment.export import text_lines, write_numpy
    from nmtalign.alignment.store import AlignmentFile
    from nmtalign.files import atomic_text

    with AlignmentFile(file) as alignments:
        if format == "numpy":
            if to_file is not None:
                write_numpy(alignments, to_file)
        else:
            lines = text_lines(alignments, format, entries or ("all" if format == "json" else "best"))
            if to_file is None:
                sys.stdout.writelines(lines)
            else:
                with atomic_text(to_file) as stream:
                    stream.writelines(lines)
    if to_file is not None:
        say(f"wrote {to_file}")
