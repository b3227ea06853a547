"""What `nmtalign score` does: reads or makes the texts, measures them, and makes the report."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nmtalign.cli.common import notifier
from nmtalign.cli.score_plan import Task
from nmtalign.errors import UsageError
from nmtalign.files import atomic_text

if TYPE_CHECKING:
    from nmtalign.scoring.cuts import Cut
    from nmtalign.scoring.metrics import Statistics
    from nmtalign.scoring.report import Report
    from nmtalign.scoring.texts import Text
    from nmtalign.scoring.unknowns import UnknownWords


@dataclass(frozen=True)
class Read:
    """The texts, as many lines each."""

    names: tuple[str, ...]
    systems: "tuple[Text, ...]"
    references: "tuple[Text, ...]"
    source: "Text | None"

    @property
    def reference_lines(self) -> list[Sequence[str]]:
        """The lines of each reference."""
        return [reference.lines for reference in self.references]


def make_report_of(task: Task) -> "tuple[Report, Read]":
    """Reads or makes the texts and scores them."""
    from nmtalign.scoring.reporting import make_report

    unknown = _unknown_words(task) if task.settings.no_unk else None
    read = _read(task)
    _warn_of_tokenised(task, read)
    tables = _measured(task, read)
    known = unknown.without(read.source.lines, read.reference_lines) if unknown and read.source else None
    tests = task.tests(len(read.systems))
    report = make_report(
        read.names,
        tables,
        breakdowns=_cuts(task, read),
        known=known,
        resampling=task.resampling if task.confident or tests else None,
        tests=tests,
        intervals=task.confident,
    )
    return report, read


def _unknown_words(task: Task) -> "UnknownWords":
    from nmtalign.scoring.unknowns import UnknownWords, Vocabularies

    if not task.words:
        raise UsageError("--no-unk: no model or corpus here; give a model with -m or a prepared corpus with --data")
    return UnknownWords([Vocabularies.load(folder) for folder in task.words])


def _read(task: Task) -> Read:
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
        names, systems = _translate(task, source)
    else:
        raise UsageError("nothing to translate: give the source with -s")
    check_aligned([references[0], *systems])
    return Read(names, systems, references, source)


def _warn_of_tokenised(task: Task, read: Read) -> None:
    from nmtalign.scoring.metrics import looks_tokenized

    for text in read.systems if task.options.tokenize != "none" else ():
        if count := looks_tokenized(text.lines):
            notifier(task.quiet)(
                f"{text.name}: {count} lines end in ' .': it looks tokenised, and such a BLEU cannot be compared; "
                "score raw text, or give --tokenize none"
            )


def _measured(task: Task, read: Read) -> "list[list[Statistics]]":
    from nmtalign.scoring.metrics import measure_systems

    return measure_systems([text.lines for text in read.systems], read.reference_lines, task.options)


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


def _translate(task: Task, source: "Text") -> "tuple[tuple[str, ...], tuple[Text, ...]]":
    """(names, translations) of the models; `--output` keeps the one."""
    from nmtalign.cli.score_models import translate_with

    done = translate_with(task.models, source, task.search, every=task.all_models, quiet=task.quiet)
    if task.output:
        with atomic_text(task.output) as stream:
            stream.writelines(f"{line}\n" for line in done[0].text.lines)
    return tuple(one.name for one in done), tuple(one.text for one in done)
