"""The manual of all commands, options, settings and exit codes, made from their definitions.

`python tests/helpers/manual.py > nmtalign/docs/manual.md` writes the page that is shipped.
"""

import inspect
import re
import sys

from nmtalign import errors
from nmtalign.cli.app import COMMANDS
from nmtalign.cli.options import load_command, metavar
from nmtalign.settings.definition import SECTIONS, Setting, plain, toml
from nmtalign.settings.presets import AUTO, PRESETS

_MARKUP = re.compile(r"(?<!\\)\[/?[a-z]+\]")  # of rich
_INTRODUCTION = """\
# Manual

This page is generated from the definitions of the commands and settings.

A setting is a key of `nmtalign.toml`, a keyword argument in Python, and `--set NAME=VALUE` on the command line.
Settings that are needed often are options, too.
Precedence: command line, then `nmtalign.toml`, then preset, then default.
`--show-settings` prints all settings of a command and their origins, in the notation of `nmtalign.toml`.
"""
_EVERYWHERE = ("config", "show_settings", "assigned", "quiet")  # parameters that most commands have


def manual():
    """The manual as Markdown."""
    return "\n".join([_INTRODUCTION, *_commands(), *_sections(), *_presets(), *_exit_codes()]).rstrip() + "\n"


def _commands():
    yield from ("## Commands", "", "These options are the same for all commands that have them:", "")
    everywhere = {one.name: one for one in load_command("prep").params}
    yield from ("| Option | Meaning |", "|---|---|")
    for name in _EVERYWHERE:
        yield _row(everywhere[name], bool)
    yield ""
    for name in COMMANDS:
        command = load_command(name)
        parameters = inspect.signature(inspect.unwrap(command.callback), eval_str=True).parameters
        settings = [f"`{one}`" for one in _options(name)]
        yield from (f"### nmtalign {name}", "", _plain(command.help).partition("\n\n")[0], "")
        own = [one for one in command.params if one.name in parameters and one.name not in _EVERYWHERE]
        yield from ("| Argument or option | Meaning |", "|---|---|")
        yield from (_row(one, parameters[one.name].annotation) for one in own)
        if settings:
            yield f"| {', '.join(settings)} | [settings](#{name}) |"
        yield ""


def _options(command):
    """The options of the settings of a command."""
    there = {name for one in load_command(command).params for name in one.opts}
    for one in SECTIONS.get(command, {}).values():
        if one.common and one.options[0] in there:
            yield from one.options


def _row(one, annotation):
    """The row of an argument or an option of a command."""
    if one.param_type_name == "argument":
        return f"| `{one.metavar or one.name.upper()}` | {_cell(one.help or '')} |"
    names = ", ".join(f"`{name}`" for name in (*one.opts, *one.secondary_opts))
    choices = "|".join(Setting("", kind=annotation).choices)
    value = "" if one.is_flag else f" `{one.metavar or choices or 'VALUE'}`"
    default = "" if one.is_flag or one.default in (None, "", (), []) else f" [default: {one.default}]"
    return f"| {names}{_escaped(value)} | {_cell(one.help or '')}{default} |"


def _sections():
    yield from ("## nmtalign.toml", "", "Relative paths start at the folder of the file.")
    yield from ("Settings with a star are options, too.", "")
    for name, settings in SECTIONS.items():
        yield from (f"### [{name}]", "", "| Key | Value | Default | Meaning |", "|---|---|---|---|")
        yield from (_key(one) for one in settings.values())
        yield ""


def _key(one):
    kind = "true, false" if one.base is bool else ", ".join(one.choices) or metavar(one)
    least = ("at least", one.at_least) if one.above is None else ("above", one.above)
    limits = (least, ("at most", one.at_most), ("below", one.below))
    bounds = [f"{name} {plain(limit)}" for name, limit in limits if limit is not None and one.base in (int, float)]
    default = one.unset or f"`{toml(one.default)}`"
    since = f" Since {one.since}." if one.since else ""
    star = "*" if one.common else ""
    values = _cell(", ".join([kind, *bounds]))
    return f"| `{one.name}`{star} | {values} | {_escaped(default)} | {_cell(one.help)}{since} |"


def _presets():
    yield from ("## Presets", "", "`nmtalign train --preset NAME --show-settings` prints all settings of a preset.", "")
    small = PRESETS["small"]
    for name, values in PRESETS.items():
        based = name != "small" and small.keys() <= values.keys()
        own = [f"{key} = {toml(value)}" for key, value in values.items() if not based or small.get(key) != value]
        own += ["what it chooses by corpus, budget and speed"] if name == AUTO else []
        yield f"- `{name}`: {'`small` with ' * based}{', '.join(own)}"
    yield ""


def _exit_codes():
    yield from ("## Exit codes", "", "| exit code | error | meaning |", "|---|---|---|", "| 0 | | done |")
    for one in (errors.NmtalignError, *errors.NmtalignError.__subclasses__()):
        if one.__module__ == errors.__name__:
            meaning = inspect.getdoc(one).partition("\n")[0].removesuffix(".")
            yield f"| {one.exit_code} | {one.__name__} | {meaning[0].lower()}{meaning[1:]} |"
    yield "| 129 | | ended by SIGHUP (terminal closed); finished work is kept |"
    yield "| 130 | | interrupted (Ctrl-C); finished work is kept |"
    yield "| 143 | | ended by SIGTERM; finished work is kept |"


def _plain(text):
    """Help without rich's markup."""
    return _MARKUP.sub("", text).replace("\\[", "[").strip()


def _cell(text):
    return _escaped(_plain(" ".join(text.split())).replace("<", "&lt;"))


def _escaped(text):
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(manual())
