"""`nmtalign view`: alignments and learning curves in the terminal, in a figure or as a page, and the live page."""

import sys
from pathlib import Path

from nmtalign.api import view as draw
from nmtalign.cli import common
from nmtalign.cli.common import QUIET, output_option, own_argument, own_flag, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.settings.command_settings import ViewConfig
from nmtalign.text.lines import STDOUT


@with_settings(ViewConfig)
def view(
    chosen: Chosen[ViewConfig],
    inputs: list[Path] | None = own_argument(
        "[NAME=]INPUT...",
        "Alignment files of `nmtalign align` or `translate --save-alignments` [dim](default: alignments.h5)[/dim], "
        "or models. Several are drawn side by side. With --live the source and the target text of a test set, from "
        "which the page takes its examples [dim](default: the workspace's, if it has one)[/dim].",
    ),
    output: Path | None = output_option(
        "A page (.html) or a figure (.png, .svg or .pdf) [dim](default: the terminal)[/dim].", stdout=True
    ),
    live: bool = own_flag("Write a page that contains models and translates typed text in the browser.", "--live"),
    model: list[Path] | None = own_option(
        "With --live: the model with attention that the page runs; repeat it for one without attention beside it "
        f"{common.MODEL_DEFAULT}",
        "DIR",
        "--model -m",
    ),
    sentence: list[str] | None = own_option(
        "Sentence pairs by number, counted from 0 as in the file [dim](default: 0, or all for a page)[/dim].",
        "N,N-N",
        "--sentence -s",
    ),
    gold: Path | None = own_option("Also draw gold links, one line per sentence pair.", "FILE", "--gold -g"),
    title: str = own_option("Title of the page, or caption of the only picture.", "TEXT", default=""),
    quiet: bool = QUIET,
) -> None:
    """Draw soft alignments as in the paper's Figure 3, learning curves, or a page that runs a model.

    The input decides what is drawn: the heat maps of an alignment file, or the learning curves of a model (its
    directory or train.jsonl). The output decides how: in the terminal, as a figure, or as an HTML page of all sentences
    with a search, which any browser shows without a server or a network.

    A live page shows every step; its reader can change weights and words. It runs RNNsearch and RNNencdec of one layer.

    Source along x, target along y, grey from 0 black to 1 white. Gold links are dots (sure) and dashed rings
    (possible), hard links frames; in the terminal ●, ○ and +. A heat map is not an explanation: the weights show where
    the model read when it wrote a word, not why it wrote it (Jain & Wallace 2019; Wiegreffe & Pinter 2019).

    Examples:
      nmtalign view alignments.h5 --sentence 12 --gold test.gold
      nmtalign view small=a.h5 large=b.h5 -s 12,40 -o both.svg
      nmtalign view alignments.h5 -o page.html
      nmtalign view small=models/a large=models/b --x hours -o curves.pdf
      nmtalign view test.en test.fr --live -m model/ -m rnnencdec/ -o live.html
    """
    workspace = chosen.workspace
    found = (workspace.test_files or ()) if live or model else [Path("alignments.h5")]
    files, tell = common.name_files(inputs or [*found]), common.notifier(quiet)
    page = live or (output is not None and output.suffix.lower() == ".html")
    name, reason = ("rank", "a page has all entries of a list") if page else ("limit", "only a page has a limit")
    if name in chosen.typed:
        tell(f"warning: --{name} has no effect: {reason}")
    common.check_inputs(*(path for _, path in files))
    with common.live_line("drawing", quiet or output is None):
        text = draw(
            [(common.escaped(name), path) for name, path in files],
            None if output == STDOUT else output,
            live=live,
            models=model or ([workspace.model] if live else []),
            sentence=",".join(sentence or ()),
            gold=gold,
            title=common.escaped(title),
            colour=common.has_colour(shades=True),
            notify=tell,
            config=chosen.settings,
        )
    sys.stdout.write(text)
