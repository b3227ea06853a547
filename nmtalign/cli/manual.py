"""The manual of all commands, options, keys of nmtalign.toml and exit codes, made from their definitions.

`python -m nmtalign.cli.manual > nmtalign/docs/manual.md` writes the page that is shipped.
"""

import inspect
import re
import sys
from collections.abc import Iterator
from typing import Any, get_args

import typer

from nmtalign import errors
from nmtalign.cli.commands import COMMANDS, app
from nmtalign.cli.options import RENAMED, metavar
from nmtalign.settings.definition import SECTIONS, Setting, toml
from nmtalign.settings.presets import PRESETS

_MARKUP = re.compile(r"(?<!\\)\[/?[a-z]+\]")


def manual() -> str:
    """The manual as Markdown."""
    return "\n".join([*_introduction(), *_commands(), *_sections(), *_presets(), *_exit_codes()]).rstrip() + "\n"


def _introduction() -> list[str]:
    return [
        "# Manual",
        "",
        "This page is generated from the definitions of the commands and settings.",
        "",
        "Precedence of settings: command-line option, then `nmtalign.toml`, then preset, then default.",
        "`--show-settings` prints all settings of a command and their origins, in the notation of `nmtalign.toml`.",
        "`--help` lists the common options, `--help-all` all of them.",
        "",
    ]


def _commands() -> Iterator[str]:
    group: Any = typer.main.get_command(app)
    for name, (_, function) in COMMANDS.items():
        command = group.commands[name]
        yield from (f"## nmtalign {name}", "", _plain(command.help), "")
        kinds = {one.name: one.annotation for one in inspect.signature(function, eval_str=True).parameters.values()}
        options = [one for one in command.params if one.name in kinds and one.param_type_name == "option"]
        arguments = [one for one in command.params if one.param_type_name == "argument"]
        rows = [_option(one, kinds[one.name]) for one in options]
        for title, found in (("Argument", [_argument(one) for one in arguments]), ("Option", rows)):
            if found:
                yield from (f"| {title} | Meaning |", "|---|---|", *found, "")
        for old, new in RENAMED.get(name, {}).items():
            yield from (f"`{old}` is the old name of `{new}`; it will be removed in the next release.", "")


def _argument(one: Any) -> str:
    return f"| `{one.metavar or one.name.upper()}` | {_cell(one.help or '')} |"


def _option(one: Any, kind: Any) -> str:
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    choices = "|".join(map(str, Setting("", "", kind=get_args(kind)[0]).choices))
    value = "" if one.is_flag else f" `{one.metavar or choices or 'VALUE'}`"
    return f"| {names}{_escaped(value)} | {_cell(one.help or '')}{_default(one)} |"


def _default(one: Any) -> str:
    """The default of an option that is no setting."""
    return f" [default: {one.default}]" if one.default not in (None, False, True, ()) and not one.is_flag else ""


def _sections() -> Iterator[str]:
    yield from ("## nmtalign.toml", "", "Relative paths start at the folder of the file.", "")
    for name, settings in SECTIONS.items():
        yield from (f"### [{name}]", "", "| Key | Value | Default | Meaning |", "|---|---|---|---|")
        yield from (_key(one) for one in settings.values())
        yield ""


def _key(one: Setting) -> str:
    kind = "true, false" if one.base is bool else ", ".join(one.choices) or metavar(one)
    bounds = [
        text.format(f"{bound:.10g}")
        for text, bound in (
            ("at least {}", one.lowest),
            ("above {}", one.above),
            ("at most {}", one.at_most),
            ("below {}", one.below),
        )
        if bound is not None and one.base in (int, float)
    ]
    default = one.unset or f"`{toml(one.default)}`"
    return f"| `{one.name}` | {_cell(', '.join([kind, *bounds]))} | {_cell(default)} | {_cell(one.help)} |"


def _presets() -> Iterator[str]:
    yield from ("## Presets", "", "`nmtalign train --preset NAME --show-settings` prints all settings of a preset.", "")
    for name, values in PRESETS.items():
        yield from (f"- `{name}`: {', '.join(f'{key} = {toml(value)}' for key, value in values.items())}",)
    yield ""


def _exit_codes() -> Iterator[str]:
    yield from ("## Exit codes", "")
    table = re.findall(r"^\|.*\|$", inspect.getdoc(errors) or "", re.MULTILINE)
    yield from table


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
