"""Options of the commands, made from the definitions of the settings; `--help-all`, `--show-settings`, old names.

A command states its own arguments only:

    @with_settings(TranslateConfig, section="translate")
    def translate(chosen: Chosen[TranslateConfig], inputs: Inputs = None, quiet: QuietOption = False) -> None:

and is called with the resolved settings. `--help` lists at most 20 options: the common settings, and those of the
command's own options that are not hidden. `--help-all` lists all.
"""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand

from nmtalign.cli.common import ConfigOption, escaped, say
from nmtalign.errors import UsageError
from nmtalign.settings.definition import COMMAND_LINE, Layer, Setting, definitions, naming, option, toml
from nmtalign.settings.presets import PRESETS, all_layers, preset, settings_of
from nmtalign.settings.workspace import Workspace, given, load_workspace

P = ParamSpec("P")
T = TypeVar("T")

DEFAULT_PRESET = "small"
# Options that were renamed, by command; the old names will be removed in the next release.
RENAMED: Mapping[str, Mapping[str, str]] = {
    "translate": {"--alignments": "--save-alignments", "--alignments-of": "--save-alignments-of"},
    "score-pairs": {"--n-best": "--n-best-list"},
    "score": {
        "--no-unk": "--known-words",
        "--with-unk": "--all-words",
        "--output": "--save-translation",
        "-o": "--save-translation",
        "--alignments": "--attention-from",
    },
}
# Options that exist no more, by command, and what to do instead.
REMOVED: Mapping[str, Mapping[str, str]] = {
    "score": {
        "--comet": "compute COMET with its own command, and give its scores, one per line, with "
        "--segment-scores COMET=FILE",
        "--tokenized": "multi-bleu is printed by default if the language is known; else give --target-language, or "
        "--metrics multi-bleu --tokenize none for tokenised text",
    },
}


@dataclass(frozen=True)
class Chosen(Generic[T]):
    """The settings of one run of a command, and where they come from (the last layer has the highest precedence)."""

    settings: T
    workspace: Workspace
    layers: tuple[Layer, ...]
    preset: str = ""

    def naming(self) -> Any:
        """A context in which errors name settings as the user wrote them."""
        return naming(*self.layers)


def with_settings(
    *classes: type, section: str, only: Sequence[str] = ()
) -> Callable[[Callable[Concatenate[Chosen[Any], P], None]], Callable[..., None]]:
    """Gives a command the settings of `classes`, or `only` some of them, as options; it gets them as a `Chosen`.

    `Chosen.settings` is an instance of the class, or a tuple if there are several.
    """
    found = {name: one for cls in classes for name, one in definitions(cls).items() if not one.internal}
    found = {name: one for name, one in found.items() if not only or name in only}

    def decorate(command: Callable[Concatenate[Chosen[Any], P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            config, show, _ = (arguments.pop(name) for name in ("config", "show_settings", "help_all"))
            workspace = load_workspace(config)
            flags = {name: arguments.pop(name) for name in found}
            chosen = _choose(classes, workspace, section, flags, found, arguments)
            if show:
                sys.stdout.write(_shown(chosen, classes, section, found))
            else:
                command(chosen, **arguments)  # type: ignore[call-arg]

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        made = [_parameter(one, section) for one in found.values()]
        run.__signature__ = inspect.Signature([*own, *made, *_ALWAYS])  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in (*own, *made, *_ALWAYS)}
        return run

    return decorate


def _choose(
    classes: Sequence[type],
    workspace: Workspace,
    section: str,
    flags: Mapping[str, Any],
    found: Mapping[str, Setting],
    arguments: dict[str, Any],
) -> Chosen[Any]:
    """Resolves the settings: option, then nmtalign.toml, then preset, then default."""
    origin, values = workspace.section(section)
    layers: tuple[Layer, ...] = ((origin, {key: value for key, value in values.items() if key in found}), given(flags))
    name = ""
    if "preset" in arguments:
        name = workspace.preset(arguments.pop("preset"))
        layers = (f"preset {name}", preset(name)), *layers
    settings: tuple[Any, ...] = tuple(settings_of(cls, *layers) for cls in classes)
    return Chosen(settings if len(settings) > 1 else settings[0], workspace, layers, name)


def _shown(chosen: Chosen[Any], classes: Sequence[type], section: str, found: Mapping[str, Setting]) -> str:
    """The settings as a section of nmtalign.toml; a comment names the origin of each."""
    settings = chosen.settings if isinstance(chosen.settings, tuple) else (chosen.settings,)
    rows = [("preset", chosen.preset, "")] if chosen.preset else []
    for cls, made in zip(classes, settings, strict=True):
        layers = all_layers(cls, *chosen.layers)
        for name in (name for name in definitions(cls) if name in found):
            origin = next((origin for origin, values in reversed(layers) if name in values), "default")
            rows.append((name, getattr(made, name), option(name) if origin == COMMAND_LINE else origin))
    lines = [f"[{section}]"]
    for name, value, origin in rows:
        if value is None:
            lines.append(f"# {name}: {found[name].unset}  # {origin}")
        else:
            lines.append(f"{name} = {toml(value)}" + (f"  # {escaped(origin)}" if origin else ""))
    return "\n".join(lines) + "\n"


def _parameter(one: Setting, section: str) -> inspect.Parameter:
    kind = {bool: bool, int: int, float: float}.get(one.base, Path if one.is_path else str)
    names = "/".join(one.options)
    made = typer.Option(
        names,
        help=help_text(one, section),
        metavar=None if one.base is bool else metavar(one),
        rich_help_panel="Settings" if one.common else f"Advanced: {one.panel}",
        hidden=not one.common,
        autocompletion=_completions(one.choices) if one.choices else None,
    )
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, made]
    )


