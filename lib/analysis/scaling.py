"""Power laws, fitted to a few points."""

from collections.abc import Sequence

import numpy as np


def log_log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    r"""The exponent b of $y \approx c x^b$: the least-squares slope of log y on log x.

    Raises `ValueError` for fewer than two different x, or where a value is not positive.
    """
    if len(set(x)) < 2 or min(*x, *y) <= 0:
        raise ValueError(f"wanted positive values at two different x or more, got {list(x)} and {list(y)}")
    u = np.log(x) - np.log(x).mean()
    return float(u @ np.log(y) / (u @ u))
