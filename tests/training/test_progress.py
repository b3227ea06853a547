"""Means between two reports."""

import pytest
import torch

from nmtalign.data.batches import make_batch
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.budget import TrainingBudget
from nmtalign.training.distributed import World
from nmtalign.training.events import Progressed, Underway
from nmtalign.training.meters import Meter, Meters

ALONE = World(torch.device("cpu"))


def report(meter):
    return meter.report(Progressed, (3, 0.5, 1.0), ALONE, learning_rate=1.0, done=0.5, seconds_left=1.0, skipped=1)


def test_means_are_of_the_updates_that_were_made():
    # With </s>: source 4 and 2 words in 2 x 4 places, target 2 and 3 in 2 x 3.
    batch = make_batch([([5, 6, 7], [5]), ([5], [5, 6])])
    meter = Meter()
    assert not meter
    meter.add(2.0, [(batch, torch.tensor(10.0))])
    meter.add(4.0, [(batch, torch.tensor(30.0)), (batch, torch.tensor(20.0))])
    assert meter
    event = report(meter)
    assert event.loss == pytest.approx(60 / 15)
    assert event.loss_sentence == pytest.approx(60 / 6)
    assert event.gradient_norm == 3.0
    assert event.padding == pytest.approx(1 - 11 / 14)
    assert event.source_words_per_second / event.target_words_per_second == pytest.approx(6 / 5)
    meter.reset()
    assert not meter


def test_the_pace_leaves_out_the_first_update_as_soon_as_there_is_another():
    meters = Meters()
    meters.start(100.0)  # of earlier runs
    meters.begin(100.0)
    assert meters.pace(130.0) == 30.0
    meters.begin(130.0)
    assert meters.pace(131.0) == 1.0
    meters.begin(131.0)
    assert meters.pace(134.0) == 2.0


def test_each_kind_of_event_has_its_own_interval():
    batch = make_batch([([5, 6, 7], [5]), ([5], [5, 6])])
    meters = Meters()
    meters.start(0.0)
    arguments = (3, 0.5, 1.0), ALONE, 1.0, 0.5, None, 0
    meters.add(2.0, [(batch, torch.tensor(10.0))])
    assert meters.report(Underway, *arguments).loss == pytest.approx(10 / 5)
    meters.add(2.0, [(batch, torch.tensor(20.0))])
    assert type(meters.report(Progressed, *arguments)) is Progressed
    assert meters.report(Underway, *arguments).loss == pytest.approx(20 / 5)
    assert meters.report(Underway, *arguments) is None


@pytest.mark.parametrize(
    ("limits", "left"),
    [
        ({"max_updates": 100}, 90 * 2.0),
        ({"epochs": 2}, 30 * 2.0),  # 2 epochs of 20 updates
        ({"max_time": "50s"}, 30.0),
        ({"max_updates": 100, "epochs": 2, "max_time": "50s"}, 30.0),
        ({"max_updates": 5}, 0.0),
        ({}, None),
    ],
)
def test_the_time_left_is_that_to_the_nearest_limit(limits, left):
    budget = TrainingBudget.of(TrainingConfig(**limits))
    found = budget.seconds_left(update=10, elapsed=20.0, updates_in_epoch=20, update_seconds=2.0)
    assert found == (None if left is None else pytest.approx(left))
