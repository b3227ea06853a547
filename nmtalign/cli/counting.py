"""Counting on stderr what passes by, where that is a terminal."""

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def counted(items: Iterable[T], doing: str, unit: str, quiet: bool) -> Iterator[T]:
    """Passes items on and shows how many there were, as in "aligning: 2,000 pairs"; nothing if `quiet`."""
    if quiet or not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn(f"{doing}: {{task.completed:,}} {unit}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task(doing, total=None)
        for item in items:
            yield item
            progress.advance(task)
