"""`nmtalign plot`: alignments or learning curves as pictures, in a file or in the terminal."""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from nmtalign.cli.common import QuietOption, escaped, name_files, notifier
from nmtalign.errors import UsageError
from nmtalign.figures import check_figure_name
from nmtalign.settings.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.alignment.heatmap import Panel
    from nmtalign.training.curves import Axis

_OVER, _CURVES = "What is drawn over it", "Learning curves"

Alignments = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[NAME=]ALIGNMENTS.h5...",
        help="Files of `nmtalign align` or `translate --alignments`; several are drawn side by side "
        "[dim](default: alignments.h5)[/dim]. With --training model directories or their train.jsonl.",
        show_default=False,
    ),
]
Sentence = Annotated[
    list[int] | None,
    typer.Option(
        "--sentence",
        "-s",
        metavar="N",
        help="Sentence pair, counted from 0 as in the file; may be repeated [dim](default: 0)[/dim].",
    ),
]
Rank = Annotated[int, typer.Option(metavar="N", min=0, help="Place in the n-best list, if the file has one.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Picture: .png, .svg or .pdf [dim](default: the terminal)[/dim]."
    ),
]
End = Annotated[bool, typer.Option("--end/--no-end", help="With the row and the column of </s>, or without.")]
ColorBar = Annotated[bool, typer.Option("--colorbar", help="A scale of grey beside the picture.")]
Width = Annotated[int | None, typer.Option(metavar="N", help="Columns of the terminal.", min=10)]
Links = Annotated[bool, typer.Option("--links", help="The hard links of the file.", rich_help_panel=_OVER)]
Gold = Annotated[Path | None, typer.Option("--gold", "-g", metavar="FILE", help="Gold links.", rich_help_panel=_OVER)]
GoldBase = Annotated[
    Literal["0", "1"] | None,
    typer.Option(
        metavar="0|1",
        help="First position in the gold links [dim](default: 0, of numbered lines 1)[/dim].",
        rich_help_panel=_OVER,
    ),
]
Training = Annotated[
    bool,
    typer.Option(
        "--training",
        help="Learning curves of models, from their train.jsonl [dim](default: the workspace's model, or those under "
        "models/)[/dim].",
        rich_help_panel=_CURVES,
    ),
]
Along = Annotated[
    Literal["updates", "epochs", "hours", "words"] | None,
    typer.Option("--x", help="The x axis [dim](default: updates)[/dim].", rich_help_panel=_CURVES),
]
ReverseGold = Annotated[
    bool, typer.Option("--reverse-gold", help="The gold links have the target first.", rich_help_panel=_OVER)
]


def plot(
    alignments: Alignments = None,
    sentence: Sentence = None,
    rank: Rank = 0,
    output: Output = None,
    end: End = True,
    color_bar: ColorBar = False,
    width: Width = None,
    links: Links = False,
    gold: Gold = None,
    gold_base: GoldBase = None,
    reverse_gold: ReverseGold = False,
    training: Training = False,
    x: Along = None,
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
    of_alignments = {
        "--sentence": sentence, "--rank": rank, "--no-end": not end, "--colorbar": color_bar, "--links": links,
        "--gold": gold, "--gold-base": gold_base, "--reverse-gold": reverse_gold,
    }  # fmt: skip
    if output:
        check_figure_name(output)
    if training:
        _refuse(of_alignments, "is of alignments, and --training draws learning curves: leave one of them out")
        _plot_training(alignments or [], output, x or "updates", width, quiet)
        return
    _refuse({"--x": x}, "is of learning curves: give --training too, and model directories")
    from nmtalign.alignment.heatmap import read_panels
    from nmtalign.alignment.link_files import read_links

    files = _files(alignments or [Path("alignments.h5")])
    answers = read_links(gold, "gold", None if gold_base is None else int(gold_base), reverse_gold) if gold else None
    panels = read_panels(files, sentence or [0], rank, answers, links=links, short_captions=output is not None)
    if output:
        _write(panels, output, len(files), end, color_bar, quiet)
    else:
        _show(panels, len(files), width or shutil.get_terminal_size().columns, end)


def _write(panels: "list[Panel]", output: Path, files: int, end: bool, color_bar: bool, quiet: bool) -> None:
    from nmtalign.alignment.heatmap import draw

    notes = draw(panels, output, across=files if files > 1 else None, end=end, color_bar=color_bar)
    for line in (*notes, f"wrote {output}"):
        notifier(quiet)(line)


def _files(arguments: list[Path]) -> list[tuple[str, Path]]:
    files = [*name_files(arguments)]
    for _, path in files:
        if path.is_dir():
            raise UsageError(f"{path}: a folder; for the learning curves of a model give --training too")
    return files


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Raises UsageError if one of these options was given."""
    if given := [name for name, value in options.items() if value]:
        raise UsageError(f"{given[0]} {why}")


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
    if environment.get("NO_COLOR"):
        return False
    if environment.get("FORCE_COLOR"):
        return True
    if not stream.isatty() or environment.get("TERM", "dumb") == "dumb":
        return False
    if environment.get("COLORTERM") or "256color" in environment["TERM"]:
        return True
    try:
        import curses
    except ImportError:  # Python was built without it
        return False
    try:
        curses.setupterm(environment["TERM"], stream.fileno())
        return curses.tigetnum("colors") >= 256
    except (OSError, curses.error):
        return False


def _plot_training(models: Sequence[Path], output: Path | None, axis: "Axis", width: int | None, quiet: bool) -> None:
    """Draws the curves of models; without any, of the workspace's."""
    from nmtalign.training.curves import read_curves

    chosen = name_models(models or _models_of(load_workspace(None)))
    curves = [read_curves(path) for path in chosen.values()]
    names, note = list(chosen), notifier(quiet)
    for (name, path), each in zip(chosen.items(), curves, strict=True):
        if each.has_backward and len(chosen) == 1:
            note(f"{name} was trained with the other direction: its curves are drawn with {path / 'backward'}")
    if output:
        from nmtalign.training.curve_figure import draw_curves

        for line in (*draw_curves(curves, names, output, axis), f"wrote {output}"):
            note(line)
        return
    from nmtalign.training.curve_text import render_curves

    columns, colour = width or shutil.get_terminal_size().columns, has_colour(sys.stdout, os.environ)
    sys.stdout.write(render_curves(curves, list(map(escaped, names)), columns, axis, colour))


def _models_of(workspace: Workspace) -> list[Path]:
    """Returns the workspace's model; if it has no log, all models under models/ that have one."""
    from nmtalign.training.events import LOG

    if (workspace.model / LOG).is_file():
        return [workspace.model]
    home = workspace.file.parent / "models" if workspace.file else Path("models")
    return sorted(log.parent for log in home.glob(f"*/{LOG}")) or [workspace.model]


def name_models(arguments: Sequence[Path]) -> Mapping[str, Path]:
    """Returns models by name: the NAME given, else the folder, with more of its path if two folders are alike.

    Raises UsageError for a NAME that is given twice.
    """
    return dict(name_files(arguments, _own_parts))


def _own_parts(path: Path) -> Sequence[str]:
    """Returns the parts of the folder's path; `model/backward`, the other direction of a model, is one part."""
    folder = path.parent if path.is_file() else path
    parts = (folder if folder.name not in ("", "..") else folder.resolve()).parts
    return (*parts[:-2], "/".join(parts[-2:])) if parts[-1:] == ("backward",) else parts
