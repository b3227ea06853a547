"""Scores of many sums of statistics at once, each bit for bit what sacreBLEU's own code makes of that sum.

sacreBLEU sums a bootstrap sample in float32, and its arithmetic is float32 from there on, save for BLEU's logarithms.
The type of the sums is therefore kept: operations and their order are sacreBLEU's, on arrays in place of numbers.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sacrebleu.metrics import BLEU, CHRF, TER

Values = NDArray[Any]  # (S,) floats
_LOG_OF_NONE = -9999999999  # in place of log 0


def values_of(metric: Any, sums: NDArray[Any]) -> Values:
    """(S,) scores of sums (S, D) by `metric`, sacreBLEU's object.

    The type is that of an array of sacreBLEU's scores: float32 for chrF and TER of float32 sums, else float64.
    """
    if not len(sums):
        return np.zeros(0)
    vectorised = (100.0 * sums.dtype.type(1)).dtype == _working_type(sums)  # not so for float32 before NumPy 2
    if vectorised and _plain_bleu(metric):
        return _bleu(sums, exponential=metric.smooth_method == "exp")
    if vectorised and isinstance(metric, CHRF) and not metric.eps_smoothing:
        return chrf_values(sums, metric.beta)
    if vectorised and isinstance(metric, TER):
        return _ter(sums)
    return np.array([metric._compute_score_from_stats(row).score for row in sums.copy()])


def chrf_values(sums: NDArray[Any], beta: int = 2) -> Values:
    """(S,) chrF of sums of [hypothesis, reference, match] for each order: F of mean precision and mean recall."""
    kind = _working_type(sums)
    counts = sums.reshape(len(sums), -1, 3)
    factor = beta**2
    precision, recall, orders = np.zeros(len(sums), kind), np.zeros(len(sums), kind), np.zeros(len(sums), kind)
    for order in range(counts.shape[1]):
        hypothesis, reference, match = (counts[:, order, part] for part in range(3))
        counted = (hypothesis > 0) & (reference > 0)
        precision += _quotient(match, hypothesis, counted, kind)
        recall += _quotient(match, reference, counted, kind)
        orders += counted
    precision, recall = (_quotient(total, orders, orders > 0, kind) for total in (precision, recall))
    some = precision + recall != 0
    scores = _quotient((1 + factor) * precision * recall, factor * precision + recall, some, kind)
    return _with_exceptions(100 * scores, some)


def _bleu(sums: NDArray[Any], exponential: bool) -> Values:
    kind = _working_type(sums)
    orders = (sums.shape[1] - 2) // 2
    correct, total = sums[:, 2 : 2 + orders], sums[:, 2 + orders :]
    reached = np.logical_and.accumulate(total != 0, axis=1)  # sacreBLEU stops at the first order without an n-gram
    found = correct != 0
    precisions = _quotient(100 * correct.astype(kind), total, reached & found, kind)
    if exponential:
        missed = reached & ~found
        doubled = np.ldexp(np.ones(1, kind), np.cumsum(missed, axis=1).astype(np.int32))
        precisions += _quotient(np.full_like(precisions, 100), doubled * total.astype(kind), missed, kind)
    scores = [
        # Not NumPy's exponential and logarithm, which may differ in the last bit.
        _penalty(int(length), int(wanted)) * math.exp(sum(math.log(p) if p else _LOG_OF_NONE for p in row) / orders)
        for length, wanted, row in zip(sums[:, 0].tolist(), sums[:, 1].tolist(), precisions.tolist(), strict=True)
    ]
    return np.where(found.any(axis=1), np.array(scores), 0.0)


def _penalty(length: int, wanted: int) -> float:
    if length >= wanted:
        return 1.0
    return math.exp(1 - wanted / length) if length > 0 else 0.0


def _ter(sums: NDArray[Any]) -> Values:
    edits, length = sums[:, 0], sums[:, 1]
    some = length > 0
    scores = _quotient(edits, length, some, _working_type(sums))
    return _with_exceptions(100 * np.where(some, scores, edits > 0), some)


def _plain_bleu(metric: Any) -> bool:
    return isinstance(metric, BLEU) and metric.smooth_method in ("exp", "none") and not metric.effective_order


def _working_type(sums: NDArray[Any]) -> np.dtype[Any]:
    return sums.dtype if sums.dtype.kind == "f" else np.dtype(np.float64)


def _quotient(above: NDArray[Any], below: NDArray[Any], where: NDArray[np.bool_], kind: np.dtype[Any]) -> NDArray[Any]:
    """above / below where that is asked for, else 0."""
    quotients: NDArray[Any] = np.divide(above, below, out=np.zeros(where.shape, kind), where=where)
    return quotients


def _with_exceptions(scores: Values, usual: NDArray[np.bool_]) -> Values:
    """float64 where some score is a number of Python's, as those of sums without a word are, which widens an array."""
    return scores if usual.all() else scores.astype(np.float64)
