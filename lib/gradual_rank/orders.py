"""Whether two quantities rank the same things alike."""

import math

import numpy as np
from jaxtyping import Real

Vector = Real[np.ndarray, " n"]


def kendall(x: Vector, y: Vector) -> float:
    r"""Kendall's $\tau_b$: 1 for one order, -1 for the reverse, NaN where all x or all y are one.
    Infinities count.

    $\sum a b / \sqrt{\sum a^2 \sum b^2}$ over pairs i < j, with $a = \mathrm{sign}(x_i - x_j)$ and
    b of y. The numbers of scipy.stats, whose import takes longer than some trainings.
    """
    pairs = np.triu_indices(len(x), 1)
    a, b = (((one[:, None] > one).astype(int) - (one[:, None] < one))[pairs] for one in (x, y))
    of_x, of_y = (np.sqrt(np.count_nonzero(signs)) for signs in (a, b))
    return float(np.clip((a @ b) / of_x / of_y, -1, 1)) if of_x and of_y else math.nan
