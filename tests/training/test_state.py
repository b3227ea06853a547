"""Checkpoints: exact, the newest two kept, each checked when it is used, none lost when writing is interrupted."""

import errno
import json
import math

import numpy as np
import pytest
import torch

from nmtalign import model_directory
from nmtalign.core.model import TranslationModel
from nmtalign.errors import FormatError, ResourceError
from nmtalign.settings.training_settings import ModelConfig, TrainingConfig
from nmtalign.training.checkpoints import Position, clean_folder, find_checkpoint, load_state, save_state, save_weights
from nmtalign.training.events import EventLog, Finished
from nmtalign.training.optimizers import make_optimizer

RUN = "f" * 64
NEWEST, BEFORE = "training_state.safetensors", "training_state.previous.safetensors"


def made(name="adadelta", seed=0):
    torch.manual_seed(seed)
    model = TranslationModel(ModelConfig(7, 9, embedding=3, hidden=4, attention_hidden=3, maxout=2))
    return model, make_optimizer(model.parameters(), TrainingConfig(optimizer=name))


def updated(model, optimizer, times=1):
    for _ in range(times):
        for weight in model.parameters():
            weight.grad = torch.randn_like(weight)
        optimizer.descend(0.1)


def checkpoints(folder, *updates):
    """Writes checkpoints of these updates, each with different weights."""
    model, optimizer = made()
    for update in updates:
        updated(model, optimizer)
        save_state(folder, model, optimizer, Position(update=update), RUN)
    return model, optimizer


def equal(one, other):
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    return torch.equal(one, other)


