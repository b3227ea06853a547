"""`nmtalign info`: what a model, a corpus or an alignment file contains, and what this machine offers."""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from nmtalign.api import describe
from nmtalign.cli.common import escaped, own_argument, own_flag, own_option, sleep_beside_others
from nmtalign.errors import FormatError, ResourceError, UsageError
from nmtalign.text.lines import as_json

_SETTINGS = "model", "training", "prep", "settings", "seed"


def info(
    path: Path | None = own_argument(
        "PATH",
        "Model directory, folder of prep, folder of link, or alignment file [dim]\\[default: this machine][/dim].",
    ),
    format: Literal["text", "json"] = own_option("Format of the description.", default="text"),
    card: bool = own_flag("Print a model card in Markdown instead.", "--card"),
) -> None:
    """Describe a model, a prepared corpus, an aligner or an alignment file, and check it for damage.

    Without PATH it describes this machine: processor, memory, devices, versions, and problems with their fixes.
    The exit code is 4 if a file is damaged, and 5 if nmtalign cannot run here.

    Examples:
      nmtalign info model/
      nmtalign info data/ --format json
      nmtalign info model/ --card > model/README.md
      nmtalign info
    """
    if card and path is None:
        raise UsageError("--card describes a model; give its folder, such as nmtalign info model/ --card")
    sleep_beside_others()
    facts = describe(path)
    if path is not None and card:
        from nmtalign.report.model_card import model_card

        sys.stdout.write(model_card(path, facts))
    elif format == "json":
        sys.stdout.write(as_json(facts, indent=2) + "\n")
    else:
        problems = {one["problem"]: one["fix"] for one in facts.get("problems", ())} or "none found"
        sys.stdout.writelines(_lines({**facts, "problems": problems} if path is None else facts))
    if damaged := [f"{name} ({file['damaged']})" for name, file in facts.get("files", {}).items() if "damaged" in file]:
        raise FormatError(f"{path}: damaged: {'; '.join(damaged)}")
    problems = facts.get("problems", ())
    if unusable := [f"{one['problem']} ({one['fix']})" for one in problems if one.get("unusable")]:
        raise ResourceError(f"nmtalign cannot run here: {'; '.join(unusable)}")


def _lines(facts: Mapping[str, Any], indent: str = "", exact: bool = False) -> Iterator[str]:
    """`name: value` lines; nested facts are indented. Settings have all their digits."""
    for name, value in facts.items():
        as_given = exact or name in _SETTINGS
        if isinstance(value, Mapping):
            yield f"{indent}{escaped(str(name))}:\n"
            yield from _lines(value, indent + "  ", as_given)
        else:
            yield f"{indent}{escaped(str(name))}: {escaped(str(value) if as_given else _shown(value))}\n"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if type(value) is int else str(value)
