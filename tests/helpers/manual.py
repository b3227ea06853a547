"""The manual of all commands, options, keys of nmtalign.toml and exit codes, made from their definitions.

`python tests/helpers/manual.py > nmtalign/docs/manual.md` writes the page that is shipped.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args

import typer

from nmtalign import errors
from nmtalign.cli.commands import app
from nmtalign.cli.options import metavar
from nmtalign.settings.definition import SECTIONS, Setting, toml
from nmtalign.settings.presets import PRESETS

_MARKUP = re.compile(r"(?<!\\)\[/?[a-z]+\]")  # of rich
_INTRODUCTION = """\
# Manual

This page is generated from the definitions of the commands and settings.

Precedence of settings: command-line option, then `nmtalign.toml`, then preset, then default.
`--show-settings` prints all settings of a command and their origins, in the notation of `nmtalign.toml`.
`--help` lists the common options, `--help-all` all of them.
"""


def manual() -> str:
    """The manual as Markdown."""
    return "\n".join([_INTRODUCTION, *_commands(), *_sections(), *_presets(), *_exit_codes()]).rstrip() + "\n"


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    info: Any
    for info in app.registered_commands:
        name, parameters = str(info.name), inspect.signature(info.callback, eval_str=True).parameters
        command = group.commands[name]
        yield from (f"## nmtalign {name}", "", _plain(command.help), "")
        for title, kind in (("Argument", "argument"), ("Option", "option")):
            found = [one for one in command.params if one.param_type_name == kind and one.name in parameters]
            if found:
                yield from (
                    f"| {title} | Meaning |",
                    "|---|---|",
                    *(_row(one, parameters[one.name].annotation) for one in found),
                    "",
                )


def _row(one: Any, annotation: Any) -> str:
    """The row of an argument or an option; an option that is not a setting has a default of its own."""
    if one.param_type_name == "argument":
        return f"| `{one.metavar or one.name.upper()}` | {_cell(one.help or '')} |"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    choices = "|".join(Setting("", "", kind=get_args(annotation)[0]).choices)
    value = "" if one.is_flag else f" `{one.metavar or choices or 'VALUE'}`"
    default = "" if one.is_flag or one.default in (None, ()) else f" [default: {one.default}]"
    return f"| {names}{_escaped(value)} | {_cell(one.help or '')}{default} |"


def _sections() -> Iterator[str]:
    yield from ("## nmtalign.toml", "", "Relative paths start at the folder of the file.", "")
    for name, settings in SECTIONS.items():
        yield from (f"### [{name}]", "", "| Key | Value | Default | Meaning |", "|---|---|---|---|")
        yield from (_key(one) for one in settings.values())
        yield ""


def _key(one: Setting) -> str:
    kind = "true, false" if one.base is bool else ", ".join(one.choices) or metavar(one)
    limits = (("at least", one.lowest), ("above", one.above), ("at most", one.at_most), ("below", one.below))
    bounds = [f"{name} {limit:.10g}" for name, limit in limits if limit is not None and one.base in (int, float)]
    default = one.unset or f"`{toml(one.default)}`"
    return f"| `{one.name}` | {_cell(', '.join([kind, *bounds]))} | {_escaped(default)} | {_cell(one.help)} |"


def _presets() -> Iterator[str]:
    yield from ("## Presets", "", "`nmtalign train --preset NAME --show-settings` prints all settings of a preset.", "")
    for name, values in PRESETS.items():
        yield f"- `{name}`: {', '.join(f'{key} = {toml(value)}' for key, value in values.items())}"
    yield ""


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "", *re.findall(r"^\|.*\|$", inspect.getdoc(errors) or "", re.MULTILINE))


def _plain(text: str) -> str:
    """Help without rich's markup; examples as code."""
    text = _MARKUP.sub("", text).replace("\\[", "[")
    return re.sub(r"^ +(\S.*)$", r"    \1", text, flags=re.MULTILINE).strip()


def _cell(text: str) -> str:
    return _escaped(_plain(" ".join(text.split())).replace("<", "&lt;"))


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(manual())
