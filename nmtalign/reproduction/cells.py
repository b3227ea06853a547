"""How figures are written in the tables of a report."""

import math
import statistics
from collections.abc import Sequence

from nmtalign.scoring.report import Part

NOTHING = "–"


def number(value: float | None, digits: int = 2) -> str:
    """`1,234.56`; a dash where there is none."""
    return NOTHING if value is None or not math.isfinite(value) else f"{value:,.{digits}f}"


def count(value: float | None) -> str:
    """`1,234`."""
    return number(value, 0)


def score(part: Part, metric: int) -> str:
    """`26.75 [26.01, 27.44]`: a score and its 95% interval, as far as they are known."""
    interval = part.intervals[metric] if part.intervals else None
    value = number(part.values[metric])
    return f"{value} [{interval.low:.2f}, {interval.high:.2f}]" if interval and value != NOTHING else value


def p_value(part: Part, first: Part, metric: int) -> str:
    """Of the paired bootstrap against the first system of the report; of no difference there is none."""
    values = part.p_values.get("bs", ())
    found = values[metric] if values and part.values[metric] != first.values[metric] else None
    return NOTHING if found is None else f"{found:.3f}"


def mean_and_spread(values: Sequence[float]) -> str:
    """`26.75 ± 0.31`: mean and standard deviation of several seeds, the value alone of one."""
    if not values or not all(map(math.isfinite, values)):
        return NOTHING
    spread = f" ± {statistics.stdev(values):.2f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.2f}{spread}"


def short(value: float) -> str:
    """Three digits that count: `0.0042`, `1.23`, `109`."""
    if not math.isfinite(value) or value >= 1000:
        return count(value)
    return f"{value:.4f}" if value < 0.1 else f"{value:.3g}"


def share(value: float | None) -> str:
    """`87.3%`."""
    return NOTHING if value is None or not math.isfinite(value) else f"{100 * value:.1f}%"
