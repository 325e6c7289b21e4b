"""What claims say of heads under weight decay, from the tables of what was followed."""

import numpy as np
import pandas as pd

from lib.gradual_rank.activation_times import order_agreement, relative_errors
from lib.gradual_rank.measures import CELL, Table, by_cell, by_scale
from lib.gradual_rank.scales import LOG10
from lib.pages.measures import Row, Values, rows_of

OFF_REST = ["on_KQ", "off_KQ", "on_VO", "off_VO"]


def beside_undecayed(rows: Table, key: list[str], column: str, name: str) -> Table:
    """Rows with what a column is without decay, under a name, in the row of the same key."""
    base = rows[rows["share"] == 0].set_index(key)[column].rename(name)
    return rows.join(base, on=key)


def joins(rises: Table, significant: float) -> Table:
    """What Algorithm 1 with decay makes join and significant, with its time `without` decay.

    Infinite where nothing joins so without it.
    """
    both = beside_undecayed(rises, [*CELL, "coordinate", "sign"], "predicted", "without")
    return both[np.isfinite(both["predicted"]) & (both["height"] > significant)]


def named(rows: Table) -> Table:
    """Rows with decay that rises, named by their seed and share."""
    rows = rows[rows["share"].between(0, 1, "neither")]
    cases = [f"seed {a}, share {b:g}" for a, b in zip(rows["seed"], rows["share"], strict=True)]
    return rows.assign(seed=cases)


def rise_measures(rows: Table) -> dict[str, Values]:
    """The relative error of the first rise's time, by the formula and by that without decay."""
    rows = named(rows)
    time = rows["first_rise"].to_numpy()
    table = rows.assign(
        rise_error=relative_errors(time, rows["expected"].to_numpy(), time),
        rise_undecayed=relative_errors(time, rows["undecayed"].to_numpy(), time),
    )
    return {name: by_scale(table, name) for name in ("rise_error", "rise_undecayed")}


def rest_measures(heads: Table, resting: Table) -> list[Row]:
    """The distance from rest at the end of what was followed, as a share of λ."""
    own = named(heads)
    matrices = named(resting).set_index("seed")
    diagonal = {name: by_scale(own, name) for name in ("rest_error", "ridge_error")}
    full = {"rest_error": matrices[OFF_REST].max(axis=1)}
    return [*rows_of(diagonal, "diagonal"), *rows_of(full, "full")]


def time_measures(joined: Table) -> dict[str, Values]:
    """Median errors of activation times, times log(1 / init_scale), and agreements of orders, of
    Algorithm 1 with decay and without.
    """

    def errors(part: Table) -> list[float]:
        measured = part["measured"].to_numpy()
        log_scale = -float(part["log10_init_scale"].iloc[0]) * LOG10
        found = []
        for theory in (part["predicted"].to_numpy(), part["without"].to_numpy()):
            error = relative_errors(measured, theory, measured)
            found += [float(np.median(error)) * log_scale, order_agreement(measured, theory)]
        return found

    names = ("time_constant", "order", "time_constant_without", "order_without")
    table = by_cell(named(joined), names, errors)
    return {name: by_scale(table, name) for name in names}


def rank_measures(heads: Table, resting: Table, most: float) -> list[Row]:
    """The rank at rest with the most decay that lets anything rise, over that without."""
    smallest = heads[heads["log10_init_scale"] == heads["log10_init_scale"].min()]
    found: list[Row] = []
    for case, rows, column in (
        ("diagonal", smallest, "rank"),
        ("W_KQ", resting, "rank_KQ"),
        ("W_VO", resting, "rank_VO"),
    ):
        ranks = rows.pivot(index="seed", columns="share", values=column)
        found += rows_of({"rank_kept": ranks[most] / ranks[0]}, case)
    return found


def never(rows: Table) -> pd.Series:
    """How many heads of each seed rise where λ is beyond the bound."""
    beyond = rows[rows["share"] >= 1]
    return (beyond["first_rise"] < np.inf).groupby(beyond["seed"]).sum()
