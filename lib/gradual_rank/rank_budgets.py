"""How many directions have been learned after a budget of time: measured, forecast, and in the limit."""

import math
from typing import cast

import numpy as np
import pandas as pd
from jaxtyping import Float

Vector = Float[np.ndarray, " n"]
Table = pd.DataFrame
CELL = ["seed", "log10_init_scale"]


def rank_at(times: Vector, joins: Float[np.ndarray, " joined"], leaves: Float[np.ndarray, " left"]) -> Vector:
    """The number of active coordinates at each time."""
    joined, left = (np.searchsorted(np.sort(moments), times, side="right") for moments in (joins, leaves))
    return (joined - left).astype(float)


def rank_of(events: Table, times: Vector) -> Vector:
    """How many coordinates are above the threshold at each time, by a table of events."""
    rises, when = events["rises"].to_numpy(bool), events["time"].to_numpy(float)
    return rank_at(times, when[rises], when[~rises])


def ranks_of_head(events: Table, predicted: Table, stages: Table, n_budgets: int) -> Table:
    """The rank at every budget up to the last stage: measured, by the finite-scale form, and in the limit.

    One row per seed, scale that was both followed and predicted, and budget.
    """
    columns = [*CELL, "rescaled_time", "measured", "finite", "limit"]
    tables = [pd.DataFrame(columns=columns, dtype=float)]
    last = stages.groupby("seed")["time"].max()
    for cell, part in predicted.groupby(CELL):
        seed, scale = cast("tuple[int, float]", cell)
        flow = events[(events["seed"] == seed) & (events["log10_init_scale"] == scale)]
        if not len(flow):
            continue
        unit = -scale * math.log(10)
        times = np.linspace(0, last[seed], n_budgets)
        own = stages[(stages["seed"] == seed) & (stages["stage"] > 0)]
        left = np.repeat(own["time"].to_numpy(), own["dropped"].map(len).to_numpy(int))
        ranks = {
            "measured": rank_of(flow, times * unit),
            "finite": rank_of(part, times * unit),
            "limit": rank_at(times, own["time"].to_numpy(), left),
        }
        tables.append(pd.DataFrame({"seed": seed, "log10_init_scale": scale, "rescaled_time": times, **ranks}))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def ranks_of_adapter(events: Table, n_budgets: int) -> Table:
    """The rank at every budget up to the end of its run, forecast and measured, by the `source` of the events."""
    tables = [pd.DataFrame(columns=[*CELL, "time", "forecast", "measured"], dtype=float)]
    for cell, part in events.groupby(CELL):
        seed, scale = cast("tuple[int, float]", cell)
        times = np.linspace(0, part["end"].iloc[0], n_budgets)
        ranks = {name: rank_of(part[part["source"] == name], times) for name in ("forecast", "measured")}
        tables.append(pd.DataFrame({"seed": seed, "log10_init_scale": scale, "time": times, **ranks}))
    return pd.concat(tables[1:] or tables, ignore_index=True)


def departures(events: Table, seeds: np.ndarray) -> Table:
    """How many coordinates leave the flow, one row per scale and for each of the seeds: `left`."""
    scales = events["log10_init_scale"].unique()
    every = pd.MultiIndex.from_product([seeds, scales], names=CELL)
    left = events[~events["rises"]].groupby(CELL).size()
    return left.reindex(every, fill_value=0).rename("left").reset_index()


def rank_errors(ranks: Table, column: str) -> Table:
    """The mean difference of the ranks in a column from the measured ones, one row per seed and scale: `error`."""
    gap = (ranks[column] - ranks["measured"]).abs().rename("error")
    return gap.groupby([ranks[name] for name in CELL]).mean().reset_index()
