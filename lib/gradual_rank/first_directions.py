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


def full_measures(rises: Table, full: Table, threshold: float) -> dict[str, pd.Series]:
    """When the first direction of the full matrices rises against theory: the worst over the scales, for each seed.

    At the smallest scale, the stable rank of both products at the first snapshot after that rise and at the end, and
    when the second direction of W_VO and the first of W_KQ rise, over when the first of W_VO does, by the snapshots.
    """
    scale, seeds = full["log10_init_scale"].min(), full["seed"].unique()
    smallest = full[full["log10_init_scale"] == scale].sort_values("step")
    W_KQ, W_VO = (smallest[smallest["matrix"] == name] for name in ("W_KQ", "W_VO"))
    first = rise_times(W_VO, 1, threshold)
    return {
        **{f"full_first_rise_{name}": rise_errors(rises, full, name) for name in ("limit", "finite", "stepped")},
        "full_first_stable_rank_VO": first_after(W_VO, _by_seed(rises, "time", log10_init_scale=scale), "stable_rank"),
        "full_final_stable_rank_KQ": W_KQ.groupby("seed")["stable_rank"].last(),
        "full_final_stable_rank_VO": W_VO.groupby("seed")["stable_rank"].last(),
        "full_second_over_first_VO": rise_ratios(rise_times(W_VO, 2, threshold), first, seeds),
        "full_first_KQ_over_first_VO": rise_ratios(rise_times(W_KQ, 1, threshold), first, seeds),
    }


def _by_seed(table: Table, column: str, **where: object) -> pd.Series:
    """A column of the rows whose other columns have these values, by seed."""
    for name, value in where.items():
        table = table[table[name] == value]
    return table.set_index("seed").sort_index()[column]
