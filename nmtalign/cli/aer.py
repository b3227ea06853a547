"""`nmtalign aer`: links compared with gold links."""

import csv
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from nmtalign.cli.common import ConfigOption, QuietOption, escaped, json_text, name_files, notifier
from nmtalign.cli.tables import Table, aligned
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import LinkMethod, ScoreConfig
from nmtalign.settings.workspace import Workspace, load_workspace

if TYPE_CHECKING:
    from nmtalign.alignment.evaluation import LinkEvaluation, LinkFigures
    from nmtalign.scoring.buckets import Bucket

STDIN = Path("-")
_ALIGNMENTS = Path("alignments.h5")
_RATES = ("precision", "recall", "aer", "f1")
_TYPE_KEYS = ("gold", "recalled", "recall", "found", "right", "precision")
Base = Literal["0", "1"]
Figures = dict[str, Any]  # a row of a table: numbers and texts by column


def _option(panel: str | None, help: str, metavar: str | None = None, names: str = "", **more: Any) -> Any:
    return typer.Option(*names.split(), help=help, metavar=metavar, rich_help_panel=panel, **more)


_READING, _FIGURES = "How the files are read", "What to print"
Files = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="[NAME=]LINKS... GOLD",
        help="Links: text, .gz, .h5 of `nmtalign align`, - for stdin; then the gold links (or -g).",
        show_default=False,
    ),
]
Gold = Annotated[Path | None, _option(None, "Gold links; then all files are LINKS.", "FILE", "--gold -g")]
GoldBase = Annotated[
    Base | None,
    _option(_READING, "First position in GOLD [dim](default: 0, of numbered lines 1)[/dim].", "0|1"),
]
LinksBase = Annotated[Base | None, _option(_READING, "First position in LINKS.", "0|1")]
ReverseGold = Annotated[bool, _option(_READING, "GOLD has the target first.", names="--reverse-gold")]
ReverseLinks = Annotated[bool, _option(_READING, "LINKS have the target first.", names="--reverse-links")]
Source = Annotated[Path | None, _option(_READING, "Source text with words between spaces.", "FILE", "--source -s")]
Target = Annotated[Path | None, _option(_READING, "Its translation, likewise.", "FILE", "--target -t")]
Method = Annotated[LinkMethod | None, _option(_READING, "Read the links of an .h5 from its weights.")]
Threshold = Annotated[float | None, _option(_READING, "Smallest weight of a link, for --links-method threshold.", "P")]
ByLength = Annotated[bool, _option(_FIGURES, "A table by words of the source.", names="--by-length")]
Buckets = Annotated[str | None, _option(_FIGURES, "Upper limits of its rows (10,20,30,40,50,60).", "N,N,...")]
ByType = Annotated[
    bool, _option(_FIGURES, "A table by type: monotone, reordered, many-to-one, NULL, ...", names="--by-type")
]
Worst = Annotated[int, _option(_FIGURES, "The N sentences with the highest AER.", "N", min=0)]
Alpha = Annotated[float | None, _option(_FIGURES, "Also F = 1/(A/precision + (1-A)/recall).", "A", min=0, max=1)]
Format = Annotated[Literal["text", "json", "csv"], _option(_FIGURES, "Output format.")]


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
    """Compare links with gold links: precision, recall, alignment error rate (AER) and F1.

    AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) of found links A, sure gold links S
    and possible ones P, which include the sure ones. Precision is |A∩P| / |A|,
    recall |A∩S| / |S|; possible links in LINKS count as found. A file has one
    line per pair (Pharaoh: 0-0 sure, 0p0 or 0?0 possible; from 0) or one line
    per link (NAACL/WPT 2003: 0001 1 1 S, or P, or neither for sure; from 1),
    source first. The signature records how the files were read.

    Types, each among the links of its own side: a reordered link crosses
    another one, a monotone link does not; many-to-one has a target word with
    other links, one-to-many a source word with others, one-to-one neither,
    many-to-many both. A NULL word has no link. Without texts or an .h5 the
    length of a sentence is its largest gold position.

    Examples:

      nmtalign aer links.txt test.gold

      nmtalign aer alignments.h5 test.gold --by-length --by-type --worst 5

      nmtalign aer ours=a.h5 theirs=links.txt -g test.gold --format csv

      nmtalign align a.en a.fr --pharaoh | nmtalign aer - gold.wpt --gold-base 1
    """
    workspace = load_workspace(config)
    systems, gold = _files(workspace, files or [], gold, (source, target))
    settings = workspace.resolve(ScoreConfig, "score", {"buckets": buckets})

    from nmtalign.alignment import evaluation
    from nmtalign.scoring.buckets import parse_buckets

    bounds = parse_buckets(settings.buckets) if by_length or buckets else None
    found = evaluation.aer(
        systems, gold, links_base=_number(links_base), gold_base=_number(gold_base), reverse_links=reverse_links,
        reverse_gold=reverse_gold, source=source, target=target, method=links_method, threshold=threshold,
    )  # fmt: skip
    for note in found.notes:
        notifier(quiet)(note)
    _PRINTERS[format](found.systems, _Wanted(bounds, by_type, worst, alpha))


def _number(base: Base | None) -> int | None:
    return None if base is None else int(base)


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


