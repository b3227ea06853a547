"""What is wrong with a task of `nmtalign score`, found before anything long begins."""

import math
import os
from collections.abc import Mapping
from typing import Any

from nmtalign.cli.score_task import Task
from nmtalign.errors import ResourceError, UsageError
from nmtalign.files import stays_in_place


def check(task: Task, options: Mapping[str, Any]) -> None:
    """Raises for what could be found only when long work is done."""
    from nmtalign.scoring.lengths import parse_buckets

    settings, source = task.settings, task.texts.source
    parse_buckets(settings.buckets, settings.cumulative)
    if source is None:
        if settings.by_length and settings.length_of == "source":
            option = "--by-length" if options["by_length"] or not task.plot else "--plot"
            raise UsageError(f"{option}: give the source with -s, or --length-of reference")
        if task.comet:
            raise UsageError("--comet: compares with the source, too; give it with -s")
        if settings.no_unk:
            raise UsageError(f"{'--table1' if task.table1 else '--no-unk'}: give the source with -s")
    if not task.several:
        for name in ("differences", "significance"):
            if options[name]:
                raise UsageError(f"--{name}: compares systems; give two or more")
    if task.comet:
        from nmtalign.scoring.comet import check_comet

        check_comet(task.comet)
    _check_attention(task)
    if task.output and len(task.models) > 1:
        raise UsageError("--output keeps one translation; those of --all are kept in the models' folders")
    if task.fail_under is not None and task.options.metrics == ("ter",) and not task.comet:
        raise UsageError("--fail-under: less is better of TER; give a metric of which more is better, such as bleu")
    if task.fail_under is not None and math.isnan(task.fail_under):
        raise UsageError("--fail-under nan: no score is below that; give a number")
    _check_outputs(task)


def _check_attention(task: Task) -> None:
    if task.alignments and not task.attention:
        raise UsageError("--alignments are for --attention; give it too")
    if not task.attention:
        return
    if not task.differences and not task.html:
        raise UsageError("--attention is drawn of --differences N; give it too")
    if task.settings.format != "text" and not task.html:
        raise UsageError(f"--attention is drawn as text and on the page of --html, not as {task.settings.format}")
    if task.texts.source is None:
        raise UsageError("--attention: give the source with -s")


def _check_outputs(task: Task) -> None:
    if task.plot:
        from nmtalign.figures import check_figure_name

        check_figure_name(task.plot)
    if task.plot or task.html:
        from nmtalign.figures import need_matplotlib

        need_matplotlib()
    if task.html and task.html.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f"{task.html}: a page's name ends in .html; give such a name to --html")
    read = [*(path for _, path in task.texts.systems), *task.texts.references, task.texts.source, task.train_text]
    for output in (task.plot, task.html, task.output):
        if output is None or stays_in_place(output):
            continue
        if output.exists() and any(path and path.exists() and output.samefile(path) for path in read):
            raise UsageError(f"{output}: is read here and would be replaced; give another name")
        if output.is_dir():
            raise UsageError(f"{output}: is a folder; give the name of a file")
        if not output.parent.is_dir():
            raise UsageError(f"{output}: there is no folder {output.parent}; make it first")
        if not os.access(output.parent, os.W_OK):
            raise ResourceError(f"{output}: cannot write: no permission for the folder {output.parent}")
