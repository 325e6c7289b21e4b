"""The figure of samples needed has 95 % intervals over seeds."""

import numpy as np
import pandas as pd
from scipy import stats

from lib.low_rank_sparse.figures.samples import SHOWN, samples_against_share

SHARES = [0.1, 0.2]
NEEDED = np.array([[80.0, 100.0, 160.0], [20.0, 30.0, 24.0]])  # for each share, by seed


def table(column, values):
    sweeps = [*SHOWN, *(f"{name}_untrained_attention" for name in SHOWN)]
    rows = [
        {"sweep": sweep, "share": share, "seed": seed, column: values[i, seed]}
        for sweep in sweeps
        for i, share in enumerate(SHARES)
        for seed in range(3)
    ]
    return pd.DataFrame(rows)


def interval(values):
    """The least, the middle and the most of each row."""
    reach = stats.t.ppf(0.975, 2) * values.std(1, ddof=1) / np.sqrt(3)
    middle = values.mean(1)
    return np.stack([middle - reach, middle, middle + reach])


def drawn(axes):
    """The least, the middle and the most of every series of points with bars."""
    for points, _, [bars] in axes.containers:
        ends = np.array(bars.get_segments(), float)[:, :, 1]
        yield np.stack([ends.min(1), np.array(points.get_ydata(), float), ends.max(1)])


def test_bars_are_student_intervals_of_logarithms_and_of_exponents():
    exponents = -NEEDED / 50
    figure = samples_against_share(table("n_needed", NEEDED), table("exponent", exponents), 0.2)
    left, right = (list(drawn(axes)) for axes in figure.axes)
    assert (len(left), len(right)) == (2 * len(SHOWN), len(SHOWN))
    for found in left:
        np.testing.assert_allclose(found, np.exp(interval(np.log(NEEDED))))
    for found in right:
        np.testing.assert_allclose(found, interval(exponents))
