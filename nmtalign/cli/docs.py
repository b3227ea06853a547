"""`nmtalign docs`: lists or shows the documentation pages that are installed with nmtalign."""

import os
import sys
from importlib import resources
from typing import Annotated

from nmtalign.cli.common import own_argument
from nmtalign.errors import UsageError


def docs(
    page: Annotated[
        str | None, own_argument("PAGE", "Page to show [dim]\\[default: a list of all pages][/dim].")
    ] = None,
) -> None:
    """List the documentation pages, or show one page.

    On a terminal the page is formatted and shown by your pager ($PAGER, or less).
    In a pipe or a file it is plain Markdown.

    Examples:

      nmtalign docs

      nmtalign docs tutorial

      nmtalign docs formats > formats.md
    """
    files = (resources.files("nmtalign") / "docs").iterdir()
    pages = {file.name.removesuffix(".md"): file for file in files if file.name.endswith(".md")}
    if page is None:
        width = max(map(len, pages))
        for name in sorted(pages):
            with pages[name].open(encoding="utf-8") as stream:
                sys.stdout.write(f"{name:{width}}  {stream.readline().removeprefix('# ')}")
        return
    file = pages.get(page.removesuffix(".md"))
    if file is None:
        raise UsageError(f"there is no page '{page}': choose one of {', '.join(sorted(pages))}")
    text = file.read_text(encoding="utf-8")
    if sys.stdout.isatty():
        _show(text)
    else:
        sys.stdout.write(text)


def _show(text: str) -> None:
    """Formats Markdown for the terminal and passes it to the pager."""
    from rich.console import Console
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "-R")  # less shows colours only with this option
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
