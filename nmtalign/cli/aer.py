"""`nmtalign aer`: how far links are from links made by hand."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nmtalign.cli.common import ConfigOption, QuietOption, notifier
from nmtalign.cli.naming import name_files
from nmtalign.config import LinkMethod, ScoreConfig
from nmtalign.errors import UsageError
from nmtalign.version import __version__
from nmtalign.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.alignment.link_files import LinkFile
    from nmtalign.cli.aer_output import System

STDIN = Path("-")
_ALIGNMENTS = Path("alignments.h5")
_READING, _FIGURES = "How the files are read", "What to print"
Base = Literal["0", "1"]

Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[NAME=]LINKS... GOLD",
        help="Links: text, .gz, .h5 of `nmtalign align`, - for stdin; then the gold links (or -g).",
        show_default=False,
    ),
]
Gold = Annotated[
    Path | None, typer.Option("--gold", "-g", metavar="FILE", help="Gold links; then all files are LINKS.")
]
GoldBase = Annotated[
    Base | None,
    typer.Option(
        metavar="0|1",
        help="What positions of GOLD count from [dim](default: 0, of numbered lines 1)[/dim].",
        rich_help_panel=_READING,
    ),
]
LinksBase = Annotated[Base | None, typer.Option(metavar="0|1", help="The same for LINKS.", rich_help_panel=_READING)]
ReverseGold = Annotated[
    bool, typer.Option("--reverse-gold", help="GOLD has the target first: turn it round.", rich_help_panel=_READING)
]
ReverseLinks = Annotated[
    bool, typer.Option("--reverse-links", help="LINKS have the target first.", rich_help_panel=_READING)
]
Source = Annotated[
    Path | None,
    typer.Option("--source", "-s", metavar="FILE", help="Source text, words between spaces.", rich_help_panel=_READING),
]
Target = Annotated[
    Path | None,
    typer.Option("--target", "-t", metavar="FILE", help="Its translation, likewise.", rich_help_panel=_READING),
]
Method = Annotated[
    LinkMethod | None,
    typer.Option("--links-method", help="Links of an .h5, in place of the stored ones.", rich_help_panel=_READING),
]
Threshold = Annotated[
    float | None,
    typer.Option(metavar="P", help="Smallest weight, for --links-method threshold.", rich_help_panel=_READING),
]
ByLength = Annotated[
    bool, typer.Option("--by-length", help="A table by words of the source.", rich_help_panel=_FIGURES)
]
Buckets = Annotated[
    str | None,
    typer.Option(metavar="N,N,...", help="Upper ends of its rows (10,20,30,40,50,60).", rich_help_panel=_FIGURES),
]
ByType = Annotated[
    bool,
    typer.Option(
        "--by-type", help="A table by type: monotone, reordered, many-to-one, NULL, ...", rich_help_panel=_FIGURES
    ),
]
Worst = Annotated[
    int, typer.Option(metavar="N", min=0, help="The N sentences with the highest AER.", rich_help_panel=_FIGURES)
]
Alpha = Annotated[
    float | None,
    typer.Option(metavar="A", min=0, max=1, help="Also F = 1/(A/precision + (1-A)/recall).", rich_help_panel=_FIGURES),
]
Format = Annotated[Literal["text", "json", "csv"], typer.Option(help="How to print.", rich_help_panel=_FIGURES)]


@dataclass(frozen=True)
class _Files:
    """Which files are compared: (name, path) of each system, and the gold."""

    systems: tuple[tuple[str, Path], ...]
    gold: Path
    source: Path | None
    target: Path | None


@dataclass(frozen=True)
class _Reading:
    """How links and gold are read."""

    gold_base: int | None
    links_base: int | None
    reverse_gold: bool
    reverse_links: bool
    choice: dict[str, Any]  # of the links of an alignment file


def aer(
    files: Files = None,
    gold: Gold = None,
    gold_base: GoldBase = None,
    links_base: LinksBase = None,
    reverse_gold: ReverseGold = False,
    reverse_links: ReverseLinks = False,
    source: Source = None,
    target: Target = None,
    links_method: Method = None,
    threshold: Threshold = None,
    by_length: ByLength = False,
    buckets: Buckets = None,
    by_type: ByType = False,
    worst: Worst = 0,
    alpha: Alpha = None,
    format: Format = "text",
    config: ConfigOption = None,
    quiet: QuietOption = False,
) -> None:
    """Compare links with links made by hand: precision, recall, alignment error rate (AER) and F1.

    AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) of found links A, sure gold links S
    and possible ones P, which hold the sure ones. Precision is |A∩P| / |A|,
    recall |A∩S| / |S|; possible links among LINKS count as found ones. A file
    has a line a pair (Pharaoh: 0-0 sure, 0p0 or 0?0 possible; from 0) or a line
    a link (NAACL/WPT 2003: 0001 1 1 S, or P, or neither for sure; from 1),
    source first. What was assumed stands in the signature.

    Types, each among the links of its own side: reordered crosses another
    link, monotone does not; many-to-one has a target word with other links,
    one-to-many a source word with others, one-to-one neither, many-to-many
    both. A NULL word has no link. Without texts or an .h5 a sentence is as long
    as its largest gold position.

    Examples:

      nmtalign aer links.txt test.gold

      nmtalign aer alignments.h5 test.gold --by-length --by-type --worst 5

      nmtalign aer ours=a.h5 theirs=links.txt -g test.gold --format csv

      nmtalign align a.en a.fr --pharaoh | nmtalign aer - gold.wpt --gold-base 1
    """
    workspace = load_workspace(config)
    chosen = _files(workspace, files or [], gold, source, target)
    choice = _choice(links_method, threshold)
    reading = _Reading(_number(gold_base), _number(links_base), reverse_gold, reverse_links, choice)
    settings = workspace.resolve(ScoreConfig, "score", {"buckets": buckets})

    from nmtalign.cli.aer_output import Wanted, print_csv, print_json, print_text
    from nmtalign.scoring.lengths import parse_buckets

    wanted = Wanted(parse_buckets(settings.buckets) if by_length or buckets else None, by_type, worst, alpha)
    systems = _compare(chosen, reading, quiet)
    {"text": print_text, "json": print_json, "csv": print_csv}[format](systems, wanted)


def _choice(method: LinkMethod | None, threshold: float | None) -> dict[str, Any]:
    """Which links of an alignment file are compared, {} where it is the stored ones."""
    if threshold is not None and method == "argmax":
        raise UsageError("--threshold is for --links-method threshold; leave one of them out")
    return {} if method is None and threshold is None else {"method": method, "threshold": threshold}


def _number(base: Base | None) -> int | None:
    return None if base is None else int(base)


def _files(
    workspace: Workspace, files: list[Path], gold: Path | None, source: Path | None, target: Path | None
) -> _Files:
    """Which file is what: the last one is GOLD if -g is not given, and a workspace may name what is missing."""
    if gold is None:
        gold = files.pop() if len(files) > 1 else workspace.gold
    elif not files:
        if sys.stdin.isatty():
            raise UsageError("nothing to compare: give LINKS, or links on stdin")
        files = [STDIN]
    if not files and _ALIGNMENTS.exists():
        files = [_ALIGNMENTS]
    if gold is None or not files:
        raise UsageError("give found links and gold links: nmtalign aer LINKS GOLD")
    systems = name_files(files)
    if [gold, source, target, *(path for _, path in systems)].count(STDIN) > 1:
        raise UsageError("only one of LINKS, GOLD, --source and --target can be stdin")
    return _Files(systems, gold, source, target)


def _compare(files: _Files, reading: _Reading, quiet: bool) -> "list[System]":
    """Reads everything, checks that it fits together, and counts."""
    from nmtalign.alignment.error_analysis import gold_lengths
    from nmtalign.alignment.link_files import common_length, read_words
    from nmtalign.cli.aer_output import System
    from nmtalign.text.lines import shown

    gold, links = _read(files, reading)
    texts = {shown(path): read_words(path) for path in (files.source, files.target) if path}
    pairs = common_length([*links, gold], {name: len(lines) for name, lines in texts.items()})
    sides, origin = _words(files, texts, [*links, gold])
    _check(pairs, sides, [gold, *links])
    _hint(gold, links, reading, pairs, quiet)
    answers = [gold.pair(number) for number in range(pairs)]
    lengths = _lengths(gold_lengths(answers), sides)
    return [
        System(
            name,
            [frozenset(file.pair(number).possible) for number in range(pairs)],
            answers,
            lengths,
            origin,
            sides,
            _signature(file, gold, answers),
        )
        for (name, _), file in zip(files.systems, links, strict=True)
    ]


def _read(files: _Files, reading: _Reading) -> "tuple[LinkFile, list[LinkFile]]":
    """(gold, links of each system)."""
    from nmtalign.alignment.link_files import is_hdf5, read_links

    stored = [is_hdf5(path) for _, path in files.systems]
    if reading.choice and not any(stored):
        raise UsageError("--links-method and --threshold choose the links of an alignment file (.h5); none is given")
    gold = read_links(files.gold, "gold", reading.gold_base, reading.reverse_gold)
    choices: list[dict[str, Any]] = [reading.choice if one else {} for one in stored]
    return gold, [
        read_links(path, "links", reading.links_base, reading.reverse_links, **choice)
        for (_, path), choice in zip(files.systems, choices, strict=True)
    ]


def _words(files: _Files, texts: dict[str, Any], holders: "list[LinkFile]") -> tuple[list[Any], str]:
    """(words of source and of target, None where they are not known; where the source's lengths come from)."""
    from nmtalign.text.lines import shown

    holder = next((file for file in holders if file.words is not None), None)
    sides: list[Any] = []
    for side, path in enumerate((files.source, files.target)):
        if path:
            sides.append(texts[shown(path)])
        else:
            sides.append([pair[side] for pair in holder.words] if holder and holder.words is not None else None)
    if files.source:
        return sides, shown(files.source)
    return sides, holder.name if holder else "largest gold position"


def _lengths(estimated: list[tuple[int, int]], sides: list[Any]) -> list[tuple[int, int]]:
    """The lengths of all pairs: of their words where these are known, else the estimated ones."""
    known = ([len(line) for line in words] if words is not None else None for words in sides)
    columns = (lengths or list(guess) for lengths, guess in zip(known, zip(*estimated, strict=True), strict=False))
    return list(zip(*columns, strict=True))


def _check(pairs: int, sides: list[Any], files: "list[LinkFile]") -> None:
    for number in range(pairs):
        lengths = [None if words is None else len(words[number]) for words in sides]
        for file in files:
            file.check_inside(number, lengths[0], lengths[1])


def _hint(gold: "LinkFile", links: "list[LinkFile]", reading: _Reading, pairs: int, quiet: bool) -> None:
    """What looks like a mistake and cannot be known to be one."""
    from nmtalign.alignment.error_analysis import count_pairs, total

    say = notifier(quiet)
    if gold.open_ended and len(gold.pairs) < pairs:
        say(
            f"{gold.name}: ends with sentence {len(gold.pairs)} of {pairs}; the others count as sentences without gold "
            "links"
        )
    for file, role, base in ((gold, "gold", reading.gold_base), *((one, "links", reading.links_base) for one in links)):
        if base is None and file.base == 0 and file.format == "Pharaoh" and file.looks_one_based:
            say(f"{file.name}: no position is 0; if positions count from 1 there, give --{role}-base 1")
    answers = [gold.pair(number) for number in range(pairs)]
    for file in links:
        found = [file.pair(number) for number in range(pairs)]
        rate = total(count_pairs([pair.possible for pair in found], answers)).rates().aer
        turned = total(count_pairs([pair.turned().possible for pair in found], answers)).rates().aer
        if turned < rate - 0.1:
            say(
                f"{file.name}: turned round its AER would be {turned:.4f} and not {rate:.4f}; if it has the target "
                "first, give --reverse-links (or --reverse-gold)"
            )


def _signature(file: "LinkFile", gold: "LinkFile", answers: list[Any]) -> str:
    """What it takes to get the figures again."""
    parts = ["AER"]
    for role, one in (("links", file), ("gold", gold)):
        first = ",target-first" if one.reverse else ""
        parts.append(f"{role}:{Path(one.name).name},{one.format},from-{one.base}{first}")
    if "links_method" in file.facts:
        parts.append(f"method:{file.facts['links_method']}")
    parts.append(f"pairs:{len(answers)}")
    parts.append(f"sure:{sum(len(pair.sure) for pair in answers)}")
    parts.append(f"possible:{sum(len(pair.possible) for pair in answers)}")
    if "model_hash" in file.facts:
        parts.append(f"model:{file.facts['model_hash'][:12]}")
    return "|".join([*parts, f"nmtalign:{__version__}"])
