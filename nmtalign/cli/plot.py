"""`nmtalign plot`: an alignment as a picture, in a file or in the terminal."""

import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from nmtalign.cli.common import QuietOption, notifier
from nmtalign.errors import UsageError

Alignments = Annotated[Path, typer.Argument(metavar="ALIGNMENTS.h5", help="File written by `nmtalign align`.")]
Sentence = Annotated[
    list[int] | None,
    typer.Option(
        "--sentence",
        "-s",
        metavar="N",
        help="Sentence pair, counted from 0 as in the file; may be repeated [dim](default: 0)[/dim].",
    ),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Picture: .png, .svg or .pdf [dim](default: the terminal)[/dim]."
    ),
]
End = Annotated[bool, typer.Option("--end/--no-end", help="With the row and the column of </s>, or without.")]
Width = Annotated[int | None, typer.Option(metavar="N", help="Columns of the terminal.", min=10)]


def plot(
    alignments: Alignments = Path("alignments.h5"),
    sentence: Sentence = None,
    output: Output = None,
    end: End = True,
    width: Width = None,
    quiet: QuietOption = False,
) -> None:
    """Draw soft alignments as in the paper's Figure 3: source along x, target along y, grey from 0 black to 1 white.

    Several sentences make a grid. Without -o the picture is drawn in the
    terminal (█ is 1). The weights say where the model read when it wrote a
    word, not why it wrote it.

    Examples:

      nmtalign plot

      nmtalign plot alignments.h5 --sentence 12

      nmtalign plot alignments.h5 --sentence 12 --sentence 40 -o figure.pdf
    """
    from nmtalign.alignment.heatmap import check_figure_name, draw, render_text
    from nmtalign.alignment.store import AlignmentFile

    if output:
        check_figure_name(output)
    numbers = sentence or [0]
    with AlignmentFile(alignments) as file:
        for number in numbers:
            if not 0 <= number < len(file):
                raise UsageError(f"{alignments}: no sentence {number}: {_range(len(file))}")
        records = [file[number] for number in numbers]
    if output:
        captions = [f"sentence {number}" for number in numbers] if len(numbers) > 1 else []
        draw(records, output, captions=captions, end=end)
        notifier(quiet)(f"wrote {output}")
        return
    columns = width or shutil.get_terminal_size().columns
    pictures = [
        f"sentence {number}, log-probability {record.log_prob:.2f}\n" + render_text(record, columns, end=end)
        for number, record in zip(numbers, records, strict=True)
    ]
    # Block characters go out whatever the terminal's locale claims.
    sys.stdout.flush()
    sys.stdout.buffer.write("\n".join(pictures).encode())


def _range(records: int) -> str:
    return f"choose one from 0 to {records - 1}" if records else "the file has none"
