"""`nmtalign aer`: links compared with gold links."""

import csv
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from nmtalign.cli.common import (
    QuietOption,
    escaped,
    json_text,
    name_files,
    notifier,
    own_argument,
    own_option,
    print_table,
    status_line,
)
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import AerConfig, ScoreConfig
from nmtalign.settings.workspace import Workspace
from nmtalign.text.lines import STDIN
from nmtalign.text.text_table import TextTable

if TYPE_CHECKING:
    from nmtalign.alignment.evaluation import LinkEvaluation, LinkFigures
    from nmtalign.scoring.report import Bucket

_ALIGNMENTS = Path("alignments.h5")
_RATES = ("precision", "recall", "aer", "f1")
Row = dict[str, Any]  # numbers and texts by column
Found = Sequence[tuple["LinkEvaluation", dict[str, list[Row]]]]  # each system and its tables

Files = Annotated[
    list[Path] | None,
    own_argument(
        "[NAME=]LINKS... GOLD", "Links: text, .gz, .h5 of `nmtalign align`, - for stdin; then the gold links (or -g)."
    ),
]
Gold = Annotated[Path | None, own_option("Gold links; then all files are LINKS.", "FILE", "--gold -g")]
Source = Annotated[Path | None, own_option("Source text with words between spaces.", "FILE", "--source -s")]
Target = Annotated[Path | None, own_option("Its translation, line by line.", "FILE", "--target -t")]


@with_settings(AerConfig)
def aer(
    chosen: Chosen[AerConfig],
    files: Files = None,
    gold: Gold = None,
    source: Source = None,
    target: Target = None,
    quiet: QuietOption = False,
) -> None:
    """Compare links with gold links: precision, recall, alignment error rate (AER) and F1.

    AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) of found links A, sure gold links S
    and possible ones P, which include the sure ones. Precision is |A∩P| / |A|,
    recall |A∩S| / |S|; possible links in LINKS count as found. A file has one
    line per pair (Pharaoh: 0-0 sure, 0p0 or 0?0 possible; from 0) or one line
    per link (NAACL/WPT 2003: 0001 1 1 S, or P, or neither for sure; from 1),
    source first. The signature records how the files were read.

    The types compare a link with the other links of the same file. A reordered
    link crosses another one, a monotone link does not. The target word of a
    many-to-one link has other links, the source word of a one-to-many link has
    others; one-to-one means neither, many-to-many both. A NULL word has no link.
    Without texts or an .h5 the length of a sentence is its largest gold position.

    Examples:

      nmtalign aer links.txt test.gold

      nmtalign aer alignments.h5 test.gold --by-length --by-type --worst 5

      nmtalign aer ours=a.h5 theirs=links.txt -g test.gold --format csv

      nmtalign align a.en a.fr --pharaoh | nmtalign aer - gold.wpt --gold-base 1
    """
    settings = chosen.settings
    systems, gold = _files(chosen.workspace, files or [], gold, (source, target))

    from nmtalign.alignment.evaluation import compare_links
    from nmtalign.scoring.report import parse_buckets

    by_length = settings.by_length or settings.buckets is not None
    with chosen.naming(), status_line("comparing the links", quiet):
        texts = tuple(chosen.workspace.file_pairs.values())
        bounds = parse_buckets(settings.buckets or ScoreConfig().buckets) if by_length else None
        found = compare_links(systems, gold, settings, source, target, texts)
    for note in found.notes:
        notifier(quiet)(note)
    print_as = {"text": _print_text, "json": _print_json, "csv": _print_csv}[settings.format]
    print_as([(system, _tables(system, settings, bounds)) for system in found.systems], settings.alpha)


def _files(
    workspace: Workspace, files: list[Path], gold: Path | None, texts: tuple[Path | None, Path | None]
) -> tuple[tuple[tuple[str, Path], ...], Path]:
    """Returns the named systems and the gold links: without -g the last file, else those of the workspace."""
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
    if [gold, *texts, *(path for _, path in systems)].count(STDIN) > 1:
        raise UsageError("only one of LINKS, GOLD, --source and --target can be stdin")
    return systems, gold


