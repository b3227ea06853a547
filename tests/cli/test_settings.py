"""A setting means the same on the command line, in nmtalign.toml and in Python."""

import inspect
import json
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from helpers.commands import COMMANDS, call, run

from nmtalign.errors import FormatError, UsageError
from nmtalign.model_directory import FORMAT_VERSION
from nmtalign.settings.command_settings import AlignConfig, TranslateConfig
from nmtalign.settings.definition import COMMAND_LINE, SECTIONS, Setting, option, resolve
from nmtalign.settings.presets import DEFAULT_PRESET, PRESETS, preset
from nmtalign.settings.training_settings import ModelConfig

VALUES: Mapping[str, Any] = {
    "max_time": "7m", "validate_every": "9m", "checkpoint_every": "9m", "max_memory": "3G", "shortlist": "70",
    "size": "70", "buckets": "3,5", "metrics": "ter", "n_best": 2, "tokenize": "char", "sentences": "3,17",
    "width": 70, "attention": "dot", "coverage": "linguistic", "target_language": "fr", "bootstrap": 7,
    "columns": "2,3", "max_body": "3M", "time_limit": "7s", "shutdown_time": "7s",
}  # fmt: skip
"""Values other than the default, for settings with special rules for their values."""
_STACK = {"order": "update-look-generate", "readout": "direct", "output_rank": 0}
_TRANSFORMER = {**_STACK, "architecture": "transformer"}
NEEDED: Mapping[str, Mapping[str, Any]] = {
    "candidates": {"lexicon": "lexicon.txt"},
    "reverse_source": {"bidirectional": False},
    "layers": _STACK,
    "architecture": _STACK,
    **dict.fromkeys(("shared_embeddings", "norm", "alignment_layer", "alignment_head"), _TRANSFORMER),
}


@pytest.fixture(autouse=True)
def an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def parameters(command: str) -> dict[str, Any]:
    return {one.name: one for one in COMMANDS[command].params}


GENERATED = [name for name in SECTIONS if name in COMMANDS and "show_settings" in parameters(name)]
CASES = [(command, name) for command in GENERATED for name in SECTIONS[command]]


def unusual(one: Setting) -> Any:
    """A value that is not the default."""
    if one.name in VALUES:
        return VALUES[one.name]
    if one.choices:
        return next(choice for choice in reversed(one.choices) if choice != one.default)
    if one.base is bool:
        return not one.default
    return {str: "some.file", int: 1 if one.default != 1 else 3, float: 0.25}[one.base]


def classes(command: str) -> tuple[type, ...]:
    """The settings that a command receives, from the type of its first argument."""
    (made,) = get_args(get_type_hints(inspect.unwrap(COMMANDS[command].callback))["chosen"])
    return get_args(made) if get_origin(made) is tuple else (made,)


def on_command_line(command: str, settings: Mapping[str, Any]) -> list[str]:
    words = []
    for name, value in settings.items():
        if not SECTIONS[command][name].common:
            words += ["--set", f"{name}={json.dumps(value) if isinstance(value, bool) else value}"]
        else:
            words += [option(name, value)] if isinstance(value, bool) else [option(name), str(value)]
    return words


def resolved(command: str, *words: str) -> dict[str, Any]:
    """The settings that a command makes of its command line and nmtalign.toml."""
    return tomllib.loads(call(command, "--show-settings", *words))[command]


def write_model(folder: Path, model: ModelConfig) -> None:
    """The config.json of a model directory."""
    folder.mkdir()
    settings = {"format": "nmtalign model", "format_version": FORMAT_VERSION, "nmtalign_version": "", "preset": ""}
    settings |= {"source_language": "en", "target_language": "fr", "corpus": "", "model": asdict(model)}
    settings |= {"training": {}, "prep": {}, "files": {}}
    (folder / "config.json").write_text(json.dumps(settings))


def test_every_section_is_that_of_a_command() -> None:
    assert {*SECTIONS} == {*GENERATED}


