"""`nmtalign plot`: alignments or learning curves as pictures, in a file or in the terminal."""

import os
import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, TextIO

import typer

from nmtalign.cli.common import QuietOption, notifier
from nmtalign.cli.naming import name_files
from nmtalign.cli.plot_training import plot_training
from nmtalign.errors import InputError, UsageError
from nmtalign.figures import check_figure_name

if TYPE_CHECKING:
    from nmtalign.alignment.gold import GoldLinks
    from nmtalign.alignment.link_files import LinkFile
    from nmtalign.alignment.panels import Panel
    from nmtalign.alignment.record import AlignmentRecord
    from nmtalign.alignment.store import AlignmentFile

_OVER = "What is drawn over it"
_CURVES = "Learning curves"

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
Rank = Annotated[int, typer.Option(metavar="N", min=0, help="Place in the n-best list, where the file has one.")]
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
        help="What their positions count from [dim](default: 0, of numbered lines 1)[/dim].",
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
    typer.Option("--x", help="What they are drawn over [dim](default: updates)[/dim].", rich_help_panel=_CURVES),
]
ReverseGold = Annotated[bool, typer.Option("--reverse-gold", help="They have the target first.", rich_help_panel=_OVER)]


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
    sentences make a grid, several files stand side by side. Gold links are dots
    (sure) and dashed rings (possible), hard links frames. Without -o the
    picture is drawn in the terminal: in grey where that has colours (not with
    NO_COLOR), else █ is 1; gold links are ● and ○ there, hard links +.

    What a heat map is not: the weights say where the model read when it wrote
    a word, not why it wrote it. Whether attention explains anything is
    disputed (Jain & Wallace 2019; Wiegreffe & Pinter 2019).

    Learning curves are loss a word, perplexity, dev BLEU (greedy, with its
    signature) and speed, of one or several models.

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
        plot_training(alignments or [], output, x or "updates", width, has_colour(sys.stdout, os.environ), quiet)
        return
    _refuse({"--x": x}, "is of learning curves: give --training too, and model directories")
    files = _files(alignments or [Path("alignments.h5")])
    answers = _answers(gold, gold_base, reverse_gold)
    panels = _panels(files, sentence or [0], rank, answers, links, in_file=output is not None)
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


def _answers(gold: Path | None, base: str | None, reverse: bool) -> "LinkFile | None":
    from nmtalign.alignment.link_files import read_links

    return read_links(gold, "gold", None if base is None else int(base), reverse) if gold else None


def _refuse(options: Mapping[str, object], why: str) -> None:
    """Raises UsageError where one of these options was given."""
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
    """Whether a stream shows 256 colours: NO_COLOR says no, FORCE_COLOR yes, else a terminal that claims to."""
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
    except ImportError:  # a Python that was built without it
        return False
    try:
        curses.setupterm(environment["TERM"], stream.fileno())
        return curses.tigetnum("colors") >= 256
    except (OSError, curses.error):
        return False


def _panels(
    files: list[tuple[str, Path]], numbers: list[int], rank: int, gold: "LinkFile | None", links: bool, in_file: bool
) -> "list[Panel]":
    """What is drawn, sentence by sentence, of each file in turn."""
    from nmtalign.alignment.panels import Panel
    from nmtalign.alignment.store import AlignmentFile

    panels = []
    with ExitStack() as stack:
        stores = [(name, stack.enter_context(AlignmentFile(path))) for name, path in files]
        for number in numbers:
            records = [_record(store, number, rank) for _, store in stores]
            _check_same_source(files, records, number)
            for (name, _), record in zip(files, records, strict=True):
                caption = _caption(record, name if len(files) > 1 else "", len(numbers) > 1, in_file)
                answer = _gold(gold, record) if gold else None
                panels.append(Panel(record, caption, answer, links))
    return panels


def _record(store: "AlignmentFile", number: int, rank: int) -> "AlignmentRecord":
    entries = store.sentence(number) if number >= 0 else []
    if not entries:
        raise UsageError(f"{store.path}: no sentence {number}: {_range(store)}")
    if rank >= len(entries):
        has = f"sentence {number} has {len(entries)} entries"
        raise UsageError(f"{store.path}: {has}; give a --rank from 0 to {len(entries) - 1}")
    return entries[rank]


def _range(store: "AlignmentFile") -> str:
    if not len(store):
        return "the file has none"
    return f"choose one from {store[0].sentence_id} to {store[-1].sentence_id}"


def _check_same_source(files: list[tuple[str, Path]], records: "list[AlignmentRecord]", number: int) -> None:
    for (_, path), record in zip(files[1:], records[1:], strict=True):
        if record.source != records[0].source:
            pairs = zip((*records[0].source, "nothing"), (*record.source, "nothing"), strict=False)
            left, right = next((one, other) for one, other in pairs if one != other)
            raise InputError(
                f"{path}: sentence {number} has another source than in {files[0][1]} ({right!r} where that has "
                f"{left!r}); give files of the same text, tokenised alike"
            )


def _caption(record: "AlignmentRecord", name: str, several: bool, in_file: bool) -> str:
    """What stands at a picture: in a file no more than is needed to tell it from the others."""
    place = f"sentence {record.sentence_id}" + (f", rank {record.rank}" if record.rank else "")
    if in_file:
        return ", ".join(part for part in (name, place if several else "") if part)
    return (f"{name}: " if name else "") + f"{place}, log-probability {record.log_prob:.2f}"


def _gold(gold: "LinkFile", record: "AlignmentRecord") -> "GoldLinks":
    gold.check_inside(record.sentence_id, len(record.source), len(record.target))
    return gold.pair(record.sentence_id)
