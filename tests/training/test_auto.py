"""The preset `auto`: what it chooses by corpus, budget and speed, and that a resumed run keeps the choice."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
import torch

import nmtalign
from nmtalign.errors import FormatError
from nmtalign.model_directory import read_settings
from nmtalign.settings.definition import resolve
from nmtalign.settings.presets import AUTO_SIZES, PRESETS, automatic, preset
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training import dry_run
from nmtalign.training.budget import count_words
from nmtalign.training.checkpoints import create_run
from nmtalign.training.distributed import World

UNITS = [units for _, units, _ in AUTO_SIZES]


@pytest.fixture
def choose(reversal, tmp_path, monkeypatch):
    """The settings and the line for a budget, on a machine with this many target words per second at 192 units."""

    def chosen(speed, **given):
        def times(setup, plan, seconds):
            words = count_words(reversal) / len(plan)
            return [words / speed * setup.model_config.hidden / UNITS[0]]

        monkeypatch.setattr(dry_run, "_update_times", times)
        layers = ("preset auto", preset("auto")), ("command line", given)
        layers, note = dry_run.choose_settings(layers, reversal, tmp_path / "model", World(torch.device("cpu")))
        return resolve(ModelConfig, *layers), resolve(TrainingConfig, *layers), note

    return chosen


def test_a_faster_machine_or_a_longer_budget_gets_a_larger_model(choose):
    speeds = [choose(speed, max_time="10m", epochs=1e6)[0].hidden for speed in (100, 40_000, 400_000, 10**7)]
    times = [choose(10_000, max_time=time, epochs=1e6)[0].hidden for time in ("1m", "1h", "10h", "1000h")]
    for found in (speeds, times):
        assert found == sorted(found)
        assert (found[0], found[-1]) == (UNITS[0], UNITS[-1])


def test_more_passes_need_more_dropout(choose, reversal):
    words = count_words(reversal)
    dropouts = [choose(1.0, max_time=f"{passes * words}s")[0].dropout for passes in (1, 3, 7, 12, 20, 40)]
    assert dropouts == sorted(dropouts)
    assert dropouts[0] < dropouts[-1]


def test_more_updates_go_with_a_lower_rate(choose, reversal):
    words = count_words(reversal)
    rates = [choose(1.0, max_time=f"{passes * words}s", epochs=1e6)[1].learning_rate for passes in (1, 10_000)]
    assert rates[0] > rates[1]


def test_without_a_limit_the_choice_is_that_for_the_number_of_epochs_of_the_preset(choose):
    epochs = choose(5_000)[1].epochs
    (model, config, note), (unlimited, endless, line) = choose(5_000, epochs=epochs), choose(5_000, epochs=0.0)
    assert (unlimited, replace(endless, epochs=epochs), line) == (model, config, note)
    assert (endless.epochs, endless.max_updates, endless.max_time) == (0, 0, "")


def test_the_line_names_the_settings_that_fix_the_choice(choose):
    model, config, note = choose(5_000, max_time="10m")
    fixed = dict(re.findall(r"--set (\w+)=(\S+)", note))
    chosen = {"dropout": model.dropout, "learning_rate": config.learning_rate}
    assert fixed == {"hidden": str(model.hidden), **{name: f"{value:g}" for name, value in chosen.items()}}
    given = {name: float(value) for name, value in fixed.items()}
    again = choose(10**9, max_time="10m", **{**given, "hidden": int(fixed["hidden"])})
    assert again[0] == model
    assert again[1].learning_rate == config.learning_rate


def test_what_the_user_gives_is_never_changed(choose):
    model, config, _ = choose(5_000, hidden=40, embedding=24, maxout=20, learning_rate=0.5, epochs=3.0)
    assert (model.hidden, model.embedding, model.maxout, model.shared_embeddings) == (40, 24, 20, False)
    assert (config.learning_rate, config.epochs, config.max_time) == (0.5, 3.0, "")


@pytest.mark.parametrize("given", [{"readout": "direct"}, {"output_rank": 30}, {"embedding": 77}])
def test_settings_of_the_architecture_go_with_it(choose, given):
    model, _, _ = choose(5_000, **given)
    assert all(getattr(model, name) == value for name, value in given.items())


def test_every_size_of_corpus_has_a_budget_and_settings_that_are_valid():
    for words in (1, 10**4, 10**5, 5 * 10**5, 5 * 10**6, 3 * 10**7, 10**9):
        for units in UNITS:
            layer = automatic(words, units, 3.0, {})
            config = resolve(TrainingConfig, ("", PRESETS["auto"]), ("", layer))
            assert resolve(ModelConfig, ("", PRESETS["auto"]), ("", layer)).hidden == units
            assert config.max_time
            assert config.epochs == 200 or config.epochs * words / config.batch_size >= 1999
    assert all(first < second for first, second in pairwise(size[0] for size in AUTO_SIZES))


@pytest.mark.parametrize("given", [{}, {"max_time": "8h"}, {"max_updates": 100_000}, {"epochs": 10.0}], ids=str)
def test_a_resumed_run_validates_as_often_as_it_began(choose, reversal, tmp_path, monkeypatch, given):
    monkeypatch.setattr(dry_run, "count_words", lambda corpus: 10**7)  # else two passes lie between validations
    model, config, _ = choose(5_000, **given)
    create_run(tmp_path / "model", reversal, "auto", model, config)
    assert choose(5_000, **given)[:2] == (model, config)


def test_a_damaged_config_is_an_error_of_one_line(choose, reversal, tmp_path):
    create_run(tmp_path / "model", reversal, "auto", *choose(5_000)[:2])
    config = tmp_path / "model/config.json"
    config.write_text(config.read_text().replace('"hidden": 192', '"hidden": "many"'))
    with pytest.raises(FormatError, match=r'config\.json: model: hidden = "many": must be a whole number'):
        choose(5_000)


def test_a_resumed_run_keeps_the_choice_and_a_new_one_chooses_anew(reversal, tmp_path, monkeypatch):
    seconds = [1e-4]
    monkeypatch.setattr(dry_run, "_update_times", lambda *_: seconds)
    monkeypatch.setattr("nmtalign.settings.presets.AUTO_SIZES", sizes := ((0, 12, 8), (4_000, 16, 8)))
    monkeypatch.setattr(dry_run, "AUTO_SIZES", sizes)

    def hidden(**settings):
        events = []
        nmtalign.train(reversal.folder, tmp_path / "model", listen=events.append, **settings)
        chose = any("to fix this choice" in getattr(event, "text", "") for event in events)
        return read_settings(tmp_path / "model")["model"]["hidden"], chose

    assert hidden(max_updates=2) == (12, True)
    seconds[0] = 1e-9
    assert hidden(max_updates=4, max_time="10h") == (12, False)
    assert hidden(max_updates=3) == (12, False)  # it is done already, which changes nothing
    recorded = read_settings(tmp_path / "model")["training"]
    assert (recorded["max_updates"], recorded["max_time"]) == (4, "10h")
    assert hidden(epochs=0.05, force=True) == (12, True)
    assert hidden(max_updates=2, hidden=16, force=True) == (16, True)


def test_a_training_from_another_model_has_its_architecture(reversal, tmp_path):
    layers = ("preset auto", preset("auto")), ("command line", {"init_from": "other"})
    world = World(torch.device("cpu"))
    assert dry_run.choose_settings(layers, reversal, tmp_path, world) == (layers, "")
