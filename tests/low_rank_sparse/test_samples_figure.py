"""The figure of samples needed has 95 % intervals over seeds."""

import numpy as np
import pandas as pd
from scipy import stats

from lib.files.params import Interval
from lib.low_rank_sparse.figures.samples import SHOWN, samples_against_share
from lib.pages.bars import Bar

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


def test_bars_are_student_intervals_of_logarithms_and_of_powers():
    powers = -NEEDED / 50
    bar = Bar(Interval("[-2, 0)"), "more")
    whole = {
        sweep: pd.Series(-np.arange(1.0, 4.0) - i)
        for i, sweep in enumerate(table("power", powers)["sweep"].unique())
    }
    tables = (table("n_needed", NEEDED), table("exponent", powers))
    figure = samples_against_share(*tables, 0.2, whole, bar)
    *beside_shares, over_all = figure.axes
    left, right = (list(drawn(axes)) for axes in beside_shares)
    assert (len(left), len(right)) == (2 * len(SHOWN), len(SHOWN))
    for found in left:
        np.testing.assert_allclose(found, np.exp(interval(np.log(NEEDED))))
    for found in right:
        np.testing.assert_allclose(found, interval(powers))
    means = [line.get_segments()[0][0][1] for line in over_all.collections if line.get_segments()]
    assert sorted(means) == sorted(values.mean() for values in whole.values())
    asked = [
        line for line in over_all.get_lines() if line.get_label() == "asked: at least -2 (mean)"
    ]
    assert [list(line.get_ydata()) for line in asked] == [[-2, -2]]
