"""When coordinates join: by Algorithm 1, by its finite-scale form, and in the flow.

Tables of stages and events are those that the dynamics give, one row per stage or event. Times of
stages, and all that stand in the tables made here, are over log(1 / init_scale); what never
happened is infinite.
"""

import math

import numpy as np
import pandas as pd
from scipy.stats import kendalltau

from lib.gradual_rank.measures import CELL, Table, Vector, by_cell
from lib.gradual_rank.scales import LOG10

TIME_ERRORS = [
    "log_scale",
    "time_error_median",
    "time_error_max",
    "order_agreement",
    "finite_error_median",
    "finite_error_max",
]


def relative_errors(measured: Vector, predicted: Vector, unit: Vector) -> Vector:
    """|measured − predicted| / unit; 1 where nothing was measured (infinite)."""
    with np.errstate(invalid="ignore"):
        error = np.abs(measured - predicted) / unit
    return np.where(np.isfinite(measured), error, 1.0)


def order_agreement(measured: Vector, predicted: Vector) -> float:
    """Kendall's tau-b of the two orders; what was not measured (infinite) comes last.

    It is 1 where there is one alone, and 0 where nothing was measured.
    """
    if len(measured) < 2:
        return 1.0
    if not np.isfinite(measured).any():
        return 0.0
    return float(kendalltau(measured, predicted).statistic)


def activations(stages: Table, events: Table, predicted: Table, significant: float) -> Table:
    """When each coordinate joins whose product is then significant, by seed, scale and coordinate.

    `predicted` is the time of its stage, `measured` that in the flow, `finite` that by the
    finite-scale form, NaN at the scales that were not forecast. What joins with the other sign has
    not joined.
    """
    later = stages[stages["stage"] > 0]
    product = np.array([abs(p[i]) for p, i in zip(later["p"], later["coordinate"], strict=True)])
    first = later[product > significant].drop_duplicates(["seed", "coordinate"])
    key = [*CELL, "coordinate", "sign"]
    risen = (table[table["rises"].astype(bool)] for table in (events, predicted))
    measured, finite = (table.groupby(key)["time"].min().astype(float) for table in risen)
    scales = pd.DataFrame({"log10_init_scale": sorted(events["log10_init_scale"].unique())})
    rows = first[["seed", "coordinate", "sign", "stage", "time"]].rename(
        columns={"time": "predicted"}
    )
    rows = rows.merge(scales, how="cross").join(measured.rename("measured"), on=key)
    rows = rows.join(finite.rename("finite"), on=key)
    unit = -rows["log10_init_scale"] * LOG10
    forecast = rows["log10_init_scale"].isin(predicted["log10_init_scale"].unique())
    return rows.assign(
        measured=rows["measured"].fillna(math.inf) / unit,
        finite=np.where(forecast, rows["finite"].fillna(math.inf) / unit, math.nan),
    )


def time_errors(activated: Table) -> Table:
    """How far Algorithm 1 and its finite-scale form are from the flow, by seed and scale."""

    def errors(part: Table) -> list[float]:
        names = ("predicted", "measured", "finite")
        predicted, measured, finite = (part[name].to_numpy() for name in names)
        error = relative_errors(measured, predicted, predicted)
        seen = np.isfinite(measured) & (measured > 0)
        off = relative_errors(finite[seen], measured[seen], measured[seen])
        if not len(off) or np.isnan(finite).all():
            off = np.array([math.nan])
        return [
            -float(part["log10_init_scale"].iloc[0]) * LOG10,
            float(np.median(error)),
            float(error.max()),
            order_agreement(measured, predicted),
            float(np.median(off)),
            float(off.max()),
        ]

    return by_cell(activated, TIME_ERRORS, errors)


def rise_durations(events: Table, grown: Table, stages: Table) -> Table:
    """How long the first stage's coordinate takes from the threshold to where a rise is over.

    There is one row per seed and scale. `duration` is in the flow's own time, and `ratio` is that
    over the seed's duration at its smallest scale. Stages are as long from every scale; only the
    waits before them grow as log(1 / init_scale). `wait_ratio` is the time of the threshold over
    that at the smallest scale. Seeds in which the coordinate does not grow are left out.
    """
    first = stages.loc[stages["stage"] == 1, ["seed", "coordinate", "sign"]]
    key = [*CELL, "coordinate", "sign"]
    begin, end = (
        table[table["rises"].astype(bool)].groupby(key)["time"].min() for table in (events, grown)
    )
    times = pd.DataFrame({"duration": end - begin, "wait": begin}).reset_index()
    both = first.merge(times, on=key[:1] + key[2:])[[*CELL, "duration", "wait"]]
    both = both.dropna().sort_values(CELL, ignore_index=True)
    smallest = both.groupby("seed")[["duration", "wait"]].transform("first")
    over = both[["duration", "wait"]] / smallest
    both = both.assign(ratio=over["duration"], wait_ratio=over["wait"])
    return both.drop(columns="wait")


def constants(errors: Table, log10_init_scale: float) -> pd.Series:
    """The constant C of the median error, C / log(1 / init_scale), from this scale on, by seed."""
    tiny = errors[errors["log10_init_scale"] <= log10_init_scale]
    return (tiny["time_error_median"] * tiny["log_scale"]).groupby(tiny["seed"]).median()


def halvings(errors: Table, log10_init_scale: float) -> pd.Series:
    """The error at a scale squared over that at the scale, from this one on; medians over seeds."""
    medians = errors.groupby("log10_init_scale")["time_error_median"].median()
    scales = [s for s in medians.index if s <= log10_init_scale and 2 * s in medians.index]
    return pd.Series({f"1e{s:g}": medians[2 * s] / medians[s] for s in scales}, dtype=float)


def descent_errors(events: Table, ends: Table, flow: Table) -> Table:
    """How each descent ended, and its median time error, which is 1 where it never activates."""
    key = ["form", "share_of_limit", "seed"]
    scale = float(ends["log10_init_scale"].iloc[0])
    flow = flow[flow["rises"] & (flow["log10_init_scale"] == scale)]
    truth = flow.groupby(["seed", "coordinate"])["time"].min().rename("flow")
    times = events[events["rises"]].groupby([*key, "coordinate"])["time"].min()
    both = ends[key].merge(truth.reset_index(), on="seed").join(times, on=[*key, "coordinate"])
    measured, predicted = (both[name].to_numpy() for name in ("time", "flow"))
    both["error"] = relative_errors(measured, predicted, predicted)
    error = both.groupby(key)["error"].median().rename("time_error")
    return ends.merge(error.reset_index(), on=key, how="left")
