"""What the chapters of a report reckon themselves."""

import pytest

from nmtalign.reproduction.report_tables import trend


@pytest.mark.parametrize(
    ("values", "tau"),
    [
        ([1.0, 2.0, 3.0], 1.0),
        ([3.0, 2.0, 1.0], -1.0),
        ([2.0, 2.0], 0.0),
        ([1.0, 3.0, 2.0], 1 / 3),
        ([1.0, 2.0, 2.0, 3.0], 5 / 6),
    ],
)
def test_trend(values, tau):
    assert trend(values) == pytest.approx(tau)
