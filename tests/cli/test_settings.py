"""A setting means the same on the command line, in nmtalign.toml and in Python; what is only in one is listed here."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer

from nmtalign import config
from nmtalign.checks import COMMAND_LINE, option
from nmtalign.cli import score_plan, train
from nmtalign.cli.commands import app
from nmtalign.config import AlignConfig, ModelConfig, PrepConfig, ScoreConfig, TrainingConfig, TranslateConfig
from nmtalign.errors import UsageError
from nmtalign.presets import preset, settings_of
from nmtalign.workspace import SECTIONS, load_workspace

COMMANDS: Mapping[str, tuple[type, ...]] = {
    "prep": (PrepConfig,),
    "train": (ModelConfig, TrainingConfig),
    "translate": (TranslateConfig,),
    "score": (ScoreConfig,),
    "align": (AlignConfig,),
}
# Settings without an option, by section, and why.
NO_OPTION = {
    "train": {
        "initialisation": "a constant of the optimiser or of the report, which is rarely changed",
        "rho": "the same", "epsilon": "the same", "beta1": "the same", "beta2": "the same", "shuffle": "the same",
        "bleu_sentences": "the same", "log_every": "the same",
    },
}  # fmt: skip
# Options that name files and folders, or say what this one run does and prints: they are no settings.
OF_THE_RUN = {
    "prep": "train_source train_target dev test output source_language target_language force format config quiet",
    "train": "data output preset tensorboard restart config quiet",
    "translate": "inputs model output resume quiet prefix_file phrase_file alignments alignments_of weights which "
    "config",
    "score": "hypotheses reference source table1 train_text differences attention attention_from tokenized "
    "target_language segment_scores plot html fail_under model all_models data save_translation beam device config "
    "quiet",
    "align": "source target model quiet forward backward tokenized output resume pharaoh gold gold_base format which "
    "config",
}
VALUES = {
    "max_time": "7m", "validate_every": "9m", "checkpoint_every": "9m", "max_memory": "3G", "shortlist": "70",
    "size": "70", "buckets": "3,5", "metrics": "ter", "n_best": 2, "bootstrap": 7, "top_k": 2, "min_length_ratio": 0.5,
    "attention":
    "dot", "coverage": "linguistic", "tokenize": "char", "lexicon": "lexicon.txt", "init_from": "first",
    "guided_alignment": "links.txt",
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


def resolved(command: str, words: list[str], toml: Path) -> tuple[Any, ...]:
    """The configuration that a command makes of its command line and nmtalign.toml."""
    made = typer.main.get_command(app).commands[command].make_context(command, words)
    given, workspace = dict(made.params), load_workspace(toml)
    if command == "train":
        flags = {name: value for name, value in given.items() if name not in train._NOT_SETTINGS}
        return workspace.resolve_training("small", flags)[1:]
    (cls,) = COMMANDS[command]
    flags = score_plan._flags(given) if command == "score" else given
    return (workspace.resolve(cls, command, {k: v for k, v in flags.items() if k in config.field_names(cls)}),)


CASES = [
    (command, cls, name)
    for command, classes in COMMANDS.items()
    for cls in classes
    for name in config.field_names(cls)
    if name in SECTIONS[command] and name not in NO_OPTION.get(command, {})
]


@pytest.mark.parametrize(("command", "cls", "name"), CASES, ids=lambda one: getattr(one, "__name__", one))
def test_a_setting_is_the_same_in_all_three(tmp_path: Path, monkeypatch, command: str, cls: type, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    settings = {**NEEDED.get(name, {}), name: unusual(cls, name)}
    empty, toml = Path("empty.toml"), Path("nmtalign.toml")
    empty.write_text("")
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    toml.write_text(f"[{command}]\n{lines}")
    here = resolved(command, on_command_line(command, settings), empty)
    assert resolved(command, [], toml) == here
    base = (("preset small", preset("small")),) if command == "train" else ()
    assert tuple(settings_of(one, *base, ("Python", settings)) for one in COMMANDS[command]) == here
    assert any(getattr(one, name, None) == settings[name] for one in here)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_option_is_a_setting_or_of_the_run(command: str) -> None:
    known, there = set(SECTIONS[command]), set(parameters(command)) - {"help"}
    assert there - known == set(OF_THE_RUN[command].split()) - known
    assert known - there - {"preset"} == set(NO_OPTION.get(command, {}))


@pytest.mark.parametrize("command", COMMANDS)
def test_errors_name_an_option_as_it_is_typed(command: str) -> None:
    for name, one in parameters(command).items():
        if name in SECTIONS[command] and name != "preset":
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
