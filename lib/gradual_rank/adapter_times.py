"""What claims say of LoRA's start, from the table of what adapters learned when.

Cases are those of the table of adapters: `apart` and `close` are by their targets, `head` is a
head's, `plus` has other ratios of learning rates, `scaled` another scaling, and in `both` and
`output` B begins elsewhere than at zero.
"""

import numpy as np
import pandas as pd

from lib.gradual_rank.activation_times import order_agreement
from lib.gradual_rank.measures import CELL, Table, by_cell, by_scale
from lib.gradual_rank.scales import LOG10
from lib.pages.measures import Row, Values, rows_of, setup_rows

ADAPTER = [*CELL, "rank"]
ORDERS = ["order", "order_alone", "order_sigma"]
FORECASTS = {
    "time_error": "forecast",
    "time_error_alone": "alone",
    "time_error_equal": "equal",
    "time_error_shuffled": "shuffled",
}


def named(rows: Table) -> Table:
    """Rows named by their seed and direction, as `seed`."""
    names = [
        f"seed {a}, direction {b}" for a, b in zip(rows["seed"], rows["direction"], strict=True)
    ]
    return rows.assign(seed=names)


def error_measures(rows: Table) -> dict[str, Values]:
    """The largest error of a direction's time in each adapter, by each forecast."""
    found = {}
    for name, column in FORECASTS.items():
        error = (rows["measured"] / rows[column] - 1).abs()
        worst = rows.assign(error=error).groupby(CELL)["error"].max().reset_index()
        found[name] = by_scale(worst, "error")
    return found


def last_measures(rows: Table) -> dict[str, Values]:
    """When the direction that is learned last is, over the forecast of that direction.

    The forecast is with what the others leave of its start, and `alone`.
    """

    def ratios(part: Table) -> list[float]:
        [last] = part.nlargest(1, "measured").to_dict("records")
        return [last["measured"] / last["forecast"], last["measured"] / last["alone"]]

    names = ("last", "last_alone")
    table = by_cell(rows, names, ratios)
    return {name: by_scale(table, name) for name in names}


def slopes(rows: Table) -> pd.Series:
    r"""The delay of a direction from the largest scale to the smallest, over the log of their
    ratio, times κσ.

    There is a value for each seed and direction; 1 is the delay $\log(1 / \mathrm{scale}) /
    (\kappa \sigma)$.
    """
    own = named(rows)
    scales = own["log10_init_scale"]
    small, large = (own[scales == end].set_index("seed") for end in (scales.min(), scales.max()))
    later = small["measured"] - large["measured"]
    logs = (scales.max() - scales.min()) * LOG10
    return later * small["pace"] * small["sigma"] / logs


def plus_measures(rows: Table, base: Table) -> dict[str, Values]:
    """The share to which a ratio λ of learning rates cuts a time, over what the forecast says.

    `plus_root` is that share over 1 / √λ, which leaves out that the start counts for more.
    """
    key = [*CELL, "direction"]
    both = rows.merge(base[[*key, "measured", "forecast", "pace"]], on=key, suffixes=("", "_base"))
    share = both["measured"] / both["measured_base"]
    expected = both["forecast"] / both["forecast_base"]
    table = named(both).assign(plus=share / expected, plus_root=share * both["pace"])
    return {name: by_scale(table, name) for name in ("plus", "plus_root")}


def gaps(rows: Table, others: Table) -> dict[str, pd.Series]:
    """The largest share by which a time differs between two adapters of one pace, by seed."""
    key = [*CELL, "direction"]
    both = rows.merge(others[[*key, "measured"]], on=key, suffixes=("", "_other"))
    apart = (both["measured"] / both["measured_other"] - 1).abs()
    return {"pace_gap": apart.groupby(both["seed"]).max()}


def orders(rows: Table) -> Table:
    """Kendall's tau of measured times with the forecasts and with 1 / σ, by adapter."""
    found = []
    for cell, part in rows.groupby(ADAPTER):
        measured = part["measured"].to_numpy(float)
        said = (part["forecast"], part["alone"], -part["sigma"])
        tau = (order_agreement(measured, one.to_numpy(float)) for one in said)
        found.append(dict(zip([*ADAPTER, *ORDERS], [*cell, *tau], strict=True)))
    return pd.DataFrame(found, columns=[*ADAPTER, *ORDERS])


def start_changes(rows: Table) -> dict[str, pd.Series]:
    """How the scale of A moves the first direction's time, as a share, and how far the times are
    apart: the last over the first, at the largest scale. Both are by seed.
    """
    scales = rows["log10_init_scale"]
    small, large = (rows[scales == end] for end in (scales.min(), scales.max()))
    early, late = (part.groupby("seed")["measured"].min() for part in (large, small))
    return {
        "change": (late / early - 1).abs(),
        "spread": large.groupby("seed")["measured"].max() / early,
    }


def adapter_measures(learned: Table) -> list[Row]:
    """Every measure of the table."""
    apart, head, close, plus, scaled, both, output, adam = (
        learned[learned["case"] == case]
        for case in ("apart", "head", "close", "plus", "scaled", "both", "output", "adam")
    )
    found = setup_rows({"n_seeds": apart["seed"].nunique()} | in_order_of_sigma(close))
    for rank, own in apart.groupby("rank"):
        ratio = named(own).assign(ratio=own["measured"] / own["small"])
        measured = error_measures(own) | last_measures(own) | {"small": by_scale(ratio, "ratio")}
        found += rows_of(measured, f"rank {rank}")
    for rank, own in head.groupby("rank"):
        found += rows_of(error_measures(own) | last_measures(own), f"head rank {rank}")
    for rank, own in orders(close).groupby("rank"):
        by_seed = own.set_index("seed")
        found += rows_of({name: by_seed[name] for name in ORDERS}, f"rank {rank}")
    base = apart[apart["rank"].isin(plus["rank"].unique())]
    same = base[base["log10_init_scale"].isin(both["log10_init_scale"].unique())]
    for case, rows in {"zero": same, "both": both, "output": output}.items():
        found += rows_of({"slope": slopes(rows)}, case)
    for case, own in (("more", plus[plus["ratio"] > 1]), ("less", plus[plus["ratio"] < 1])):
        found += rows_of(plus_measures(own, base), case)
    found += rows_of(gaps(scaled, plus[plus["pace"].isin(scaled["pace"].unique())]))
    found += rows_of(start_changes(adam), "adam")
    found += rows_of(start_changes(same), "flow")
    return found


def in_order_of_sigma(rows: Table) -> dict[str, int]:
    """How many adapters there are, and how many learn strictly in the order of decreasing σ."""
    times = rows.sort_values("sigma", ascending=False).groupby(ADAPTER)["measured"]
    ordered = [bool((np.diff(own) > 0).all()) for _, own in times]
    return {"n_close": len(ordered), "n_decreasing": sum(ordered)}