def _completions(choices: Sequence[str]) -> Callable[[str], list[str]]:
    def complete(incomplete: str) -> list[str]:
        return [choice for choice in choices if choice.startswith(incomplete)]

    return complete


def metavar(one: Setting) -> str:
    """The placeholder of a value in help texts."""
    return one.metavar or "|".join(one.choices) or {int: "N", float: "X"}.get(one.base, "TEXT")


def help_text(one: Setting, section: str) -> str:
    """The help of an option: what it does, and its default."""
    text = one.help.replace("[", "\\[")
    default = default_text(one, section).replace("[", "\\[")
    return f"{text} [dim]\\[default: {default}][/dim]" if default else text


def default_text(one: Setting, section: str) -> str:
    """The default; in section [train] that of the default preset."""
    value = PRESETS[DEFAULT_PRESET].get(one.name, one.default) if section == "train" else one.default
    if isinstance(value, bool):
        return one.options[0 if value else -1]
    return one.unset if value in (None, "") else f"{value:.7g}" if isinstance(value, float) else str(value)


def _print_all_help(ctx: typer.Context, value: bool) -> None:
    if value:
        for one in ctx.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        ctx.get_help()
        raise typer.Exit


HelpAllOption = Annotated[
    bool,
    typer.Option("--help-all", help="Show all options and exit.", is_eager=True, callback=_print_all_help),
]
_ShowOption = Annotated[
    bool,
    typer.Option("--show-settings", help="Print all settings and their origins, and exit."),
]


def _always(help_all: HelpAllOption = False, show_settings: _ShowOption = False, config: ConfigOption = None) -> None:
    """The options of every command that has settings."""


_ALWAYS = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in inspect.signature(_always).parameters.values()]


class Command(TyperCommand):
    """A command that accepts old names of options, with a notice."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Replaces old names, then parses."""
        end = args.index("--") if "--" in args else len(args)
        current = [_current(arg, self.name or "") for arg in args[:end]]
        parsed: list[str] = super().parse_args(ctx, [*current, *args[end:]])
        return parsed


def _current(argument: str, command: str) -> str:
    name, equals, value = argument.partition("=")
    if advice := REMOVED.get(command, {}).get(name):
        raise UsageError(f"{name} is no longer an option: {advice}")
    new = RENAMED.get(command, {}).get(name)
    if new is None:
        return argument
    say(f"{name} is now {new}; the old name will be removed in the next release")
    return f"{new}{equals}{value}"
