"""What settings say in words, and what is refused."""

import math

import pytest

from nmtalign.checks import at_least, at_most, byte_count, finite, fraction, interval, pair_of_sizes, seconds
from nmtalign.errors import UsageError


def test_units():
    assert pair_of_sizes("shortlist", "30000") == (30000, 30000)
    assert pair_of_sizes("shortlist", "8000:9000") == (8000, 9000)
    assert [seconds("max_time", text) for text in ("60s", "1.5m", "2h")] == [60, 90, 7200]
    assert interval("validate_every", "500") == ("updates", 500)
    assert interval("validate_every", "10m") == ("seconds", 600)
    assert interval("validate_every", "epoch")[0] == "epoch"
    assert byte_count("max_memory", "1.5GB") == 1.5 * 1024**3
    assert byte_count("max_memory", "700") == 700


@pytest.mark.parametrize(
    ("check", "text"),
    [
        (pair_of_sizes, "2"),
        (pair_of_sizes, "9:"),
        (seconds, "0s"),
        (seconds, "5"),
        (byte_count, "0"),
        (byte_count, "2X"),
        (interval, "0"),
        (interval, "often"),
    ],
)
def test_other_words_are_refused_with_the_settings_name(check, text):
    with pytest.raises(UsageError, match=f"^option = '{text}': give "):
        check("option", text)


@pytest.mark.parametrize("value", [math.nan, -math.inf, -0.1, 1.0, math.inf])
def test_what_is_out_of_bounds_is_refused(value):
    bound = at_least if value < 0.5 else at_most
    for check in (fraction, lambda **values: bound(0.5, **values)):
        with pytest.raises(UsageError, match=r"^rate = .*: must be at "):
            check(rate=value)


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf])
def test_what_is_no_finite_number_is_refused(value):
    with pytest.raises(UsageError, match="must be a finite number"):
        finite(rate=value)
