"""`nmtalign view`: alignments as one page for a browser."""

import sys
from pathlib import Path
from typing import Annotated

from nmtalign.cli.common import (
    GoldBaseOption,
    QuietOption,
    ReverseGoldOption,
    notifier,
    own_argument,
    own_option,
    status_line,
    writes,
)
from nmtalign.errors import UsageError
from nmtalign.text.lines import STDOUT

Alignments = Annotated[
    list[Path] | None,
    own_argument(
        "ALIGNMENTS.h5...",
        "Files of `nmtalign align` or `translate --save-alignments`; several can be compared side by side "
        "[dim](default: alignments.h5)[/dim].",
    ),
]
Output = Annotated[
    Path,
    own_option("The page; - writes it to stdout.", "FILE.html", "--output -o", callback=writes("a file", stdout=True)),
]
Gold = Annotated[Path | None, own_option("Gold links, one line per sentence pair.", "FILE")]
Sentences = Annotated[
    str | None, own_option("Sentences by number, counted from 0 [dim](default: all)[/dim].", "0-99,250")
]
Limit = Annotated[int, own_option("Largest number of sentences; 0 = all.", "N", min=0, max=2**31 - 1)]
Title = Annotated[str, own_option("Title [dim](default: the names of the files)[/dim].", "TEXT")]
Names = Annotated[list[str] | None, own_option("Name of a file; once per file, in their order.", "TEXT", "--name")]


def view(
    alignments: Alignments = None,
    output: Output = Path("page.html"),
    gold: Gold = None,
    gold_base: GoldBaseOption = None,
    reverse_gold: ReverseGoldOption = False,
    sentences: Sentences = None,
    limit: Limit = 20_000,
    title: Title = "",
    name: Names = None,
    quiet: QuietOption = False,
) -> None:
    """Make one HTML page of alignments that any browser shows, without a server or a network.

    Choose or search a sentence, point at a word to see what the model read when
    it wrote it, or step through the target word by word; with soft, hard and
    gold links, n-best entries, and two models side by side. Press ? for the
    keys. A heat map is not an explanation: the weights show where the model
    read when it wrote a word, not why it wrote it.

    Examples:

      nmtalign view

      nmtalign view alignments.h5 -o page.html --gold test.gold

      nmtalign view small.h5 large.h5 --name small --name large --sentences 0-499
    """
    from nmtalign.alignment.alignment_page import write_page
    from nmtalign.alignment.page_data import parse_numbers

    if output.is_dir():
        raise UsageError(f"{output}: is a folder; give the page a name such as page.html")
    files = alignments or [Path("alignments.h5")]
    numbers = parse_numbers(sentences) if sentences is not None else None
    out = Path("/dev/stdout") if output == STDOUT else output
    with status_line("writing the page", quiet or (output == STDOUT and sys.stdout.isatty())):
        summary = write_page(
            files,
            out,
            title=title,
            names=name or (),
            numbers=numbers,
            limit=limit,
            gold=gold,
            gold_base=gold_base,
            reverse_gold=reverse_gold,
        )
    tell = notifier(quiet)
    if not summary.complete:
        tell(f"{files[0]}: only its first {limit} sentences are shown; --limit 0 shows all, --sentences others")
    place = "the page to stdout" if output == STDOUT else output
    tell(f"wrote {place}: {summary.sentences} sentences, {summary.bytes / 1e6:.1f} MB")
