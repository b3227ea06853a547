"""Options of the commands, made from the definitions of the settings; `--set NAME=VALUE` and `--show-settings`.

A command states its own arguments only:

    @with_settings(TranslateConfig)
    def translate(chosen: Chosen[TranslateConfig], inputs: list[Path] | None = own_argument(...)) -> None:

and is called with the resolved settings.
"""

import functools
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar

import typer
from typer.core import TyperCommand

from nmtalign.cli.common import check_inputs, escaped, named, outputs, own_flag, own_option, say
from nmtalign.errors import UsageError
from nmtalign.settings import definition
from nmtalign.settings.definition import COMMAND_LINE, SECTIONS, SET, Layer, Setting, Workspace, option, toml
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS, budget_of
from nmtalign.text.lines import bare_name

NO_FILE = Path()  # the second value of an option for two files if only one is given
T = TypeVar("T")


@dataclass(frozen=True)
class Chosen(Generic[T]):
    """The settings of one run of a command, and the layers that they come from; the last layer has precedence."""

    settings: T
    workspace: Workspace
    layers: tuple[Layer, ...]
    preset: str = ""

    @property
    def typed(self) -> Mapping[str, Any]:
        """The settings that the command line gives."""
        return {**self.layers[-2][1], **self.layers[-1][1]}

    def text(self) -> str:
        """The settings as sections of nmtalign.toml; a comment names the origin of each."""
        lines: list[str] = []
        every: Any = self.settings if isinstance(self.settings, tuple) else (self.settings,)
        for made in every:
            head = f"[{made.section}]"
            if head not in lines:
                lines += [*([""] if lines else []), head]
                if self.preset:
                    lines.append(f"preset = {toml(self.preset)}")
                    if not every[-1].init_from:
                        lines.append(f"# budget of the preset: {budget_of(self.preset)}")
            layers = definition.with_implied(type(made), *self.layers)
            for name, one in definition.select(type(made), lambda one: not one.internal).items():
                value = getattr(made, name)
                origin = next((origin for origin, values in reversed(layers) if name in values), "default")
                origin = option(name) if origin == COMMAND_LINE else escaped(origin)
                is_unset = one.unset and value in (None, "")
                line = f"# {name}: {one.unset}" if is_unset else f"{name} = {escaped(toml(value))}"
                lines.append(f"{line}  # {origin}")
        return "\n".join(lines) + "\n"


