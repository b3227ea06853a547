"""Checkpoint averaging: the mean of the last validated weights is one more candidate for the best weights."""

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from helpers import trainings

from nmtalign.core.model import TranslationModel
from nmtalign.model_directory import load_model
from nmtalign.model_files import describe_model
from nmtalign.settings.presets import PRESETS
from nmtalign.training.directions import Checkpoints
from nmtalign.training.events import Noticed, Validated
from nmtalign.training.loop import Trainer
from nmtalign.training.state import load_mean, save_validated, validated_weights

# So high a learning rate that the mean of some weights is much better than each of them.
CONFIG = replace(
    trainings.CONFIG, learning_rate=0.03, max_updates=40, validate_every="4", checkpoint_every="3", average=5
)
MEAN = re.compile(r"mean of the weights of updates ([\d ]+): dev loss ([\d.]+), BLEU [\d.]+; (the best, and kept|not)")
weights = trainings.weights


def train(corpus, folder, config=CONFIG, stop_at=None, **model):
    return trainings.train(corpus, folder, trainings.sizes(corpus, dropout=0.1, **model), config, stop_at)


def notice(events):
    """(updates, dev loss, whether it is the best) in the line about the mean."""
    (found,) = [match for event in events if isinstance(event, Noticed) and (match := MEAN.match(event.text))]
    return [int(update) for update in found[1].split()], float(found[2]), found[3] != "not"


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def whole(reversal, tmp_path_factory):
    """A complete training: its folder, its events, and the values of the kept files at each checkpoint."""
    folder, events, kept = tmp_path_factory.mktemp("averaged") / "model", [], {}
    sizes = trainings.sizes(reversal, dropout=0.1)

    def listen(event):
        events.append(event)
        for update, path in validated_weights(folder).items():
            kept.setdefault(update, {n: x.numpy().copy() for n, x in trainings.load_tensors(path)[0].items()})

    Trainer(reversal, folder, "tiny", sizes, CONFIG, listen).run()
    return folder, [event for event in events if event.recorded], kept


def test_the_best_weights_are_the_mean_of_the_kept_files(whole):
    folder, events, kept = whole
    updates, loss, best = notice(events)
    assert (updates, best) == ([24, 28, 32, 36, 40], True)
    validated = [event.loss for event in events if isinstance(event, Validated)]
    assert loss == pytest.approx(events[-1].best_loss, abs=6e-4)
    assert loss < min(validated) - 0.01
    for name, found in weights(folder, "best").items():
        total = sum(kept[update][name].astype(np.float64) for update in updates)
        assert np.array_equal(found.numpy(), (total / len(updates)).astype(np.float32))
    assert not validated_weights(folder)
    loaded = load_model(folder, "cpu")
    assert same(dict(loaded.model.state_dict()), weights(folder, "best"))
    assert describe_model(folder)["files"]["best.safetensors"]["averaged"] == updates


def test_averaging_changes_nothing_of_the_training(reversal, whole, tmp_path):
    folder, events, kept = whole
    plain = train(reversal, tmp_path / "plain", replace(CONFIG, average=0))
    assert same(weights(folder), weights(tmp_path / "plain"))
    for name, value in weights(tmp_path / "plain").items():
        assert np.array_equal(kept[40][name], value.numpy())

    def results(events):
        return [(event.update, event.loss, event.bleu) for event in events if isinstance(event, Validated)]

    assert results(events) == results(plain)
    assert not any("mean" in event.text for event in plain if isinstance(event, Noticed))
    assert {path.name for path in folder.iterdir()} == {path.name for path in (tmp_path / "plain").iterdir()}


@pytest.mark.parametrize(("stop_at", "damage"), [(27, False), (36, False), (36, True)])
def test_a_resumed_training_has_the_same_mean_bit_for_bit(reversal, whole, tmp_path, stop_at, damage):
    folder = tmp_path / "parts"
    assert not train(reversal, folder, stop_at=stop_at)[-1].complete
    assert 0 < len(validated_weights(folder)) <= CONFIG.average + 1
    if damage:  # the checkpoint before it is used
        path = folder / "training_state.safetensors"
        path.write_bytes(path.read_bytes()[:1000])
    events = train(reversal, folder)
    assert (events[0].resumed, notice(events)[0]) == (True, notice(whole[1])[0])
    assert same(weights(folder, "best"), weights(whole[0], "best"))
    assert same(weights(folder), weights(whole[0]))


def test_a_training_killed_while_it_averages_has_the_same_mean(reversal, whole, tmp_path, monkeypatch):
    class Killed(BaseException):
        pass

    def kill(checkpoints):
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "load_mean", kill)
        with pytest.raises(Killed):
            train(reversal, tmp_path / "model")
    events = train(reversal, tmp_path / "model")
    assert not [event for event in events if isinstance(event, Validated)]
    assert same(weights(tmp_path / "model", "best"), weights(whole[0], "best"))


def test_a_finished_training_stays_and_a_larger_budget_averages_again(reversal, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path / "model")
    before = weights(tmp_path / "model", "best")
    patient = replace(CONFIG, patience=2)
    assert train(reversal, tmp_path / "model", patient)[-1].update == 40
    assert same(weights(tmp_path / "model", "best"), before)
    events = train(reversal, tmp_path / "model", replace(CONFIG, max_updates=48))
    assert notice(events)[0] == [44, 48]
    assert not validated_weights(tmp_path / "model")


def test_both_directions_are_averaged_and_patience_ends_the_training(reversal, tmp_path):
    config = replace(CONFIG, agreement=True, learning_rate=1e-12, patience=2, max_updates=100, average=2)
    events = train(reversal, tmp_path / "model", config)
    assert "no progress" in events[-1].reason
    updates, _, _ = notice(events)
    assert len(updates) == 2
    assert updates[-1] == events[-1].update
    for folder in (tmp_path / "model", tmp_path / "model" / "backward"):
        assert not validated_weights(folder)
    again = train(reversal, tmp_path / "model", config)
    assert again[-1].update == events[-1].update


def test_a_damaged_file_is_left_out_of_the_mean(reversal, tmp_path):
    model = TranslationModel(trainings.sizes(reversal))
    for update in (900, 1000, 1100):
        torch.nn.init.constant_(model.readout.output_bias, update)
        save_validated(tmp_path, model, update, "run")
    path = validated_weights(tmp_path)[1000]
    path.write_bytes(path.read_bytes()[:-8] + b"different")
    assert load_mean(tmp_path, model, 3) == [900, 1100]
    assert model.readout.output_bias[0].item() == 1000
    assert load_mean(tmp_path, model, 1) == [1100]
    assert model.readout.output_bias[0].item() == 1000


def test_no_preset_averages():
    assert not any("average" in settings for settings in PRESETS.values())