@pytest.mark.parametrize(("command", "name"), CASES)
def test_a_setting_is_the_same_in_all_three(tmp_path: Path, command: str, name: str) -> None:
    if name == "init_from":
        write_model(tmp_path / "some.file", resolve(ModelConfig, ("", preset(DEFAULT_PRESET))))
    settings = {**NEEDED.get(name, {}), name: unusual(SECTIONS[command][name])}
    here = resolved(command, *on_command_line(command, settings))
    assert here[name] == settings[name]
    lines = "".join(f"{key} = {json.dumps(value)}\n" for key, value in settings.items())
    Path("nmtalign.toml").write_text(f"[{command}]\n{lines}")
    assert resolved(command) == here
    base = ((DEFAULT_PRESET, preset(DEFAULT_PRESET)),) if command == "train" else ()
    for cls in classes(command):
        python = vars(resolve(cls, *base, ("Python", settings)))
        given = {key: value for key, value in python.items() if key in SECTIONS[command] and value not in (None, "")}
        assert given.items() <= here.items()


@pytest.mark.parametrize(("command", "name"), [(command, name) for command in SECTIONS for name in SECTIONS[command]])
def test_a_definition_is_complete(command: str, name: str) -> None:
    one = SECTIONS[command][name]
    assert one.help.endswith(".")
    if one.base in (int, float):
        with pytest.raises(UsageError):
            one.check(-(2.0**70))


@pytest.mark.parametrize("command", GENERATED)
def test_common_settings_are_options_whose_help_states_the_default(command: str) -> None:
    there = parameters(command)
    for name, one in SECTIONS[command].items():
        if not one.common:
            assert name not in there
            continue
        assert (*there[name].opts, *there[name].secondary_opts) == one.options
        shown = there[name].help.replace("\\[", "[")
        assert one.help in shown
        if command == "train" and name in PRESETS[DEFAULT_PRESET]:  # `auto` chooses it by the corpus
            assert shown.endswith("[default: the preset's][/dim]")
        elif type(one.default) in (int, float):
            assert float(shown.split("[default: ")[1].split("]")[0]) == one.default


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_printed_as_a_section_that_gives_the_same_settings(name: str) -> None:
    Path("nmtalign.toml").write_text(call("train", "--preset", name, "--show-settings"))
    found = tomllib.loads(Path("nmtalign.toml").read_text())["train"]
    assert found["preset"] == name
    assert PRESETS[name].items() <= found.items()
    assert resolved("train") == found


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("train --set heads=8", "only a Transformer has heads"),
        ("train --set rho=0.9", "only adadelta uses it"),
        ("train --set beta2=0.9 --set optimizer=adadelta", "only adam and adamw use it"),
        ("train --set cell=lstm --preset transformer", "a Transformer does not use it"),
        (
            "train --set reverse_source=true --preset luong-global --set architecture=transformer --set readout=direct "
            "--set input_feeding=context",
            "a Transformer does not use it",
        ),
        ("train --set metric=bleu --preset small --set bleu_sentences=0", "without translations the loss selects"),
        ("train --set residual=true --preset gnmt --set layers=2", "the first two layers have no such connections"),
        ("train --set guided_weight=2", "there are no links to learn"),
        ("train --set attention_window=5", "global attention has no window"),
        ("train --set attention_positions=3", "soft attention sums over all positions"),
    ],
)
def test_a_warning_names_a_setting_of_the_command_line_that_has_no_effect(words: str, reason: str) -> None:
    _, _, changed, *others = words.split()

    def warnings(*words: str) -> list[str]:
        ended = run(Path(), "train", "missing", *words)
        assert ended.returncode == 4
        return [line for line in ended.stderr.splitlines() if "warning" in line]

    assert warnings("--set", changed, *others) == [f"nmtalign: warning: --set {changed} has no effect: {reason}"]
    assert not warnings("--set", changed, *others, "--quiet")
    name, _, value = changed.partition("=")
    assert not warnings("--set", f"{name}={SECTIONS['train'][name].default!s}", *others)  # changes nothing
    text = f'"{value}"' if value in ("lstm", "bleu") else value
    Path("nmtalign.toml").write_text(f"[train]\n{name} = {text}\n")  # the file may be for other runs, too
    assert not warnings(*others)