def flip(path):
    """Changes the last bit."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["adadelta", "adam", "adamw"])
def test_all_that_training_resumes_from_comes_back(tmp_path, name):
    model, steps = made(name)
    updated(model, steps, 3)
    position = Position(update=3, epoch=1, batch=2, seconds=1.5, validated=3, best_loss=float("inf"), since_best=1)
    save_weights(tmp_path / model_directory.BEST, model, 3, RUN)
    assert save_state(tmp_path, model, steps, position, RUN) == tmp_path / NEWEST
    other, others = made(name, seed=1)
    found = find_checkpoint(tmp_path)
    assert (found.path, found.fingerprint, found.damage) == (tmp_path / NEWEST, RUN, "")
    load_state(found.path, other, others)
    assert found.position == position
    assert equal(other.state_dict(), model.state_dict())
    assert equal(others.values(), steps.values())
    for each in ((model, steps), (other, others)):
        torch.manual_seed(5)
        updated(*each)
    assert equal(other.state_dict(), model.state_dict())


@pytest.mark.parametrize(
    ("excesses", "diverged"),
    [
        ([0.3], False),  # before it has learned
        ([-1.0, -0.5, 0.4], False),
        ([1.2], True),  # above guessing
        ([-5.0, 30.0, -5.0], False),  # it has recovered
        ([-6.5, -5.0], False),
        ([-6.5, -4.0], True),  # back at the frequencies of words
        ([-2.0, math.nan], True),
    ],
)
def test_a_loss_above_guessing_or_far_above_its_lowest_value_has_diverged(tmp_path, excesses, diverged):
    position = Position()
    assert not position.diverged
    for excess in excesses:
        position.note_excess(excess)
    assert position.diverged is diverged
    model, optimizer = made()
    save_state(tmp_path, model, optimizer, position, RUN)
    assert find_checkpoint(tmp_path).position == position


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (flip, "damaged: its checksum does not match"),
        (lambda path: path.write_bytes(b""), "damaged, or not a safetensors file"),
        (lambda path: model_directory.save_tensors(path, {"a": torch.ones(1)}, {}), "not a checkpoint of a training"),
        (lambda path: (path.unlink(), path.mkdir()), "cannot be read"),
    ],
)
def test_a_newest_checkpoint_that_is_damaged_or_empty_makes_the_one_before_it_count(tmp_path, damage, message):
    checkpoints(tmp_path, 3, 6)
    kept = (tmp_path / BEFORE).read_bytes()
    damage(tmp_path / NEWEST)
    (tmp_path / BEFORE).write_bytes(kept)
    found = find_checkpoint(tmp_path)
    assert (found.path.name, found.position.update) == (BEFORE, 3)
    assert found.damage.startswith(f"{tmp_path / NEWEST}: {message}")
    assert "\n" not in found.damage


def test_two_damaged_checkpoints_are_one_line_with_both_names_and_the_fix(tmp_path):
    checkpoints(tmp_path, 3, 6)
    flip(tmp_path / NEWEST)
    (tmp_path / BEFORE).write_bytes(b"")
    with pytest.raises(FormatError, match=rf"^.*{NEWEST}: .*{BEFORE}: .*--init-from {tmp_path} .*--force$") as raised:
        find_checkpoint(tmp_path)
    assert raised.value.exit_code == 4
    (tmp_path / BEFORE).unlink()
    with pytest.raises(FormatError, match=rf"^.*{NEWEST}: .*--force$"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize(
    "position", ["[]", "[" * 100_000, '{"update": "3"}', '{"update": null}', '{"seconds": 1%s}' % ("0" * 400)]
)
def test_a_position_that_makes_no_sense_is_no_checkpoint(tmp_path, position):
    model_directory.save_tensors(tmp_path / NEWEST, {}, {"position": position, "fingerprint": RUN})
    with pytest.raises(FormatError, match=r"training_state\.safetensors: not a checkpoint of a training"):
        find_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("values", "hidden"),
    [
        ({}, 5),  # the weights are of another model
        ({"x.square_avg": ()}, 4),
        ({"99.square_avg": ()}, 4),
        ({"-1.square_avg": ()}, 4),
        ({"0.square_avg": (7, 3)}, 4),
        ({"0.square_avg": (7, 3), "0.acc_delta": (7, 2)}, 4),
        ({"0.step": (), "0.square_avg": (7, 3), "0.acc_delta": (7, 3)}, 4),
    ],
    ids=str,
)
def test_weights_or_values_of_the_optimiser_that_do_not_fit_are_refused(tmp_path, values, hidden):
    model, optimizer = made()
    assert next(model.parameters()).shape == (7, 3)
    other = TranslationModel(ModelConfig(7, 9, embedding=3, hidden=hidden, attention_hidden=3, maxout=2))
    tensors = {f"model.{name}": tensor for name, tensor in other.state_dict().items()}
    tensors |= {f"optimizer.{name}": torch.zeros(shape) for name, shape in values.items()}
    model_directory.save_tensors(tmp_path / NEWEST, tensors, {"position": '{"best": null}', "fingerprint": RUN})
    with pytest.raises(FormatError, match=r"training_state\.safetensors: does not fit this model"):
        load_state(find_checkpoint(tmp_path).path, model, optimizer)


def test_resuming_after_damage_never_puts_the_damaged_one_in_the_place_of_the_complete_one(tmp_path):
    model, optimizer = checkpoints(tmp_path, 3, 6)
    flip(tmp_path / NEWEST)
    (tmp_path / ".training_state.safetensors.1.partial").write_text("half")
    found = find_checkpoint(tmp_path)
    clean_folder(tmp_path, found)
    assert [path.name for path in tmp_path.iterdir()] == [BEFORE]
    save_state(tmp_path, model, optimizer, Position(update=4), RUN)
    assert find_checkpoint(tmp_path).position.update == 4
    (tmp_path / NEWEST).unlink()
    assert find_checkpoint(tmp_path).position.update == 3


def test_a_full_disk_leaves_the_last_checkpoint_and_is_reported(tmp_path, monkeypatch):
    model, optimizer = checkpoints(tmp_path, 3, 6)

    def full(tensor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "ascontiguousarray", full)
    for save in (
        lambda: save_state(tmp_path, model, optimizer, Position(update=9), RUN),
        lambda: save_weights(tmp_path / "best.safetensors", model, 9, RUN),
    ):
        with pytest.raises(ResourceError, match=r"no space left on the disk; the last checkpoint is kept") as raised:
            save()
        assert raised.value.exit_code == 5
    assert sorted(path.name for path in tmp_path.iterdir()) == [BEFORE, NEWEST]
    assert find_checkpoint(tmp_path).position.update == 6


def test_the_log_is_cut_back_to_the_checkpoint_even_where_a_character_was_cut(tmp_path):
    log = EventLog(tmp_path, 0)
    for update in (1, 2, 3):
        log.write(Finished(update, 0.0, 0.0, "é", False, None, None))
    path = tmp_path / "train.jsonl"
    path.write_bytes(path.read_bytes() + '{"update": 1, "reason": "é'.encode()[:-1])
    EventLog(tmp_path, 2)
    assert [json.loads(line)["update"] for line in path.read_text(encoding="utf-8").splitlines()] == [1, 2]
