"""Means between two reports."""

import pytest
import torch

from nmtalign.data.batches import make_batch
from nmtalign.training.distributed import World
from nmtalign.training.events import Meter

ALONE = World(torch.device("cpu"))


def report(meter):
    return meter.report((3, 0.5, 1.0), ALONE, learning_rate=1.0, done=0.5, seconds_left=1.0, skipped=1)


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
