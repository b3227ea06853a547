"""Progress on stderr, if that is a terminal."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


def counted(items: Iterable[T], doing: str, unit: str, quiet: bool) -> Iterator[T]:
    """Yields the items and shows how many there were, as in "aligning: 2,000 pairs"; shows nothing if `quiet`."""
    with status_line(doing, quiet) as show:
        for number, item in enumerate(items, 1):
            yield item
            show(f"{doing}: {number:,} {unit}")


@contextmanager
def status_line(text: str, quiet: bool) -> Iterator[Callable[[str], None]]:
    """Shows `text` with a clock on stderr and yields a function that replaces it; nothing without a terminal."""
    if quiet or not sys.stderr.isatty():
        yield lambda text: None
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn()
    with Progress(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task(escape(text), total=None)
        yield lambda text: display.update(task, description=escape(text))