def _tables(system: "LinkEvaluation", settings: AerConfig, buckets: "Sequence[Bucket] | None") -> dict[str, list[Row]]:
    """Returns the rows of each table: "all" has one row; the others are there if they are wanted."""
    alpha = settings.alpha
    tables = {"all": [_row(system.figures, alpha)]}
    if buckets is not None:
        tables["by_length"] = [{"words": label, **_row(figures, alpha)} for label, figures in system.by_length(buckets)]
    if settings.by_type:
        tables["by_type"] = [
            {
                "type": name, "gold": counts.sure, "recalled": counts.links_sure, "recall": counts.recall,
                "found": counts.links, "right": counts.links_possible, "precision": counts.precision,
            }
            for name, counts in system.by_type().items()
        ]  # fmt: skip
    if settings.worst:
        tables["worst"] = [
            {
                "line": pair.number + 1,
                **_row(pair.figures, alpha),
                "wrong": [system.shown_link(pair.number, link) for link in pair.wrong],
                "missed": [system.shown_link(pair.number, link) for link in pair.missed],
            }
            for pair in system.worst(settings.worst)
        ]
    return tables


def _row(figures: "LinkFigures", alpha: float | None) -> Row:
    return vars(figures) | ({} if alpha is None else {"f_alpha": figures.f_alpha(alpha)})


def _print_json(found: Found, alpha: float | None) -> None:
    """Prints one object per system."""
    for system, parts in found:
        (figures,) = parts.pop("all")
        record = {"name": system.name, **figures} | ({} if alpha is None else {"alpha": alpha})
        if parts.keys() & {"by_length", "by_type"}:
            record["lengths_from"] = system.lengths_from
        sys.stdout.write(json_text(record | parts | {"signature": system.signature}) + "\n")


def _print_csv(found: Found, alpha: float | None) -> None:
    """Prints one line per row of figures: `part` (all, length, type, sentence), and `label` within the part."""
    keys = ["pairs", "sure", "links", "links_sure", "links_possible", *_RATES, *([] if alpha is None else ["f_alpha"])]
    names = ["name", "part", "label", *keys, "signature"]
    of_types = {"gold": "sure", "found": "links", "recalled": "links_sure", "right": "links_possible"}
    labels = {"by_length": ("length", "words"), "by_type": ("type", "type"), "worst": ("sentence", "line")}
    writer = csv.DictWriter(sys.stdout, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for system, parts in found:
        (figures,) = parts.pop("all")
        writer.writerow({"name": system.name, "part": "all", **figures, "signature": system.signature})
        for name, rows in parts.items():
            part, label = labels[name]
            for row in rows:
                values = {of_types.get(key, key): value for key, value in row.items()}
                writer.writerow({"name": system.name, "part": part, "label": row[label], **values})


def _print_text(found: Found, alpha: float | None) -> None:
    """Prints one row per system, their signatures, then the other tables of each."""
    columns = {"links": "found", "precision": "precision", "recall": "recall", "aer": "AER", "f1": "F1"}
    columns |= {} if alpha is None else {"f_alpha": f"F({alpha:g})"}
    gold = found[0][0].gold
    sure, possible = sum(len(pair.sure) for pair in gold), sum(len(pair.possible) for pair in gold)
    sys.stdout.write(f"pairs: {len(gold)}  gold: {sure} sure links, {possible} with the possible ones\n")
    _print_rows({"name": "links of", **columns}, [{"name": system.name, **parts["all"][0]} for system, parts in found])
    sys.stdout.writelines(f"{escaped(system.signature)}\n" for system, _ in found)
    for system, parts in found:
        of, origin = f" of {escaped(system.name)}" if len(found) > 1 else "", escaped(system.lengths_from)
        if "by_length" in parts:
            sys.stdout.write(f"\nby words of the source ({origin}){of}:\n")
            _print_rows({name: name for name in ("words", "pairs", "sure")} | columns, parts["by_length"])
        if "by_type" in parts:
            sys.stdout.write(f"\nby type of link, and words without one ({origin}){of}:\n")
            _print_rows({name: name for name in parts["by_type"][0]}, parts["by_type"])
        if "worst" in parts:
            _print_worst(parts["worst"], of)


def _print_worst(rows: list[Row], of: str) -> None:
    sys.stdout.write(f"\nthe worst sentences{of}:\n" if rows else f"\nno sentence{of} has a mistake\n")
    for row in rows:
        sys.stdout.write(f"line {row['line']}  AER {row['aer']:.4f}\n")
        for name in ("wrong", "missed"):
            sys.stdout.write(f"  {name}: {escaped(', '.join(row[name])) or '-'}\n")


def _print_rows(columns: dict[str, str], rows: Sequence[Row]) -> None:
    """Prints the columns (key: head) of the rows."""
    cells = [[_cell(row[key]) for key in columns] for row in rows]
    print_table(TextTable([*columns.values()], cells), drawn=False)


def _cell(value: object) -> str:
    return "-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value)
