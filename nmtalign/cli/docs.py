"""`nmtalign docs`: lists or shows the documentation pages that are installed with nmtalign."""

import os
import sys
from collections.abc import Mapping
from importlib import resources
from typing import Annotated

import typer

from nmtalign.errors import UsageError


def docs(
    page: Annotated[
        str | None, typer.Argument(metavar="PAGE", help="Page to show [dim](default: list all pages)[/dim].")
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
    pages = _pages()
    if page is None:
        width = max(map(len, pages), default=0)
        sys.stdout.writelines(f"{name:{width}}  {_title(text)}\n" for name, text in pages.items())
        return
    text = pages.get(page.removesuffix(".md"))
    if text is None:
        raise UsageError(f"there is no page '{page}': choose one of {', '.join(pages)}")
    if sys.stdout.isatty():
        _show(text)
    else:
        sys.stdout.write(text)


def _pages() -> Mapping[str, str]:
    """The text of each installed page by its name, in alphabetical order."""
    folder = resources.files("nmtalign") / "docs"
    found = sorted((file for file in folder.iterdir() if file.name.endswith(".md")), key=lambda file: file.name)
    return {file.name.removesuffix(".md"): file.read_text(encoding="utf-8") for file in found}


def _title(text: str) -> str:
    return text.partition("\n")[0].removeprefix("#").strip()


def _show(text: str) -> None:
    """Formats Markdown for the terminal and passes it to the pager."""
    from rich.console import Console
    from rich.markdown import Markdown

    os.environ.setdefault("LESS", "-R")  # less shows colours only with this option
    console = Console()
    with console.pager(styles=True):
        console.print(Markdown(text))
