"""Tables of buckets by systems, cut into groups of rows, with small bars that one scale holds for."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat

from nmtalign.scoring.page.markup import NO_VALUE, apart, count, row, table, tag, text
from nmtalign.scoring.report import Interval, Report

_SHORT = 11  # letters of a label that are kept in one line


@dataclass(frozen=True)
class Group:
    """Rows of one quantity: a title, and for every bucket a cell a system."""

    title: str  # markup
    rows: Sequence[Sequence[str]]  # markup


def grid(
    key: str, caption: str, report: Report, buckets: tuple[str, Sequence[str]], sizes: tuple[str, Sequence[int]] | None,
    groups: Iterable[Group],
) -> str:  # fmt: skip
    """A table with a row a bucket in every group and a column a system; `buckets` and `sizes` are (heading, column).

    A bucket in which no system has a figure stands in the first group alone.
    """
    heading, labels = buckets
    head = [tag("th", text(heading), scope="col")]
    head += [tag("th", text(sizes[0]), scope="col", class_="size")] if sizes else []
    head += [tag("th", apart(system.name), scope="col") for system in report.systems]
    rows = zip(labels, sizes[1] if sizes else repeat(None, len(labels)), strict=True)
    heads = [_row_heads(label, size) for label, size in rows]
    bodies = [_body(group, heads, len(head), whole=not number) for number, group in enumerate(groups)]
    style = f"--systems: {len(report.systems)}"
    return table(key, caption, [row(head)], bodies, class_="grid", style=style)


def _row_heads(label: str, size: int | None) -> str:
    short = "short" if len(label) <= _SHORT else None
    head = tag("th", text(label), scope="row", class_=short)
    return head if size is None else head + tag("td", count(size), class_="size")


def _body(group: Group, heads: Sequence[str], width: int, *, whole: bool) -> str:
    """The rows of a group; unless it is to be whole, without those that say nothing."""
    title = tag("th", tag("span", group.title), scope="rowgroup", colspan=width, class_="group")
    rows = [row([title])]
    for head, cells in zip(heads, group.rows, strict=True):
        if whole or any(cell != NO_VALUE for cell in cells):
            rows.append(row([head, *(tag("td", cell) for cell in cells)]))
    return tag("tbody", "".join(rows))


def top_of(values: Iterable[float | None], intervals: Iterable[Interval | None] = ()) -> float:
    """The end of a scale that begins at 0 and holds all of them."""
    known = [value for value in values if value is not None]
    return max([*known, *(interval.high for interval in intervals if interval)], default=0.0)


def bar(value: float | None, top: float, interval: Interval | None = None) -> str:
    """A bar from 0 to the value, its interval as a band; nothing that the figure beside it does not say."""
    if value is None or top <= 0:
        return ""
    shapes = _stretch("fill", 0, value / top)
    if interval:
        shapes += _stretch("band", interval.low / top, interval.high / top)
    return tag("svg", shapes, class_="bar", viewBox="0 0 100 6", preserveAspectRatio="none", aria_hidden="true")


def _stretch(kind: str, start: float, end: float) -> str:
    low, high = (min(max(100 * place, 0.0), 100.0) for place in (start, end))
    return tag("rect", class_=kind, x=f"{low:.2f}", y=0, width=f"{high - low:.2f}", height=6)


def value_cell(content: str | None, drawn: str = "", small: str = "") -> str:
    """A figure, a bar under it, and what is small under that."""
    if content is None:
        return NO_VALUE
    return content + drawn + (tag("div", small, class_="small") if small else "")
