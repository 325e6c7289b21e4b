"""When the directions of full matrices rise, one after another, and how far theory is off.

`spectra` has one row per seed and snapshot of one matrix: its `time` and `singular_values`.
"""

import math

import numpy as np
import pandas as pd

Table = pd.DataFrame
CELL = ["seed", "log10_init_scale"]


def rise_errors(rises: Table, runs: Table, forecast: str) -> pd.Series:
    """The relative error of a forecast of the first rise, by seed: the worst over the scales of its runs.

    Infinite where nothing rose.
    """
    every = runs[CELL].drop_duplicates().set_index(CELL).index
    risen = rises.set_index(CELL).reindex(every)
    error = (risen[forecast] / risen["time"] - 1).abs().fillna(math.inf)
    return error.groupby(level="seed").max()


def rise_times(spectra: Table, k: int, threshold: float) -> pd.Series:
    """The time of the first snapshot in which k singular values are above the threshold, by seeds that have one."""
    above = spectra["singular_values"].map(lambda sigma: (np.asarray(sigma) > threshold).sum())
    return spectra.loc[above >= k, ["seed", "time"]].groupby("seed")["time"].min()


def rise_ratios(later: pd.Series, first: pd.Series, seeds: np.ndarray) -> pd.Series:
    """When one direction rises over when the first does, by seed; infinite where it never does."""
    return (later / first).reindex(seeds).fillna(math.inf)


def first_after(spectra: Table, times: pd.Series, column: str) -> pd.Series:
    """A column in the first snapshot from each seed's time on, by seeds that have one."""
    rows = spectra.sort_values("step")
    return rows[rows["time"] >= rows["seed"].map(times)].groupby("seed")[column].first()
