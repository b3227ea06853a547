"""What the subcommands share: the --config option, stderr, progress."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

ConfigOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Workspace file [dim](default: nmtalign.toml here, if there)[/dim].",
        rich_help_panel="Workspace",
    ),
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="No progress and no summary on stderr.")]


def say(message: str) -> None:
    """One line for the person at the terminal: stderr, never stdout."""
    sys.stderr.write(f"nmtalign: {message}\n")
    sys.stderr.flush()


def notifier(quiet: bool) -> Callable[[str], None]:
    """`say`, or nothing."""
    return (lambda message: None) if quiet else say
