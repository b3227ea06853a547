"""Scores, coverage and local attention: their parts, sizes and refused settings."""

import dataclasses

import pytest
from helpers import core_models as models

from nmtalign.core.model import make_batch
from nmtalign.settings.definition import SettingError

PAIRS, TINY, LUONG, make_model, named = models.PAIRS, models.TINY, models.LUONG, models.make_model, models.named


def arguments(pairs=PAIRS):
    return make_batch(pairs).inputs()


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (TINY, {"attention_span": "local-m", "attention": "none"}, "needs attention = "),
        (TINY, {"attention_span": "local-p", "coverage": "linguistic"}, "needs coverage = none"),
        (TINY, {"attention_window": 0, "attention_span": "local-m"}, "must be at least 1"),
        (TINY, {"input_feeding": "attentional"}, "needs readout = attentional"),
        (TINY, {"input_feeding": "attentional", "readout": "attentional"}, "needs order = "),
        (LUONG[0], {"attention_layer": "first"}, "where the last layer attends"),
    ],
    ids=str,
)
def test_settings_that_do_not_go_together_are_refused(config, changes, message):
    with pytest.raises(SettingError, match=message):
        dataclasses.replace(config, **changes)
