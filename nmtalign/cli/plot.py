"""`nmtalign plot`: alignments or learning curves as pictures, in a file or in the terminal."""

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from nmtalign.cli.common import (
    QuietOption,
    check_inputs,
    escaped,
    name_files,
    notifier,
    own_argument,
    own_option,
    writes,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.figures import check_figure_name
from nmtalign.settings.command_settings import PlotConfig
from nmtalign.settings.definition import option
from nmtalign.settings.workspace import Workspace
from nmtalign.text.lines import STDOUT

if TYPE_CHECKING:
    from nmtalign.alignment.heatmap import Panel
    from nmtalign.training.curves import Axis

Alignments = Annotated[
    list[Path] | None,
    own_argument(
        "[NAME=]ALIGNMENTS.h5...",
        "Files of `nmtalign align` or `translate --save-alignments`; several are drawn side by side "
        "[dim](default: alignments.h5)[/dim]. With --training model directories or their train.jsonl.",
    ),
]
Sentence = Annotated[
    list[int] | None,
    own_option(
        "Sentence pair, counted from 0 as in the file; may be repeated [dim](default: 0)[/dim].", "N", "--sentence -s"
    ),
]
Output = Annotated[
    Path | None,
    own_option(
        "Picture: .png, .svg or .pdf [dim](default: the terminal)[/dim].",
        "FILE",
        "--output -o",
        callback=writes("a file", stdout=True),
    ),
]
Gold = Annotated[Path | None, own_option("Also draw gold links.", "FILE", "--gold -g")]
Training = Annotated[
    bool,
    own_option(
        "Learning curves of models, from their train.jsonl [dim](default: the workspace's model, or those under "
        "models/)[/dim].",
        names="--training",
    ),
]


@with_settings(PlotConfig)
def plot(
    chosen: Chosen[PlotConfig],
    alignments: Alignments = None,
    sentence: Sentence = None,
    output: Output = None,
    gold: Gold = None,
    training: Training = False,
    quiet: QuietOption = False,
) -> None:
    """Draw soft alignments as in the paper's Figure 3, or with --training learning curves.

    Source along x, target along y, grey from 0 black to 1 white. Several
    sentences make a grid, several files are side by side. Gold links are dots
    (sure) and dashed rings (possible), hard links frames. Without -o the
    picture is drawn in the terminal: in grey if it has colours (and NO_COLOR is
    not set), else █ is 1; gold links are ● and ○ there, hard links +.

    A heat map is not an explanation: the weights show where the model read when
    it wrote a word, not why it wrote it (Jain & Wallace 2019; Wiegreffe &
    Pinter 2019). Learning curves are loss per word, perplexity, dev BLEU
    (greedy, with its signature) and speed, of one or several models.

    Examples:

      nmtalign plot alignments.h5 --sentence 12 --gold test.gold --links

      nmtalign plot small=a.h5 large=b.h5 -s 12 -s 40 -o both.svg

      nmtalign plot --training model/

      nmtalign plot --training small=models/a large=models/b --x hours -o c.pdf
    """
    settings, tell = chosen.settings, notifier(quiet)
    width = settings.width or shutil.get_terminal_size().columns
    output = _picture(output)
    own = {"--sentence": sentence, "--gold": gold}
    typed = [option(name, value) for name, value in chosen.typed.items()]
    _check(training, [*(name for name, value in own.items() if value), *typed])
    if training:
        _plot_training(alignments or _models_of(chosen.workspace), output, settings.x, width, tell)
        return
    from nmtalign.alignment.heatmap import draw, read_panels
    from nmtalign.alignment.link_files import read_links

    files = name_files(alignments or [Path("alignments.h5")])
    check_inputs(*(path for _, path in files))
    for _, path in files:
        if path.is_dir():
            raise UsageError(f"{path}: a folder; for the learning curves of a model give --training too")
    answers = read_links(gold, "gold", settings.gold_base, settings.reverse_gold) if gold else None
    panels = read_panels(
        files, sentence or [0], settings.rank, answers, links=settings.hard_links, short_captions=output is not None
    )
    if not output:
        _show(panels, len(files), width, settings.end)
        return
    across = len(files) if len(files) > 1 else None
    for note in draw(panels, output, across=across, end=settings.end, color_bar=settings.colorbar):
        tell(note)
    tell(f"wrote {output}")


def _picture(output: Path | None) -> Path | None:
    """The file of the picture, None for the terminal; raises UsageError for another ending."""
    if output is None or output == STDOUT:
        return None
    check_figure_name(output)
    return output


def _check(training: bool, options: Sequence[str]) -> None:
    """Raises UsageError for an option that does not go with --training, or needs it."""
    for name in options:
        if training and name not in ("--x", "--width"):
            raise UsageError(f"{name} is of alignments, and --training draws learning curves: leave one of them out")
        if name == "--x" and not training:
            raise UsageError("--x is of learning curves: give --training too, and model directories")


def _show(panels: "list[Panel]", across: int, width: int, end: bool) -> None:
    from nmtalign.alignment.terminal import legend, render_text

    colour = has_colour(sys.stdout, os.environ)
    rows = [panels[start : start + across] for start in range(0, len(panels), across)]
    text = "\n".join(render_text(row, width, end=end, colour=colour) for row in rows)
    if marks := legend(panels):
        text += marks + "\n"
    sys.stdout.write(text)


def has_colour(stream: TextIO, environment: Mapping[str, str]) -> bool:
    """Returns whether a stream shows 256 colours: no with NO_COLOR, yes with FORCE_COLOR, else if its terminal does."""
    if environment.get("NO_COLOR") or environment.get("FORCE_COLOR"):
        return not environment.get("NO_COLOR")
    from rich.console import Console

    return Console(file=stream, _environ=environment).color_system in ("256", "truecolor")


def _plot_training(
    models: Sequence[Path], output: Path | None, axis: "Axis", width: int, tell: Callable[[str], None]
) -> None:
    """Draws the learning curves of models."""
    check_inputs(*models)
    from nmtalign.training.curves import read_curves

    named = name_files(models)
    names, curves = [name for name, _ in named], [read_curves(path) for _, path in named]
    if output:
        from nmtalign.training.curve_figure import draw_curves

        for note in draw_curves(curves, names, output, axis):
            tell(note)
        tell(f"wrote {output}")
        return
    from nmtalign.training.curve_text import render_curves

    colour = has_colour(sys.stdout, os.environ)
    sys.stdout.write(render_curves(curves, list(map(escaped, names)), width, axis, colour))


def _models_of(workspace: Workspace) -> list[Path]:
    """Returns the workspace's model; if it has no log, all models under models/ that have one."""
    from nmtalign.files import LOG

    if (workspace.model / LOG).is_file():
        return [workspace.model]
    home = workspace.file.parent / "models" if workspace.file else Path("models")
    return sorted(log.parent for log in home.glob(f"*/{LOG}")) or [workspace.model]
