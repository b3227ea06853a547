"""Means between two reports."""

import pytest
import torch

from nmtalign.data.batches import make_batch
from nmtalign.settings.training_settings import TrainingConfig
from nmtalign.training.budget import TrainingBudget
from nmtalign.training.distributed import World
from nmtalign.training.events import Progressed
from nmtalign.training.trainer import Meter, Pace

ALONE = World(torch.device("cpu"))


def report(meter):
    return meter.report((3, 0.5, 1.0), ALONE, learning_rate=1.0, done=0.5, seconds_left=1.0, skipped=1)


def test_means_are_of_the_updates_that_were_made():
    # With </s>: source 4 and 2 words in 2 x 4 places, target 2 and 3 in 2 x 3.
    batch = make_batch([([5, 6, 7], [5]), ([5], [5, 6])])
    meter = Meter(Progressed)
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
    assert not meter


def test_the_pace_leaves_out_the_first_update_as_soon_as_there_is_another():
    pace = Pace(100.0)  # of earlier runs
    pace.begin(100.0)
    assert pace.seconds_per_update(130.0) == 30.0
    pace.begin(130.0)
    assert pace.seconds_per_update(131.0) == 1.0
    pace.begin(131.0)
    assert pace.seconds_per_update(134.0) == 2.0


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
