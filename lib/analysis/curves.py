"""What a curve of each seed along a parameter is summed up to: one number per seed."""

from collections.abc import Sequence

import numpy as np
import pandas as pd


def nearest(values: Sequence[float], wanted: float) -> float:
    """Of some values that nearest to the wanted one; of two as near, the lower."""
    return min(sorted(values), key=lambda value: abs(value - wanted))


def log_log_slope(x: Sequence[float], y: Sequence[float]) -> float:
    r"""The exponent b of $y \approx c x^b$: the least-squares slope of log y on log x.

    Raises `ValueError` for fewer than two different x, or where a value is not positive.
    """
    if len(set(x)) < 2 or min(*x, *y) <= 0:
        raise ValueError(f"wanted positive values at two different x or more, got {list(x)} and {list(y)}")
    u = np.log(x) - np.log(x).mean()
    return float(u @ np.log(y) / (u @ u))


def exponents(table: pd.DataFrame, x: str, y: str) -> pd.Series:
    """The exponent of each seed's power law of column y in column x; NaN where a seed has one point, or some y <= 0."""
    fitted = {
        seed: log_log_slope(of[x].tolist(), of[y].tolist()) if len(of) > 1 and (of[y] > 0).all() else np.nan
        for seed, of in table.groupby("seed")
    }
    return pd.Series(fitted, dtype=float)


def harmless_rate(rates: Sequence[float], losses: Sequence[float], slack: float) -> float:
    """The largest rate up to which every rate's loss is at most the first one's plus a slack; rates rise."""
    harmful = np.flatnonzero(np.asarray(losses) > losses[0] + slack)
    return rates[(harmful[0] if len(harmful) else len(rates)) - 1]


def harmless_rates(table: pd.DataFrame, loss: str, slack: float) -> pd.Series:
    """The harmless rate of each seed, of a column of losses beside the column `rate`."""
    by_seed = table.sort_values("rate").groupby("seed")
    return pd.Series({seed: harmless_rate(list(of["rate"]), list(of[loss]), slack) for seed, of in by_seed})


def worst(curves: pd.DataFrame, *, largest: bool = True) -> pd.Series:
    """Of a table with a row per seed, the column whose mean is the largest in size, or the smallest."""
    means = curves.mean().abs()
    return curves[means.idxmax() if largest else means.idxmin()].dropna()


def beyond_scale_law(hinge: pd.DataFrame, margin: pd.Series, least_rate: float) -> pd.DataFrame:
    r"""Hinge loss less $\max(0, 1 - (1 - R) \lvert F_0 \rvert)$: what removal costs beyond the output's scale.

    `hinge` has a row per seed and a column per share R of removed units, `margin` the mean margin F_0 at R = 0; columns
    below the least rate are left out. Units that are removed at random scale every output by 1 - R on average
    (corollary 1 of Li et al. 2024).
    """
    rates = hinge.columns.to_numpy(float)
    beyond = hinge - np.maximum(0, 1 - np.outer(margin, 1 - rates))
    return beyond.loc[:, rates >= least_rate - 1e-6]