class _Wanted(NamedTuple):
    """What is printed besides the figures of all pairs."""

    buckets: "Sequence[Bucket] | None"
    by_type: bool
    worst: int
    alpha: float | None

    def row(self, figures: "LinkFigures") -> Figures:
        """Returns the figures by name."""
        more: Figures = {} if self.alpha is None else {"f_alpha": figures.f_alpha(self.alpha)}
        return asdict(figures) | more

    def length_rows(self, system: "LinkEvaluation") -> list[Figures]:
        """Returns one row per bucket of source lengths."""
        return [{"words": label, **self.row(figures)} for label, figures in system.by_length(self.buckets or ())]

    def type_rows(self, system: "LinkEvaluation") -> list[Figures]:
        """Returns one row per type of link."""
        types = system.by_type() if self.by_type else {}
        return [{"type": name} | {key: getattr(counts, key) for key in _TYPE_KEYS} for name, counts in types.items()]

    def worst_rows(self, system: "LinkEvaluation") -> list[Figures]:
        """Returns one row per bad sentence, with lines counted from 1 and links as text."""
        from nmtalign.alignment.evaluation import figures_of

        return [
            {"line": one.number + 1, **self.row(figures_of([one.counts]))}
            | {"wrong": [system.shown_link(one.number, link) for link in one.wrong]}
            | {"missed": [system.shown_link(one.number, link) for link in one.missed]}
            for one in system.worst(self.worst)
        ]


def _print_json(systems: "Sequence[LinkEvaluation]", wanted: _Wanted) -> None:
    """Prints one object per system."""
    for system in systems:
        record: dict[str, object] = {"name": system.name, **wanted.row(system.figures)}
        if wanted.alpha is not None:
            record["alpha"] = wanted.alpha
        if wanted.buckets is not None:
            record |= {"lengths_from": system.lengths_from, "by_length": wanted.length_rows(system)}
        if wanted.by_type:
            record |= {"lengths_from": system.lengths_from, "by_type": wanted.type_rows(system)}
        if wanted.worst:
            record["worst"] = wanted.worst_rows(system)
        sys.stdout.write(json_text(record | {"signature": system.signature}) + "\n")


def _print_csv(systems: "Sequence[LinkEvaluation]", wanted: _Wanted) -> None:
    """Prints one line per row of figures: `part` (all, length, type, sentence), and `label` within the part."""
    keys = ["pairs", "sure", "links", "links_sure", "links_possible", *_RATES]
    keys += ["f_alpha"] if wanted.alpha is not None else []
    names = ["name", "part", "label", *keys, "signature"]
    writer = csv.DictWriter(sys.stdout, names, restval="", extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for system in systems:
        name = {"name": system.name}
        writer.writerow({**name, "part": "all", **wanted.row(system.figures), "signature": system.signature})
        for row in wanted.length_rows(system):
            writer.writerow({**name, "part": "length", "label": row["words"], **row})
        for row in wanted.type_rows(system):
            counts = {"sure": row["gold"], "links": row["found"], "links_sure": row["recalled"]}
            counts |= {"links_possible": row["right"], "precision": row["precision"], "recall": row["recall"]}
            writer.writerow({**name, "part": "type", "label": row["type"], **counts})
        for row in wanted.worst_rows(system):
            writer.writerow({**name, "part": "sentence", "label": row["line"], **row})


def _print_text(systems: "Sequence[LinkEvaluation]", wanted: _Wanted) -> None:
    """Prints one row per system, their signatures, then the other tables of each."""
    head, keys = ["found", "precision", "recall", "AER", "F1"], ["links", *_RATES]
    if wanted.alpha is not None:
        head, keys = [*head, f"F({wanted.alpha:g})"], [*keys, "f_alpha"]
    first = systems[0]
    possible = sum(len(pair.possible) for pair in first.gold)
    sys.stdout.write(
        f"pairs: {first.figures.pairs}  gold: {first.figures.sure} sure links, {possible} with the possible ones\n"
    )
    _print_table(["links of", *head], [[one.name, *_cells(wanted.row(one.figures), keys)] for one in systems])
    sys.stdout.writelines(f"{escaped(system.signature)}\n" for system in systems)
    for system in systems:
        of, origin = f" of {escaped(system.name)}" if len(systems) > 1 else "", escaped(system.lengths_from)
        if wanted.buckets is not None:
            sys.stdout.write(f"\nby words of the source ({origin}){of}:\n")
            columns = ["words", "pairs", "sure", *keys]
            _print_table(
                ["words", "pairs", "sure", *head], [_cells(row, columns) for row in wanted.length_rows(system)]
            )
        if wanted.by_type:
            sys.stdout.write(f"\nby type of link, and words without one ({origin}){of}:\n")
            columns = ["type", *_TYPE_KEYS]
            _print_table(columns, [_cells(row, columns) for row in wanted.type_rows(system)])
        if wanted.worst:
            _print_worst(wanted.worst_rows(system), of)


def _print_worst(rows: list[Figures], of: str) -> None:
    sys.stdout.write(f"\nthe worst sentences{of}:\n" if rows else f"\nno sentence{of} has a mistake\n")
    for row in rows:
        sys.stdout.write(f"line {row['line']}  AER {row['aer']:.4f}\n")
        for name in ("wrong", "missed"):
            sys.stdout.write(f"  {name}: {escaped(', '.join(row[name])) or '-'}\n")


def _cells(row: Figures, keys: Sequence[str]) -> list[str]:
    values = [row[key] for key in keys]
    return ["-" if value is None else f"{value:.4f}" if isinstance(value, float) else str(value) for value in values]


def _print_table(head: list[str], rows: list[list[str]]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in aligned(Table(head, rows)))


_PRINTERS = {"text": _print_text, "json": _print_json, "csv": _print_csv}
