"""Draws alignments and learning curves: in the terminal, in a figure or as a page."""

import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from nmtalign.errors import UsageError
from nmtalign.figures import FORMATS, check_figure_name, save, usual_settings
from nmtalign.files import LOG
from nmtalign.settings.command_settings import ViewConfig
from nmtalign.text.lines import counted
from nmtalign.viewing.curves import curve_figure, read_curves, render_curves

_LIMIT = 20_000  # sentences of a page, if the settings give none


def draw_inputs(
    files: Sequence[tuple[str, Path]],
    output: Path | None,
    config: ViewConfig,
    sentence: str,
    gold: Path | None,
    title: str,
    colour: bool,
    notify: Callable[[str], None],
) -> str:
    """Draws (name, path) of alignment files, or of model directories and their logs; arguments as those of `api.view`.

    Returns the text for the terminal, "" if an output is written.
    """
    if output and (output.suffix.lower().removeprefix(".") not in ("html", *FORMATS) or output.is_dir()):
        raise UsageError(f"{output}: give the name of a file that ends in .html, .png, .svg or .pdf")
    models = {path.is_dir() or path.suffix == Path(LOG).suffix for _, path in files}
    if len(models) > 1:
        raise UsageError("alignment files and models are drawn differently; give either files or models")
    width = config.width or shutil.get_terminal_size().columns
    page = output is not None and output.suffix.lower() == ".html"
    if models == {True}:
        if sentence or gold or title:
            raise UsageError(f"{files[0][1]}: a model has learning curves; leave out --sentence, --gold and --title")
        if page:
            raise UsageError(f"{output}: learning curves are a figure: give a name that ends in .png, .svg or .pdf")
        curves, names = [read_curves(path) for _, path in files], [name for name, _ in files]
        if output is None:
            return render_curves(curves, names, width, config.x, colour)
        with usual_settings(names, check_figure_name(output)) as notes:
            save(curve_figure(curves, names, config.x), output)
        for note in (*notes, f"wrote {output}"):
            notify(note)
        return ""

    from nmtalign.alignment.link_files import read_links
    from nmtalign.viewing.alignment_page import parse_numbers, write_page
    from nmtalign.viewing.heatmap import draw, legend, read_panels, render_text

    numbers = parse_numbers(sentence)
    links = read_links(gold, "gold", config.gold_base, config.reverse_gold) if gold else None
    if output and page:
        limit = _LIMIT if config.limit is None else config.limit
        summary = write_page(files, output, title=title, numbers=numbers, limit=limit, gold=links, end=config.end)
        if not summary.complete:
            notify(f"{files[0][1]}: only {counted(limit, 'sentence')} shown; --limit 0 shows all, --sentence others")
        notify(f"wrote {output}: {counted(summary.sentences, 'sentence')}, {output.stat().st_size / 1e6:.1f} MB")
        return ""
    chosen, across = chain.from_iterable(numbers or [range(1)]), len(files)
    panels = _titled([*read_panels(files, chosen, config, links)], title, output is not None)
    if output:
        for note in (*draw(panels, output, across if across > 1 else None), f"wrote {output}"):
            notify(note)
        return ""
    rows = [panels[start : start + across] for start in range(0, len(panels), across)]
    marks = legend(panels)
    return "\n".join(render_text(row, width, colour) for row in rows) + (marks and f"{marks}\n")


def _titled(panels: list[Any], title: str, figure: bool) -> list[Any]:
    """Returns the pictures, the only one with its title, without which a figure has none."""
    if title and len(panels) > 1:
        raise UsageError(f"--title is the caption of one picture, and these are {len(panels)}; leave it out")
    return [replace(panels[0], caption=title)] if title or (figure and len(panels) == 1) else panels
