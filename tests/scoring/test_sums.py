"""Scores of sums are sacreBLEU's to the last bit, in the type of the sums."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sacrebleu.metrics import BLEU, CHRF, TER

from nmtalign.scoring.metrics import values_of

METRICS = {
    "exp": BLEU(),
    "none": BLEU(smooth_method="none"),
    "chrf": CHRF(),
    "chrf++": CHRF(word_order=2),
    "ter": TER(),
}
WIDTHS = {"chrf": 18, "chrf++": 24, "ter": 2}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("name", METRICS)
def test_values_are_sacrebleus_to_the_last_bit(name: str, dtype: str) -> None:
    metric, width = METRICS[name], WIDTHS.get(name, 10)
    numbers = st.integers(0, 3) | st.integers(0, 3_000_000)

    @given(arrays(np.dtype(dtype), st.tuples(st.integers(1, 5), st.just(width)), elements=numbers))
    def check(sums: np.ndarray[Any, Any]) -> None:
        if name.startswith("chrf"):  # matches are no more than there are n-grams
            sums[:, 2::3] = np.minimum(sums[:, 2::3], np.minimum(sums[:, ::3], sums[:, 1::3]))
        expected = np.array([metric._compute_score_from_stats(row).score for row in sums.copy()])
        found = values_of(metric, sums.copy())
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist()

    check()


def test_no_sum_has_no_score() -> None:
    assert values_of(BLEU(), np.zeros((0, 10))).shape == (0,)
