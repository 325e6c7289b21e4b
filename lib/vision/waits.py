"""When keys turn and values rise in vision transformers whose attention starts small, and how long
they wait from one init scale to the next.

The case of a measure is the attention, with `permuted` behind it on such labels.
"""

import math
from collections.abc import Iterator

import numpy as np
import pandas as pd
from jaxtyping import Float

from lib.pages.measures import Row
from lib.vision.measures import Taken, plain_typed, rows_by_scale

RUN = ["attention", "labels", "steps", "init_scale", "seed"]
UNIFORM = "plain"  # the attention that is uniform while weights are small


def first_time(
    times: Float[np.ndarray, " state"], moved: Float[np.ndarray, " state"], level: float
) -> float:
    """The time at which a number first comes to a level, linear between two states.

    Infinite where it never comes there.
    """
    above = np.flatnonzero(moved >= level)
    if not len(above):
        return math.inf
    around = slice(max(above[0] - 1, 0), above[0] + 1)
    return float(np.interp(level, moved[around], times[around]))


def events(followed: pd.DataFrame, turned: float, risen: float) -> pd.DataFrame:
    """When each training's keys turned and values rose, and the drift of |W_K| and |W_Q| by then.

    The columns `turn` and `rise` are times, `drift` is that of the first state after the turn;
    it is NaN where keys never turn.
    """
    rows = []
    for place, own in plain_typed(followed).groupby(RUN):
        own = own.sort_values("step")
        turn = first_time(own["time"].to_numpy(), own["keys"].to_numpy(), turned)
        rise = first_time(own["time"].to_numpy(), own["values"].to_numpy(), risen)
        after = own.loc[own["keys"] >= turned, "drift"]
        drift = after.iloc[0] if len(after) else math.nan
        rows.append((*place, turn, rise, drift, own["drift"].iloc[-1]))
    return pd.DataFrame(rows, columns=[*RUN, "turn", "rise", "drift", "last_drift"])


def mean_rate(
    times: Float[np.ndarray, " state"],
    rates: Float[np.ndarray, " state"],
    begin: float,
    end: float,
) -> float:
    """The mean over time of a rate that is linear between states; NaN for an empty stretch."""
    if not begin < end < math.inf:
        return math.nan
    inside = (times > begin) & (times < end)
    at = np.concatenate([[begin], times[inside], [end]])
    return float(np.trapezoid(np.interp(at, times, rates), at) / (end - begin))


def waits(followed: pd.DataFrame, found: pd.DataFrame) -> pd.DataFrame:
    """How much later keys turn and values rise from the smallest init scale than from the next, in
    units of what theory says, log(ratio of scales) / σ.

    σ is the mean rate of the training from the smallest scale between both rises. `uniform` is that
    of values with the σ of plain attention, from the same seed and labels.
    """
    smallest, other = sorted(found["init_scale"].unique())[:2]
    log = math.log(other / smallest)
    keys = ["attention", "labels", "seed"]
    own = found[found["steps"] == "whole"].set_index(["init_scale", *keys])[["turn", "rise"]]
    late = own.loc[smallest]
    early = own.loc[other]
    runs = plain_typed(followed)
    runs = runs[(runs["init_scale"] == smallest) & (runs["steps"] == "whole")]
    rates = {}
    for place, states in runs.sort_values("step").groupby(keys):
        stretch = (early["rise"][place], late["rise"][place])
        rates[place] = mean_rate(
            states["time"].to_numpy(), states["rate"].to_numpy(), *map(float, stretch)
        )
    rate = pd.Series(rates).rename_axis(keys)
    uniform = {place: rates[UNIFORM, *place[1:]] for place in rates}
    later = late - early
    return pd.DataFrame(
        {
            "keys": later["turn"] * rate / log,
            "values": later["rise"] * rate / log,
            "uniform": later["rise"] * pd.Series(uniform).rename_axis(keys) / log,
            "rate": rate,
        }
    ).reset_index()


def named(attention: str, labels: str) -> str:
    """The case of an attention on labels: `qk_norm permuted`."""
    return attention if labels == "true" else f"{attention} {labels}"


def measured(followed: pd.DataFrame, turned: float, risen: float) -> list[Row]:
    """The rows of every measure; the smallest scale stands last."""
    found = events(followed, turned, risen)
    late = waits(followed, found)
    smallest = found["init_scale"].min()
    taken = [*_of_events(found), *_of_waits(late, smallest)]
    return rows_by_scale(taken, smallest)


def _of_events(found: pd.DataFrame) -> Iterator[Taken]:
    keys = ["init_scale", "seed"]
    for (attention, labels), both in found.groupby(["attention", "labels"]):
        case = named(str(attention), str(labels))
        by_steps = {kind: own.set_index(keys) for kind, own in both.groupby("steps")}
        own = by_steps["whole"]
        for name in ("turn", "rise", "drift", "last_drift"):
            yield Taken(name, case, own[name])
        yield Taken("turn_over_that_of_scale_before", case, _over_larger(own["turn"]))
        yield Taken("turn_over_rise", case, own["turn"] / own["rise"])
        if "halved" in by_steps:
            times = ["turn", "rise"]
            change = (by_steps["halved"][times] / own[times] - 1).abs().dropna()
            yield Taken("turn_change_by_steps", case, change["turn"])
            yield Taken("rise_change_by_steps", case, change["rise"])


def _over_larger(times: pd.Series) -> pd.Series:
    """The time from each init scale over that from the next larger one, by seed."""
    by_scale = times.unstack("init_scale").sort_index(axis="columns", ascending=False)
    ratios = (by_scale / by_scale.shift(axis="columns")).T.stack().dropna()
    assert isinstance(ratios, pd.Series)
    return ratios.rename_axis(["init_scale", "seed"])


def _of_waits(late: pd.DataFrame, smallest: float) -> Iterator[Taken]:
    for (attention, labels), own in late.groupby(["attention", "labels"]):
        by_seed = own.assign(init_scale=smallest).set_index(["init_scale", "seed"])
        case = named(str(attention), str(labels))
        yield Taken("wait_of_keys", case, by_seed["keys"])
        yield Taken("wait_of_values", case, by_seed["values"])
        yield Taken("wait_of_values_if_uniform", case, by_seed["uniform"])
        yield Taken("rate", case, by_seed["rate"])
