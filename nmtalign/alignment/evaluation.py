"""Files of links compared with gold links."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from nmtalign.alignment.link_files import REVERSE, GoldLinks, LinkFigures, LinkFile, comparable, count_links, read_links
from nmtalign.settings.command_settings import AerConfig
from nmtalign.settings.definition import FilePair
from nmtalign.version import __version__


@dataclass(frozen=True)
class LinkEvaluation:
    """The links of one file beside the gold links."""

    name: str
    figures: LinkFigures
    signature: str  # everything that reproduces the figures


@dataclass(frozen=True)
class LinkComparison:
    """The evaluation of each file, and notes on likely mistakes in how the files are read."""

    systems: Sequence[LinkEvaluation]
    gold: Sequence[GoldLinks] = field(repr=False)
    notes: Sequence[str]


def compare_links(
    links: Sequence[tuple[str, Path]],
    gold: Path,
    config: AerConfig,
    texts: tuple[Path | None, Path | None] = (None, None),
    others: Sequence[FilePair] = (),
) -> LinkComparison:
    """Compares files of links, (name, path) each, with gold links, as `nmtalign.api.aer` does.

    A file is text in Pharaoh's or NAACL's format, plain or compressed, `-` for stdin, or an alignment file. Where files
    count the words between spaces and others tokens (`comparable`), the texts must be raw, or among `others`. Raises
    InputError naming file and line, FormatError for a damaged alignment file.
    """
    answers = read_links(gold, "gold", config.gold_base, config.reverse_gold)
    files = [read_links(path, "links", config.links_base, config.reverse_links) for _, path in links]
    (answers, *files), pairs, converted = comparable([answers, *files], texts, others)
    expected = [answers.pair(number) for number in range(pairs)]
    systems, notes = [], [*converted, *_notes(answers, files, config, pairs)]
    for (name, _), file in zip(links, files, strict=True):
        systems.append(LinkEvaluation(name, _figures(file, expected), _signature(file, answers, expected)))
        if note := _turned_note(file, expected):
            notes.append(f"{note} (or {'leave out ' if answers.reverse else ''}{REVERSE['gold']})")
    return LinkComparison(systems, expected, notes)


def _figures(file: LinkFile, gold: Sequence[GoldLinks]) -> LinkFigures:
    return sum((count_links(file.pair(number).possible, pair) for number, pair in enumerate(gold)), LinkFigures())


def _notes(gold: LinkFile, files: Sequence[LinkFile], config: AerConfig, pairs: int) -> Iterator[str]:
    """Yields notes on files that may be incomplete, or count from another base."""
    if gold.open_ended and len(gold.pairs) < pairs:
        yield (
            f"{gold.name}: ends with sentence {len(gold.pairs)} of {pairs}; the others count as sentences without gold "
            "links"
        )
    for file, base in [(gold, config.gold_base), *((file, config.links_base) for file in files)]:
        if base is None and file.base == 0 and file.format == "Pharaoh":
            positions = [position for pair in file.pairs for link in pair.possible for position in link]
            if min(positions, default=0) > 0:
                yield f"{file.name}: no position is 0; if positions count from 1 there, give --{file.role}-base 1"


def _turned_note(file: LinkFile, gold: Sequence[GoldLinks]) -> str:
    """Returns a note if links fit far better with source and target exchanged; else ""."""
    rate, other = _figures(file, gold).aer, _figures(file.turned(), gold).aer
    if other >= rate - 0.1:
        return ""
    fix = "leave out" if file.reverse else "if it has the target first, give"
    exchanged = f"with source and target exchanged its AER would be {other:.4f} and not {rate:.4f}"
    return f"{file.name}: {exchanged}; {fix} {REVERSE[file.role]}"


def _signature(file: LinkFile, gold: LinkFile, answers: Sequence[GoldLinks]) -> str:
    """Returns everything that reproduces the figures."""
    parts = ["AER"]
    for role, one in (("links", file), ("gold", gold)):
        first = ",target-first" if one.reverse else ""
        parts.append(f"{role}:{Path(one.name).name},{one.format},from-{one.base}{first}")
    parts += [] if file.method is None else [f"method:{file.method}"]
    parts += [] if gold.method is None else [f"gold-method:{gold.method}"]
    sure, possible = (sum(len(links[kind]) for links in map(vars, answers)) for kind in ("sure", "possible"))
    parts += [f"pairs:{len(answers)}", f"sure:{sure}", f"possible:{possible}"]
    parts += [f"model:{'+'.join(part[:12] for part in file.model.split('+'))}"] if file.model else []
    return "|".join([*parts, f"nmtalign:{__version__}"])
