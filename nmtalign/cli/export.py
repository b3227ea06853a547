"""`nmtalign export`: an alignment file as Pharaoh's links, JSON lines, Marian's soft alignments, NumPy arrays."""

import sys
from pathlib import Path
from typing import Annotated, Literal

from nmtalign.cli.common import own_argument, own_option, say
from nmtalign.errors import UsageError
from nmtalign.text.lines import STDOUT

File = Annotated[Path, own_argument("FILE.h5", "Alignment file.")]
Format = Annotated[Literal["pharaoh", "json", "numpy", "marian"], own_option("What to write.", names="--format -f")]
Output = Annotated[Path | None, own_option("Output file, not stdout; .gz compresses text.", "OUT", "--output -o")]
Entries = Annotated[
    Literal["best", "all"] | None,
    own_option("Of n-best lists: one line per sentence, or per entry [dim](default: all for json and numpy)[/dim]."),
]


def export(file: File, format: Format = "pharaoh", output: Output = None, entries: Entries = None) -> None:
    """Write an alignment file in another format.

    pharaoh: hard links, one line per sentence, 0-0 2-1, source first, from 0.
    json: one object per line: id, rank, source, target, weights, links,
    log_prob, token_log_probs. marian: target words ||| soft weights, a group
    for each target word and </s>. numpy: an .npz archive of the arrays.

    Examples:

      nmtalign export alignments.h5 > links.txt

      nmtalign export alignments.h5 --format json | jq .links

      nmtalign export alignments.h5 --format numpy -o alignments.npz
    """
    from nmtalign.alignment.alignment_file import AlignmentFile
    from nmtalign.alignment.export_formats import text_lines, write_export

    if output is not None and output != STDOUT:
        write_export(file, output, format, entries)
        say(f"wrote {output}")
    elif format == "numpy":
        raise UsageError("NumPy arrays need a file: give -o FILE.npz")
    else:
        with AlignmentFile(file) as alignments:
            sys.stdout.writelines(text_lines(alignments, format, entries))
