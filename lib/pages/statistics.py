"""What is said of a few numbers: their middle, and an interval that keeps its word.

docs/statistics.md has the coverage of the intervals, by simulation.
"""

import math
from collections.abc import Sequence

import numpy as np

LEAST = 6  # numbers, for an interval: the range of five holds the median in 93.75 %
LEVEL = 0.95
Interval = tuple[float, float]
UNKNOWN = (math.nan, math.nan)


def middle(values: Sequence[float], over: str) -> float:
    """The mean of the numbers or else their median; NaN where one is not known."""
    if not len(values):
        return math.nan
    return float(np.mean(values) if over == "mean" else np.median(values))


def interval(values: Sequence[float], over: str, *, share: bool = False) -> Interval:
    """The 95 % interval of what `middle` gives, cut to [0, 1] for a share; NaN for none."""
    if over != "mean":
        return of_median(values)
    low, high = of_mean(values)
    return (max(low, 0.0), min(high, 1.0)) if share and math.isfinite(low) else (low, high)


def of_median(values: Sequence[float]) -> Interval:
    r"""An interval of the median by order statistics, whatever the distribution.

    The k-th smallest and the k-th largest of n independent numbers hold the median between them
    with probability $1 - 2 \\, P(B_{n, 1/2} < k)$; k is the largest for which that is at least 95 %
    (n = 6: k = 1, 96.9 %). None below six numbers.
    """
    n = len(values)
    if n < LEAST or not np.isfinite(values).all():
        return UNKNOWN
    from scipy.special import bdtr  # a page that is drawn of verdicts needs no scipy

    below = bdtr(np.arange(n), n, 0.5)  # P(B <= k)
    k = int(np.searchsorted(below, (1 - LEVEL) / 2, side="right"))
    ordered = np.sort(values)
    return float(ordered[k - 1]), float(ordered[n - k])


def of_mean(values: Sequence[float]) -> Interval:
    """Student's t interval of the mean, for numbers that are nearly normal.

    None below six numbers, as of the median: a few cannot show that they are nearly normal.
    """
    n = len(values)
    if n < LEAST or not np.isfinite(values).all():
        return UNKNOWN
    spread = float(np.std(values, ddof=1))
    from scipy.special import stdtrit

    half = float(stdtrit(n - 1, (1 + LEVEL) / 2)) * spread / math.sqrt(n)
    mean = float(np.mean(values))
    return mean - half, mean + half
