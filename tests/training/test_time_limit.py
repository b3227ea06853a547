"""A time limit includes the last validation and its checkpoints. A simulated clock replaces the time of the machine."""

import itertools
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from helpers import trainings
from helpers.parallel_texts import prepared

from nmtalign.training import checkpoints, trainer
from nmtalign.training.events import Finished, Noticed, Progressed, Started, Validated
from nmtalign.training.updates import TrainingSetup
from nmtalign.training.validation import Validator

LIMIT, SAVING = 60.0, 0.25
LIMITED = {"max_updates": 0, "max_time": "60s", "schedule": "linear"}
CONFIG = replace(trainings.CONFIG, **LIMITED, batch_size=8, validate_every="12", log_every=1)


class Machine:
    """Updates, validations and checkpoints take known times, in seconds; a load makes all of them slower."""

    def __init__(self):
        self.now, self.updating, self.validating, self.load = 0.0, 0.5, 4.0, 1.0
        self.loaded_from = float("inf")  # the time at which the load begins

    def work(self, seconds):
        self.now += seconds * (self.load if self.now >= self.loaded_from else 1.0)


@pytest.fixture
def machine(monkeypatch):
    machine = Machine()

    def slow(owner, name, seconds):
        whole = getattr(owner, name)

        def work(*arguments, **options):
            machine.work(seconds())
            return whole(*arguments, **options)

        monkeypatch.setattr(owner, name, work)

    slow(TrainingSetup, "update", lambda: machine.updating)
    slow(Validator, "validate", lambda: machine.validating)
    slow(checkpoints, "save_state", lambda: SAVING)
    monkeypatch.setattr(trainer, "time", SimpleNamespace(perf_counter=lambda: machine.now))
    return machine


def train(corpus, folder, stop_at=None, **changes):
    return trainings.train(corpus, folder, replace(CONFIG, **changes), stop_at)


def of(kind, events):
    return [event for event in events if isinstance(event, kind)]


def assert_within_the_limit(events, machine, limit=LIMIT):
    """It ends at the limit, except for two updates; it ends a little earlier after the load has changed."""
    assert 0.9 * limit <= machine.now <= limit + 2 * machine.updating * machine.load
    assert events[-1].complete
    assert events[-1].reason == f"{limit:g} s"
    assert of(Validated, events)[-1].update == of(Progressed, events)[-1].update == events[-1].update


def assert_falls_to_zero(events):
    rates = [event.learning_rate for event in of(Progressed, events)]
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] < 0.06 * max(rates)
    assert of(Progressed, events)[-1].done > 0.98


@pytest.mark.parametrize(("loaded_from", "load"), [(float("inf"), 1.0), (0.0, 2.0), (30.0, 2.0)])
def test_a_run_ends_at_its_time_limit_also_under_load(reversal, tmp_path, machine, loaded_from, load):
    machine.loaded_from, machine.load = loaded_from, load
    events = train(reversal, tmp_path / "model")
    assert_within_the_limit(events, machine)
    assert_falls_to_zero(events)


def test_the_first_validation_is_estimated_if_it_is_the_last(reversal, tmp_path, machine):
    updates = {}
    for sentences in (0, 40):
        machine.now, machine.updating = 0.0, 1.0
        events = train(reversal, tmp_path / str(sentences), bleu_sentences=sentences, validate_every="1h")
        updates[sentences] = events[-1].update
        assert of(Validated, events)[-1].update == events[-1].update
    assert updates[40] < updates[0] < LIMIT / machine.updating


def test_a_validation_shortly_before_the_last_one_is_left_out(reversal, tmp_path, machine):
    events = train(reversal, tmp_path / "model", validate_every="10s")
    assert_within_the_limit(events, machine)
    times = [event.seconds for event in of(Validated, events)]
    assert len(times) > 3
    assert all(second - first > 2 * machine.validating for first, second in itertools.pairwise(times))


def test_a_validation_for_which_the_limit_is_too_short_leaves_half_of_it_for_updates(reversal, tmp_path, machine):
    machine.updating, machine.validating = 0.1, 50.0
    events = train(reversal, tmp_path / "model", validate_every="50")
    assert len(of(Validated, events)) == 1  # the first one, whose time is not known before
    machine.now, machine.updating = 0.0, 50.0
    events = train(reversal, tmp_path / "other", max_time="300s", bleu_sentences=60, validate_every="1")
    assert len(of(Validated, events)) == 2
    assert of(Progressed, events)[-1].seconds >= 300 / 2


@pytest.mark.parametrize("first", [1.0, 1.5 * LIMIT])
def test_a_validation_that_takes_longer_than_the_limit_is_given_up(reversal, tmp_path, machine, first):
    machine.validating = first
    events = train(reversal, tmp_path / "model", max_time="", max_updates=12) if first < LIMIT else []
    machine.validating = 1.5 * LIMIT
    events += train(reversal, tmp_path / "model")
    assert len(of(Validated, events)) == (first < LIMIT)
    assert any("given up" in event.text for event in of(Noticed, events))
    assert events[-1].complete
    assert machine.now < 3 * LIMIT
    best, last = (trainings.weights(tmp_path / "model", name)["readout.output_bias"] for name in ("best", "last"))
    assert torch.equal(best, last) == (first > LIMIT)  # validated weights stay the best


def test_the_same_command_again_changes_nothing_and_a_larger_limit_continues(reversal, tmp_path, machine):
    machine.updating, machine.validating = 4.0, 0.1  # it takes far less time than expected
    first = train(reversal, tmp_path / "model", validate_every="1h", bleu_sentences=40)
    assert first[-1].seconds + machine.updating < LIMIT
    again = train(reversal, tmp_path / "model", validate_every="1h", bleu_sentences=40)
    assert [type(event) for event in again] == [Started, Finished]
    assert again[-1] == first[-1]
    more = train(reversal, tmp_path / "model", max_time="90s")
    assert more[-1].update > first[-1].update
    assert (more[-1].reason, more[-1].complete) == ("90 s", True)


def test_a_resumed_run_keeps_its_limit_and_its_learning_rate(reversal, tmp_path, machine):
    first = train(reversal, tmp_path / "model", stop_at=53)
    assert not first[-1].complete
    second = train(reversal, tmp_path / "model")
    assert second[0].resumed
    assert_within_the_limit(second, machine)
    assert_falls_to_zero(first[:-1] + second)


def test_without_a_dev_set_only_the_checkpoints_count(tmp_path, machine):
    corpus = prepared(tmp_path, [("un chat", "un chat"), ("deux chats", "deux chats")] * 400)
    events = train(corpus, tmp_path / "model")
    assert not of(Validated, events)
    assert LIMIT - 2 <= machine.now <= LIMIT + machine.updating
    assert_falls_to_zero(events)
