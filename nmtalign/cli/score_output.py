"""How `score` prints its report: a table on a terminal, aligned columns in a pipe, or JSON."""

import json
import sys

from nmtalign.scoring.report import Part, Report, Section

Table = list[list[str]]
SIGNATURE = "signature"


def print_json(report: Report) -> None:
    """One JSON object."""
    json.dump(report.record(), sys.stdout, ensure_ascii=False, indent=2, allow_nan=False)
    sys.stdout.write("\n")


def print_text(report: Report) -> None:
    """Counts, then a table of the metrics, then one by length for every section that has it."""
    whole, no_unk = report.everything, report.no_unk
    sys.stdout.write(f"sentences: {whole.whole.sentences}\n")
    if no_unk:
        sys.stdout.write(f"no unknown word: {no_unk.whole.sentences} of {whole.whole.sentences} sentences\n")
    _print_table(_metrics_table(report))
    for title, section in (("all", whole), ("no unknown word", no_unk)):
        if section and section.by_length is not None:
            sys.stdout.write(f"\nby words of the source ({title}):\n")
            _print_table(_length_table(report, section, section.by_length))


def _metrics_table(report: Report) -> Table:
    columns = [report.everything.whole.values]
    head = ["metric", "all"]
    if report.no_unk:
        columns.append(report.no_unk.whole.values)
        head.append("no-unk")
    rows = [
        [name, *map(_figure, values), signature]
        for name, values, signature in zip(report.names, zip(*columns, strict=True), report.signatures, strict=True)
    ]
    return [[*head, SIGNATURE], *rows]


def _length_table(report: Report, section: Section, parts: tuple[Part, ...]) -> Table:
    has_ratio = any(part.length_ratio is not None for part in parts)
    table = [["words", "sentences", *report.names, *(["ratio"] if has_ratio else [])]]
    for part in (*parts, section.whole):
        ratio = [_figure(part.length_ratio)] if has_ratio else []
        table.append([part.label, str(part.sentences), *map(_figure, part.values), *ratio])
    return table


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _print_table(table: Table) -> None:
    """Figures to the right, the first column and signatures to the left; two blanks or more between columns."""
    signed = table[0][-1] == SIGNATURE
    if sys.stdout.isatty():
        _print_rich([row[:-1] for row in table] if signed else table)
        if signed:  # under the table, where no column breaks them
            sys.stdout.writelines(f"{row[-1]}\n" for row in table[1:])
        return
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        cells = [text.rjust(width) for text, width in zip(row, widths, strict=True)]
        cells[0] = row[0].ljust(widths[0])
        if signed:
            cells[-1] = row[-1]
        sys.stdout.write("  ".join(cells) + "\n")


def _print_rich(table: Table) -> None:
    from rich.console import Console
    from rich.table import Table as RichTable

    drawn = RichTable()
    for number, name in enumerate(table[0]):
        drawn.add_column(name, justify="right" if number else "left")
    for row in table[1:]:
        drawn.add_row(*row)
    Console(markup=False, highlight=False).print(drawn)
