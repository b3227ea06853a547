"""A setting means the same on the command line, in nmtalign.toml and in Python; what is only in one is listed here."""

import contextlib
import io
import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from typer.testing import CliRunner

from nmtalign.cli.commands import app
from nmtalign.errors import UsageError
from nmtalign.settings.command_settings import AlignConfig, PrepConfig, ScoreConfig, TranslateConfig
from nmtalign.settings.definition import COMMAND_LINE, SECTIONS, definitions, option
from nmtalign.settings.presets import preset, settings_of
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.settings.workspace import load_workspace

COMMANDS: Mapping[str, tuple[type, ...]] = {
    "prep": (PrepConfig,),
    "train": (ModelConfig, TrainingConfig),
    "translate": (TranslateConfig,),
    "score": (ScoreConfig,),
    "align": (AlignConfig,),
}
WITHOUT_GENERATOR = ("align",)  # its options are not made from the definitions yet
VALUES = {
    "max_time": "7m", "validate_every": "9m", "checkpoint_every": "9m", "max_memory": "3G", "shortlist": "70",
    "size": "70", "buckets": "3,5", "metrics": "ter", "n_best": 2, "bootstrap": 7, "top_k": 2, "min_length_ratio": 0.5,
    "attention":
    "dot", "coverage": "linguistic", "tokenize": "char", "lexicon": "lexicon.txt", "init_from": "first",
    "guided_alignment": "links.txt", "target_language": "fr",
}  # fmt: skip
NEEDED = {"candidates": {"lexicon": "lexicon.txt"}, "reverse_source": {"bidirectional": False}}


def parameters(command: str) -> dict[str, Any]:
    return {one.name: one for one in typer.main.get_command(app).commands[command].params}


def unusual(cls: type, name: str) -> Any:
    """A value that is not the usual one."""
    if name in VALUES:
        return VALUES[name]
    usual = getattr(cls(), name)
    hint = get_type_hints(cls)[name]
    kinds = [one for one in get_args(hint) or [hint] if one is not type(None)]
    if get_origin(hint) is Literal:
        return next(one for one in kinds if one != usual)
    if get_origin(kinds[0]) is Literal:
        return get_args(kinds[0])[-1]
    if kinds[0] is bool:
        return not usual
    return {int: 1 if usual != 1 else 3, float: 0.25}[kinds[0]]


