"""`nmtalign aer`: links compared with gold links."""

import csv
import sys
from pathlib import Path

import nmtalign
from nmtalign.cli import common
from nmtalign.cli.common import QUIET, own_argument, own_option
from nmtalign.cli.options import Chosen, with_settings
from nmtalign.errors import UsageError
from nmtalign.report.document import DataTable, Span
from nmtalign.settings.command_settings import AerConfig
from nmtalign.text.lines import STDIN, as_json

_ALIGNMENTS = Path("alignments.h5")
_COLUMNS = ("name", "links", "precision", "recall", "aer", "f1")
_HEADS = ("links of", "found", "precision", "recall", "AER", "F1")


@with_settings(AerConfig)
def aer(
    chosen: Chosen[AerConfig],
    files: list[Path] | None = own_argument(
        "[NAME=]LINKS... GOLD",
        "Links: text, .gz, .h5 of `align`, - is stdin (default: alignments.h5); gold links (default: the workspace's).",
    ),
    gold: Path | None = own_option("Gold links; then all files are LINKS.", "FILE", "--gold -g"),
    source: Path | None = own_option(
        "Raw source text, if LINKS count its words between spaces and GOLD counts tokens.", "FILE", "--source -s"
    ),
    target: Path | None = own_option("Its translation, line by line.", "FILE", "--target -t"),
    quiet: bool = QUIET,
) -> None:
    """Compare links with gold links: precision, recall, alignment error rate (AER) and F1.

    AER = 1 - (|A∩S| + |A∩P|) / (|A| + |S|) of found links A, sure gold links S and possible ones P, which include the
    sure ones. Precision is |A∩P| / |A|, recall |A∩S| / |S|; possible links in LINKS count as found. A file has one line
    per pair (Pharaoh: 0-0 sure, 0p0 or 0?0 possible; from 0) or one line per link (NAACL/WPT 2003: 0001 1 1 S, or P, or
    neither for sure; from 1), source first. The signature records how the files were read.

    Examples:
      nmtalign aer links.txt test.gold
      nmtalign aer ours=a.h5 theirs=links.txt -g test.gold --format csv
      nmtalign align a.en a.fr --pharaoh | nmtalign aer - gold.wpt --gold-base 1
    """
    settings, files = chosen.settings, files or []
    if gold is None:
        gold = files.pop() if len(files) > 1 else chosen.workspace.gold
    elif not files and not sys.stdin.isatty():
        files = [STDIN]
    if not files and _ALIGNMENTS.exists():
        files = [_ALIGNMENTS]
    if gold is None or not files:
        raise UsageError("give found links and gold links: nmtalign aer LINKS GOLD")
    systems = common.name_files(files)
    texts = tuple((first, second) for first, second in chosen.workspace.pairs.values() if second)
    with common.live_line("comparing the links", quiet):
        found = nmtalign.aer(systems, gold, source=source, target=target, others=texts, config=settings)
    for note in found.notes:
        common.notifier(quiet)(note)
    records = [
        {"name": one.name, **vars(one.figures), **one.figures.rates(), "signature": one.signature}
        for one in found.systems
    ]
    if settings.format == "json":
        sys.stdout.writelines(f"{as_json(record)}\n" for record in records)
    elif settings.format == "csv":
        writer = csv.DictWriter(sys.stdout, list(records[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(records)
    else:
        sure, possible = sum(len(pair.sure) for pair in found.gold), sum(len(pair.possible) for pair in found.gold)
        sys.stdout.write(f"pairs: {len(found.gold)}  gold: {sure} sure links, {possible} with the possible ones\n")
        shown = [[f"{one:.4f}" if isinstance(one, float) else one for one in map(row.get, _COLUMNS)] for row in records]
        cells = [[Span("-" if one is None else common.escaped(str(one))) for one in row] for row in shown]
        common.print_table(DataTable(_HEADS, cells))
        sys.stdout.writelines(f"{common.escaped(system.signature)}\n" for system in found.systems)
