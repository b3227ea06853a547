"""`nmtalign plot --training`: learning curves of models, in a file or in the terminal."""

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from nmtalign.cli.common import escaped, notifier
from nmtalign.cli.naming import name_files
from nmtalign.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.training.curves import Axis


def plot_training(
    models: Sequence[Path], output: Path | None, axis: "Axis", width: int | None, colour: bool, quiet: bool
) -> None:
    """Draws the curves of models, of `NAME=DIR` under that name; without any, of the workspace's."""
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

    text = render_curves(curves, list(map(escaped, names)), width or shutil.get_terminal_size().columns, axis, colour)
    sys.stdout.write(text)


def _models_of(workspace: Workspace) -> list[Path]:
    """The workspace's model; where it has no log, all under models/ that have one."""
    from nmtalign.training.events import LOG

    if (workspace.model / LOG).is_file():
        return [workspace.model]
    home = workspace.file.parent / "models" if workspace.file else Path("models")
    return sorted(log.parent for log in home.glob(f"*/{LOG}")) or [workspace.model]


def name_models(arguments: Sequence[Path]) -> Mapping[str, Path]:
    """Models by their names: those given, else of their folders, else, where two are alike, more of their paths.

    Raises UsageError for a NAME that is given twice.
    """
    return dict(name_files(arguments, _own_parts))


def _own_parts(path: Path) -> Sequence[str]:
    """The parts of the folder's path; `model/backward`, the other direction of a model, is one part."""
    folder = path.parent if path.is_file() else path
    parts = (folder if folder.name not in ("", "..") else folder.resolve()).parts
    return (*parts[:-2], "/".join(parts[-2:])) if parts[-1:] == ("backward",) else parts