def on_command_line(command: str, settings: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        words += [option(name, value)] if isinstance(value, bool) else [option(name), str(value)]
    return words


def resolved(command: str, words: list[str], toml: Path) -> dict[str, Any]:
    """The settings that a command makes of its command line and nmtalign.toml."""
    if command not in WITHOUT_GENERATOR:
        with contextlib.redirect_stdout(io.StringIO()) as shown:
            app([command, "--show-settings", "--config", str(toml), *words], standalone_mode=False)
        return tomllib.loads(shown.getvalue())[command]
    given = dict(typer.main.get_command(app).commands[command].make_context(command, words).params)
    (cls,) = COMMANDS[command]
    return vars(load_workspace(toml).resolve(cls, command, {k: v for k, v in given.items() if k in definitions(cls)}))


CASES = [(command, name) for command in COMMANDS for name in SECTIONS[command]]


@pytest.mark.parametrize(("command", "name"), CASES)
def test_a_setting_is_the_same_in_all_three(tmp_path: Path, monkeypatch, command: str, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    cls = next(one for one in COMMANDS[command] if name in definitions(one))
    settings = {**NEEDED.get(name, {}), name: unusual(cls, name)}
    empty, toml = Path("empty.toml"), Path("nmtalign.toml")
    empty.write_text("")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    toml.write_text(f"[{command}]\n{lines}")
    here = resolved(command, on_command_line(command, settings), empty)
    assert here[name] == settings[name]
    assert resolved(command, [], toml) == here
    base = (("preset small", preset("small")),) if command == "train" else ()
    for one in COMMANDS[command]:
        python = vars(settings_of(one, *base, ("Python", settings)))
        given = {key: value for key, value in python.items() if key in SECTIONS[command] and value is not None}
        assert given.items() <= here.items()


@pytest.mark.parametrize(("command", "name"), CASES)
def test_a_definition_is_complete(command: str, name: str) -> None:
    one = SECTIONS[command][name]
    assert one.help.endswith(".")
    assert one.panel
    if one.base in (int, float):
        assert one.lowest is not None or one.above is not None
        with pytest.raises(UsageError):
            one.check(-(2.0**70))


@pytest.mark.parametrize("command", sorted({*COMMANDS} - {*WITHOUT_GENERATOR}))
def test_every_setting_is_an_option(command: str) -> None:
    there = parameters(command)
    assert {*SECTIONS[command]} <= {*there}
    for name, one in SECTIONS[command].items():
        assert there[name].hidden != one.common
        assert one.help.split("[")[0] in there[name].help.replace("\\", "")


@pytest.mark.parametrize(
    "command", ["train", "prep", "translate", "score", "score-pairs", "lexicon", "sample", "reproduce", "info"]
)
def test_help_lists_at_most_20_options_and_help_all_lists_all(command: str) -> None:
    options = [one for one in parameters(command).values() if one.param_type_name == "option"]
    assert sum(not one.hidden for one in options) + 1 <= 20  # and --help
    if any(one.hidden for one in options):
        shown = CliRunner().invoke(app, [command, "--help-all"], env={"COLUMNS": "200", "TERMINAL_WIDTH": "200"}).output
        assert all(max(one.opts, key=len) in shown for one in options)


def test_an_old_name_is_accepted_with_a_notice(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"a\.h5: is given for -o and for --save-alignments"):
        app(["translate", "--alignments=a.h5", "-o", "a.h5"], standalone_mode=False)
    assert capsys.readouterr().err == (
        "nmtalign: --alignments is now --save-alignments; the old name will be removed in the next release\n"
    )


def test_precedence_and_origins_are_shown(tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    Path("nmtalign.toml").write_text('[train]\npreset = "tiny"\nmaxout = 9\nembedding = 9\n')
    app(["train", "--embedding", "7", "--show-settings"], standalone_mode=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["[train]", 'preset = "tiny"']
    assert {
        "embedding = 7  # --embedding",
        "maxout = 9  # nmtalign.toml: [train]",
        "hidden = 128  # preset tiny",
        "rho = 0.95  # default",
    } <= {*lines}


@pytest.mark.parametrize("command", COMMANDS)
def test_errors_name_an_option_as_it_is_typed(command: str) -> None:
    for name, one in parameters(command).items():
        if name in SECTIONS[command]:
            assert option(name) in one.opts, name
            if one.secondary_opts:
                assert option(name, False) in one.secondary_opts


@pytest.mark.parametrize(
    ("below", "above", "candidates"),
    [
        ({"lexicon": "a"}, {}, 2000),
        ({}, {"lexicon": "a"}, 2000),
        ({"candidates": 0}, {"lexicon": "a"}, 0),
        ({"lexicon": "a", "replace_unk": True}, {}, 0),
        ({"lexicon": "a"}, {"candidates": 7}, 7),
    ],
)
def test_a_lexicon_restricts_the_words_wherever_it_is_given(below: Any, above: Any, candidates: int) -> None:
    found = settings_of(TranslateConfig, ("nmtalign.toml: [translate]", below), (COMMAND_LINE, above))
    assert found.candidates == candidates


def test_a_threshold_decides_the_method_of_links_wherever_it_is_given() -> None:
    from nmtalign.alignment.readings import chosen

    def method(*layers: Mapping[str, Any], models: int = 1) -> str | None:
        return chosen(settings_of(AlignConfig, *(("", layer) for layer in layers)), models).links

    assert method({}) == "argmax"
    assert method({"threshold": 0.4}) == method({"links": "argmax"}, {"threshold": 0.4}) == "threshold"
    assert method({"threshold": 0.4}, {"links": "argmax"}) == "argmax"
    assert method({"threshold": 0.4}, models=2) == "argmax"  # the threshold of agreement
    assert method({"threshold": 0.4, "symmetrize": "union"}, models=2) == "threshold"


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([("nmtalign.toml: [translate]", {"beam": 5}), (COMMAND_LINE, {"n_best": 20})],
         "--n-best 20 does not go with nmtalign.toml: [translate] beam = 5: a search"),
        ([("nmtalign.toml: [translate]", {"n_best": 9}), (COMMAND_LINE, {"beam": 5})],
         "--beam 5 does not go with nmtalign.toml: [translate] n_best = 9: a search"),
        ([("Translator.load", {"n_best": 20})],
         "Translator.load: n_best = 20 does not go with beam = 12 (the default): a search"),
        ([(COMMAND_LINE, {"candidates": 20})], "--candidates 20: needs a lexicon"),
    ],
)  # fmt: skip
def test_an_error_names_what_was_changed_last(layers: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(TranslateConfig, *layers)
    assert str(caught.value).startswith(message)
