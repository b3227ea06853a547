"""Sizes, times and intervals in words; bounds of settings."""

import math
import pickle

import numpy as np
import pytest
import torch

from nmtalign.errors import UsageError
from nmtalign.settings import definition
from nmtalign.settings.command_settings import TranslateConfig
from nmtalign.settings.definition import Setting, byte_count, interval, naming, pair_of_sizes, resolve, seconds


def test_the_error_of_a_setting_can_be_continued():
    error = definition.SettingError("a sample contains no phrases", sample=True, glossary="x")
    assert vars(pickle.loads(pickle.dumps(error))) == vars(error)  # noqa: S301 - as from a worker process
    longer = type(error)(f"{error}; 3 lines are done")
    assert str(longer).endswith("a sample contains no phrases; 3 lines are done")
    with pytest.raises(UsageError, match=r"^sample = True does not go with .*; 3 lines are done$"), naming(("", {})):
        raise longer


def test_numbers_of_numpy_and_devices_of_pytorch_are_values():
    given = {"beam": np.int64(3), "length_penalty": np.float32(0.5), "sample": np.True_, "device": torch.device("cpu")}
    config = resolve(TranslateConfig, ("", given))
    assert (config.beam, config.length_penalty, config.sample, config.device) == (3, 0.5, True, "cpu")


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [("beam", np.array([3, 4]), "whole number"), ("beam", None, "whole number"), ("glossary", ["a.tsv"], "text")],
)
def test_a_value_of_another_type_is_refused(name, value, rule):
    with pytest.raises(UsageError, match=f"must be a {rule}$"):
        resolve(TranslateConfig, ("", {name: value}))


def test_units():
    assert pair_of_sizes("shortlist", "30000") == (30000, 30000)
    assert pair_of_sizes("shortlist", "8000:9000") == (8000, 9000)
    assert interval("validate_every", "500") == ("updates", 500)
    assert interval("validate_every", "10m") == ("seconds", 600)
    assert interval("validate_every", "epoch")[0] == "epoch"
    assert byte_count("max_memory", "1.5GB") == 1.5 * 1024**3
    assert byte_count("max_memory", "700") == 700


REFUSED = {
    pair_of_sizes: ["2", "9:", "9" * 5000, "3:" + "9" * 5000],
    seconds: ["9" * 400 + "h", "9" * 5000 + ":00:00"],
    byte_count: ["0", "0.0000001", "0.0000001K", "9" * 400, "1e999", "2X"],
    interval: ["0", "often", "9" * 400],
}


@pytest.mark.parametrize(("check", "text"), [(check, text) for check, texts in REFUSED.items() for text in texts])
def test_other_words_are_refused_with_the_settings_name(check, text):
    with pytest.raises(UsageError, match=f"^option = '{text}': give "):
        check("option", text)


@pytest.mark.parametrize(
    ("bounds", "value", "rule"),
    [
        ({}, -0.1, "at least 0"),
        ({}, math.nan, "at least 0"),
        ({"at_least": -2}, -2.5, "at least -2"),
        ({"at_most": 1000000}, 1000001, "at most 1000000"),
        ({"at_most": 5}, math.inf, "at most 5"),
        ({}, math.inf, r"at most 1.797693135e\+308"),
        ({"kind": int}, 10**400, "at most 2147483647"),
        ({"kind": int | None, "at_most": 5}, 6, "at most 5"),
        ({"above": 0}, 0, "greater than 0"),
        ({"above": 0}, math.nan, "greater than 0"),
        ({"below": 1}, 1.0, "less than 1"),
    ],
)
def test_a_number_out_of_bounds_is_refused(bounds, value, rule):
    rate = Setting("Rate.", "Panel", name="rate", **{"kind": float, "default": 1.0, **bounds})
    with pytest.raises(UsageError, match=f"^rate = .*: must be {rule}$"):
        rate.check(value)
    rate.check(0.5)
