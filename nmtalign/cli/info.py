"""`nmtalign info`: what a model, a corpus or an alignment file holds."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from nmtalign.api import describe
from nmtalign.cli.common import escaped, json_text
from nmtalign.errors import FormatError


def info(
    path: Annotated[
        Path, typer.Argument(help="Model directory, folder of prep, or alignment file.", show_default=False)
    ],
    format: Annotated[Literal["text", "json"], typer.Option(help="How to print it.")] = "text",
) -> None:
    """Say what a model, a prepared corpus or an alignment file holds.

    Examples:

      nmtalign info model/

      nmtalign info data/ --format json
    """
    facts = describe(path)
    if format == "json":
        sys.stdout.write(json_text(facts, indent=2, allow_nan=True) + "\n")
    else:
        sys.stdout.writelines(f"{line}\n" for line in _lines(facts))
    if damaged := _damaged(facts):
        raise FormatError(f"{path}: damaged: {'; '.join(damaged)}")


def _damaged(facts: Mapping[str, Any]) -> list[str]:
    """Each damaged file of a model, and what is wrong with it."""
    files = facts.get("files", {})
    return [f"{name} ({said['damaged']})" for name, said in files.items() if "damaged" in said]


def _lines(facts: Mapping[str, Any], indent: str = "") -> list[str]:
    """`name: value` lines, nested facts indented."""
    lines = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            lines += [f"{indent}{escaped(str(name))}:", *_lines(value, indent + "  ")]
        else:
            shown = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
            lines.append(f"{indent}{escaped(str(name))}: {escaped(shown)}")
    return lines
