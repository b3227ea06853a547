"""The figure, the page and the pictures of attention that `nmtalign score` makes of a report."""

import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from nmtalign.cli.common import notifier
from nmtalign.cli.naming import named
from nmtalign.cli.score_task import Read, Task
from nmtalign.config import AlignConfig
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text
from nmtalign.version import __version__

if TYPE_CHECKING:
    from pathlib import Path

    from nmtalign.alignment.heatmap import Panel
    from nmtalign.scoring.report import Report

Panels = Mapping[int, "Sequence[tuple[str, Panel]]"]  # by line, from 0: (system, what is drawn)


def attention_files(task: Task) -> "dict[str, Path]":
    """Where the attention of each given system is read: its alignments, or else the model of -m."""
    from pathlib import Path

    names = [name for name, _ in task.texts.systems]
    found: dict[str, Path] = dict.fromkeys(names, task.words[0]) if task.model_given and task.words else {}
    unnamed = iter(names)
    for argument in task.alignments:
        name, path = named(Path(argument))
        if path == Path(argument):  # without a name: of the systems in turn
            name = next(unnamed, "")
        if name not in names:
            known = ", ".join(names[:5]) or "none"
            raise UsageError(f"--alignments {argument}: no system is named so; the systems are {known}")
        if not path.exists():
            raise UsageError(f"--alignments {argument}: no such file; give one of `nmtalign align` or `translate`")
        found[name] = path
    for name in names[:2]:
        if name not in found:
            raise UsageError(f"--attention: nothing holds the attention of {name}; give --alignments {name}=FILE.h5")
    return found


def attention_of(task: Task, report: "Report", read: Read) -> Panels:
    """The attention of the first two systems in the sentences in which they differ most."""
    if not task.attention or not report.differences or read.source is None:
        return {}
    from nmtalign.cli.score_attention import Attending, pictures

    systems = [
        Attending(name, read.folders[name], text.lines)
        for name, text in zip(read.names[:2], read.systems[:2], strict=True)
    ]
    settings = task.workspace.resolve(AlignConfig, "align", {"device": task.device})
    return pictures(systems, read.source.lines, [one.line - 1 for one in report.differences], settings)


def drawn_on_terminal(panels: Panels, colour: bool) -> dict[int, str]:
    """The pictures of each line, counted from 1, as text."""
    from nmtalign.cli.score_attention import drawn

    width = shutil.get_terminal_size().columns
    return {line + 1: drawn(several, width, colour=colour) for line, several in panels.items()}


def write_figure(task: Task, report: "Report") -> None:
    """Writes --plot: the first metric by length."""
    if task.plot is None:
        return
    from nmtalign.scoring.figure import draw_by_length

    for note in (*draw_by_length(report, task.plot, report.metrics[0]), f"wrote {task.plot}"):
        notifier(task.quiet)(note)


def write_page(task: Task, report: "Report", read: Read, panels: Panels) -> None:
    """Writes --html: one page with all tables and figures."""
    if task.html is None:
        return
    from nmtalign.cli.score_attention import svgs
    from nmtalign.scoring.score_document import build_page

    title = f"{', '.join(read.names)}: scores of {len(read.references[0].lines):,} sentences"
    page = build_page(
        report,
        title=title,
        figures=_figures(report),
        pictures=svgs(panels) if panels else {},
        settings=_settings(task, read),
    )
    with atomic_text(task.html) as stream:
        stream.write(page)
    notifier(task.quiet)(f"wrote {task.html}")


def _figures(report: "Report") -> list[tuple[str, str]]:
    """(caption, SVG) of every breakdown and of every table of words."""
    from nmtalign.scoring.figure import by_length_svg, by_place_svg, words_svg

    figures = []
    metric = report.metrics[0]
    for cut in report.systems[0].everything.breakdowns:
        draw = by_length_svg if cut.by == "length" else by_place_svg
        figures.append((f"{metric} {cut.title}", draw(report, metric)))
    names = [system.name for system in report.systems]
    figures += [(f"F1 of {table.title}", words_svg(table, names)) for table in report.words]
    return figures


def _settings(task: Task, read: Read) -> dict[str, str]:
    """What it takes to get the page again."""
    settings = {
        "command": shlex.join(["nmtalign", *sys.argv[1:]]),
        "systems": ", ".join(f"{name} ({text.name})" for name, text in zip(read.names, read.systems, strict=True)),
        "references": ", ".join(text.name for text in read.references),
    }
    if read.source:
        settings["source"] = read.source.name
    if task.words and (task.settings.no_unk or task.settings.by_frequency):
        settings["known words"] = ", ".join(map(str, task.words))
    return {**settings, "nmtalign": __version__}
