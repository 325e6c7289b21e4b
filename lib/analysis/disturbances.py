"""What comes back after a disturbance, and which stages end on their plateau when they begin elsewhere."""

import numpy as np
import pandas as pd

Table = pd.DataFrame


def end_distances(paths: Table) -> Table:
    """How far the disturbed products are from the undisturbed at the end of each path: `distance`.

    Where a coordinate rises, the disturbed products are as small as the noise squared, and what it moves later may be
    larger: there this, of the coordinates that were disturbed, says more than a ratio of distances.
    """
    ends = paths[paths["after"] == paths["after"].max()]
    apart = [float(np.abs(a - b).max()) for a, b in zip(ends["p"], ends["p_undisturbed"], strict=True)]
    return ends.drop(columns=["p", "p_undisturbed"]).assign(distance=pd.Series(apart, ends.index, float))


def by_case(table: Table, column: str, number: str) -> pd.Series:
    """A column by the case that it was measured in: the seed, and the number of a point or stage."""
    names = [f"seed {seed}, {number} {k}" for seed, k in zip(table["seed"], table[number], strict=True)]
    return pd.Series(table[column].to_numpy(), names)


def share_below(table: Table, column: str, bar: float) -> pd.Series:
    """The share of each seed's cases that are below the bar."""
    return (table[column] < bar).groupby(table["seed"]).mean()