def test_a_warning_names_settings_of_the_file_that_are_for_its_own_preset() -> None:
    Path("nmtalign.toml").write_text('[train]\npreset = "tiny"\nlearning_rate = 0.006\nhidden = 32\nepochs = 4\n')

    def warnings(*words: str) -> list[str]:
        return run(Path(), "train", "missing", *words).stderr.splitlines()[:-1]

    for warning, setting in zip(warnings("--preset", "small"), ("learning_rate = 0.006", "hidden = 32"), strict=True):
        assert f"nmtalign.toml: [train] {setting} is for tiny, not small; --set replaces it" in warning
    replaced = "--set", "learning_rate=1", "--set", "hidden=9"
    others = (), ("--preset", "tiny"), ("--preset", "small", *replaced), ("--preset", "small", "-q")
    assert not any(warnings(*words) for words in others)


def test_the_architecture_is_that_of_the_model() -> None:
    write_model(Path("first"), ModelConfig(hidden=24, embedding=12, cell="cudnn", dropout=0.5))
    command = ["train", "--preset", "tiny", "--init-from", "first", "--show-settings"]
    found = resolved("train", *command[1:-1], "--set", "hidden=24")
    assert (found["hidden"], found["embedding"], found["dropout"], found["maxout"]) == (24, 12, 0.5, 500)
    assert found["batch_size"] == PRESETS["tiny"]["batch_size"]
    lines = call(*command, "--set", "dropout=0.1").splitlines()
    assert "hidden = 24  # MODEL first" in lines
    assert "dropout = 0.1  # --set" in lines
    assert not any(line.startswith("# budget of the preset") for line in lines)  # which is that of its own model
    assert f"batch_size = {PRESETS['tiny']['batch_size']}  # preset tiny" in lines
    with pytest.raises(UsageError, match=r"^--set hidden=25: the model first has hidden = 24, and a training that"):
        call(*command, "--set", "hidden=25")
    Path("nmtalign.toml").write_text('[train]\ncell = "paper"\n')
    with pytest.raises(UsageError, match=r'^nmtalign\.toml: \[train\] cell = "paper": .* has cell = "cudnn"'):
        call(*command)
    with pytest.raises(FormatError, match="other: no nmtalign model here"):
        resolved("train", "--init-from", "other")


def test_precedence_and_origins_are_shown() -> None:
    Path("nmtalign.toml").write_text('[train]\npreset = "tiny"\nmaxout = 9\nembedding = 9\n')
    lines = call("train", "--set", "embedding=7", "--epochs", "3", "--show-settings").splitlines()
    assert lines[:2] == ["[train]", 'preset = "tiny"']
    assert {"embedding = 7  # --set", "epochs = 3.0  # --epochs", "maxout = 9  # nmtalign.toml: [train]"} <= {*lines}
    assert {"hidden = 128  # preset tiny", "rho = 0.95  # default"} <= {*lines}
    assert "# metrics: bleu,chrf,chrf++  # default" in call("score", "--show-settings").splitlines()  # not `""`


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
    found = resolve(TranslateConfig, ("nmtalign.toml: [translate]", below), (COMMAND_LINE, above))
    assert found.candidates == candidates


def test_a_threshold_decides_the_method_of_links_wherever_it_is_given() -> None:
    from nmtalign.alignment.aligning import without_auto

    def method(*layers: Mapping[str, Any], models: int = 1) -> str | None:
        loaded: Any = [SimpleNamespace(model=SimpleNamespace(has_posterior=True))] * models
        return without_auto(resolve(AlignConfig, *(("", layer) for layer in layers)), loaded).links

    assert method({}) == "argmax"
    assert method({"threshold": 0.4}) == method({"links": "argmax"}, {"threshold": 0.4}) == "threshold"
    assert method({"threshold": 0.4}, {"links": "argmax"}) == "argmax"
    assert method({}, models=2) == method({"links": "argmax"}, models=2) == "threshold"  # that of agreement
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
        resolve(TranslateConfig, *layers)
    assert str(caught.value).startswith(message)
