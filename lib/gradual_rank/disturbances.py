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


def assumption_measures(
    returns: Table, kicks: Table, ends: Table, returned: float, near: float
) -> dict[str, pd.Series]:
    """Assumptions 4.3 and 4.4 by disturbances: a value for each, or, of the shares, for each seed."""
    found = {"kick_error_none": by_case(kicks[kicks["noise"] == "none"], "error", "stage")}
    for noise in ("balanced", "independent"):
        back, begun, ended = (table[table["noise"] == noise] for table in (returns, kicks, ends))
        random, rises = (back[back["kind"] == kind] for kind in ("random", "rise"))
        risen = ended[ended["kind"] == "rise"]
        found |= {
            f"rise_distance_{noise}": by_case(risen, "distance", "point"),
            f"rise_share_{noise}": share_below(risen, "distance", near),
            f"rise_ratio_{noise}": by_case(rises, "ratio_products", "point"),
            f"return_ratio_{noise}": by_case(random, "ratio_products", "point"),
            f"return_share_{noise}": share_below(random, "ratio_products", returned),
            f"weights_return_ratio_{noise}": by_case(random, "ratio_weights", "point"),
            f"kick_error_{noise}": by_case(begun, "error", "stage"),
            f"kick_share_{noise}": share_below(begun, "error", near),
        }
    return found
