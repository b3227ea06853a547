"""`nmtalign view`: alignments and learning curves in the terminal, in a figure or as a page, and the lesson."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, TextIO

from nmtalign.api import view as draw
from nmtalign.cli import common
from nmtalign.cli.common import QuietOption, output_option, own_argument, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import ViewConfig
from nmtalign.text.lines import STDOUT

Inputs = Annotated[
    list[Path] | None,
    own_argument(
        "[NAME=]INPUT...",
        "Alignment files of `nmtalign align` or `translate --save-alignments` [dim](default: alignments.h5)[/dim], or "
        "models. Several are drawn side by side. With -m the source and the target text of a test set [dim](default: "
        "the workspace's)[/dim].",
    ),
]
Output = Annotated[
    Path | None,
    output_option("A page (.html) or a figure (.png, .svg or .pdf) [dim](default: the terminal)[/dim].", stdout=True),
]
Models = Annotated[
    list[Path] | None,
    own_option(
        "Write a lesson: how this model with attention translates; repeat it to compare a model without attention.",
        "DIR",
        "--model -m",
    ),
]
Sentence = Annotated[
    list[str] | None,
    own_option(
        "Sentence pairs by number, counted from 0 as in the file [dim](default: 0; of a page all)[/dim].",
        "N,N-N",
        "--sentence -s",
    ),
]
Gold = Annotated[Path | None, own_option("Also draw gold links, one line per sentence pair.", "FILE", "--gold -g")]
Title = Annotated[str, own_option("Title of the page, or caption of the figure.", "TEXT")]


@with_settings(ViewConfig)
def view(
    chosen: Chosen[ViewConfig],
    inputs: Inputs = None,
    output: Output = None,
    model: Models = None,
    sentence: Sentence = None,
    gold: Gold = None,
    title: Title = "",
    quiet: QuietOption = False,
) -> None:
    """Draw soft alignments as in the paper's Figure 3, learning curves, or a lesson about a model.

    The input decides what is drawn: the heat maps of an alignment file, or the learning curves of a model (its
    directory or train.jsonl). The output decides how: in the terminal, as a figure, or as an HTML page of all sentences
    with a search, which any browser shows without a server or a network.

    Source along x, target along y, grey from 0 black to 1 white. Gold links are dots (sure) and dashed rings
    (possible), hard links frames; in the terminal ●, ○ and +. A heat map is not an explanation: the weights show where
    the model read when it wrote a word, not why it wrote it (Jain & Wallace 2019; Wiegreffe & Pinter 2019).

    Examples:
      nmtalign view alignments.h5 --sentence 12 --gold test.gold
      nmtalign view small=a.h5 large=b.h5 -s 12,40 -o both.svg
      nmtalign view alignments.h5 -o page.html
      nmtalign view small=models/a large=models/b --x hours -o curves.pdf
      nmtalign view test.en test.fr -m model/ -o lesson.html
    """
    workspace = chosen.workspace
    files = common.name_files(inputs or ([] if model else [Path("alignments.h5")]))
    if model and not files:
        if workspace.test_files is None:
            raise UsageError("no test set: give its two texts, SRC TGT, or name them in nmtalign.toml ([corpus] test)")
        files = tuple((path.name, path) for path in workspace.test_files)
    common.check_inputs(*workspace.own, *(path for _, path in files))
    with chosen.naming(), common.status_line("drawing", quiet or output is None):
        text = draw(
            [(common.escaped(name), path) for name, path in files],
            None if output == STDOUT else output,
            models=model or (),
            sentence=",".join(sentence or ()),
            gold=gold,
            title=title,
            colour=has_colour(sys.stdout, os.environ),
            notify=common.notifier(quiet),
            config=chosen.settings,
        )
    sys.stdout.write(text)


def has_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Returns whether a stream shows 256 colours: no with NO_COLOR, yes with FORCE_COLOR, else if its terminal does."""
    if environment.get("NO_COLOR") or environment.get("FORCE_COLOR"):
        return not environment.get("NO_COLOR")
    from rich.console import Console

    return Console(file=stream, _environ=environment).color_system in ("256", "truecolor")
