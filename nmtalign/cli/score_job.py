"""What `nmtalign score` does: reads or makes the texts, measures them, and makes the report."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmtalign.cli.common import notifier
from nmtalign.cli.score_pictures import attention_files
from nmtalign.cli.score_task import Read, Task
from nmtalign.cli.score_words import KnownWords
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text

if TYPE_CHECKING:
    from nmtalign.scoring.cuts import Cut
    from nmtalign.scoring.metrics import Statistics
    from nmtalign.scoring.report import Report
    from nmtalign.scoring.texts import Text


def make_report_of(task: Task) -> "tuple[Report, Read]":
    """Reads or makes the texts and scores them."""
    words = KnownWords(task)
    attending = attention_files(task) if task.attention and task.texts.systems else {}
    read = _read(task, attending)
    _warn_of_tokenised(task, read)
    tables = _measured(task, read)
    report = _scored(task, read, tables, words)
    more: dict[str, Any] = dict(zip(("words", "unknown"), words.tables(read), strict=True))
    if task.differences and len(read.systems) > 1:
        from nmtalign.scoring.differences import most_different

        source = read.source.lines if read.source else None
        more["differences"] = most_different(
            read.system_lines, read.reference_lines, task.differences, source=source, statistics=tables
        )
    return replace(report, **more), read


def _scored(task: Task, read: Read, tables: "list[list[Statistics]]", words: KnownWords) -> "Report":
    from nmtalign.scoring.reporting import make_report

    tests = task.tests(len(read.systems))
    resampling = task.resampling if task.confident or tests else None
    with progress("drawing samples", 1.0, task.quiet or resampling is None) as advance:
        return make_report(
            read.names,
            tables,
            breakdowns=_cuts(task, read),
            known=words.without_unknowns(read),
            resampling=resampling,
            tests=tests,
            intervals=task.confident,
            advance=advance,
        )


def _read(task: Task, attending: Mapping[str, Path]) -> Read:
    """The texts; what is at hand is checked before a translation that may be long in coming."""
    from nmtalign.scoring.texts import check_aligned, read_text

    texts = task.texts
    references = tuple(read_text(path) for path in texts.references)
    source = read_text(texts.source) if texts.source else None
    check_aligned([*references, *([source] if source else [])])
    if texts.systems:
        systems = tuple(read_text(path) for _, path in texts.systems)
        names = tuple(name for name, _ in texts.systems)
    elif source:
        names, systems, attending = _translate(task, source)
    else:
        raise UsageError("nothing to translate: give the source with -s")
    check_aligned([references[0], *systems])
    return Read(names, systems, references, source, attending)


def _warn_of_tokenised(task: Task, read: Read) -> None:
    from nmtalign.scoring.measuring import looks_tokenized

    for text in read.systems if task.options.tokenize != "none" else ():
        if count := looks_tokenized(text.lines):
            notifier(task.quiet)(
                f"{text.name}: {count} lines end in ' .': it looks tokenised, and such a BLEU cannot be compared; "
                "score raw text, or give --tokenize none"
            )


def _measured(task: Task, read: Read) -> "list[list[Statistics]]":
    from nmtalign.scoring.measuring import measure_systems, steps

    total = steps(len(read.systems), len(read.references[0].lines), task.options)
    with progress("counting", total, task.quiet) as advance:
        tables = measure_systems(read.system_lines, read.reference_lines, task.options, advance=advance)
    if task.comet is None:
        return tables
    from nmtalign.scoring.comet import comet_statistics, comet_steps

    source = read.source.lines if read.source else None
    total = comet_steps(len(read.systems), len(read.references), len(read.references[0].lines))
    with progress("COMET", total, task.quiet) as advance:
        columns = comet_statistics(
            task.comet, source, read.system_lines, read.reference_lines, device=task.search.device, advance=advance
        )
    return [[*table, column] for table, column in zip(tables, columns, strict=True)]


def _cuts(task: Task, read: Read) -> "list[Cut]":
    """By length and by place, as far as they are asked for."""
    from nmtalign.scoring.cuts import by_length, by_place
    from nmtalign.scoring.lengths import parse_buckets

    settings, cuts = task.settings, []
    if settings.by_length:
        sides: dict[str, Sequence[Sequence[str]]] = {
            "source": [read.source.lines] if read.source else [],
            "reference": [read.references[0].lines],
            "hypothesis": [text.lines for text in read.systems],
        }
        buckets = parse_buckets(settings.buckets, settings.cumulative)
        cuts.append(by_length(sides[settings.length_of], buckets, settings.length_of))
    if settings.by_place:
        cuts.append(by_place(len(read.references[0].lines)))
    return cuts


def _translate(task: Task, source: "Text") -> "tuple[tuple[str, ...], tuple[Text, ...], dict[str, Path]]":
    """(names, translations, folder by name) of the models; `--output` keeps the one."""
    from nmtalign.cli.score_models import translate_with

    done = translate_with(task.models, source, task.search, every=task.all_models, quiet=task.quiet)
    if task.output:
        with atomic_text(task.output) as stream:
            stream.writelines(f"{line}\n" for line in done[0].text.lines)
    folders = {one.name: one.folder for one in done}
    return tuple(one.name for one in done), tuple(one.text for one in done), folders


@contextmanager
def progress(doing: str, total: float, quiet: bool) -> Iterator[Callable[[float], None] | None]:
    """Yields what is to be told of work done, of `total` in all, which stderr shows on a terminal; else None."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task(doing, total=total)
        yield lambda done: shown.advance(task, done)
