"""Options of the commands, made from the definitions of the settings; `--help-all`, `--show-settings`.

A command states its own arguments only:

    @with_settings(TranslateConfig, section="translate")
    def translate(chosen: Chosen[TranslateConfig], inputs: Inputs = None, quiet: QuietOption = False) -> None:

and is called with the resolved settings. `--help` lists at most 20 options: the common settings, and those of the
command's own options that are not hidden. `--help-all` lists all.
"""

import contextlib
import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Concatenate, Generic, ParamSpec, TypeVar

import typer
from typer.core import TyperCommand

from nmtalign.cli.common import ConfigOption, check_inputs, escaped, named, outputs
from nmtalign.cli.option_names import advice, pairs_of_files
from nmtalign.errors import UsageError
from nmtalign.model_files import with_first_model
from nmtalign.settings.definition import COMMAND_LINE, Layer, Setting, definitions, naming, option, toml
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS, all_layers, budget_of, preset, settings_of
from nmtalign.settings.workspace import Workspace, given, load_workspace

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True)
class Chosen(Generic[T]):
    """The settings of one run of a command, and the layers that they come from; the last layer has precedence."""

    settings: T
    workspace: Workspace
    layers: tuple[Layer, ...]
    preset: str = ""
    text: str = ""  # the settings as a section of nmtalign.toml, with the origin of each

    @property
    def typed(self) -> Mapping[str, Any]:
        """The settings that the command line gives."""
        return self.layers[-1][1]

    def naming(self) -> Any:
        """A context in which errors name settings as the user wrote them."""
        return naming(*self.layers)


def with_settings(
    *classes: type,
    section: str,
    base: str = "",
    only: Sequence[str] = (),
    fit: Callable[..., tuple[Layer, ...]] = lambda layers, *_: layers,
) -> Callable[[Callable[Concatenate[Chosen[Any], P], None]], Callable[..., None]]:
    """Gives a command options for the settings of `classes`, or for those named in `only`.

    The command gets the values as a `Chosen`, whose `settings` are an instance of the class, or a tuple of instances.
    The values of section `base` apply where section `section` has none. `fit` changes the layers of a command with a
    preset: its arguments are the layers, the preset, the workspace and the command's own arguments.
    """
    found = {name: one for cls in classes for name, one in definitions(cls).items() if not one.internal}
    found = {name: one for name, one in found.items() if not only or name in only}

    def decorate(command: Callable[Concatenate[Chosen[Any], P], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            config, show, _ = (arguments.pop(one.name) for one in _ALWAYS)
            flags = {name: _parsed(one, arguments.pop(name)) for name, one in found.items()}
            workspace = load_workspace(config)
            sections = [workspace.section(one) for one in (base, section) if one]
            kept = [(origin, {name: values[name] for name in values if name in found}) for origin, values in sections]
            layers: tuple[Layer, ...] = (*kept, given(flags))
            name = workspace.preset(arguments.pop("preset")) if "preset" in arguments else ""
            if name:
                layers = (f"preset {name}", preset(name)), *layers
                layers = with_first_model(layers, arguments.get("output") or workspace.model)
                layers = fit(layers, name, workspace, arguments)
            settings: tuple[Any, ...] = tuple(settings_of(cls, *layers) for cls in classes)
            chosen = Chosen(settings if len(settings) > 1 else settings[0], workspace, layers, name)
            chosen = replace(chosen, text=_shown(chosen, settings, section, found))
            if show:
                sys.stdout.write(chosen.text)
            else:
                files = (getattr(made, name, "") for made in settings for name, one in found.items() if one.is_path)
                check_inputs(*workspace.own, *(Path(file) for file in files if file))
                command(chosen, **arguments)  # type: ignore[call-arg]

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        parameters = [*own, *(_parameter(one, section) for one in found.values()), *_ALWAYS]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        return run

    return decorate


def _shown(chosen: Chosen[Any], settings: Sequence[Any], section: str, found: Mapping[str, Setting]) -> str:
    """The settings as a section of nmtalign.toml; a comment names the origin of each."""
    lines = [f"[{section}]"]
    if chosen.preset:
        lines += [f"preset = {toml(chosen.preset)}", f"# budget of the preset: {budget_of(chosen.preset)}"]
    for made in settings:
        layers = all_layers(type(made), *chosen.layers)
        for name, value in ((name, getattr(made, name)) for name in definitions(type(made)) if name in found):
            origin = next((origin for origin, values in reversed(layers) if name in values), "default")
            origin = option(name) if origin == COMMAND_LINE else escaped(origin)
            line = f"# {name}: {found[name].unset}" if value is None else f"{name} = {escaped(toml(value))}"
            lines.append(f"{line}  # {origin}")
    return "\n".join(lines) + "\n"


def _parameter(one: Setting, section: str) -> inspect.Parameter:
    """The option of a setting; None means that it is not given."""
    kind = bool if one.base is bool else Path if one.is_path else str  # `_parsed` converts numbers
    made = typer.Option(
        "/".join(one.options),
        help=help_text(one, section),
        metavar=None if one.base is bool else metavar(one),
        rich_help_panel="Settings" if one.common else f"Advanced: {one.panel}",
        hidden=not one.common,
        autocompletion=(lambda incomplete: [choice for choice in one.choices if choice.startswith(incomplete)])
        if one.choices
        else None,
    )
    return inspect.Parameter(
        one.name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, made]
    )


def _parsed(one: Setting, value: Any) -> Any:
    """The value of an option; a text that is not the number it should be is refused later, like any wrong setting."""
    if value is not None and one.base in (int, float):
        with contextlib.suppress(ValueError):
            return one.base(value)
    return value


def metavar(one: Setting) -> str:
    """The placeholder of a value in help texts."""
    return one.metavar or "|".join(one.choices) or {int: "N", float: "X"}.get(one.base, "TEXT")


def help_text(one: Setting, section: str) -> str:
    """The help of an option: what it does, and its default; in section [train] that of the default preset."""
    value = PRESETS[DEFAULT_PRESET].get(one.name, one.default) if section == "train" else one.default
    if isinstance(value, bool):
        default = one.options[0 if value else -1]
    else:
        default = one.unset if value in (None, "") else f"{value:.7g}" if isinstance(value, float) else str(value)
    text = f"{one.help} [dim][default: {default}][/dim]" if default else one.help
    return text.replace("[", "\\[").replace("\\[dim]", "[dim]").replace("\\[/dim]", "[/dim]")


def _print_all_help(ctx: typer.Context, value: bool) -> None:
    if value:
        for one in ctx.command.params:
            one.hidden = False  # type: ignore[attr-defined]
        ctx.get_help()
        raise typer.Exit


def _always(
    config: ConfigOption = None,
    show_settings: Annotated[
        bool, typer.Option("--show-settings", help="Print all settings and their origins, and exit.")
    ] = False,
    help_all: Annotated[
        bool, typer.Option("--help-all", help="Show all options and exit.", is_eager=True, callback=_print_all_help)
    ] = False,
) -> None:
    """The options of every command that has settings."""


_ALWAYS = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in inspect.signature(_always).parameters.values()]


