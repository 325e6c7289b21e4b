"""When gradient descent activates what the flow does, and when what had left returns."""

import math

import pandas as pd

Table = pd.DataFrame


def descent_errors(events: Table, ends: Table, flow: Table) -> Table:
    """Beside how each descent ended, its median time error against the flow; 1 where it never activates."""
    key = ["form", "share_of_limit", "seed"]
    scale = float(ends["log10_init_scale"].iloc[0])
    flow = flow[flow["rises"] & (flow["log10_init_scale"] == scale)]
    truth = flow.groupby(["seed", "coordinate"])["time"].min().rename("flow")
    times = events[events["rises"]].groupby([*key, "coordinate"])["time"].min()
    both = ends[key].merge(truth.reset_index(), on="seed").join(times, on=[*key, "coordinate"])
    both["error"] = ((both["time"] - both["flow"]).abs() / both["flow"]).where(both["time"].notna(), 1.0)
    error = both.groupby(key)["error"].median().rename("time_error")
    return ends.merge(error.reset_index(), on=key, how="left")


def return_errors(returns: Table, truth: str) -> pd.Series:
    """The relative error of the time at which something returned, by method, at its smallest scale."""
    first = returns.sort_values("log10_init_scale", kind="stable").groupby("method")["rescaled_time"].first()
    return (first / float(first[truth]) - 1).abs()


def descent_measures(descents: Table) -> dict[str, pd.Series]:
    """Gradient descent against the flow; of the plain form at its largest and smallest rate."""
    shares = descents.loc[descents["form"] == "plain", "share_of_limit"]
    return {
        "exponential_time_error": _by_seed(descents, "time_error", form="exponential"),
        "factors_drift": _by_seed(descents, "drift", form="factors"),
        "plain_time_error_large_rate": _by_seed(descents, "time_error", form="plain", share_of_limit=shares.max()),
        "plain_time_error_small_rate": _by_seed(descents, "time_error", form="plain", share_of_limit=shares.min()),
    }


def example_measures(drop: Table) -> dict[str, pd.Series]:
    """The example whose third coordinate comes back with the other sign, against Algorithm 1, by method."""
    errors = return_errors(drop[(drop["coordinate"] == 2) & (drop["sign"] < 0)], "Algorithm 1")
    plain = ["plain gradient descent, float64", "plain gradient descent, float32"]
    return {
        "drop_flow_time_error": errors.reindex(["flow in log coordinates"], fill_value=math.inf),
        "drop_finite_time_error": errors.reindex(["finite-scale Algorithm 1"], fill_value=math.inf),
        "drop_factors_time_error": errors.reindex(["factors gradient descent, float64"], fill_value=math.inf),
        "drop_reached_by_plain": errors.reindex(plain, fill_value=math.inf) < math.inf,
        "drop_loss_detected": drop.groupby("method")["lost"].any().reindex(plain, fill_value=False),
    }


def _by_seed(table: Table, column: str, **where: object) -> pd.Series:
    """A column of the rows whose other columns have these values, by seed."""
    for name, value in where.items():
        table = table[table[name] == value]
    return table.set_index("seed").sort_index()[column]
