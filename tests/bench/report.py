"""Tables for people and JSON for programs."""

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from nmtalign.text.text_table import aligned


@dataclass
class Table:
    """Rows of formatted cells; the first column is aligned to the left, the others to the right."""

    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    note: str = ""


def show(tables):
    """Prints to stdout as aligned text."""
    sys.stdout.write("\n".join(map(plain, tables)) + "\n")
    sys.stdout.flush()


def plain(table):
    """Returns the table as text, with two spaces between columns."""
    columns = list(zip(table.columns, *table.rows, strict=True))
    return "\n".join([table.title, *aligned(columns), *([table.note] if table.note else []), ""])


def say(message):
    """Prints one line of progress to stderr."""
    sys.stderr.write(f"bench: {message}\n")
    sys.stderr.flush()


def write_json(path, results):
    """Writes the results, atomically if to a file; `-` is stdout."""
    text = json.dumps(results, indent=1, ensure_ascii=False) + "\n"
    if str(path) == "-":
        sys.stdout.write(text)
        return
    from nmtalign.files import atomic_text

    with atomic_text(path) as stream:
        stream.write(text)


def figure(value, digits=0):
    """Formats a number with separated thousands; a dash for None."""
    return "-" if value is None else f"{value:,.{digits}f}"


def percent(value):
    """Formats a share as a whole percentage; a dash for None."""
    return "-" if value is None else f"{100 * value:.0f}%"


def times(value):
    """Formats a ratio such as 3.4 x; a dash for None."""
    return "-" if value is None else f"{value:.2f} x"


def complaint_in(lines):
    """Returns the line that says why a program failed: nmtalign's error line, else the last line."""
    words = [line.strip() for line in lines if line.strip()]
    errors = [line.partition(": error: ")[2] for line in words if ": error: " in line]
    return (errors or words[-1:] or ["it printed nothing"])[0][:300]