def with_settings(*classes: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command `--set` for the settings of `classes`, and options for the common settings of the first class.

    The command gets the values as a `Chosen`, whose `settings` are an instance of the class, or a tuple of instances.
    If the command has a preset, the layers are those of a training on its corpus.
    """
    sections = list(dict.fromkeys(cls.section for cls in classes))  # type: ignore[attr-defined]
    found = {name: one for cls in classes for name, one in definition.select(cls, lambda one: not one.internal).items()}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()
        taken = [one.name for one in own]
        declared = {one.name: one.default for one in own if isinstance(one.default, typer.models.OptionInfo)}
        spellings = {spelling for name, one in declared.items() for spelling in one.param_decls or (option(name),)}
        options = {name: one for name, one in SECTIONS[sections[0]].items() if one.common and name not in taken}

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            values = (value for name, value in arguments.items() if name not in outputs)
            paths = (path for value in values for path in (value if isinstance(value, list | tuple) else [value]))
            check_inputs(*(named(path)[1] for path in paths if isinstance(path, Path)))
            config, show, assigned = (arguments.pop(one.name) for one in always)
            flags = {name: arguments.pop(name) for name in options}
            flags = {n: options[n].parse(v) if isinstance(v, str) else v for n, v in flags.items() if v is not None}
            workspace = definition.load_workspace(config)
            typed: tuple[Layer, ...] = (COMMAND_LINE, flags), (SET, _assignments(assigned, found, spellings))
            chosen_layers = (*map(workspace.section, sections), *typed)
            preset, warnings = "", list[str]()
            if "preset" in arguments:
                from nmtalign.training.budget import for_another_preset, training_layers

                preset = arguments.pop("preset") or workspace.section("train")[1].get("preset", DEFAULT_PRESET)
                warnings = for_another_preset(preset, chosen_layers)
                chosen_layers = training_layers(preset, chosen_layers, arguments["data"] or workspace.data)
            settings: tuple[Any, ...] = tuple(definition.resolve(cls, *chosen_layers) for cls in classes)
            chosen = Chosen(settings if len(settings) > 1 else settings[0], workspace, chosen_layers, preset)
            if show:
                sys.stdout.write(chosen.text())
            else:
                files = (getattr(made, name, "") for made in settings for name, one in found.items() if one.is_path)
                # No command may replace these by another file.
                check_inputs(workspace.file, workspace.data, workspace.model, *(Path(file) for file in files if file))
                if not arguments.get("quiet"):
                    own = (made for made in settings if made.unused)
                    warnings += (one for made in own for one in definition.without_effect(made, *chosen_layers))
                    say(*(f"warning: {one}" for one in warnings))
                with definition.naming(*chosen_layers):
                    command(chosen, **arguments)

        always = _always(found)
        parameters = [*own, *(_parameter(one, sections[0]) for one in options.values()), *always]
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in parameters}
        run.settings = found  # type: ignore[attr-defined]
        return run

    return decorate


def _assignments(texts: Sequence[str], known: Mapping[str, Setting], options: Set[str]) -> dict[str, Any]:
    """The settings of `--set NAME=VALUE`, converted; raises UsageError for an unknown name or a wrong value."""
    values = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip().replace("-", "_")
        if name not in known:
            from nmtalign.cli.old_names import advice

            raise UsageError(f"{SET}: unknown setting '{name}'; {advice('', name, options, known)}")
        if not equals:
            raise UsageError(f"{SET} {text}: give a value, as in {SET} {name}={metavar(known[name])}")
        values[name] = known[name].convert(SET, known[name].parse(value))
    return values


def _parameter(one: Setting, section: str) -> inspect.Parameter:
    """The option of a setting; None means that it is not given."""
    kind = bool if one.base is bool else Path if one.is_path else str  # `Setting.parse` converts numbers
    made = own_option(
        help_text(one, section),
        None if one.base is bool else metavar(one),
        "/".join(one.options),
        rich_help_panel="Settings",
        autocompletion=(lambda incomplete: [choice for choice in one.choices if choice.startswith(incomplete)])
        if one.choices
        else None,
    )
    return inspect.Parameter(one.name, inspect.Parameter.KEYWORD_ONLY, default=made, annotation=kind | None)


def metavar(one: Setting) -> str:
    """The placeholder of a value in help texts."""
    return one.metavar or "|".join(one.choices) or {int: "N", float: "X", bool: "true|false"}.get(one.base, "TEXT")


def help_text(one: Setting, section: str) -> str:
    """The help of an option: what it does, and its default."""
    value = one.default
    if section == "train" and one.name in PRESETS[DEFAULT_PRESET]:
        default = "the preset's"
    elif isinstance(value, bool):
        default = one.options[0 if value else -1]
    else:
        default = one.unset if value in (None, "") else f"{value:.7g}" if isinstance(value, float) else str(value)
    text = f"{one.help} [dim][default: {default}][/dim]" if default else one.help
    return text.replace("[", "\\[").replace("\\[dim]", "[dim]").replace("\\[/dim]", "[/dim]")


def _always(known: Mapping[str, Setting]) -> list[inspect.Parameter]:
    """The options of every command that has settings."""

    def complete(incomplete: str) -> list[str]:
        name, equals, _ = incomplete.partition("=")
        names = [one for one in known if (one == name if equals else one.startswith(name))]
        if len(names) != 1:
            return [f"{one}=" for one in names]
        one = known[names[0]]  # with its values, so that no shell appends a space to `NAME=`
        choices = ("true", "false") if one.base is bool else one.choices
        values = choices or ("", "" if one.default is None else one.default)
        return [word for value in values if (word := f"{one.name}={value}").startswith(incomplete)]

    file = "Workspace file [dim]\\[default: nmtalign.toml in the current folder][/dim]."
    show = "Print all settings and their origins, and exit."
    assign = "Give a setting of --show-settings another value; may be repeated."
    options: dict[str, tuple[Any, Any]] = {
        "config": (Path | None, own_option(file, "FILE", "--config")),
        "show_settings": (bool, own_flag(show, "--show-settings")),
        "assigned": (list[str], own_option(assign, "NAME=VALUE", SET, [], autocompletion=complete)),
    }
    only = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(name, only, default=one, annotation=kind) for name, (kind, one) in options.items()]


class Command(TyperCommand):
    """A command that explains wrong options and arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The arguments and options, without the types that typer shows for flags and arguments, which do not help."""
        parameters: list[Any] = super().get_params(ctx)
        for one in parameters:
            if getattr(one, "is_flag", False):
                one.metavar = ""
            if one.param_type_name == "argument":
                one.display_type_rich = lambda ctx: None
        return parameters

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Prints the help; rich would end the command with exit code 1 if the reader has gone, as in `| head`."""
        try:
            super().format_help(ctx, formatter)
        except SystemExit:
            raise BrokenPipeError from None

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parses the arguments; `--show-settings` needs none."""
        outputs.clear()
        end = args.index("--") if "--" in args else len(args)
        words, options = args[:end], options_of(self)
        if "--show-settings" in words:
            for one in self.params:
                one.required = False
        if not {one.partition("=")[0] for one in words if one.startswith("--")} <= options:
            from nmtalign.cli.old_names import current_options

            words = current_options(str(self.name), words, options, getattr(self.callback, "settings", {}))
        # A word processor makes one long dash of two, and the parser reads -output as -o utput.
        if long := [one for one in words if re.match("[\u2013\u2014][a-z_-]+(=|$)", one) and not Path(one).exists()]:
            raise UsageError(f"{long[0]}: begins with a long dash; write {'--' if long[0][2:] else '-'}{long[0][1:]}")
        if glued := [one for one in words if one[:1] == "-" and f"-{one.partition('=')[0]}" in options]:
            raise UsageError(f"no such option: {glued[0]}; nmtalign calls it -{glued[0]}")
        words = _pairs_of_files(words, self.params)
        try:
            given, _, _ = self.make_parser(ctx).parse_args([*words, *args[end:]])
            own = inspect.signature(self.callback).parameters  # type: ignore[arg-type]
            # An empty name of a file would be that of the current folder.
            for one in self.params:
                value = given.get(one.name)
                texts = value if isinstance(value, list | tuple) else [value]
                if "" in texts and "Path" in str(own.get(str(one.name))):
                    place = min(one.opts, key=len) if one.param_type_name == "option" else self.name
                    raise UsageError(f"{place}: the name of a file is empty; is a variable of the shell unset?")
            return super().parse_args(ctx, [*words, *args[end:]])
        except Exception as error:  # the classes of its errors depend on the version of typer
            if explained := self._explained(error, words):
                raise UsageError(explained) from None
            raise

    def _explained(self, error: Any, words: Sequence[str]) -> str:
        """A better message for an error of usage in the words; "" if there is none."""
        if type(error).__name__ == "NoSuchOption":
            from nmtalign.cli.old_names import advice

            # Of -batch_size, as other programs call an option, the error names only -b; of -b5 that is the option.
            own = (word for word in words if word.startswith(error.option_name) and not word[2:3].isdigit())
            name = next(own, error.option_name).partition("=")[0]
            known = getattr(self.callback, "settings", {})
            return f"no such option: {name}; {advice(str(self.name), name, options_of(self), known)}"
        message = getattr(error, "message", "")
        places = [str(one.metavar or one.name) for one in self.params if one.param_type_name == "argument"]
        if type(error).__name__ == "MissingParameter":
            return f"{error.param.metavar} is missing: write nmtalign {self.name} {' '.join(places)}; see --help"
        if message.endswith("requires an argument."):
            return f"{error.option_name} needs a value; see --help"
        if message.startswith("Got unexpected extra argument"):
            extra = message.partition(" (")[2].removesuffix(")")
            many = f"takes only {' '.join(places)}" if places else "takes no arguments"
            hint = "; give further texts with --dev and --test" if self.name == "prep" else ""
            return f"{extra}: one argument too many: nmtalign {self.name} {many}{hint}"
        return ""


def options_of(command: Any) -> set[str]:
    """The options of a command and -h."""
    return {"--help", "-h", *(name for one in command.params for name in (*one.opts, *one.secondary_opts))}


def add_command(app: typer.Typer, name: str) -> None:
    """Imports a command and adds it to an application."""
    function = getattr(import_module(f"nmtalign.cli.{name}"), name)
    paragraphs = re.split(r"\n\n|\n(?=  )", inspect.cleandoc(function.__doc__ or ""))  # an example is a paragraph
    # One line per paragraph, because rich breaks a paragraph where its lines end.
    text = "\n\n".join(one if one.startswith("  ") else " ".join(one.split("\n")) for one in paragraphs)
    app.command(name, cls=Command, help=text, context_settings={"help_option_names": ["--help", "-h"]})(function)


def load_command(name: str) -> Any:
    """Imports a command; its `main` runs it."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    add_command(app, name)
    return typer.main.get_command(app)


def _pairs_of_files(arguments: Sequence[str], parameters: Iterable[Any]) -> list[str]:
    """The arguments with NO_FILE after the value of an option of two files if it has only one, such as a TSV file."""
    options = {name for one in parameters if one.nargs == 2 for name in one.opts}
    result = [part for one in arguments for part in (one.split("=", 1) if one.partition("=")[0] in options else [one])]
    for place in (place for place in reversed(range(len(result))) if result[place] in options):
        values = [*itertools.takewhile(lambda one: one == "-" or one[:1] != "-", result[place + 1 : place + 3])]
        if not values:
            raise UsageError(f"{result[place]} needs a text and its translation, or one TSV or TMX file")
        if len(values) == 1 or bare_name(Path(values[0])).suffix.lower() in (".tsv", ".tmx", ".parquet"):
            result.insert(place + 2, str(NO_FILE))
    return result
