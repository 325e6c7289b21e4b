"""When the directions of a matrix rise, in which order, and whether one after another.

A direction is a singular value that is followed through time. It has begun at a tenth of its last
value and ended at nine tenths of it.
"""

import math

import numpy as np
from jaxtyping import Float

Vector = Float[np.ndarray, " _"]
Course = Float[np.ndarray, "_ _"]

# shares of its last value at which a direction has begun, and has ended
BEGUN = 0.1
ENDED = 0.9


def first_time(times: Vector, values: Vector, threshold: float) -> float:
    """When the values first reach the threshold; infinite if they never do.

    Between two times their logarithm is taken as a straight line.
    """
    above = np.flatnonzero(values >= threshold)
    if not len(above):
        return math.inf
    k = int(above[0])
    if k == 0:
        return float(times[0])
    before = np.log(values[k - 1])
    after = np.log(values[k])
    return float(
        times[k] - (after - np.log(threshold)) / (after - before) * (times[k] - times[k - 1])
    )


def direction_times(
    times: Vector, sigma: Course, significant: float
) -> tuple[Vector, Vector, Vector]:
    """The last singular values that are significant, and when each of them has begun and ended."""
    last = sigma[-1][sigma[-1] > significant]
    begun, ended = (
        np.array([first_time(times, sigma[:, i], share * value) for i, value in enumerate(last)])
        for share in (BEGUN, ENDED)
    )
    return last, begun, ended


def order(last: Vector, ended: Vector) -> float:
    """Kendall's tau of size and earliness: 1 if the largest direction ends first.

    NaN stands for fewer than two directions.
    """
    if len(last) < 2:
        return math.nan
    # it takes a third of a second to load, and few who read this module ask for an order
    from scipy.stats import kendalltau

    return float(kendalltau(last, -ended).statistic)


def separate(begun: Vector, ended: Vector) -> float:
    """The share of directions after the first that begin once the one before them has ended.

    "Before" is in the order in which they end. NaN stands for fewer than two directions.
    """
    if len(ended) < 2:
        return math.nan
    places = np.argsort(ended, kind="stable")
    return float(np.mean(begun[places[1:]] >= ended[places[:-1]]))