def protecting(command: Callable[..., None]) -> Callable[..., None]:
    """The command, which first refuses an output that would replace a file that another argument names."""

    @functools.wraps(command)
    def run(**arguments: Any) -> None:
        values = (value for name, value in arguments.items() if name not in outputs)
        paths = (path for value in values for path in (value if isinstance(value, list | tuple) else [value]))
        check_inputs(*(named(path)[1] for path in paths if isinstance(path, Path)))
        command(**arguments)

    return run


class Command(TyperCommand):
    """A command that explains wrong options and arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options; typer shows the type of each, and that of a flag tells nothing."""
        return without_types(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parses the arguments; `--show-settings` needs none."""
        outputs.clear()
        end = args.index("--") if "--" in args else len(args)
        if "--show-settings" in args[:end]:
            for one in self.params:
                one.required = False
        given = pairs_of_files(args[:end], self.params)
        try:
            parsed: list[str] = super().parse_args(ctx, [*given, *args[end:]])
        except Exception as error:  # the classes of its errors depend on the version of typer
            if explained := self._explained(ctx, error):
                raise UsageError(explained) from None
            raise
        return parsed

    def _explained(self, ctx: Any, error: Any) -> str:
        """A better message for an error of usage; "" if there is none."""
        command = f"nmtalign {self.name}"
        if name := getattr(error, "option_name", "") if type(error).__name__ == "NoSuchOption" else "":
            commands = {one.name: _options_of(one) for one in ctx.parent.command.commands.values()}
            found = advice(name, self.name or "", _options_of(self), commands)
            return f"no such option: {name}; {found}" if found else ""
        if getattr(error, "message", "").startswith("Got unexpected extra argument"):
            extra = error.message.partition(" (")[2].removesuffix(")")
            places = [str(one.metavar or one.name) for one in self.params if one.param_type_name == "argument"]
            many = f"takes only {' '.join(places)}" if places else "takes no arguments"
            hint = "; give further texts with --dev and --test" if self.name == "prep" else ""
            return f"{extra}: one argument too many: {command} {many}{hint}"
        return ""


def _options_of(command: Any) -> set[str]:
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def without_types(parameters: list[Any]) -> list[Any]:
    """The parameters of a command, after the type has been removed from those that are flags."""
    for one in parameters:
        if getattr(one, "is_flag", False):
            one.metavar = ""
    return parameters
